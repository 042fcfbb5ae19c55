"""From reward records to one advantage per turn, and from turns to tokens.

The order of operations (DR-Venus, arXiv 2604.19859, and its release):

(a) format: a malformed turn's reward becomes −λ, before any statistics;
(b) credit: which turns share in a reward (:class:`~trainers.credit.Credit`);
(c) normalisation within each group, gains and outcomes apart;
(d) the IG scale over the whole batch;
(e) discounted returns; every agent token of a turn gets the turn's return.

(a) and the copies of (b) are in :mod:`trainers.credit`, the rest is here, on flat arrays:
one float64 a turn of the whole batch.  Penalties count among the gains.  A turn without a
reward is in no statistic and adds nothing to a return.

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
    "token_advantages",
    "turn_advantages",
    "turn_values",
]

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Whole = NDArray[np.int64]

_VARIANCE_FLOOR = 1e-8
_EPSILON = 1e-6
_NOTHING = 1e-12
"""An advantage no larger than this is none."""


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
        cls, per_turn: Sequence[Floats], groups: Sequence[Hashable], ig_scale: float = 1.0
    ) -> Advantages:
        """From the numbers alone: which rollouts and groups have no signal is seen in them.

        Args:
            per_turn: one float64 array a rollout, one value a turn.
            groups: the group of each rollout.
            ig_scale: s of step (d), where there is one.

        Raises:
            ValueError: when there is not one group a rollout.
        """
        heard = [bool((np.abs(values) > _NOTHING).any()) for values in per_turn]
        loud = {name for name, own in zip(groups, heard, strict=True) if own}
        silent_groups = tuple(name for name in dict.fromkeys(groups) if name not in loud)
        return cls(list(per_turn), ig_scale, silent_groups, ~np.array(heard, bool))


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
        credit: the settings.
        penalised: which values are penalties; needed for ``credit.penalty_alone``.

    Returns:
        See :class:`Advantages`.

    Raises:
        ValueError: when a last value is None, a value is not finite, or lengths differ.
    """
    batch = _Batch.of(values, groups)
    apart = np.zeros(len(batch.value), bool)
    if credit.penalty_alone:
        if penalised is None:
            raise ValueError("penalty_alone needs to know which values are penalties")
        apart[:] = np.fromiter(chain.from_iterable(penalised), bool)
    normal_gains, outcomes = _normalised(batch, credit)
    scale = 1.0
    if credit.normalisation == "scaled_separate":
        scale = ig_scale(normal_gains, outcomes, credit)
    reward = np.zeros(len(batch.value))
    reward[batch.gain] = normal_gains * scale * credit.ig_weight
    reward[batch.last] = outcomes
    flat = _returns(batch, reward, apart, credit)
    per_turn = np.split(flat, batch.last[:-1] + 1) if len(values) else []
    return Advantages.of(per_turn, groups, scale)


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


# ---- (c) normalisation -------------------------------------------------------------------------


def _normalised(batch: _Batch, credit: Credit) -> tuple[Floats, Floats]:
    """(r − baseline) / deviation of all gains, and of all outcomes, within their groups.

    Gains and outcomes are pools of their own, but for ``joint``.  A deviation is
    sqrt(population variance + 1e-8) + 1e-6, as released; without ``std_norm`` it is 1.
    """
    gains, outcomes = batch.value[batch.gain], batch.value[batch.last]
    values = np.concatenate([gains, outcomes])
    is_gain = np.arange(len(values)) < len(gains)
    rollout = np.concatenate([batch.rollout[batch.gain], np.arange(len(outcomes))])
    pool = batch.group[rollout] if len(values) else np.zeros(0, np.int64)
    if credit.normalisation != "joint":
        pool = 2 * pool + is_gain
    mean, deviation = _statistics(values, pool, credit.std_norm)
    baseline = mean[pool]
    if credit.baseline == "leave_one_out":
        baseline = _leave_one_out(values, pool, rollout, baseline)
    if credit.normalisation == "raw_ig":
        baseline = np.where(is_gain, 0.0, baseline)
    normal = (values - baseline) / deviation[pool]
    return normal[: len(gains)], normal[len(gains) :]


def _statistics(values: Floats, pool: Whole, std_norm: bool) -> tuple[Floats, Floats]:
    """Mean of each pool, and what to divide by; a pool of one value has a variance of 1."""
    pools = int(pool.max(initial=-1)) + 1
    mean, deviation = np.zeros(pools), np.ones(pools)
    order = np.argsort(pool, kind="stable")
    stops = np.cumsum(np.bincount(pool, minlength=pools))
    for index, members in enumerate(np.split(values[order], stops[:-1])):
        if members.size:
            mean[index] = members.mean()
        if members.size and std_norm:
            spread = 1.0 if members.size == 1 else np.sqrt(members.var() + _VARIANCE_FLOOR)
            deviation[index] = spread + _EPSILON
    return mean, deviation


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


def _returns(batch: _Batch, reward: Floats, apart: Flags, credit: Credit) -> Floats:
    """Discounted returns of all turns.

    Under ``turn`` R_t = Σ_{k≥t} γ^(k−t) r_k (DR-Venus, arXiv 2604.19859, the discounted
    return).  Under ``segment`` the same over rewarded turns only, and an unrewarded turn has
    the return of the next rewarded one (released behaviour).  Both are one recursion,
    R_t = r_t + d_t R_{t+1}, with d_t = 1 where t is no step of the sum.  ``raw_ig`` has
    d_t = 0, and the outcome in every r_t.

    A reward set apart is its own turn's alone: R_t = r_t + γ R_{t+1} there, and the turns
    before go on from R_{t+1} as if it were not.
    """
    shape = (int(batch.turn.max(initial=-1)) + 1, len(batch.last))
    place = (batch.turn, batch.rollout)
    step = np.ones(len(reward), bool) if credit.assignment == "turn" else batch.known
    if credit.normalisation == "raw_ig":
        discount = np.zeros(shape[1])
        outcome = np.where(apart[batch.last], 0.0, reward[batch.last])[batch.rollout]
        outcome[batch.last] = 0.0
        reward = np.where(step, reward + outcome, 0.0)
    else:
        discount = _discounts(batch, step & ~apart, credit)
    rewards = np.zeros(shape)
    rewards[place] = reward
    onward = np.ones(shape)  # d_t, and how much of R_{t+1} passes a reward that is set apart
    onward[place] = np.where(step, discount[batch.rollout], 1.0)
    passing = onward.copy()
    if credit.assignment == "segment":
        passing[place] = np.where(apart, 1.0, passing[place])
    alone = np.zeros(shape, bool)
    alone[place] = apart

    found = np.empty(shape)
    following = np.zeros(shape[1])
    for turn in range(shape[0] - 1, -1, -1):
        found[turn] = rewards[turn] + onward[turn] * following
        following = np.where(alone[turn], passing[turn] * following, found[turn])
    returns: Floats = found[place]
    return returns


def _discounts(batch: _Batch, step: Flags, credit: Credit) -> Floats:
    """γ of each rollout; adaptive, w^(1/n) with n steps of its sum (released behaviour)."""
    discount = np.full(len(batch.last), credit.gamma)
    if credit.adaptive_gamma_min_weight > 0:
        steps = np.bincount(batch.rollout[step], minlength=len(discount))
        adaptive = credit.adaptive_gamma_min_weight ** (1 / np.maximum(steps, 1))
        discount = np.where(steps > 1, adaptive, discount)
    return discount
