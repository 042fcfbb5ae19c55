"""What an engine is: purely token ids in, token ids and log-probs out.

An engine knows no text, no templates, no episodes and no sessions: it finds what it has
already computed of an episode by the longest prefix of ids.  All its methods are
coroutines of any event loop; cancelling one frees what it held.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from drv_env.errors import SettingError
from drv_env.settings import SEED, at_least, between, check_fields

Ids = Sequence[int] | NDArray[np.integer[Any]]
"""Token ids in a row."""

Spans = Sequence[tuple[int, int]]
"""``(start, stop)`` pairs of positions, stop exclusive."""

WeightSource = Mapping[str, Any] | str | Path | Any
"""A state dict, a torch module, or the path of a safetensors file or folder."""

Finish = Literal["stop", "length", "aborted"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one completion is sampled.

    Attributes:
        max_tokens: at most this many ids, the stop id included; at least 1.
        temperature: divides the logits; 0 takes the most likely id each time.
        top_p: keep the most likely ids whose probabilities sum to this; in (0, 1].
        top_k: keep this many most likely ids; 0 keeps all.
        presence_penalty: taken off the logit of every id that this completion has sampled
            already (not of the prompt's), before the temperature; in [-2, 2].
        stop_ids: sampling one of these ends the completion.
        stop: texts; the completion ends with the id that completes one of them.  That id
            and all before it are kept: a stop text never costs or adds an id.
        seed: None takes the engine's own randomness, numbered by request.  A number
            fixes this request's randomness whatever else the engine does.

    Raises:
        SettingError: when a value is out of range.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    presence_penalty: float = 0.0
    stop_ids: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()
    seed: int | None = None

    def __post_init__(self) -> None:
        check_fields(
            self,
            max_tokens=at_least(1),
            temperature=at_least(0),
            top_p=between(0, 1, least_open=True),
            top_k=at_least(0),
            presence_penalty=between(-2, 2),
            stop_ids=at_least(0),
            seed=SEED,
        )
        if "" in self.stop:
            raise SettingError(
                f"stop must be a tuple of texts that aren't empty: {self.stop!r}", setting="stop"
            )


@dataclass(frozen=True, slots=True)
class Completion:
    """What was sampled.

    Attributes:
        ids: int32 (length,), the stop id included where one was sampled.
        log_probs: float32 (length,), *raw*: of each id under the softmax of the unscaled
            logits, whatever temperature, top_p, top_k and penalty it was sampled with.  The
            same number :meth:`Engine.score` gives.
        finish: ``stop`` (a stop id or a stop text), ``length`` (max_tokens, or the engine's
            context is full) or ``aborted`` (the engine ended it early).
        weight_version: of the weights that sampled it, all of it.
    """

    ids: NDArray[np.int32]
    log_probs: NDArray[np.float32]
    finish: Finish
    weight_version: int


@runtime_checkable
class Engine(Protocol):
    """One model, many requests at once.

    Every method raises :class:`drv_env.errors.EngineError` when the engine is closed or
    lost, or refuses the request.
    """

    @property
    def weight_version(self) -> int:
        """0 at first; one more for each :meth:`update_weights`."""
        ...

    async def generate(self, ids: Ids, sampling: Sampling) -> Completion:
        """Sample what comes after ``ids`` (at least one)."""
        ...

    async def score(self, ids: Ids, spans: Spans) -> list[NDArray[np.float32]]:
        """Raw log-probs of ids given all ids before them.

        Args:
            ids: the whole sequence.
            spans: which ids; every ``start`` is at least 1, since the first id has
                nothing before it.

        Returns:
            float32 (stop - start,) for each span.
        """
        ...

    async def update_weights(self, source: WeightSource) -> int:
        """Take new weights and forget what was computed with the old ones.

        Requests submitted before it are finished first, with the old weights.

        Returns:
            the new weight version.
        """
        ...

    async def pause(self) -> None:
        """Begin no more requests; return when none is being worked on.

        Requests that come or wait meanwhile are kept until :meth:`resume`.
        """
        ...

    async def resume(self) -> None:
        """Undo :meth:`pause`."""
        ...

    async def close(self) -> None:
        """Refuse what is pending and free everything; may be called twice."""
        ...


@dataclass(frozen=True, slots=True)
class Reply:
    """A turn of a model that speaks text only.

    Attributes:
        text: what it wrote, whole; with the thought in ``<think>`` where the server sent
            it apart.
        finish: ``stop`` or ``length``.
        tokens: how many it sampled, as the server counts them; None where it doesn't say.
        prompt_tokens: of the conversation; likewise.
    """

    text: str
    finish: Finish
    tokens: int | None = None
    prompt_tokens: int | None = None


@runtime_checkable
class ChatEngine(Protocol):
    """A model behind a server that takes and gives text: messages in, a turn out.

    What it sampled is not known to the id, so transcripts of its episodes are encoded
    again from text and marked so; trainers refuse them.
    """

    async def reply(self, messages: Sequence[Mapping[str, str]], sampling: Sampling) -> Reply:
        """The next assistant turn.

        The caller's messages are sent as they are, except that in user messages after
        the first, tags and control tokens are made harmless.

        Raises:
            EngineError: when the server is lost, or refuses the request.
        """
        ...

    async def close(self) -> None:
        """Close the connections; may be called twice."""
        ...
