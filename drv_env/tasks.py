"""A task: one question, its gold answers, and the world it is asked in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from drv_env.errors import TaskDataError

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
        answers = tuple(self.answers)
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


def task_from(value: Task | Mapping[str, Any] | Sequence[Any]) -> Task:
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


def tasks_from(values: Iterable[Task | Mapping[str, Any] | Sequence[Any]]) -> list[Task]:
    """Every value as a :class:`Task`, in order.

    Raises:
        TaskDataError: naming the position of the first value that is not a task, or
            when there are none.
    """
    tasks = []
    for index, value in enumerate(values):
        try:
            tasks.append(task_from(value))
        except TaskDataError as error:
            raise TaskDataError(f"task {index}: {error}") from None
    if not tasks:
        raise TaskDataError("no tasks were given; pass at least one question with its answer")
    return tasks


def _alternatives(answers: Any) -> tuple[str, ...]:
    if isinstance(answers, str):
        answers = [answers]
    if not isinstance(answers, Iterable) or isinstance(answers, Mapping):
        raise TaskDataError(f"a task needs a gold answer, got {answers!r}")
    found: list[str] = []
    for answer in answers:
        if not isinstance(answer, str):
            raise TaskDataError(f"a gold answer must be a string, got {answer!r}")
        found += answer.split(ANSWER_SEPARATOR)
    return tuple(found)
