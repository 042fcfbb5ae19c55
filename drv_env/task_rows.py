"""One row of a file as a task: which columns hold what, and what makes a row bad.

A row is a mapping from column names to plain values, as JSON has them.  A name with dots
(``reward_model.ground_truth``) reaches into nested columns.  This module knows nothing of
files; :mod:`drv_env.task_files` reads them.
"""

from __future__ import annotations

import ast
import datetime
import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drv_env.errors import SettingError, TaskDataError
from drv_env.tasks import ANSWER_SEPARATOR, Task, written_number

MAX_CHARACTERS = 2**24
"""The longest question or answer taken: the most that the env's text space holds."""

QUESTION = ("question", "problem", "query", "prompt")
ANSWER = (
    "answers",
    "answer",
    "golden_answers",
    "gold_answers",
    "ground_truth",
    "reward_model.ground_truth",
    "label",
)
ID = ("id", "task_id", "extra_info.index")
WORLD = ("world", "extra_info.world")

_LIFTED = ("extra_info", "metadata")
_SHOWN = 12
_SURROGATES = re.compile("[\ud800-\udfff]")


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
            ANSWER if answer is None else (answer,),
            ID if id is None else (id,),
            WORLD if world is None else (world,),
            difficulty,
            separator,
            frozenset(n for n in (question, answer, id, world, difficulty) if n is not None),
        )

    def check(self, names: Sequence[str]) -> None:
        """Refuse a table that lacks a column which every row needs, or which was named.

        Args:
            names: the table's columns, nested ones with dots.

        Raises:
            TaskDataError: naming what is missing and what there is.
        """
        there = f"the columns are: {_listed(names)}"
        for name in sorted(self.named):
            if name not in names:
                raise TaskDataError(f"no column {name!r}; {there}")
        for what, wanted in (("question", self.question), ("answer", self.answer)):
            if not any(name in names for name in wanted):
                raise TaskDataError(
                    f"no column for the {what} (tried {', '.join(wanted)}); {there}. "
                    f"Name it with {what}="
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
        metadata = _rest(row, used | {self.difficulty} if self.difficulty else used)
        lifted: dict[str, Any] = {}
        for key in _LIFTED:
            if isinstance(metadata.get(key), dict):
                lifted |= metadata.pop(key)
        metadata = lifted | metadata
        if self.difficulty is not None:
            difficulty = _plain(_look_up(row, self.difficulty))
            if difficulty is not None:
                metadata["difficulty"] = difficulty
        return Task(
            _question(found["question"]),
            self._answers(found["answer"]),
            "" if found["id"] is None else _text(found["id"], "the id"),
            None if found["world"] is None else _text(found["world"], "the world"),
            metadata,
        )

    def _answers(self, value: Any) -> tuple[str, ...]:
        if isinstance(value, Mapping):
            # Search-R1 and its descendants keep the alternatives one level further down.
            if set(value) != {"target"}:
                raise TaskDataError(
                    f"the answer has fields of its own ({_listed(list(value))}); "
                    "name one with answer='column.field'"
                )
            value = value["target"]
        if isinstance(value, str):
            value = _written_list(value) or value
        items = value if isinstance(value, list | tuple) else [value]
        found: dict[str, None] = {}
        for item in items:
            if _missing(item):
                continue
            for part in _text(item, "the answer").split(self.separator):
                if part.strip():
                    found[part.strip()] = None
        if not found:
            raise TaskDataError("the answer is empty")
        return tuple(found)


def has(row: Mapping[str, Any], names: Collection[str]) -> bool:
    """Whether the row has a value in one of the columns."""
    return any(not _missing(_look_up(row, name)) for name in names)


def mentions(row: Mapping[str, Any], name: str) -> bool:
    """Whether the row has the column, be it empty."""
    return name in row or _look_up(row, name) is not None


def _look_up(row: Mapping[str, Any], name: str) -> Any:
    if name in row:
        return row[name]
    value: Any = row
    for part in name.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def _first(row: Mapping[str, Any], names: Sequence[str]) -> tuple[str, Any]:
    for name in names:
        value = _look_up(row, name)
        if not _missing(value):
            return name, value
    return "", None


def _missing(value: Any) -> bool:
    if isinstance(value, float):
        return math.isnan(value)
    if isinstance(value, str | bytes):
        return not value.strip()
    return value is None or (isinstance(value, list | tuple | Mapping) and not value)


def _lack(row: Mapping[str, Any], what: str, names: Sequence[str]) -> str:
    empty = [name for name in names if name in row]
    if empty:
        return f"the {what} is empty ({', '.join(empty)})"
    return f"no {what} (tried {', '.join(names)}); the row has: {_listed(list(row))}"


def _question(value: Any) -> str:
    """The question's text; of a chat prompt, that of its only user message."""
    if not isinstance(value, list | tuple):
        return _text(value, "the question")
    if not all(isinstance(message, Mapping) and "role" in message for message in value):
        raise TaskDataError("the question is a list, but not of messages with role and content")
    roles = [message["role"] for message in value]
    if roles.count("user") != 1 or not set(roles) <= {"system", "user"}:
        raise TaskDataError(
            f"the prompt has messages of {_listed(roles)}; a task is one user message, "
            "at most with a system message"
        )
    content = value[roles.index("user")].get("content")
    if _missing(content):
        raise TaskDataError("the prompt's user message is empty")
    return _text(content, "the prompt's user message")


def _written_list(text: str) -> list[str] | None:
    """The texts of a list written out in one cell, ``["a", "b"]``; None if it is none."""
    text = text.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return None
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
            return value
    return None


def _text(value: Any, what: str) -> str:
    """A value as text: numbers as they are written, whole ones without ``.0``."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    value = written_number(value)
    if not isinstance(value, str):
        raise TaskDataError(f"{what} is {_kind(value)}, not a text or number")
    if len(value) > MAX_CHARACTERS:
        raise TaskDataError(f"{what} has {len(value):,} characters, over {MAX_CHARACTERS:,}")
    if "\x00" in value:
        raise TaskDataError(f"{what} has a NUL character at {value.index(chr(0))}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        escaped = 0xDC80 <= ord(value[error.start]) <= 0xDCFF
        fault = "a byte that the encoding does not have" if escaped else "half a surrogate pair"
        raise TaskDataError(f"{what} has {fault} at character {error.start}") from None
    return value.strip()


def _rest(row: Mapping[str, Any], used: Collection[str], above: str = "") -> dict[str, Any]:
    """What is left of a row, nulls left out, as values that JSON has."""
    kept = {}
    for key, value in row.items():
        name = f"{above}{key}"
        if name in used:
            continue
        value = _rest(value, used, f"{name}.") if isinstance(value, Mapping) else _plain(value)
        if value is not None and value != {}:
            kept[_mended(key)] = value
    return kept


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_mended(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return _mended(value)
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bool | int | None):
        return value
    return str(value)


def _mended(value: Any) -> str:
    """Text that can be written, broken characters replaced."""
    return _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", str(value))


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    names = {list: "a list", tuple: "a list", dict: "an object", type(None): "null"}
    return names.get(type(value), f"a {type(value).__name__}")


def _listed(names: Sequence[Any]) -> str:
    shown = [_mended(name)[:60] for name in names[:_SHOWN]]
    more = len(names) - len(shown)
    return (", ".join(shown) or "none") + (f" and {more} more" if more > 0 else "")
