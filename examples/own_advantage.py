"""An advantage of your own: the outcome less the median of its group, on every turn.

A mean is pulled up by one lucky rollout; a median is not.  A configuration names the module
under ``plugins`` and the function under ``rl.advantages``; it is found from the folder that
the command is run in:

    cd examples && drv train grpo --config configs/own_advantage.yaml
"""

from collections.abc import Sequence

import numpy as np

from replay.trajectory import Trajectory
from trainers.advantages import Advantages
from trainers.registry import ADVANTAGES
from trainers.rl_config import RLConfig


@ADVANTAGES.register("less_median")
def less_median(
    trajectories: Sequence[Trajectory], groups: Sequence[int], config: RLConfig
) -> Advantages:
    """One number a turn of each trajectory; ``groups`` has the group of each."""
    outcomes = np.array([item.outcome for item in trajectories], float)
    group = np.array(groups)
    medians = [np.median(outcomes[group == own]) for own in group]
    worth = outcomes - medians
    return Advantages.of(
        [np.full(len(item.turns), value) for item, value in zip(trajectories, worth, strict=True)],
        groups,
    )
