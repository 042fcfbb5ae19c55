"""How well an agent does on a set of tasks, from its trajectories."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from replay.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Figures over trajectories; broken ones are counted apart and in nothing else.

    Attributes:
        episodes: how many count.
        broken: how many broke.
        success: mean outcome in [0, 1].
        standard_error: of ``success``, from the sample's variance.
        well_formed: share of turns that are well formed.
        turns: mean turns an episode.
        visit_ratio: visits among tool calls; nan where no tool was called.
        endings: how often each ending came, broken ones included.
    """

    episodes: int
    broken: int
    success: float
    standard_error: float
    well_formed: float
    turns: float
    visit_ratio: float
    endings: dict[str, int]


def evaluate(trajectories: Sequence[Trajectory]) -> Evaluation:
    """Figures of these trajectories.

    Raises:
        ValueError: when every trajectory is broken, or there are none; or when one that
            is whole has no outcome, because nobody scored it.
    """
    whole = [trajectory for trajectory in trajectories if not trajectory.broken]
    if not whole:
        raise ValueError(f"none of {len(trajectories)} trajectories is whole: nothing to evaluate")
    outcomes = []
    for trajectory in whole:
        if trajectory.outcome is None:
            raise ValueError(f"nobody scored the answer to {trajectory.task.question!r:.80}")
        outcomes.append(trajectory.outcome)
    turns = [turn for trajectory in whole for turn in trajectory.turns]
    calls = [turn.tool for turn in turns if turn.tool is not None]
    count = len(whole)
    mean = sum(outcomes) / count
    variance = sum((outcome - mean) ** 2 for outcome in outcomes) / max(1, count - 1)
    return Evaluation(
        episodes=count,
        broken=len(trajectories) - count,
        success=mean,
        standard_error=math.sqrt(variance / count),
        well_formed=sum(turn.well_formed for turn in turns) / len(turns),
        turns=len(turns) / count,
        visit_ratio=calls.count("visit") / len(calls) if calls else math.nan,
        endings=dict(Counter(str(trajectory.ending) for trajectory in trajectories)),
    )
