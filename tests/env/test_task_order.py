"""Order, splits, samples, weights and curriculum of tasks."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
import unicodedata
from collections import Counter
from itertools import chain, islice, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drv_env.errors import SettingError, TaskDataError
from drv_env.task_order import Curriculum, TaskOrder, sample_tasks, split_tasks
from drv_env.tasks import Task

SEEDS = st.integers(0, 2**70)


def make(count: int, **columns: Any) -> list[Task]:
    """Tasks t0, t1, …; each column is a function of the number."""
    return [
        Task(
            f"Question {number}?",
            ("A",),
            f"t{number}",
            metadata={name: column(number) for name, column in columns.items()},
        )
        for number in range(count)
    ]


def ids(tasks: Any, count: int | None = None) -> list[str]:
    return [task.id for task in islice(tasks, count)]


def finish_pass(order: TaskOrder) -> None:
    """Draw until the next draw begins a pass."""
    while True:
        ahead = copy.deepcopy(order)
        next(ahead)
        if ahead.passes > order.passes:
            return
        next(order)


# ---- splits ----------------------------------------------------------------------------

PARTS = {"train": 0.8, "validation": 0.1, "test": 0.1}


@given(st.integers(0, 200), SEEDS)
def test_parts_are_disjoint_and_complete_and_keep_the_order(count: int, seed: int) -> None:
    tasks = make(count)
    found = split_tasks(tasks, PARTS, seed)
    assert list(found) == list(PARTS)
    assert sorted(ids(chain(*found.values()))) == sorted(ids(tasks))
    for part in found.values():
        assert part == [task for task in tasks if task in part]


@given(st.sets(st.integers(0, 99), min_size=1), SEEDS)
def test_adding_or_reordering_tasks_moves_none(kept: set[int], seed: int) -> None:
    tasks = make(100)
    fewer = [tasks[index] for index in sorted(kept, reverse=True)]
    whole, part = (split_tasks(some, PARTS, seed) for some in (tasks, fewer))
    for name in PARTS:
        assert set(ids(part[name])) == set(ids(whole[name])) & set(ids(fewer))


def test_shares_are_met_on_average_and_change_little() -> None:
    tasks = make(20_000)
    found = split_tasks(tasks, PARTS, seed=3)
    for name, share in PARTS.items():
        assert len(found[name]) / len(tasks) == pytest.approx(share, abs=0.01)
    assert found != split_tasks(tasks, PARTS, seed=4)
    smaller = split_tasks(tasks, {"train": 0.7, "test": 0.2}, seed=3)
    assert set(ids(smaller["train"])) < set(ids(found["train"]))
    assert sum(map(len, smaller.values())) / len(tasks) == pytest.approx(0.9, abs=0.01)


def test_a_question_in_another_spelling_shares_its_part() -> None:
    pairs = [(f"Où est né Gérard {n}?", "x") for n in range(50)]
    spelt = [(unicodedata.normalize("NFD", text).upper(), gold) for text, gold in pairs]
    found, same = (split_tasks(tasks, PARTS, seed=1) for tasks in (pairs, spelt))
    for part in PARTS:
        numbers = [[task.question.split()[-1] for task in each[part]] for each in (found, same)]
        assert numbers[0] == numbers[1]


def test_near_duplicates_stay_together() -> None:
    same = [Task("What  is IT?", ("A",), "1"), Task("what is it?\n", ("B",), "2")]
    tasks = make(300, source=lambda number: number // 10)
    for seed in range(20):
        (part,) = [part for part in split_tasks(same, PARTS, seed).values() if part]
        assert len(part) == 2
        found = split_tasks(tasks, PARTS, seed, by="source")
        sources = [{task.metadata["source"] for task in part} for part in found.values()]
        assert sum(map(len, sources)) == 30
        assert split_tasks(tasks, PARTS, seed, by=lambda task: task.metadata["source"]) == found
    by_id = split_tasks(tasks, PARTS, by="id")
    assert by_id == split_tasks(tasks, PARTS, by=lambda task: task.id)


@pytest.mark.parametrize(
    "parts", [{}, {"a": 0.0}, {"a": -0.1, "b": 0.5}, {"a": 0.6, "b": 0.5}, {"a": float("nan")}]
)
def test_shares_that_cant_be_used(parts: dict[str, float]) -> None:
    with pytest.raises(SettingError, match="parts must be above 0 and sum to at most 1"):
        split_tasks(make(3), parts)


def test_a_task_without_the_group_is_named() -> None:
    with pytest.raises(
        TaskDataError, match="task t0 has no 'sauce' in its metadata; it has: source"
    ):
        split_tasks(make(1, source=str), PARTS, by="sauce")


# ---- samples ---------------------------------------------------------------------------


@given(st.integers(0, 50), st.data(), SEEDS)
def test_a_sample_has_different_tasks(count: int, data: st.DataObject, seed: int) -> None:
    tasks = make(count)
    wanted = data.draw(st.integers(0, count))
    found = ids(sample_tasks(tasks, wanted, seed))
    assert len(set(found)) == wanted
    assert found == ids(sample_tasks(tasks, wanted, seed))
    assert found == ids(sample_tasks(tasks, count, seed))[:wanted]


def test_a_weighted_sample() -> None:
    tasks = make(4, weight=lambda number: number)
    first = Counter(sample_tasks(tasks, 1, seed, "weight")[0].id for seed in range(3000))
    for number in range(4):
        assert first[f"t{number}"] / 3000 == pytest.approx(number / 6, abs=0.03)
    with pytest.raises(SettingError, match="count must be from 0 to 3"):
        sample_tasks(tasks, 4, weights="weight")
    with pytest.raises(SettingError, match="count"):
        sample_tasks(tasks, -1)
    with pytest.raises(SettingError, match="seed"):
        sample_tasks(tasks, 1, seed=-1)


# ---- order -----------------------------------------------------------------------------


@given(st.integers(1, 40), SEEDS)
def test_each_pass_has_every_task_once(count: int, seed: int) -> None:
    tasks = make(count)
    order = TaskOrder(tasks, seed)
    for number in range(1, 4):
        assert set(ids(order, count)) == set(ids(tasks))
        assert (order.passes, order.drawn) == (number, number * count)


def test_passes_and_seeds_differ_and_repeat() -> None:
    tasks = make(50)
    order = TaskOrder(tasks, 1)
    first, second = ids(order, 50), ids(order, 50)
    assert first != second
    assert first not in (ids(tasks), ids(TaskOrder(tasks, 2), 50))
    assert ids(TaskOrder(tasks, 1), 100) == first + second
    assert ids(TaskOrder(tasks, 1, weights=lambda task: 0.3), 100) == first + second


def test_every_place_in_a_pass_is_as_likely() -> None:
    tasks = make(4)
    first = Counter(next(TaskOrder(tasks, seed)).id for seed in range(4000))
    assert all(count / 4000 == pytest.approx(0.25, abs=0.03) for count in first.values())


# ---- weights ---------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.lists(st.floats(0, 50), min_size=1, max_size=20).filter(any), SEEDS)
def test_weights_hold_in_every_pass_and_on_the_whole(weights: list[float], seed: int) -> None:
    weights = [0.0 if weight < 1e-3 else weight for weight in weights]
    if not any(weights):
        return
    tasks = make(len(weights), weight=lambda number: weights[number])
    order = TaskOrder(tasks, seed, weights="weight")
    able = sum(weight > 0 for weight in weights)
    expected = [able * weight / sum(weights) for weight in weights]
    total: Counter[str] = Counter()
    passes = 100
    left = [next(order)]
    for _ in range(passes):
        number = order.passes
        while order.passes == number:
            left.append(next(order))
        counts = Counter(ids(left[:-1]))
        left = left[-1:]
        total += counts
        for task, mean in zip(tasks, expected, strict=True):
            assert mean - 1.001 < counts[task.id] < mean + 1.001
    for task, mean in zip(tasks, expected, strict=True):
        assert abs(total[task.id] - passes * mean) < 8


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_after_however_many_passes_a_task_is_near_its_share(seed: int) -> None:
    """Offsets that go on by the golden ratio come evenly everywhere."""
    weights = (1, 10, 3, 7)
    order = TaskOrder(make(4, weight=lambda number: weights[number]), seed, weights="weight")
    counts: Counter[str] = Counter()
    for passes in range(1, 400):
        counts.update(ids(order, 1))
        while order.state_dict()["left"]:
            counts.update(ids(order, 1))
        for number, weight in enumerate(weights):
            assert abs(counts[f"t{number}"] - passes * 4 * weight / 21) < 3


def test_a_small_weight_does_not_starve() -> None:
    tasks = make(50, weight=lambda number: 0.01 if number == 7 else 1)
    order = TaskOrder(tasks, weights="weight")
    places = [place for place, task in enumerate(islice(order, 50 * 1000)) if task.id == "t7"]
    gaps = [after - before for before, after in pairwise(places)]
    assert len(places) == pytest.approx(10, abs=2)
    assert max([*gaps, places[0]]) < 50 * 100 * 3


def test_weights_may_be_text_or_a_function() -> None:
    tasks = make(3, weight=lambda number: str(number))
    named = ids(TaskOrder(tasks, weights="weight"), 20)
    assert named == ids(TaskOrder(tasks, weights=lambda task: float(task.metadata["weight"])), 20)
    assert "t0" not in named


@pytest.mark.parametrize("weight", [None, "much", float("nan"), float("inf"), -1, True, []])
def test_a_weight_that_cant_be_used_names_its_task(weight: Any) -> None:
    tasks = make(2, weight=lambda number: weight if number else 1)
    with pytest.raises(TaskDataError, match="task t1: weight must be"):
        TaskOrder(tasks, weights="weight")


def test_orders_that_cant_be() -> None:
    with pytest.raises(SettingError, match="no tasks"):
        TaskOrder([])
    with pytest.raises(SettingError, match="seed must be a whole number of at least 0, got -1"):
        TaskOrder(make(1), -1)
    with pytest.raises(SettingError, match="every task has weight 0"):
        TaskOrder(make(2), weights=lambda task: 0)
    with pytest.raises(SettingError, match="a weight is under 1e-09 of the largest"):
        TaskOrder(make(2, w=lambda number: [1e12, 1][number]), weights="w")


# ---- curriculum ------------------------------------------------------------------------


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(1, 100), SEEDS)
def test_only_open_tasks_are_drawn_and_all_in_the_end(
    levels: list[int], steps: int, seed: int
) -> None:
    tasks = make(len(levels), difficulty=lambda number: levels[number])
    order = TaskOrder(tasks, seed, curriculum=Curriculum(steps=steps))
    low, high = min(levels), max(levels)
    for drawn in range(steps):
        limit = low + (high - low) * drawn / steps
        assert next(order).metadata["difficulty"] <= limit + 1e-9
    finish_pass(order)
    assert set(ids(order, len(tasks))) == set(ids(tasks))


def test_a_task_that_opens_joins_the_pass() -> None:
    tasks = make(100, difficulty=lambda number: number)
    order = TaskOrder(tasks, curriculum=Curriculum(steps=50, start=59, end=99))
    drawn = ids(order, 100)
    assert len(set(drawn)) == 100
    assert order.passes == 1


def test_easier_tasks_come_first() -> None:
    tasks = make(90, difficulty=lambda number: ("easy", "medium", "hard")[number % 3])
    curriculum = Curriculum(steps=200, levels=("easy", "medium", "hard"))
    order = TaskOrder(tasks, 5, curriculum=curriculum)
    drawn = [task.metadata["difficulty"] for task in islice(order, 200)]
    assert set(drawn[:100]) == {"easy"}
    assert set(drawn[100:200]) == {"easy", "medium"}
    finish_pass(order)
    assert len(set(ids(order, 90))) == 90


def test_weights_hold_among_open_tasks() -> None:
    tasks = make(20, difficulty=lambda number: number % 2, weight=lambda number: 1 + number % 4)
    order = TaskOrder(tasks, weights="weight", curriculum=Curriculum(steps=1000))
    counts = Counter(task.metadata["weight"] for task in islice(order, 1000))
    assert set(counts) == {1, 3}
    assert counts[3] / counts[1] == pytest.approx(3, abs=0.3)


def test_tasks_over_the_end_are_never_drawn() -> None:
    tasks = make(10, difficulty=lambda number: number)
    order = TaskOrder(
        tasks, curriculum=Curriculum(steps=5, end=3, key=lambda t: t.metadata["difficulty"])
    )
    assert {task.metadata["difficulty"] for task in islice(order, 200)} == {0, 1, 2, 3}


def test_curricula_that_cant_be() -> None:
    with pytest.raises(SettingError, match="steps must be at least 1 draw, got 0"):
        Curriculum(steps=0)
    with pytest.raises(SettingError, match="end must be at least start"):
        Curriculum(steps=1, start=2, end=1)
    tasks = make(3, difficulty=lambda number: number + 5, level=lambda number: "easy")
    with pytest.raises(SettingError, match="leaves no task open at first: difficulties are from 5"):
        TaskOrder(tasks, curriculum=Curriculum(steps=1, start=4))
    with pytest.raises(SettingError, match="leaves no task open"):
        TaskOrder(tasks, curriculum=Curriculum(steps=1, end=4))
    with pytest.raises(TaskDataError, match="task t0 has no 'hops' in its metadata"):
        TaskOrder(tasks, curriculum=Curriculum(key="hops", steps=1))
    with pytest.raises(
        TaskDataError, match="task t0: difficulty must be a finite number, got 'easy'"
    ):
        TaskOrder(tasks, curriculum=Curriculum(key="level", steps=1))
    with pytest.raises(TaskDataError, match=r"task t0: difficulty 'easy' not in \('low', 'high'\)"):
        TaskOrder(tasks, curriculum=Curriculum(key="level", steps=1, levels=("low", "high")))


# ---- state -----------------------------------------------------------------------------


def an_order(weighted: bool, staged: bool, seed: int) -> TaskOrder:
    tasks = make(17, difficulty=lambda number: number / 3, weight=lambda number: number % 5)
    return TaskOrder(
        tasks,
        seed,
        weights="weight" if weighted else None,
        curriculum=Curriculum(steps=60) if staged else None,
    )


@given(st.booleans(), st.booleans(), st.integers(0, 150), SEEDS)
def test_a_resumed_order_goes_on_exactly(
    weighted: bool, staged: bool, drawn: int, seed: int
) -> None:
    order = an_order(weighted, staged, seed)
    ids(order, drawn)
    state = json.loads(json.dumps(order.state_dict()))
    travelled, copied = pickle.loads(pickle.dumps(order)), copy.deepcopy(order)
    expected = ids(order, 100)
    resumed = an_order(weighted, staged, seed)
    resumed.load_state_dict(state)
    assert resumed.drawn == drawn
    assert ids(resumed, 100) == ids(travelled, 100) == ids(copied, 100) == expected


def test_a_state_is_not_touched_by_going_on() -> None:
    order = an_order(False, False, 0)
    next(order)
    state = order.state_dict()
    before = copy.deepcopy(state)
    expected = ids(order, 30)
    assert state == before
    order.load_state_dict(state)
    assert ids(order, 30) == expected
    assert state == before


def test_a_state_of_another_order_is_refused() -> None:
    tasks = make(5)
    state = TaskOrder(tasks, 0).state_dict()
    for other in (TaskOrder(tasks, 1), TaskOrder(tasks[:4], 0), TaskOrder(tasks[::-1], 0)):
        with pytest.raises(SettingError, match="the state is of an order of other tasks"):
            other.load_state_dict(state)


PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
from drv_env.task_order import Curriculum, TaskOrder, sample_tasks, split_tasks
from drv_env.tasks import Task
tasks = [
    Task(f"Q{n} \\u4eac?", ("A",), metadata={"w": n % 3, "difficulty": n, "source": f"s{n % 7}"})
    for n in range(40)
]
order = TaskOrder(tasks, 9, weights="w", curriculum=Curriculum(steps=50, start=5))
print(json.dumps([
    [next(order).id for _ in range(120)],
    order.state_dict(),
    [task.id for task in sample_tasks(tasks, 9, 9, "w")],
    {part: [t.id for t in found] for part, found in
     split_tasks(tasks, {"a": 0.5, "b": 0.5}, 9, by="source").items()},
]))
"""


def test_nothing_depends_on_the_process() -> None:
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    told = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM, root],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "4242")
    }
    assert len(told) == 1
