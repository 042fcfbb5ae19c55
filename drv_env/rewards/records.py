"""The reward record of one turn."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TurnReward:
    """What one turn earned, as facts; only advantages turn them into numbers per token.

    Attributes:
        information_gain: change of the gold answer's mean log-prob (or probability)
            that the turn's observation brought; None where it was not computed.  0.0 is
            a value.
        well_formed: the strict format verdict of the turn.
        outcome: score of the final answer in [0, 1], on the last turn only; None on
            other turns, and where the episode broke.
    """

    information_gain: float | None
    well_formed: bool
    outcome: float | None
