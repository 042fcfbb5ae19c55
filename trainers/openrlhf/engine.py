"""OpenRLHF's engine as one of ours: ids in, ids and raw log-probs out.

OpenRLHF gives the executor its Ray actor around vLLM, whose ``generate`` takes ids and vLLM's
sampling parameters.  What the words mean stands in :mod:`agents.engines._vllm_requests`, as
for our own vLLM engine.  Weights are OpenRLHF's business: their version is only read.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.engines import _vllm_requests as requests
from agents.engines._stopping import watch
from agents.engines.base import Completion, Ids, Sampling, Spans, WeightSource
from agents.engines.checks import check_spans, checked_ids, room_after
from drv_env.errors import EngineError, boundary
from replay.pieces import Pieces


class RayEngine:
    """See the module; methods are :class:`agents.engines.base.Engine`'s.

    Args:
        actor: OpenRLHF's actor around vLLM (``llm_engine`` of an executor).
        pieces: the model's tokenizer, for stop texts.
        max_context: ids of prompt and completion.
    """

    def __init__(self, actor: Any, pieces: Pieces, max_context: int) -> None:
        self.max_context = max_context
        self._actor = actor
        self._pieces = pieces
        self._numbers = itertools.count(1)

    @property
    def weight_version(self) -> int:
        """Weight transfers that the engine has had."""
        return int(getattr(self._actor, "weight_version", 0))

    async def generate(self, ids: Ids, sampling: Sampling) -> Completion:
        """Sample what comes after ``ids``.

        ``weight_version`` is that of the first id: with partial rollouts later ones may be of
        newer weights.
        """
        given = _plain(ids)
        limit = min(sampling.max_tokens, room_after(given, self.max_context))
        requests.check_sampling(sampling)
        watch(self._pieces, sampling.stop)  # refuses texts that can't be found
        params = requests.sampling_params(sampling, limit, 0, next(self._numbers))
        if sampling.seed is None:
            params.seed = None  # vLLM's own: a seed for each request is slower
        version = self.weight_version
        output = await self._ask(given, params)
        return requests.completion(output, sampling, self._pieces, version)

    async def score(self, ids: Ids, spans: Spans) -> list[NDArray[np.float32]]:
        """Raw log-probs of spans of ``ids``, what the prefix cache has not computed again."""
        given = _plain(ids)
        if len(given) > self.max_context:
            raise EngineError(f"{len(given)} ids are more than a context of {self.max_context}")
        check_spans(spans, len(given))
        wanted = [span for span in spans if span[1] > span[0]]
        if not wanted:
            return [np.zeros(0, np.float32) for _ in spans]
        given = given[: max(stop for _, stop in wanted)]
        more = min(start for start, _ in wanted) < len(given) - 1
        for fresh in (False, True):
            params = requests.scoring_params(given[-1], more, fresh)
            output = await self._ask(given[:-1], params)
            found = requests.scores(output, given, spans)
            if found is not None:
                return found
        raise EngineError("vLLM read its prefix cache where it was told not to")

    async def update_weights(self, source: WeightSource) -> int:
        """Refused: OpenRLHF moves the weights."""
        raise EngineError("OpenRLHF moves the weights of its engines itself")

    async def pause(self) -> None:
        """Refused, as :meth:`update_weights`."""
        raise EngineError("OpenRLHF pauses its engines itself")

    async def resume(self) -> None:
        """Refused, as :meth:`update_weights`."""
        raise EngineError("OpenRLHF resumes its engines itself")

    async def close(self) -> None:
        """Nothing: the actor is Ray's."""

    async def _ask(self, ids: list[int], params: Any) -> Any:
        with boundary(EngineError, "vLLM"):
            output = await self._actor.generate(ids, params)
        if output is None:
            raise EngineError("vLLM gave nothing")
        return output


def _plain(ids: Ids) -> list[int]:
    found: list[int] = checked_ids(ids, None).tolist()
    return found
