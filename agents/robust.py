"""Robust sampling: which turns are sampled again.

Sampling again changes what the agent's behaviour is: the kept turn is not a draw from the
policy alone.  It suits making data and answering questions; a trainer's log-prob ratios are
those of the kept turn's tokens, whatever was thrown away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from drv_env.episode import Episode
from drv_env.errors import SettingError
from drv_env.protocol import read_turn
from drv_env.settings import at_least, check_fields

Fault = Literal["repetition", "unreadable", "duplicate"]

_FAULTS: tuple[Fault, ...] = get_args(Fault)
_LONGEST_PERIOD = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class RobustSampling:
    """When a turn is sampled again.

    Attributes:
        attempts: completions of one turn at most, at least 1; the last is kept as it is.
        faults: what is sampled again: ``repetition`` (the completion's end says one thing
            over and over), ``unreadable`` (no call and no answer can be read), ``duplicate``
            (a call that this episode has made before).
        repeats: how often something must stand at the end to count as repetition, at least 3.
        repeated: ids (characters, for servers that speak text) that the repetition must
            fill in all, so that a short ``......`` is none.

    Raises:
        SettingError: naming a value that can't work.
    """

    attempts: int = 3
    faults: tuple[Fault, ...] = _FAULTS
    repeats: int = 4
    repeated: int = 96

    def __post_init__(self) -> None:
        check_fields(self, attempts=at_least(1), repeats=at_least(3))
        if self.repeated < self.repeats:
            raise SettingError(f"repeated must be at least {self.repeats}, got {self.repeated}")

    def again(self, attempts: int, episode: Episode, text: str, units: NDArray[np.int32]) -> bool:
        """Whether to throw this turn away and sample another.

        Args:
            attempts: completions of this turn so far, this one included.
            episode: as it stands before the turn.
            text: the turn.
            units: its ids, or its characters.
        """
        return attempts < self.attempts and self.fault(episode, text, units) is not None

    def fault(self, episode: Episode, text: str, units: NDArray[np.int32]) -> Fault | None:
        """The first of :attr:`faults` that the turn has."""
        if "repetition" in self.faults and repeats_at_end(units, self.repeats, self.repeated):
            return "repetition"
        if "unreadable" not in self.faults and "duplicate" not in self.faults:
            return None
        action = read_turn(text, episode.rules.reading).action
        if action is None:
            return "unreadable" if "unreadable" in self.faults else None
        if "duplicate" in self.faults and episode.has_called(action):
            return "duplicate"
        return None


def repeats_at_end(units: Sequence[int] | NDArray[Any], repeats: int, length: int) -> bool:
    """Whether a sequence ends in a block that stands there ``repeats`` times or more.

    Args:
        units: the sequence.
        repeats: times at least.
        length: of the whole repetition, at least; blocks of up to 256 units are found.
    """
    tail = np.asarray(units)
    for period in range(1, min(_LONGEST_PERIOD, len(tail) // repeats) + 1):
        window = max(repeats * period, length)
        if window > len(tail):
            continue
        end = tail[-window:]
        if np.array_equal(end[period:], end[:-period]):
            return True
    return False
