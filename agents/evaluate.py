"""How well an agent does on a set of tasks, from its trajectories."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from drv_env.errors import SettingError
from drv_env.rewards.calibration import wilson_interval
from replay.trajectory import Trajectory

_Question = tuple[str, str | None, str]

CORRECT = 0.5
"""An outcome from which an answer counts as correct, for pass@k and the visit ratios."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Figures over trajectories; broken ones are counted apart and in nothing else.

    Attributes:
        episodes: how many count.
        broken: how many broke.
        tasks: of the episodes that count.
        success: mean outcome in [0, 1]; with outcomes of 0 and 1 the accuracy.
        standard_error: of ``success``, samples of one task taken together.
        interval: 95%, of ``success``: Wilson's at the number of independent samples that
            ``standard_error`` amounts to; at the number of tasks where all outcomes agree.
        pass_at: pass@k by k, for every power of two up to the samples a task has: the
            unbiased estimator, mean over the tasks with at least k whole samples.
        well_formed: share of turns that are well formed.
        turns: mean turns an episode.
        turn_tokens: mean tokens an episode's turns have; nan where nobody counted.
        context_tokens: mean length of a transcript; nan where there is none.
        calls: mean calls an episode, by tool.
        failed_calls: share of calls that failed; nan where no tool was called.
        visit_ratio: visits among calls; nan where no tool was called.
        visit_ratio_correct: the same of the correct episodes.
        visit_ratio_wrong: the same of the wrong ones.
        cost: of all calls, in US dollars.
        endings: how often each ending came, broken ones included.
    """

    episodes: int
    broken: int
    tasks: int
    success: float
    standard_error: float
    interval: tuple[float, float]
    pass_at: dict[int, float]
    well_formed: float
    turns: float
    turn_tokens: float
    context_tokens: float
    calls: dict[str, float]
    failed_calls: float
    visit_ratio: float
    visit_ratio_correct: float
    visit_ratio_wrong: float
    cost: float
    endings: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """Plain values; what there is none of (nan) is None."""
        found = asdict(self)
        found["pass_at"] = {str(k): value for k, value in self.pass_at.items()}
        return {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in found.items()
        }

    def rows(self) -> list[tuple[str, str]]:
        """Name and value of each figure, for a table; what there is none of is left out."""
        low, high = self.interval
        found = [
            ("accuracy", f"{self.success:.1%} (95% interval {low:.1%} to {high:.1%})"),
            ("questions, episodes", f"{self.tasks:,}, {self.episodes:,}"),
            ("broken, not counted", f"{self.broken:,}"),
        ]
        found += [(f"pass@{k}", f"{value:.1%}") for k, value in self.pass_at.items()]
        for ending, count in sorted(self.endings.items(), key=lambda item: -item[1]):
            found.append((f"ending {ending}", f"{count:,}"))
        found.append(("turns an episode", f"{self.turns:.1f}"))
        found.append(("well-formed turns", f"{self.well_formed:.1%}"))
        for name, value in (
            ("sampled tokens an episode", self.turn_tokens),
            ("context tokens an episode", self.context_tokens),
        ):
            if not math.isnan(value):
                found.append((name, f"{value:,.0f}"))
        for tool, mean in self.calls.items():
            found.append((f"calls of {tool} an episode", f"{mean:.1f}"))
        for name, value in (
            ("failed calls", self.failed_calls),
            ("visit ratio", self.visit_ratio),
            ("visit ratio, correct", self.visit_ratio_correct),
            ("visit ratio, wrong", self.visit_ratio_wrong),
        ):
            if not math.isnan(value):
                found.append((name, f"{value:.1%}"))
        if self.cost:
            found.append(("cost of calls", f"US$ {self.cost:,.2f}"))
        return found


def evaluate(trajectories: Iterable[Trajectory]) -> Evaluation:
    """Figures of these trajectories, which are gone through once.

    Raises:
        ValueError: when every trajectory is broken, or there are none; or when one that
            is whole has no outcome, because nobody scored it.
    """
    outcomes: dict[_Question, list[float]] = {}
    endings: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    right, wrong = _Visits(), _Visits()
    turns = well_formed = failed = broken = 0
    reason = ""
    turn_tokens: list[int] = []
    context_tokens: list[int] = []
    cost = 0.0
    for trajectory in trajectories:
        endings[str(trajectory.ending)] += 1
        if trajectory.broken:
            broken += 1
            reason = reason or f"; the first: {trajectory.error}"
            continue
        if trajectory.outcome is None:
            raise ValueError(f"nobody scored the answer to {trajectory.task.question!r:.80}")
        task = trajectory.task
        question = task.id, task.world, task.question  # an id may be of several questions
        outcomes.setdefault(question, []).append(trajectory.outcome)
        turns += len(trajectory.turns)
        well_formed += sum(turn.well_formed for turn in trajectory.turns)
        cost += sum(turn.cost for turn in trajectory.turns)
        counts = [turn.tokens for turn in trajectory.turns if turn.tokens is not None]
        if len(counts) == len(trajectory.turns):
            turn_tokens.append(sum(counts))
        if trajectory.transcript is not None:
            context_tokens.append(len(trajectory.transcript))
        made = Counter(turn.tool for turn in trajectory.turns if turn.tool is not None)
        failed += sum(turn.tool_status == "failed" for turn in trajectory.turns)
        calls += made
        (right if trajectory.outcome >= CORRECT else wrong).add(made)
    count = sum(map(len, outcomes.values()))
    if not count:
        raise ValueError(f"none of {broken} trajectories is whole: nothing to evaluate{reason}")
    mean = sum(map(sum, outcomes.values())) / count
    error = _standard_error(outcomes, mean)
    both = _Visits(right.visits + wrong.visits, right.calls + wrong.calls)
    return Evaluation(
        episodes=count,
        broken=broken,
        tasks=len(outcomes),
        success=mean,
        standard_error=error,
        interval=_interval(mean, error, len(outcomes)),
        pass_at=_pass_at_powers(outcomes),
        well_formed=well_formed / turns,
        turns=turns / count,
        turn_tokens=sum(turn_tokens) / len(turn_tokens) if turn_tokens else math.nan,
        context_tokens=sum(context_tokens) / len(context_tokens) if context_tokens else math.nan,
        calls={tool: made / count for tool, made in calls.most_common()},
        failed_calls=failed / calls.total() if calls else math.nan,
        visit_ratio=both.ratio,
        visit_ratio_correct=right.ratio,
        visit_ratio_wrong=wrong.ratio,
        cost=cost,
        endings=dict(endings),
    )


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """The chance that of k samples drawn from these at least one is correct.

    1 − C(n − c, k) / C(n, k): the unbiased estimator of Chen et al., "Evaluating large
    language models trained on code" (arXiv 2107.03374), equation 1.

    Args:
        samples: n, at least k.
        correct: c, from 0 to n.
        k: at least 1.

    Raises:
        SettingError: for numbers that can't be.

    Example:
        >>> pass_at_k(4, 1, 2)
        0.5
    """
    if not 1 <= k <= samples or not 0 <= correct <= samples:
        raise SettingError(f"pass@{k} can't be had from {correct} correct of {samples} samples")
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


@dataclass(slots=True)
class _Visits:
    visits: int = 0
    calls: int = 0

    def add(self, made: Counter[str]) -> None:
        self.visits += made["visit"]
        self.calls += made.total()

    @property
    def ratio(self) -> float:
        return self.visits / self.calls if self.calls else math.nan


def _standard_error(outcomes: Mapping[_Question, list[float]], mean: float) -> float:
    """Of the mean, with the samples of a task as one cluster; 0.0 for one task alone."""
    clusters = len(outcomes)
    if clusters < 2:
        return 0.0
    count = sum(map(len, outcomes.values()))
    spread = sum(sum(value - mean for value in values) ** 2 for values in outcomes.values())
    return math.sqrt(spread * clusters / (clusters - 1)) / count


def _interval(mean: float, error: float, tasks: int) -> tuple[float, float]:
    spread = error > 1e-9 and 1e-9 < mean < 1 - 1e-9  # less is rounding
    effective = mean * (1 - mean) / error**2 if spread else float(tasks)
    mean = min(max(mean, 0.0), 1.0)
    return wilson_interval(mean * effective, effective)


def _pass_at_powers(outcomes: Mapping[_Question, list[float]]) -> dict[int, float]:
    found: dict[int, float] = {}
    k = 1
    while enough := [values for values in outcomes.values() if len(values) >= k]:
        found[k] = _mean(
            [pass_at_k(len(v), sum(value >= CORRECT for value in v), k) for v in enough]
        )
        k *= 2
    return found


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
