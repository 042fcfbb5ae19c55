"""One row of a file as a task: which columns hold what, and what makes a row bad.

A row is a mapping from column names to plain values, as JSON has them.  A name with dots
(``reward_model.ground_truth``) reaches into nested columns.  This module knows nothing of
files; :mod:`drv_env.task_files` reads them.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drv_env.cells import cell_text, gold_answers, is_missing, listed
from drv_env.chat_turns import content_text
from drv_env.column_names import find, has_column
from drv_env.errors import SettingError, TaskDataError
from drv_env.instructions import question_behind
from drv_env.rendered_prompts import chat_of_text
from drv_env.tasks import ANSWER_SEPARATOR, Task
from drv_env.unicode_text import sound_text

QUESTION = ("question", "problem", "query", "prompt", "instruction", "question_text")
ANSWER = (
    "answers",
    "golden_answers",
    "gold_answers",
    "golden_answer",
    "gold_answer",
    "ground_truth",
    "reward_model.ground_truth",
    "correct_answer",
    "gold",
    "gt",
    "gts",
    "answer",
    "target",
    "label",
)
"""In a recording that has a gold answer under another name, ``answer`` is what the agent said."""
FINAL_ANSWER = ("final_answer",)
"""The gold answer's column where there is none of :data:`ANSWER`; beside one it is the agent's."""
ID = ("id", "task_id", "query_id", "question_id", "qid", "extra_info.index")
WORLD = ("world", "extra_info.world")
OPTIONS = {"question": "--question-column", "answer": "--answer-column", "id": "--id-column"}
"""What names a column on the command line."""

_LIFTED = ("extra_info", "metadata")


@dataclass(frozen=True, slots=True)
class Columns:
    """Where a row keeps what a task needs.

    Attributes:
        question, answer, id, world: names to try in turn; the first that a row has a value
            for counts.
        difficulty: a column that becomes ``metadata["difficulty"]``, or None.
        separator: stands between alternative answers in one text.
        named: the names that the user gave, which must exist.
    """

    question: tuple[str, ...]
    answer: tuple[str, ...]
    id: tuple[str, ...]
    world: tuple[str, ...]
    difficulty: str | None
    separator: str
    named: frozenset[str]

    @classmethod
    def of(
        cls,
        question: str | None = None,
        answer: str | None = None,
        id: str | None = None,
        world: str | None = None,
        difficulty: str | None = None,
        separator: str = ANSWER_SEPARATOR,
    ) -> Columns:
        """Columns by the user's names, and by the usual ones where none was given.

        Raises:
            SettingError: for a name or separator that is not a text, or empty.
        """
        given = {
            "question": question,
            "answer": answer,
            "id": id,
            "world": world,
            "difficulty": difficulty,
            "separator": separator,
        }
        for what, name in given.items():
            if name is not None and (not isinstance(name, str) or not name):
                raise SettingError(f"{what} must be a text that is not empty, got {name!r}")
        return cls(
            QUESTION if question is None else (question,),
            (*ANSWER, *FINAL_ANSWER) if answer is None else (answer,),
            ID if id is None else (id,),
            WORLD if world is None else (world,),
            difficulty,
            separator,
            frozenset(n for n in (question, answer, id, world, difficulty) if n is not None),
        )

    @property
    def row_mark(self) -> tuple[str, ...]:
        """Columns of which a JSON object has one that is a task by itself."""
        return self.question

    def check(self, names: Sequence[str]) -> None:
        """Refuse a table that lacks a column which every row needs, or which was named.

        Args:
            names: the table's columns, nested ones with dots.

        Raises:
            TaskDataError: naming what is missing and what there is.
        """
        there = f"the columns are: {listed(names)}"
        for name in sorted(self.named):
            if not has_column(names, name):
                raise TaskDataError(f"no column {name!r}; {there}")
        for what, wanted in (("question", self.question), ("answer", self.answer)):
            if not any(has_column(names, name) for name in wanted):
                raise TaskDataError(
                    f"no column for the {what} (tried {', '.join(wanted)}); {there}. "
                    f"{_how_to_name(what)}"
                )

    def task(self, row: Mapping[str, Any]) -> Task:
        """The row's task.  Columns without a place of their own go to ``metadata``.

        Raises:
            TaskDataError: with the reason, when the row is no task.
        """
        try:
            return self._task(row)
        except RecursionError:
            raise TaskDataError("the row is nested too deeply") from None

    def _task(self, row: Mapping[str, Any]) -> Task:
        used = set()
        found: dict[str, Any] = {}
        places = {"question": self.question, "answer": self.answer, "id": self.id}
        for what, names in {**places, "world": self.world}.items():
            name, found[what] = _first(row, names)
            used.add(name)
        for what in ("question", "answer"):
            if found[what] is None:
                raise TaskDataError(_lack(row, what, places[what]))
        answers = gold_answers(found["answer"], self.separator)
        if not answers:
            raise TaskDataError("the answer is empty")
        question, instructions = _question(found["question"])
        metadata = _rest(row, used | {self.difficulty} if self.difficulty else used)
        lifted: dict[str, Any] = {}
        for key in _LIFTED:
            if isinstance(metadata.get(key), dict):
                lifted |= metadata.pop(key)
        metadata = lifted | metadata
        if self.difficulty is not None:
            level = find(row, self.difficulty)
            difficulty = None if level is None else _plain(level[1])
            if difficulty is not None:
                metadata["difficulty"] = difficulty
        if instructions:
            metadata["instructions"] = instructions
        return Task(
            question,
            answers,
            "" if found["id"] is None else cell_text(found["id"], "the id"),
            None if found["world"] is None else cell_text(found["world"], "the world"),
            metadata,
        )


def has(row: Mapping[str, Any], names: Collection[str]) -> bool:
    """Whether the row has a value in one of the columns."""
    return bool(_first(row, names)[0])


def mentions(row: Mapping[str, Any], name: str) -> bool:
    """Whether the row has the column, be it empty."""
    return find(row, name) is not None


def _first(row: Mapping[str, Any], names: Collection[str]) -> tuple[str, Any]:
    """The first column that has a value: its name in the row, and the value."""
    there = False
    for name in names:
        found = find(row, name)
        if found is None or (there and name in FINAL_ANSWER):
            continue
        there = True
        if not is_missing(found[1]):
            return found
    return "", None


def _lack(row: Mapping[str, Any], what: str, names: Sequence[str]) -> str:
    empty = [found[0] for found in (find(row, name) for name in names) if found is not None]
    if empty:
        return f"the {what} is empty ({', '.join(empty)})"
    tried = f"no {what} (tried {', '.join(names)})"
    return f"{tried}; the row has: {listed(list(row))}. {_how_to_name(what)}"


def _how_to_name(what: str) -> str:
    option = OPTIONS[what]
    told = ". Questions without answers can't be scored; drv ask plays one" * (what == "answer")
    return (
        f"Name its column: {option} on the command line (of drv train --tasks.{option[2:]}), "
        f"{what}= in Python{told}"
    )


def _question(value: Any) -> tuple[str, str]:
    """The question's text and the instructions before it; of a chat prompt, its user message's."""
    value = _chat(value)
    if isinstance(value, list | tuple):
        what, text = "the prompt's user message", _user_message(value)
    else:
        what, text = "the question", value
    found = cell_text(text, what)
    return question_behind(found) or (found, "")


def _chat(value: Any) -> Any:
    """A chat prompt that is written out as JSON or by a chat template, read; all else as it is."""
    if isinstance(value, str) and value.lstrip().startswith("[") and '"role"' in value:
        try:
            return json.loads(value)
        except ValueError:
            return value
    if isinstance(value, str) and value.lstrip().startswith(_TEMPLATE_MARKS):
        chat = chat_of_text(value.lstrip()) or []
        if chat and chat[-1]["role"] == "assistant":  # which is to be written
            chat.pop()
        return chat or value
    return value


_TEMPLATE_MARKS = ("<|im_start|>", "<|start_header_id|>", "<|begin_of_text|>")


def _is_text_part(part: Any) -> bool:
    return isinstance(part, Mapping) and isinstance(part.get("text"), str)


def _user_message(value: Sequence[Any]) -> Any:
    if not all(isinstance(message, Mapping) and "role" in message for message in value):
        raise TaskDataError("the question is a list, but not of messages with role and content")
    roles = [message["role"] for message in value]
    if roles.count("user") != 1 or not set(roles) <= {"system", "user"}:
        raise TaskDataError(
            f"the prompt has messages of {listed(roles)}; a task is one user message, "
            "at most with a system message"
        )
    content = value[roles.index("user")].get("content")
    if isinstance(content, list | tuple) and all(map(_is_text_part, content)):
        content = content_text(list(content))
    if is_missing(content):
        raise TaskDataError("the prompt's user message is empty")
    return content


def _rest(row: Mapping[str, Any], used: Collection[str], above: str = "") -> dict[str, Any]:
    """What is left of a row, nulls left out, as values that JSON has."""
    kept = {}
    for key, value in row.items():
        name = f"{above}{key}"
        if name in used:
            continue
        value = _rest(value, used, f"{name}.") if isinstance(value, Mapping) else _plain(value)
        if value is not None and value != {}:
            kept[sound_text(str(key))] = value
    return kept


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {sound_text(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return sound_text(value)
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bool | int | None):
        return value
    return str(value)
