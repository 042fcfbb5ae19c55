"""A task: one question, its gold answers, and the world it is asked in."""

from __future__ import annotations

import decimal
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from drv_env.errors import TaskDataError
from drv_env.settings import shown

ANSWER_SEPARATOR = "<|answer_split|>"
"""Separates alternative gold answers in one string, as in the DR-Venus release."""


@dataclass(frozen=True, slots=True)
class Task:
    """One research question.

    Attributes:
        question: the text given to the agent; not blank.
        answers: acceptable gold answers, at least one, none blank; the first is the
            one that information gain is measured on by default.
        id: names the task in logs and groups; made from question and answers when
            left out.
        world: name of the world that tools should answer from, or None where tools
            have only one.
        metadata: anything else that came with the task (hops, difficulty, source).

    Raises:
        TaskDataError: when the question or an answer is missing or blank.
    """

    question: str
    answers: tuple[str, ...]
    id: str = ""
    world: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.question, str) or not self.question.strip():
            raise TaskDataError(f"a task needs a question, got {self.question!r}")
        if isinstance(self.answers, str):
            raise TaskDataError(
                f"answers must be a sequence of strings, got the string {self.answers!r}; "
                "use task_from() to split alternatives"
            )
        if not isinstance(self.answers, Iterable) or isinstance(self.answers, Mapping):
            raise TaskDataError(f"answers must be a sequence of strings, got {self.answers!r:.200}")
        answers = tuple(map(written_answer, self.answers))
        if not answers or not all(isinstance(a, str) and a.strip() for a in answers):
            raise TaskDataError(
                f"task {self.question[:60]!r} needs at least one gold answer and no blank ones, "
                f"got {self.answers!r}"
            )
        object.__setattr__(self, "answers", answers)
        if not self.id:
            name = "\x00".join((self.world or "", self.question, *answers))
            digest = hashlib.sha256(name.encode("utf-8", "surrogatepass"))
            object.__setattr__(self, "id", digest.hexdigest()[:16])


TaskLike = Task | Mapping[str, Any] | Sequence[Any]
"""What every function that takes a task takes: see :func:`task_from`."""


def task_from(value: TaskLike) -> Task:
    """A :class:`Task` from a task, a mapping or a ``(question, answer)`` pair.

    A mapping has ``question`` and ``answer`` or ``answers`` (a string, whose
    alternatives may be separated by ``<|answer_split|>``, or several strings), and
    optionally ``id`` and ``world``; other keys go to ``metadata``.

    Raises:
        TaskDataError: when it is none of these.

    Example:
        >>> task_from({"question": "Capital of France?", "answer": "Paris"}).answers
        ('Paris',)
    """
    if isinstance(value, Task):
        return value
    if isinstance(value, Mapping):
        known = dict(value)
        question = known.pop("question", None)
        answers = known.pop("answers", None)
        if answers is None:
            answers = known.pop("answer", None)
        task_id, world = known.pop("id", None), known.pop("world", None)
        metadata = known.pop("metadata", None)
        if not isinstance(metadata, Mapping | None):
            raise TaskDataError(f"a task's metadata must be a mapping, got {metadata!r:.200}")
        metadata = {**(metadata or {}), **known}
        task_id = "" if task_id is None else str(task_id)
        return Task(question, _alternatives(answers), task_id, world, metadata)  # type: ignore[arg-type]
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2:
        return Task(value[0], _alternatives(value[1]))
    raise TaskDataError(
        "a task is a Task, a mapping with 'question' and 'answer', or a (question, answer) "
        f"pair, got {value!r:.200}"
    )


def written_number(value: Any) -> Any:
    """A number as it is written, a whole one without ``.0``; anything else as it is.

    NumPy's and decimal numbers count too; True, False, NaN and infinities are no numbers.

    Example:
        >>> written_number(42), written_number(3.0), written_number(0.1), written_number(True)
        ('42', '3', '0.1', True)
    """
    if isinstance(value, np.number):
        value = value.item()
    if isinstance(value, decimal.Decimal) and value.is_finite():
        return format(value, "f")
    if isinstance(value, float) and math.isfinite(value):
        return str(int(value)) if value.is_integer() and abs(value) < 2**53 else repr(value)
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return str(value)
        except ValueError:  # over 4,300 digits
            return value
    return value


def written_answer(value: Any) -> str:
    """A gold answer as text: a text as it is, a number as it is written.

    Raises:
        TaskDataError: for anything else, True, False and NaN among it.
    """
    text = written_number(value)
    if not isinstance(text, str):
        raise TaskDataError(
            f"a gold answer must be a text or a number, got {type(value).__name__} {shown(value)}"
        )
    return text


def each_task(values: Iterable[TaskLike]) -> list[Task]:
    """Every value as a :class:`Task`, in order; none of none.

    Raises:
        TaskDataError: naming the position of the first value that is not a task.
    """
    if isinstance(values, str | Mapping):
        raise TaskDataError(f"tasks must be a sequence of tasks, got {shown(values)}")
    tasks = []
    for index, value in enumerate(values):
        try:
            tasks.append(task_from(value))
        except TaskDataError as error:
            raise TaskDataError(f"task {index}: {error}") from None
    return tasks


def tasks_from(values: Iterable[TaskLike]) -> list[Task]:
    """As :func:`each_task`, of at least one.

    Raises:
        TaskDataError: likewise, and when there are none.
    """
    tasks = each_task(values)
    if not tasks:
        raise TaskDataError("no tasks were given; pass at least one question with its answer")
    return tasks


def _alternatives(answers: Any) -> tuple[str, ...]:
    if answers is None or isinstance(answers, Mapping):
        raise TaskDataError(f"a task needs a gold answer, got {answers!r:.200}")
    if isinstance(answers, str | bytes) or not isinstance(answers, Iterable):
        answers = [answers]
    return tuple(
        part for answer in answers for part in written_answer(answer).split(ANSWER_SEPARATOR)
    )
