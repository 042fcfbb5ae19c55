"""The advantages of a step's rollouts: which of them count, and which are learnt from.

Both trainers, on one device and on OpenRLHF, go from trajectories to numbers through here.
Knows no tensors and no tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from drv_env.errors import DrvError, SettingError
from replay.trajectory import Trajectory
from trainers.advantages import Advantages
from trainers.registry import ADVANTAGES
from trainers.rl_config import RLConfig


@dataclass(frozen=True, slots=True)
class StepAdvantages:
    """What :func:`step_advantages` gives; rollouts are indices into its trajectories.

    Attributes:
        whole: those that did not break.
        learnt: of the whole ones those to learn from, less those without a signal as far as
            ``config.drop_silent`` drops them.
        per_turn: for each of ``learnt`` one float64 array, one value a turn.
        metrics: ``silent_groups`` (share), ``dropped_rollouts``, ``ig_scale`` where gains
            are used, and ``ig_weight``, ``outcome_weight`` where these move over the run.
    """

    whole: list[int]
    learnt: list[int]
    per_turn: list[NDArray[np.float64]]
    metrics: dict[str, float]


def step_advantages(
    trajectories: Sequence[Trajectory],
    groups: Sequence[int],
    config: RLConfig,
    step: int = 1,
) -> StepAdvantages:
    """Advantages of a step, broken episodes left out.

    Args:
        trajectories: with gains where the settings use them.
        groups: the group of each.
        config: names the way to advantages, and what is dropped.  The way to advantages gets
            it with the settings of this step (:meth:`trainers.credit.Credit.at`).
        step: its number from 1.

    Raises:
        DrvError: when every episode broke.
        SettingError: for an unknown way to advantages, or one that gives something else than
            a finite number for each turn.
    """
    whole = [index for index, item in enumerate(trajectories) if not item.broken]
    if not whole:
        raise DrvError(
            f"all {len(trajectories)} episodes of step {step} broke; the last: "
            f"{trajectories[-1].error}"
        )
    own = [groups[index] for index in whole]
    credit = config.credit.at(step, config.steps)
    played = [trajectories[index] for index in whole]
    found = ADVANTAGES[config.advantages](played, own, replace(config, credit=credit))
    _check(found, played, config.advantages)
    dropped = {
        "rollouts": found.silent.tolist(),
        "groups": [group in found.silent_groups for group in own],
        "none": [False] * len(own),
    }[config.drop_silent]
    kept = [position for position, drop in enumerate(dropped) if not drop]
    metrics = {
        "silent_groups": len(found.silent_groups) / len(set(groups)),
        "dropped_rollouts": float(sum(dropped)),
    }
    if credit.information_gain:
        metrics["ig_scale"] = found.ig_scale
    if config.credit.moves:
        metrics |= {"ig_weight": credit.ig_weight, "outcome_weight": credit.outcome_weight}
    return StepAdvantages(
        whole,
        [whole[position] for position in kept],
        [found.per_turn[position] for position in kept],
        metrics,
    )


def _check(found: object, played: Sequence[Trajectory], name: str) -> None:
    """Refuse what can't be the advantages of these rollouts: they may be a user's own."""
    if not isinstance(found, Advantages):
        raise SettingError(
            f"the advantages {name!r} must give trainers.advantages.Advantages, made by "
            f"Advantages.of(values, groups); they gave {type(found).__name__}"
        )
    per_turn = found.per_turn
    if len(per_turn) != len(played):
        raise SettingError(
            f"the advantages {name!r} gave arrays of {len(per_turn)} rollouts for {len(played)}"
        )
    for values, item in zip(per_turn, played, strict=True):
        if np.shape(values) != (len(item.turns),) or not np.isfinite(values).all():
            raise SettingError(
                f"the advantages {name!r} must give a finite number for each turn of a rollout; "
                f"for one of {len(item.turns)} turns they gave {np.asarray(values).tolist()}"
            )
