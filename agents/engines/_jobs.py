"""What callers hand to an engine's worker thread."""

from __future__ import annotations

from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.engines._stopping import StopTexts
from agents.engines.base import Finish, Sampling, WeightSource


@dataclass(eq=False)
class Generate:
    """A request for a completion, and how far it is.

    Attributes:
        limit: ids to sample at most.
        number: of the request, in order of submission.
        stop_texts: watches for texts that end it; None where there are none.
        slot: of the cache; -1 until it has one.
        randoms: one uniform number per id to sample.
    """

    ids: NDArray[np.int32]
    sampling: Sampling
    limit: int
    number: int
    stop_texts: StopTexts | None = None
    future: Future[Any] = field(default_factory=Future)
    slot: int = -1
    randoms: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    sampled: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop_ids = frozenset(self.sampling.stop_ids)

    def take(self, id_: int, log_prob: float) -> Finish | None:
        """Append what was sampled; say how the completion ends with it, if it does."""
        self.sampled.append(id_)
        self.log_probs.append(log_prob)
        spelt = self.stop_texts is not None and self.stop_texts.ends_with(id_)
        if spelt or id_ in self._stop_ids:
            return "stop"
        return "length" if len(self.sampled) == self.limit else None


@dataclass(eq=False)
class Score:
    """A request for log-probs of spans."""

    ids: NDArray[np.int32]
    spans: list[tuple[int, int]]
    future: Future[Any] = field(default_factory=Future)


@dataclass(eq=False)
class Update:
    """New weights."""

    source: WeightSource
    future: Future[Any] = field(default_factory=Future)


@dataclass(eq=False)
class Pause:
    """Pause (``on``) or resume."""

    on: bool
    future: Future[Any] = field(default_factory=Future)


Job = Generate | Score | Update | Pause


def settle(job: Job, outcome: Any) -> None:
    """Give a job its result or error, unless its caller is gone or has one already."""
    try:
        if isinstance(outcome, BaseException):
            job.future.set_exception(outcome)
        else:
            job.future.set_result(outcome)
    except InvalidStateError:
        return
