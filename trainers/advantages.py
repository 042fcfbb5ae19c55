"""From reward records to one advantage per turn.

The order of operations (DR-Venus, arXiv 2604.19859, and its release):

(a) format: a malformed turn's reward becomes −λ, before any statistics;
(b) credit: turns without a reward share the return of the next rewarded turn;
(c) normalisation within each group, gains and outcomes apart;
(d) the IG scale over the whole batch;
(e) discounted returns; every agent token of a turn gets the turn's return.

This module knows numbers and records only: no tokens, no tensors.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from drv_env.errors import SettingError
from drv_env.rewards.records import TurnReward

Normalisation = Literal["joint", "separate", "scaled_separate", "raw_ig"]

_VARIANCE_FLOOR = 1e-8
_EPSILON = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """How rewards become advantages.  IGPO and GRPO are two settings of this record.

    Attributes:
        information_gain: use the gains; False leaves the outcome alone (GRPO).
        normalisation: ``joint`` (one mean and deviation for gains and outcomes),
            ``separate``, ``scaled_separate`` (separate, then gains times the IG scale) or
            ``raw_ig`` (gains over their deviation, the rollout's outcome added to each, no
            discount).
        std_norm: divide by the deviation; False only centres (as Dr. GRPO does).
        gamma: discount per rewarded turn, in (0, 1]; 0.95 as published.
        ig_weight: multiplies normalised gains.
        adaptive_gamma_min_weight: w > 0 discounts an episode of n > 1 rewarded turns with
            w^(1/n) instead of gamma; 0 is off.
        format_penalty: λ ≥ 0, or None for no penalty; 1.0 as published.
        scale_floor: η of the IG scale; 0.3 as published.
        scale_max: its upper bound; 10 as published.

    Raises:
        SettingError: naming a value that can't work.
    """

    information_gain: bool = True
    normalisation: Normalisation = "scaled_separate"
    std_norm: bool = True
    gamma: float = 0.95
    ig_weight: float = 1.0
    adaptive_gamma_min_weight: float = 0.0
    format_penalty: float | None = 1.0
    scale_floor: float = 0.3
    scale_max: float = 10.0

    def __post_init__(self) -> None:
        if self.normalisation not in ("joint", "separate", "scaled_separate", "raw_ig"):
            raise SettingError(f"unknown normalisation {self.normalisation!r}")
        if not 0.0 < self.gamma <= 1.0:
            raise SettingError(f"gamma must be in (0, 1], got {self.gamma}")
        if not 0.0 <= self.adaptive_gamma_min_weight <= 1.0:
            raise SettingError(
                f"adaptive_gamma_min_weight must be in [0, 1], got {self.adaptive_gamma_min_weight}"
            )
        if self.format_penalty is not None and not self.format_penalty >= 0:
            raise SettingError(f"format_penalty must be at least 0, got {self.format_penalty}")


IGPO = Credit()
"""DR-Venus's setting: visit gains, scaled, with the format penalty."""
GRPO = Credit(information_gain=False, format_penalty=None)
"""The baseline: the group-normalised outcome on every turn."""


@dataclass(frozen=True, slots=True)
class Advantages:
    """What :func:`turn_advantages` gives.

    Attributes:
        per_turn: one float64 array a rollout, one value a turn.
        ig_scale: s of step (d); 1.0 where there is none.
        silent_groups: groups all of whose advantages are zero.
    """

    per_turn: list[np.ndarray]
    ig_scale: float
    silent_groups: tuple[Hashable, ...]


def turn_values(rewards: Sequence[TurnReward], credit: Credit) -> list[float | None]:
    """One number a turn, or None for a turn without a reward: step (a).

    Args:
        rewards: the records of one rollout that isn't broken, in order.
        credit: which rewards count.

    Raises:
        ValueError: when the rollout has no turns, or its last no outcome (it broke).
    """
    if not rewards or rewards[-1].outcome is None:
        raise ValueError("a rollout without an outcome has no advantages; leave broken ones out")
    values: list[float | None] = [
        reward.information_gain if credit.information_gain else None for reward in rewards
    ]
    values[-1] = rewards[-1].outcome
    if credit.format_penalty is not None:
        for index, reward in enumerate(rewards):
            if not reward.well_formed:
                values[index] = -credit.format_penalty
    return values


def turn_advantages(
    values: Sequence[Sequence[float | None]], groups: Sequence[Hashable], credit: Credit
) -> Advantages:
    """Advantages of all turns of a batch: steps (b) to (e).

    Args:
        values: one sequence a rollout, one entry a turn (:func:`turn_values`); the last
            entry is the outcome and always a number.
        groups: the group of each rollout; statistics are within a group.
        credit: the settings.

    Returns:
        See :class:`Advantages`.
    """
    gains = [[value for value in turns[:-1] if value is not None] for turns in values]
    outcomes = [_number(turns[-1]) for turns in values]
    normal_gains: list[np.ndarray] = [np.empty(0)] * len(values)
    normal_outcomes = np.zeros(len(values))
    for members in _members(groups).values():
        of_gains = np.array([gain for i in members for gain in gains[i]], dtype=np.float64)
        of_outcomes = np.array([outcomes[i] for i in members], dtype=np.float64)
        if credit.normalisation == "joint":
            of_gains = of_outcomes = np.concatenate([of_gains, of_outcomes])
        gain_mean, gain_deviation = _statistics(of_gains, credit.std_norm)
        mean, deviation = _statistics(of_outcomes, credit.std_norm)
        if credit.normalisation == "raw_ig":
            gain_mean = 0.0
        for i in members:
            normal_gains[i] = (np.array(gains[i], dtype=np.float64) - gain_mean) / gain_deviation
            normal_outcomes[i] = (outcomes[i] - mean) / deviation
    scale = 1.0
    if credit.normalisation == "scaled_separate":
        scale = ig_scale(np.concatenate([np.empty(0), *normal_gains]), normal_outcomes, credit)
    per_turn = [
        _returns(turns, normal * scale * credit.ig_weight, outcome, credit)
        for turns, normal, outcome in zip(values, normal_gains, normal_outcomes, strict=True)
    ]
    silent = tuple(
        group
        for group, members in _members(groups).items()
        if all(not np.any(np.abs(per_turn[i]) > 1e-12) for i in members)
    )
    return Advantages(per_turn, scale, silent)


def ig_scale(gains: np.ndarray, outcomes: np.ndarray, credit: Credit) -> float:
    """s = min(max(M_O, η) / (M_IG + δ), s_max) over the whole batch.

    M_O and M_IG are mean absolute normalised values; a mean over nothing is 1.  δ is 1e-6
    as in the release (the paper has 1e-8).
    """
    of_outcomes = float(np.mean(np.abs(outcomes))) if outcomes.size else 1.0
    of_gains = float(np.mean(np.abs(gains))) if gains.size else 1.0
    return min(max(of_outcomes, credit.scale_floor) / (of_gains + _EPSILON), credit.scale_max)


def _number(value: float | None) -> float:
    if value is None:
        raise ValueError("the last turn of a rollout must have a value: its outcome")
    return float(value)


def _members(groups: Sequence[Hashable]) -> dict[Hashable, list[int]]:
    members: dict[Hashable, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    return members


def _statistics(values: np.ndarray, std_norm: bool) -> tuple[float, float]:
    """Mean, and what to divide by: sqrt(population variance + 1e-8) + 1e-6."""
    if values.size == 0:
        return 0.0, 1.0
    mean = float(values.mean())
    if not std_norm:
        return mean, 1.0
    deviation = 1.0 if values.size == 1 else float(np.sqrt(values.var() + _VARIANCE_FLOOR))
    return mean, deviation + _EPSILON


def _returns(
    turns: Sequence[float | None], gains: np.ndarray, outcome: float, credit: Credit
) -> np.ndarray:
    """Discounted returns by segment: an unrewarded turn shares the next rewarded one's."""
    rewarded = [*gains.tolist(), outcome]
    if credit.normalisation == "raw_ig":
        returns = [*(gain + outcome for gain in gains.tolist()), outcome]
    else:
        gamma = credit.gamma
        if credit.adaptive_gamma_min_weight > 0 and len(rewarded) > 1:
            gamma = credit.adaptive_gamma_min_weight ** (1 / len(rewarded))
        returns = [0.0] * len(rewarded)
        following = 0.0
        for index in range(len(rewarded) - 1, -1, -1):
            following = rewarded[index] + gamma * following
            returns[index] = following
    found = np.empty(len(turns))
    position = 0
    for index, value in enumerate(turns):
        found[index] = returns[position]
        if value is not None:
            position += 1
    return found
