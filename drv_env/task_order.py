"""Which tasks, and in what order: splits, samples, and the endless order of a training run.

Everything here is a function of the tasks, a seed and a count of draws: no clock, no global
random state, no ``hash()``.  The same arguments give the same result in every process.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from drv_env.errors import SettingError, TaskDataError
from drv_env.settings import at_least, check_fields, checked_seed, checked_shares, checked_whole
from drv_env.tasks import Task, TaskLike, each_task
from drv_env.unicode_text import caseless_text

Key = str | Callable[[Task], Any]
"""A metadata key (or ``id``, ``world``, ``question``), or a function of the task."""

Weights = str | Callable[[Task], float]
"""The metadata key of a number, or a function of the task: how often it is drawn."""

_LEAST_WEIGHT = 1e-9
_GOLDEN = 0.6180339887498949
_FIELDS = ("id", "world", "question")


def split_tasks(
    tasks: Sequence[TaskLike], parts: Mapping[str, float], seed: int = 0, by: Key | None = None
) -> dict[str, list[Task]]:
    """Divide tasks into disjoint parts.

    A task's part depends on its group, the parts and the seed, and on nothing else: adding,
    removing or reordering other tasks moves none.  Tasks of one group share a part.  Shares
    are met on average over groups, so that of few groups a part may get none.

    Args:
        tasks: what to divide.
        parts: share of each part, above 0, together at most 1, in a fixed order; what is
            over belongs to no part.
        seed: another seed, another division.
        by: the group; by default the question, letter case and white space ignored, so that
            the same question is never in two parts.

    Returns:
        Tasks by part, in their order.

    Raises:
        SettingError: when the shares can't be used.
        TaskDataError: when a task lacks the metadata key.

    Example:
        >>> tasks = [Task(f"Question {number}?", ("yes",)) for number in range(1000)]
        >>> {part: len(found) for part, found in split_tasks(tasks, {"a": 0.9, "b": 0.1}).items()}
        {'a': 895, 'b': 105}
    """
    checked_seed(seed)
    shares = list(checked_shares(parts).values())
    # Shares that sum to 1 may add up to a little less in floating point.
    edges = [1.0 if edge > 1 - 1e-9 else edge for edge in np.cumsum(shares).tolist()]
    found: dict[str, list[Task]] = {part: [] for part in parts}
    for task in each_task(tasks):
        group = caseless_text(task.question) if by is None else _value(task, by)
        point = _point(f"{seed}\x00{group}")
        for part, edge in zip(parts, edges, strict=True):
            if point < edge:
                found[part].append(task)
                break
    return found


def sample_tasks(
    tasks: Sequence[TaskLike], count: int, seed: int = 0, weights: Weights | None = None
) -> list[Task]:
    """``count`` different tasks at random, in random order.

    Args:
        tasks: what to draw from.
        count: how many, from 0 to the number of tasks with a weight above 0.
        seed: at least 0.
        weights: at each draw a task is taken in proportion to its weight among those left.

    Raises:
        SettingError: when there are not so many, or for a negative seed.
        TaskDataError: for a weight that is not a finite number of at least 0.
    """
    checked_seed(seed)
    tasks = each_task(tasks)
    sizes = _weights(tasks, weights)
    able = int(np.count_nonzero(sizes))
    if checked_whole("count", count) not in range(able + 1):
        raise SettingError(f"count must be from 0 to {able} (tasks that can be drawn), got {count}")
    # The first of independent exponential waits, each at its weight's rate, is a weighted
    # draw; the next ones are draws among the rest.
    waits = np.random.default_rng([seed]).standard_exponential(len(tasks))
    with np.errstate(divide="ignore"):
        order = np.argsort(np.where(sizes > 0, waits / sizes, np.inf), kind="stable")
    return [tasks[index] for index in order[:count].tolist()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Curriculum:
    """From easy to hard: a limit on difficulty that rises in a straight line.

    After d draws, tasks are open whose difficulty is at most
    ``start + (end - start) · min(d / steps, 1)``.

    Attributes:
        key: the metadata key of the difficulty (a number, also written as text), or a
            function of the task.
        steps: draws until the limit is ``end``, at least 1; a draw is one task, so for a
            trainer its steps times its tasks a step.
        start: limit at the first draw; by default the easiest task's difficulty.
        end: limit from ``steps`` on; by default the hardest task's.  Harder ones are never
            drawn.
        levels: names of difficulties, easiest first; their places count as numbers from 0.

    Raises:
        SettingError: when steps is below 1 or end below start.
    """

    key: Key = "difficulty"
    steps: int
    start: float | None = None
    end: float | None = None
    levels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self, steps=at_least(1, "draw"))
        if self.start is not None and self.end is not None and not self.start <= self.end:
            raise SettingError(f"end must be at least start, got {self.start} to {self.end}")

    def difficulty(self, task: Task) -> float:
        """The task's difficulty as a number.

        Raises:
            TaskDataError: when it has none, or one that is not among the levels.
        """
        value = _value(task, self.key)
        if self.levels:
            if value not in self.levels:
                raise TaskDataError(f"task {task.id}: difficulty {value!r} not in {self.levels}")
            return float(self.levels.index(value))
        return _number(value, task, "difficulty")


class TaskOrder(Iterator[Task]):
    """Tasks for ever, in passes, each in a new order.

    Without weights a pass has every open task once.  With weights, a pass over n tasks has n
    draws, of which a task of weight w gets n·w/Σw, rounded down or up; the rounding shifts
    from pass to pass so that the average is right and every task comes up, however small its
    weight: none starves, and only tasks above the average weight repeat within a pass.  A
    task of weight 0 is never drawn.

    With a curriculum only the open tasks are drawn.  A task that opens during a pass joins
    what is left of it, in random order.

    Args:
        tasks: at least one.
        seed: at least 0.
        weights: how often each task is drawn; None for equally often.
        curriculum: opens tasks from easy to hard; None for all open at once.

    Raises:
        SettingError: for no tasks, a negative seed, weights that are all 0 or differ more
            than a thousand million-fold, or a curriculum whose start leaves no task open.
        TaskDataError: for a task without a usable weight or difficulty.

    Example:
        >>> order = TaskOrder([Task(f"{name}?", ("yes",)) for name in "ABC"], seed=0)
        >>> " ".join(next(order).question for _ in range(9))
        'A? C? B? A? B? C? C? B? A?'
    """

    def __init__(
        self,
        tasks: Sequence[TaskLike],
        seed: int = 0,
        *,
        weights: Weights | None = None,
        curriculum: Curriculum | None = None,
    ) -> None:
        if not tasks:
            raise SettingError("there are no tasks to put in order")
        self.tasks = tuple(each_task(tasks))
        self.seed = checked_seed(seed)
        self.drawn = 0
        """Tasks drawn so far."""
        self.passes = 0
        """Passes begun so far."""
        self._weights = _weights(self.tasks, weights)
        self._weights /= self._weights.max() or 1.0
        if np.any((self._weights > 0) & (self._weights < _LEAST_WEIGHT)):
            raise SettingError(
                f"a weight is under {_LEAST_WEIGHT} of the largest; make it 0 to leave tasks out"
            )
        self._schedule = _Schedule(self.tasks, curriculum, self._weights)
        self._scale = 0.0
        self._open = 0
        self._left: list[int] = []

    def __next__(self) -> Task:
        opened = self._schedule.open_after(self.drawn)
        if self._left and opened > self._open:
            rng = np.random.default_rng([self.seed, 1, self.drawn])
            for index in self._times(self._schedule.order[self._open : opened]).tolist():
                self._left.insert(int(rng.integers(len(self._left) + 1)), index)
        while not self._left:
            members = self._schedule.order[:opened]
            self.passes += 1
            self._scale = len(members) / float(self._weights[members].sum())
            rng = np.random.default_rng([self.seed, 0, self.passes])
            self._left = rng.permutation(self._times(members)).tolist()
        self._open = opened
        self.drawn += 1
        return self.tasks[self._left.pop()]

    def state_dict(self) -> dict[str, Any]:
        """Where the order is, as values that JSON has; at most some numbers a task."""
        return {
            "tasks": self._fingerprint(),
            "seed": self.seed,
            "drawn": self.drawn,
            "passes": self.passes,
            "scale": self._scale,
            "open": self._open,
            "left": list(self._left),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state, exactly as the order that gave it would have.

        Raises:
            SettingError: when the state is of other tasks (by id and order) or another seed.
        """
        if state["tasks"] != self._fingerprint() or state["seed"] != self.seed:
            raise SettingError(
                "the state is of an order of other tasks, or of these in another sequence or "
                f"with another seed (seed {state['seed']}, here {self.seed})"
            )
        self.drawn, self.passes = int(state["drawn"]), int(state["passes"])
        self._scale, self._open = float(state["scale"]), int(state["open"])
        self._left = [int(index) for index in state["left"]]

    def _times(self, members: np.ndarray) -> np.ndarray:
        """Members as often as this pass has them."""
        # One comb of teeth 1 apart over the weights laid end to end; its offset moves by the
        # golden ratio from pass to pass and so comes evenly everywhere.
        # A multiple of 2⁻³⁰, it adds to whole numbers without rounding: equal weights come
        # out as once each.
        offset = int((_point(f"{self.seed}") + self.passes * _GOLDEN) % 1.0 * 2**30) / 2**30
        ends = np.floor(np.cumsum(self._weights[members] * self._scale) + offset)
        return np.repeat(members, np.diff(ends, prepend=0.0).astype(np.int64))

    def _fingerprint(self) -> str:
        found = hashlib.sha256()
        for task in self.tasks:
            found.update(f"{len(task.id)}:{task.id}".encode("utf-8", "surrogatepass"))
        return found.hexdigest()


class _Schedule:
    """The tasks that can be drawn, easiest first, and how many of them are open when."""

    def __init__(
        self, tasks: Sequence[Task], curriculum: Curriculum | None, weights: np.ndarray
    ) -> None:
        self.order = np.flatnonzero(weights > 0)
        self._curriculum = curriculum
        if not len(self.order):
            raise SettingError("every task has weight 0; at least one must be above")
        if curriculum is None:
            return
        hardness = np.array([curriculum.difficulty(tasks[index]) for index in self.order.tolist()])
        ranks = np.argsort(hardness, kind="stable")
        self.order, self._hardness = self.order[ranks], hardness[ranks]
        lowest, highest = float(self._hardness[0]), float(self._hardness[-1])
        self._start = lowest if curriculum.start is None else curriculum.start
        self._end = max(highest, self._start) if curriculum.end is None else curriculum.end
        if self._start < lowest or self._end < self._start:
            raise SettingError(
                f"a curriculum from {self._start} to {self._end} leaves no task open at first: "
                f"difficulties are from {lowest} to {highest}"
            )

    def open_after(self, drawn: int) -> int:
        """How many tasks of ``order`` are open after so many draws."""
        if self._curriculum is None:
            return len(self.order)
        share = min(drawn / self._curriculum.steps, 1.0)
        # At the end the limit is the end itself, whatever rounding says.
        limit = self._end if share == 1 else self._start + (self._end - self._start) * share
        return int(np.searchsorted(self._hardness, limit, side="right"))


def _value(task: Task, key: Key) -> Any:
    if callable(key):
        return key(task)
    if key in task.metadata:
        return task.metadata[key]
    if key in _FIELDS:
        return getattr(task, key)
    raise TaskDataError(
        f"task {task.id} has no {key!r} in its metadata; it has: {', '.join(task.metadata)}"
    )


def _weights(tasks: Sequence[Task], weights: Weights | None) -> np.ndarray:
    if weights is None:
        return np.ones(len(tasks))
    found = [_number(_value(task, weights), task, "weight") for task in tasks]
    for task, weight in zip(tasks, found, strict=True):
        if weight < 0:
            raise TaskDataError(f"task {task.id}: weight must be at least 0, got {weight}")
    return np.array(found, dtype=np.float64)


def _number(value: Any, task: Task, what: str) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise TaskDataError(f"task {task.id}: {what} must be a finite number, got {value!r}")
    return number


def _point(text: str) -> float:
    """A number in [0, 1) that depends on the text alone."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2**53
