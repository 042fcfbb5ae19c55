"""From reward records to one advantage per turn, and from turns to tokens.

The order of operations (DR-Venus, arXiv 2604.19859, and its release):

(a) format: a malformed turn's reward becomes −λ, before any statistics;
(b) credit: which turns share in a reward (:class:`~trainers.credit.Credit`);
(c) normalisation within each group, gains and outcomes apart;
(d) the IG scale over the whole batch;
(e) discounted returns; every agent token of a turn gets the turn's return.

(a) and the copies of (b) are in :mod:`trainers.credit`, the rest is here, on flat arrays:
one float64 a turn of the whole batch.  Penalties count among the gains; under
``penalty_alone`` (a) is left out, and λ is taken from the malformed turns behind (e).  A turn
without a reward is in no statistic and adds nothing to a return.

A tie up to rounding is a tie: in (c) a value that differs from its baseline by rounding alone
(:func:`rounding`) gets exactly 0, so that no scale can make a signal of it.

This module knows numbers and records only: no tensors.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from drv_env.rewards.records import TurnReward
from trainers.credit import DR_GRPO, GRPO, IGPO, RLOO, Credit, penalised_turns, turn_values

__all__ = [
    "DR_GRPO",
    "GRPO",
    "IGPO",
    "RLOO",
    "Advantages",
    "Credit",
    "advantages_of",
    "ig_scale",
    "rounding",
    "token_advantages",
    "turn_advantages",
    "turn_values",
]

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Whole = NDArray[np.int64]

_VARIANCE_FLOOR = 1e-8
_EPSILON = 1e-6
_ROUNDING = 1e-12
"""Of the size of the numbers, and at least of 1; see :func:`rounding`."""


@dataclass(frozen=True, slots=True)
class Advantages:
    """What :func:`turn_advantages` gives.

    Attributes:
        per_turn: one float64 array a rollout, one value a turn.
        ig_scale: s of step (d); 1.0 where there is none.
        silent_groups: groups all of whose advantages are zero, as when all their rewards
            are equal.
        silent: bool, one a rollout: whether its own advantages are all zero.
    """

    per_turn: list[Floats]
    ig_scale: float
    silent_groups: tuple[Hashable, ...]
    silent: Flags

    @classmethod
    def of(
        cls,
        per_turn: Sequence[Floats],
        groups: Sequence[Hashable],
        ig_scale: float = 1.0,
        tie: float | None = None,
    ) -> Advantages:
        """From the numbers alone: which rollouts and groups have no signal is seen in them.

        Args:
            per_turn: one float64 array a rollout, one value a turn.
            groups: the group of each rollout.
            ig_scale: s of step (d), where there is one.
            tie: an advantage no larger than this is none.  None is the :func:`rounding` of the
                advantages themselves; where they are differences of larger numbers, give the
                rounding of those.

        Raises:
            ValueError: when there is not one group a rollout.
        """
        if tie is None:
            tie = max(map(rounding, per_turn), default=_ROUNDING)
        heard = [bool((np.abs(values) > tie).any()) for values in per_turn]
        loud = {name for name, own in zip(groups, heard, strict=True) if own}
        silent_groups = tuple(name for name in dict.fromkeys(groups) if name not in loud)
        return cls(list(per_turn), ig_scale, silent_groups, ~np.array(heard, bool))


def rounding(values: Floats) -> float:
    """How far apart numbers of this size may be and still be equal: 1e-12 of the largest, or of 1.

    Sums, means and differences of float64 numbers are wrong by some 1e-16 of the largest number
    that went into them, so that thousands of operations stay below.  The gain of a turn is a
    difference of mean log-probs, numbers of the size of 1 to 100, whose rounding remains where
    the gain itself is 0: hence at least 1e-12.  Differences of 1e-9 in log-probs are seen.

    Example:
        >>> abs(0.1 + 0.2 - 0.3) <= rounding(np.array([0.3])), rounding(np.array([-2e6, 1.0]))
        (True, 2e-06)
    """
    return _ROUNDING * float(np.max(np.abs(values), initial=1.0))


def advantages_of(
    rewards: Sequence[Sequence[TurnReward]],
    groups: Sequence[Hashable],
    credit: Credit,
    tools: Sequence[Sequence[str | None]] | None = None,
    visits: Collection[str] = ("visit",),
) -> Advantages:
    """Advantages of all turns of a batch, from the rollouts' records: steps (a) to (e).

    Args:
        rewards: the records of each rollout; none of them broken.
        groups: the group of each rollout; statistics are within a group.
        credit: the settings.
        tools: for each rollout the tool that each turn called, or None; see
            :func:`trainers.credit.turn_values`.
        visits: names of the tools that are scored.

    Raises:
        ValueError: as :func:`trainers.credit.turn_values`.
    """
    of_rollouts = [None] * len(rewards) if tools is None else tools
    values = [
        turn_values(records, credit, called, visits)
        for records, called in zip(rewards, of_rollouts, strict=True)
    ]
    penalised = [penalised_turns(records, credit) for records in rewards]
    return turn_advantages(values, groups, credit, penalised)


def turn_advantages(
    values: Sequence[Sequence[float | None]],
    groups: Sequence[Hashable],
    credit: Credit,
    penalised: Sequence[Sequence[bool]] | None = None,
) -> Advantages:
    """Advantages of all turns of a batch: steps (b) to (e).

    Args:
        values: one sequence a rollout, one entry a turn
            (:func:`trainers.credit.turn_values`); the last entry is the outcome and always
            a number.
        groups: the group of each rollout; statistics are within a group.
        credit: the settings, of one step (:meth:`trainers.credit.Credit.at`).
        penalised: the turns with a penalty (:func:`trainers.credit.penalised_turns`); needed
            for ``credit.penalty_alone``, whose penalties are not among the values.

    Returns:
        See :class:`Advantages`.

    Raises:
        ValueError: when a last value is None, a value is not finite, or lengths differ.
    """
    batch = _Batch.of(values, groups)
    normal_gains, outcomes = _normalised(batch, credit)
    scale = 1.0
    if credit.normalisation == "scaled_separate":
        scale = ig_scale(normal_gains, outcomes, credit)
    reward = np.zeros(len(batch.value))
    reward[batch.gain] = normal_gains * scale * credit.ig_weight
    reward[batch.last] = outcomes * credit.outcome_weight
    flat = _returns(batch, reward, credit)
    if credit.penalty_alone:
        flat = flat - (credit.format_penalty or 0.0) * _flags(penalised, batch)
    per_turn = np.split(flat, batch.last[:-1] + 1) if len(values) else []
    return Advantages.of(per_turn, groups, scale, tie=0.0)


def ig_scale(gains: Floats, outcomes: Floats, credit: Credit) -> float:
    """s = min(max(M_O, η) / (M_IG + δ), s_max) over the whole batch.

    DR-Venus (arXiv 2604.19859), IG-Scale: M_O and M_IG are mean absolute normalised values.
    A mean over nothing is 1, and δ is 1e-6, as in the release (the paper has 1e-8).
    """
    of_outcomes = float(np.mean(np.abs(outcomes))) if outcomes.size else 1.0
    of_gains = float(np.mean(np.abs(gains))) if gains.size else 1.0
    return min(max(of_outcomes, credit.scale_floor) / (of_gains + _EPSILON), credit.scale_max)


def token_advantages(
    per_turn: Floats, spans: Sequence[tuple[int, int]], length: int
) -> NDArray[np.float32]:
    """The turn's advantage on each of its tokens, 0 on all others: the end of step (e).

    Args:
        per_turn: one value a turn.
        spans: where each turn's sampled ids start and stop, in order and apart.
        length: ids of the rollout.

    Returns:
        float32 ``(length,)``.

    Raises:
        ValueError: when there is not one span a turn, or they overlap or run out of the ids.

    Example:
        >>> token_advantages(np.array([2.0, -1.0]), [(1, 3), (4, 5)], 6).tolist()
        [0.0, 2.0, 2.0, 0.0, -1.0, 0.0]
    """
    edges = np.fromiter(chain.from_iterable(spans), np.int64)
    counts = np.diff(edges, prepend=0, append=length)
    if len(edges) != 2 * len(per_turn) or (counts < 0).any():
        raise ValueError(
            f"{len(per_turn)} turns need as many spans, in order and within {length} ids, "
            f"got {len(spans)}"
        )
    alternating = np.zeros(len(counts), np.float32)
    alternating[1::2] = per_turn
    return np.repeat(alternating, counts)


# ---- the batch as flat arrays ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Batch:
    """All turns of all rollouts behind one another.

    Attributes:
        value: the turn's value, 0.0 where it has none.
        known: whether it has one.
        gain: known, and not the last of its rollout.
        rollout: the turn's rollout.
        turn: its number from 0.
        last: where each rollout's last turn is.
        group: each rollout's group, as a number.
    """

    value: Floats
    known: Flags
    gain: Flags
    rollout: Whole
    turn: Whole
    last: Whole
    group: Whole

    @classmethod
    def of(cls, values: Sequence[Sequence[float | None]], groups: Sequence[Hashable]) -> _Batch:
        if len(values) != len(groups):
            raise ValueError(f"{len(values)} rollouts but {len(groups)} groups")
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        flat = list(chain.from_iterable(values))
        known = np.fromiter((value is not None for value in flat), bool, len(flat))
        value = np.fromiter((0.0 if value is None else value for value in flat), float, len(flat))
        if not np.isfinite(value).all():
            raise ValueError("a value must be finite; a turn without a reward has None")
        stops = np.cumsum(lengths)
        if not (lengths > 0).all() or not known[stops - 1].all():
            raise ValueError("the last turn of a rollout must have a value: its outcome")
        numbers: dict[Hashable, int] = {}
        group = [numbers.setdefault(name, len(numbers)) for name in groups]
        gain = known.copy()
        gain[stops - 1] = False
        return cls(
            value,
            known,
            gain,
            rollout=np.repeat(np.arange(len(values)), lengths),
            turn=np.arange(len(flat)) - np.repeat(stops - lengths, lengths),
            last=stops - 1,
            group=np.array(group, np.int64),
        )


def _flags(penalised: Sequence[Sequence[bool]] | None, batch: _Batch) -> Flags:
    """The penalised turns, flat."""
    if penalised is None:
        raise ValueError("penalty_alone needs to know which turns have a penalty")
    lengths = np.bincount(batch.rollout, minlength=len(batch.last)).tolist()
    if [len(flags) for flags in penalised] != lengths:
        raise ValueError("penalties need one flag a turn")
    return np.fromiter(chain.from_iterable(penalised), bool, len(batch.value))


# ---- (c) normalisation -------------------------------------------------------------------------


def _normalised(batch: _Batch, credit: Credit) -> tuple[Floats, Floats]:
    """(r − baseline) / deviation of all gains, and of all outcomes, within their groups.

    Gains and outcomes are pools of their own, but for ``joint``.  A deviation is
    sqrt(population variance + 1e-8) + 1e-6, as released; without ``std_norm`` it is 1, but for
    the gains of ``raw_ig`` (released behaviour).
    """
    gains, outcomes = batch.value[batch.gain], batch.value[batch.last]
    values = np.concatenate([gains, outcomes])
    is_gain = np.arange(len(values)) < len(gains)
    rollout = np.concatenate([batch.rollout[batch.gain], np.arange(len(outcomes))])
    pool = batch.group[rollout]
    if credit.normalisation != "joint":
        pool = 2 * pool + is_gain
    mean, deviation, tie = (found[pool] for found in _statistics(values, pool))
    baseline = mean
    if credit.baseline == "leave_one_out":
        baseline = _leave_one_out(values, pool, rollout, mean)
    divided = np.full(len(values), credit.std_norm)
    if credit.normalisation == "raw_ig":
        baseline = np.where(is_gain, 0.0, baseline)
        divided |= is_gain
    difference = values - baseline
    difference[np.abs(difference) <= tie] = 0.0
    normal = difference / np.where(divided, deviation, 1.0)
    return normal[: len(gains)], normal[len(gains) :]


def _statistics(values: Floats, pool: Whole) -> tuple[Floats, Floats, Floats]:
    """Mean of each pool, its deviation, and its rounding; one value alone has a variance of 1."""
    pools = int(pool.max(initial=-1)) + 1
    mean, deviation, tie = np.zeros(pools), np.ones(pools), np.zeros(pools)
    order = np.argsort(pool, kind="stable")
    stops = np.cumsum(np.bincount(pool, minlength=pools))
    for index, members in enumerate(np.split(values[order], stops[:-1])):
        if members.size:
            mean[index] = members.mean()
            spread = 1.0 if members.size == 1 else np.sqrt(members.var() + _VARIANCE_FLOOR)
            deviation[index] = spread + _EPSILON
            tie[index] = rounding(members)
    return mean, deviation, tie


def _leave_one_out(values: Floats, pool: Whole, rollout: Whole, mean: Floats) -> Floats:
    """The mean over the pool's values of all other rollouts, for each value.

    RLOO (arXiv 2402.14740): b_i = Σ_{j≠i} r_j / (n − 1), which does not depend on what
    rollout i did.  A rollout's gains depend on each other, so the whole rollout is left
    out.  Where no other rollout has a value it is the pool's mean.
    """
    _, own = np.unique(np.stack([pool, rollout]), axis=1, return_inverse=True)
    own = own.reshape(-1)
    sums = np.bincount(pool, values)[pool] - np.bincount(own, values)[own]
    counts = np.bincount(pool)[pool] - np.bincount(own)[own]
    return np.where(counts > 0, sums / np.maximum(counts, 1), mean)


# ---- (e) returns -------------------------------------------------------------------------------


def _returns(batch: _Batch, reward: Floats, credit: Credit) -> Floats:
    """Discounted returns of all turns.

    Under ``turn`` R_t = Σ_{k≥t} γ^(k−t) r_k (DR-Venus, arXiv 2604.19859, the discounted
    return).  Under ``segment`` the same over rewarded turns only, and an unrewarded turn has
    the return of the next rewarded one (released behaviour).  Both are one recursion,
    R_t = r_t + d_t R_{t+1}, with d_t = 1 where t is no step of the sum.  ``raw_ig`` has
    d_t = 0, and the outcome in every r_t.
    """
    shape = (int(batch.turn.max(initial=-1)) + 1, len(batch.last))
    place = (batch.turn, batch.rollout)
    step = np.ones(len(reward), bool) if credit.assignment == "turn" else batch.known
    if credit.normalisation == "raw_ig":
        discount = np.zeros(shape[1])
        outcome = reward[batch.last][batch.rollout]
        outcome[batch.last] = 0.0
        reward = np.where(step, reward + outcome, 0.0)
    else:
        discount = _discounts(batch, step, credit)
    rewards = np.zeros(shape)
    rewards[place] = reward
    onward = np.ones(shape)  # d_t
    onward[place] = np.where(step, discount[batch.rollout], 1.0)

    found = np.empty(shape)
    following = np.zeros(shape[1])
    for turn in range(shape[0] - 1, -1, -1):
        following = found[turn] = rewards[turn] + onward[turn] * following
    returns: Floats = found[place]
    return returns


def _discounts(batch: _Batch, step: Flags, credit: Credit) -> Floats:
    """γ of each rollout; adaptive, w^(1/n) with n steps of its sum (released behaviour)."""
    if not credit.adaptive_gamma_min_weight:
        return np.full(len(batch.last), credit.gamma)
    steps = np.bincount(batch.rollout[step], minlength=len(batch.last))
    adaptive: Floats = credit.adaptive_gamma_min_weight ** (1 / steps)
    return adaptive  # of one step too, where nothing is discounted
