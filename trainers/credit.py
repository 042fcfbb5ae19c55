"""How rewards become advantages: the settings, and the number that each turn is worth.

:class:`Credit` is the one record of settings; IGPO, GRPO and its variants are values of it.
:func:`turn_values` makes numbers of reward records before any statistics;
:mod:`trainers.advantages` goes on from there.  No tokens, no tensors.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from drv_env.errors import SettingError
from drv_env.rewards.records import TurnReward
from drv_env.settings import at_least, between, check_fields

Normalisation = Literal["joint", "separate", "scaled_separate", "raw_ig"]
Assignment = Literal["segment", "turn"]
Baseline = Literal["mean", "leave_one_out"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """How rewards become advantages.  IGPO and GRPO are two settings of this record.

    Attributes:
        information_gain: use the gains; False leaves the outcome alone (GRPO).
        assignment: who shares in a reward.  ``segment`` (the released behaviour): a turn
            without a reward shares the return of the next turn that has one, and gamma
            applies once per rewarded turn.  ``turn`` (the equations of DR-Venus, arXiv
            2604.19859): a visit's gain is copied to each search since the visit before,
            turns without a gain have 0, and gamma applies once per turn.
        search_tools: names of the tools whose turns share a later visit's gain under
            ``turn``.
        normalisation: ``joint`` (one mean and deviation for gains and outcomes),
            ``separate``, ``scaled_separate`` (separate, then gains times the IG scale) or
            ``raw_ig`` (gains over their deviation and not centred, the rollout's outcome added
            to each, no discount).
        baseline: what is subtracted: the group's ``mean`` (GRPO, arXiv 2402.03300), or the
            mean of the group's other rollouts, ``leave_one_out`` (RLOO, arXiv 2402.14740).
        std_norm: divide by the deviation; False only centres (Dr. GRPO, arXiv 2503.20783).
            The gains of ``raw_ig`` are divided all the same (released behaviour).
        gamma: discount, in (0, 1]; 0.95 as published.
        ig_weight: multiplies normalised gains, behind the IG scale.
        outcome_weight: multiplies normalised outcomes.
        ig_weight_final: where ``ig_weight`` moves to, in a straight line over the steps of the
            run (:meth:`at`); None is nowhere.
        outcome_weight_final: the same for ``outcome_weight``.
        adaptive_gamma_min_weight: w > 0 discounts an episode whose return is a sum of n
            rewards with w^(1/n) instead of gamma (released behaviour); 0 is off.
        format_penalty: λ ≥ 0, or None for no penalty; 1.0 as published.
        penalty_alone: where the penalty stands.  False, as published: it replaces the malformed
            turn's reward before normalisation, is a value among the gains, and earlier turns
            inherit it.  Where no gain stands beside it in the group all its values are −λ and
            normalise to nothing; under ``raw_ig`` they are divided by the deviation's floor,
            1e-4.  True: outside of all statistics.  Everything is computed as
            without a penalty, and λ is then taken from the malformed turn's own advantage.
        scale_floor: η of the IG scale; 0.3 as published.
        scale_max: its upper bound; 10 as published.

    Raises:
        SettingError: naming a value that can't work.
    """

    information_gain: bool = True
    assignment: Assignment = "segment"
    search_tools: tuple[str, ...] = ("search",)
    normalisation: Normalisation = "scaled_separate"
    baseline: Baseline = "mean"
    std_norm: bool = True
    gamma: float = 0.95
    ig_weight: float = 1.0
    outcome_weight: float = 1.0
    ig_weight_final: float | None = None
    outcome_weight_final: float | None = None
    adaptive_gamma_min_weight: float = 0.0
    format_penalty: float | None = 1.0
    penalty_alone: bool = False
    scale_floor: float = 0.3
    scale_max: float = 10.0

    def __post_init__(self) -> None:
        check_fields(
            self,
            gamma=between(0, 1, least_open=True),
            ig_weight=at_least(0),
            outcome_weight=at_least(0),
            ig_weight_final=at_least(0),
            outcome_weight_final=at_least(0),
            adaptive_gamma_min_weight=between(0, 1),
            format_penalty=at_least(0),
            scale_floor=at_least(0),
            scale_max=at_least(0),
        )
        if self.penalty_alone and self.format_penalty is None:
            raise SettingError("penalty_alone needs a format_penalty")

    @property
    def moves(self) -> bool:
        """Whether something changes over a run, and so depends on how long the run is."""
        return self.ig_weight_final is not None or self.outcome_weight_final is not None

    def at(self, step: int, steps: int) -> Credit:
        """The settings of one step of a run, in which nothing moves any more.

        Weights are first + (final − first) · step / steps: the first step is one part on the
        way, the last has the final weight (the release's curriculum).

        Args:
            step: its number from 1.
            steps: of the run.

        Example:
            >>> found = Credit(ig_weight=1.0, ig_weight_final=0.5).at(5, 10)
            >>> found.ig_weight, found.outcome_weight, found.moves
            (0.75, 1.0, False)
        """
        share = min(step / steps, 1.0)
        return replace(
            self,
            ig_weight=_between(self.ig_weight, self.ig_weight_final, share),
            outcome_weight=_between(self.outcome_weight, self.outcome_weight_final, share),
            ig_weight_final=None,
            outcome_weight_final=None,
        )


def _between(first: float, final: float | None, share: float) -> float:
    return first if final is None else first + (final - first) * share


IGPO = Credit()
"""DR-Venus's setting: visit gains, scaled, with the format penalty."""
GRPO = Credit(information_gain=False, format_penalty=None)
"""The baseline: the outcome over its group's mean and deviation, on every turn."""
DR_GRPO = Credit(information_gain=False, format_penalty=None, std_norm=False)
"""The outcome over its group's mean (arXiv 2503.20783); the loss's part of it is the setting
``aggregation="constant"``, see :class:`trainers.loss_settings.LossSettings`."""
RLOO = Credit(information_gain=False, format_penalty=None, std_norm=False, baseline="leave_one_out")
"""The outcome over the mean of the group's other outcomes (arXiv 2402.14740)."""


def turn_values(
    rewards: Sequence[TurnReward],
    credit: Credit,
    tools: Sequence[str | None] | None = None,
    visits: Collection[str] = ("visit",),
) -> list[float | None]:
    """One number a turn, or None for a turn without a reward.

    Where the gains are assigned by ``turn`` they are copied first
    (:func:`shared_gains`).  Then a malformed turn's reward becomes −λ, whatever it was: a
    gain, a copied one, none, or the outcome (DR-Venus, arXiv 2604.19859, the format
    penalty).  Both come before any statistics.  Under ``credit.penalty_alone`` the penalty is
    not among the values (:func:`penalised_turns` has it).

    Args:
        rewards: the records of one rollout that isn't broken, in order.
        credit: which rewards count.
        tools: the name of the tool that each turn called, or None; needed for gains
            assigned by ``turn``.
        visits: names of the tools that end what a gain is shared with: those scored.

    Raises:
        ValueError: when the rollout has no turns, or its last no outcome (it broke), or
            ``tools`` is missing.
    """
    if not rewards or rewards[-1].outcome is None:
        raise ValueError("a rollout without an outcome has no advantages; leave broken ones out")
    values: list[float | None] = [
        reward.information_gain if credit.information_gain else None for reward in rewards
    ]
    values[-1] = None  # the last turn never has a gain
    if credit.information_gain and credit.assignment == "turn":
        if tools is None:
            raise ValueError('gains assigned by "turn" need the tool that each turn called')
        values = shared_gains(values, tools, visits, credit.search_tools)
    values[-1] = rewards[-1].outcome
    if credit.format_penalty is not None and not credit.penalty_alone:
        for index, reward in enumerate(rewards):
            if not reward.well_formed:
                values[index] = -credit.format_penalty
    return values


def penalised_turns(rewards: Sequence[TurnReward], credit: Credit) -> list[bool]:
    """Whether a turn has the penalty, for each turn of a rollout."""
    return [credit.format_penalty is not None and not reward.well_formed for reward in rewards]


def shared_gains(
    gains: Sequence[float | None],
    tools: Sequence[str | None],
    visits: Collection[str],
    searches: Collection[str],
) -> list[float | None]:
    """Each visit's gain copied to the searches since the visit before it.

    DR-Venus (arXiv 2604.19859), the assignment of gains to browsing turns.  A visit without
    a gain ends the stretch too: what was searched for it belongs to it.

    Args:
        gains: one entry a turn, None where none was computed.
        tools: the tool that each turn called, or None.
        visits: names of the tools that are scored.
        searches: names of the tools that share.

    Example:
        >>> shared_gains(
        ...     [None, None, 2.0, None], ["search", None, "visit", "search"], ["visit"], ["search"]
        ... )
        [2.0, None, 2.0, None]
    """
    found: list[float | None] = []
    start = 0
    for turn, (gain, tool) in enumerate(zip(gains, tools, strict=True)):
        found.append(gain)
        if gain is not None:
            for before in range(start, turn):
                if tools[before] in searches:
                    found[before] = gain
        if gain is not None or tool in visits:
            start = turn + 1
    return found
