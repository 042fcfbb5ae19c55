"""An engine without a model: a Python function says what comes next.

For tests and for experts that write training data.  It knows a chat template, so that
its policy may speak text; it learns nothing and remembers nothing but its calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.engines._stopping import count_to_stop
from agents.engines.base import Completion, Ids, Sampling, Spans, WeightSource
from agents.engines.checks import check_spans, checked_ids
from drv_env.errors import EngineError, boundary
from replay.template import ChatTemplate

Policy = Callable[[str], str | Ids]
"""From everything so far, as text, to the next assistant turn, as text or ids."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it came in."""

    ids: NDArray[np.int32]
    sampling: Sampling


class ScriptedEngine:
    """Plays a policy's turns.

    Args:
        policy: called with the decoded ids; what it raises reaches the caller as an
            :class:`EngineError`.
        template: encodes its turns, decodes what it sees.
        log_prob: that every id gets, sampled or scored.
        gate: where given, every request waits until it is set.

    Attributes:
        calls: all requests to generate, in order.
        fail_with: set to an exception to make every later request fail with it.
    """

    def __init__(
        self,
        policy: Policy,
        template: ChatTemplate,
        *,
        log_prob: float = -1.0,
        gate: asyncio.Event | None = None,
    ) -> None:
        self.calls: list[Call] = []
        self.fail_with: Exception | None = None
        self._policy = policy
        self._template = template
        self._log_prob = log_prob
        self._gate = gate
        self._version = 0
        self._closed = False
        self._running = asyncio.Event()
        self._running.set()

    @property
    def weight_version(self) -> int:
        """Number of weight updates so far."""
        return self._version

    async def generate(self, ids: Ids, sampling: Sampling) -> Completion:
        """The policy's next turn, cut at ``max_tokens`` and behind a stop text."""
        seen = checked_ids(ids, None).astype(np.int32)
        self.calls.append(Call(seen, sampling))
        await self._admitted()
        with boundary(EngineError, "scripted policy"):
            turn = self._policy(self._template.pieces.decode(seen))
        if isinstance(turn, str):
            turn = self._template.encode_turn(turn)
        written = checked_ids(turn, self._template.pieces.size).astype(np.int32)
        written = written[: count_to_stop(self._template.pieces, sampling.stop, written)]
        cut = written[: sampling.max_tokens]
        return Completion(
            ids=cut,
            log_probs=np.full(len(cut), self._log_prob, np.float32),
            finish="stop" if len(cut) == len(written) else "length",
            weight_version=self._version,
        )

    async def score(self, ids: Ids, spans: Spans) -> list[NDArray[np.float32]]:
        """The fixed log-prob for every id asked for."""
        check_spans(spans, len(checked_ids(ids, None)))
        await self._admitted()
        return [np.full(stop - start, self._log_prob, np.float32) for start, stop in spans]

    async def update_weights(self, source: WeightSource) -> int:
        """Count the update; there are no weights."""
        self._check_open()
        self._version += 1
        return self._version

    async def pause(self) -> None:
        """Hold every later request."""
        self._check_open()
        self._running.clear()

    async def resume(self) -> None:
        """Let held requests go on."""
        self._running.set()

    async def close(self) -> None:
        """Refuse every later request; those that wait are refused too."""
        self._closed = True
        self._running.set()
        if self._gate is not None:
            self._gate.set()

    async def _admitted(self) -> None:
        self._check_open()
        await self._running.wait()
        if self._gate is not None:
            await self._gate.wait()
        self._check_open()
        if self.fail_with is not None:
            raise EngineError(f"scripted failure: {self.fail_with}") from self.fail_with

    def _check_open(self) -> None:
        if self._closed:
            raise EngineError("the scripted engine is closed")
