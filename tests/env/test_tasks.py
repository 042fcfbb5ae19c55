"""Questions and their gold answers."""

from __future__ import annotations

import math
import pickle

import pytest

from drv_env.errors import TaskDataError
from drv_env.tasks import Task, task_from, tasks_from


@pytest.mark.parametrize(
    "value",
    [
        Task("Q", ("A", "B")),
        ("Q", ["A", "B"]),
        ["Q", ("A", "B")],
        ("Q", "A<|answer_split|>B"),
        {"question": "Q", "answer": "A<|answer_split|>B"},
        {"question": "Q", "answer": ["A", "B"]},
        {"question": "Q", "answers": ["A<|answer_split|>B"]},
        {"question": "Q", "answers": ("A", "B"), "answer": None},
    ],
)
def test_tasks_come_in_many_forms(value: object) -> None:
    task = task_from(value)  # type: ignore[arg-type]
    assert (task.question, task.answers[:2]) == ("Q", ("A", "B"))
    assert task.world is None


def test_what_else_came_with_a_task_is_kept() -> None:
    task = task_from(
        {"question": "Q", "answer": "A", "world": "w", "hops": 2, "metadata": {"source": "s"}}
    )
    assert task.world == "w"
    assert task.metadata == {"hops": 2, "source": "s"}


def test_an_id_is_kept_or_made_from_the_content() -> None:
    assert task_from({"question": "Q", "answer": "A", "id": 0}).id == "0"
    assert task_from({"question": "Q", "answer": "A", "id": "x"}).id == "x"
    made = {
        Task("Q", ("A",)).id,
        Task("Q", ("B",)).id,
        Task("Q", ("A", "B")).id,
        Task("R", ("A",)).id,
        Task("Q", ("A",), world="w").id,
    }
    assert len(made) == 5
    assert Task("Q", ("A",)).id == task_from(("Q", "A")).id
    assert task_from({"question": "Q", "answer": "A", "id": None}).id == Task("Q", ("A",)).id
    assert Task("\ud800", ("A",)).id


def test_tasks_can_be_keys_and_travel() -> None:
    task = task_from({"question": "Q", "answer": "A", "hops": 1})
    assert {task: 1}[pickle.loads(pickle.dumps(task))] == 1


@pytest.mark.parametrize(
    "value",
    [
        "Q",
        None,
        7,
        ("Q",),
        ("Q", "A", "B"),
        ("", "A"),
        (" ", "A"),
        (None, "A"),
        ("Q", ""),
        ("Q", " "),
        ("Q", []),
        ("Q", None),
        ("Q", True),
        ("Q", ["A", False]),
        ("Q", math.nan),
        ("Q", [1, math.inf]),
        ("Q", ["A", None]),
        ("Q", b"A"),
        ("Q", ["A", ""]),
        ("Q", "A<|answer_split|>"),
        ("Q", {"A": 1}),
        {},
        {"question": "Q"},
        {"answer": "A"},
        {"question": "Q", "answer": "A", "metadata": "text"},
    ],
)
def test_what_is_no_task_is_refused(value: object) -> None:
    with pytest.raises(TaskDataError):
        task_from(value)  # type: ignore[arg-type]


def test_answers_in_one_string_are_refused_with_advice() -> None:
    with pytest.raises(TaskDataError, match="task_from"):
        Task("Q", "A")  # type: ignore[arg-type]


def test_the_first_bad_task_is_named_by_its_place() -> None:
    with pytest.raises(TaskDataError, match=r"^task 1: "):
        tasks_from([("Q", "A"), ("Q", ""), ("", "A")])
    with pytest.raises(TaskDataError, match="no tasks"):
        tasks_from(iter([]))
    assert [task.question for task in tasks_from(iter([("Q", "A"), ("R", "B")]))] == ["Q", "R"]
