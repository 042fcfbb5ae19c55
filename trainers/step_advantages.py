"""The advantages of a step's rollouts: which of them count, and which are learnt from.

Both trainers, on one device and on OpenRLHF, go from trajectories to numbers through here.
Knows no tensors and no tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drv_env.errors import DrvError
from replay.trajectory import Trajectory
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
        metrics: ``silent_groups`` (share), ``dropped_rollouts``, and ``ig_scale`` where gains
            are used.
    """

    whole: list[int]
    learnt: list[int]
    per_turn: list[NDArray[np.float64]]
    metrics: dict[str, float]


def step_advantages(
    trajectories: Sequence[Trajectory],
    groups: Sequence[int],
    config: RLConfig,
    step: str = "a step",
) -> StepAdvantages:
    """Advantages of a step, broken episodes left out.

    Args:
        trajectories: with gains where the settings use them.
        groups: the group of each.
        config: names the way to advantages, and what is dropped.
        step: what it is called, for messages.

    Raises:
        DrvError: when every episode broke.
        SettingError: for an unknown way to advantages.
    """
    whole = [index for index, item in enumerate(trajectories) if not item.broken]
    if not whole:
        raise DrvError(
            f"all {len(trajectories)} episodes of {step} broke; the last: {trajectories[-1].error}"
        )
    own = [groups[index] for index in whole]
    found = ADVANTAGES[config.advantages]([trajectories[index] for index in whole], own, config)
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
    if config.credit.information_gain:
        metrics["ig_scale"] = found.ig_scale
    return StepAdvantages(
        whole,
        [whole[position] for position in kept],
        [found.per_turn[position] for position in kept],
        metrics,
    )
