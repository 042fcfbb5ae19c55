"""The cells of a row that somebody else wrote: what is missing, a cell's text, its gold answers.

Values are plain ones, as JSON and Parquet have them.  Nothing here knows columns or files.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from drv_env.errors import TaskDataError
from drv_env.tasks import ANSWER_SEPARATOR, written_number
from drv_env.unicode_text import sound_text

MAX_CHARACTERS = 2**24
"""The longest question or answer taken: the most that the env's text space holds."""

_FIELDS = (
    "target",
    "ground_truth",
    "answers",
    "answer",
    "golden_answers",
    "gold_answers",
    "value",
    "text",
)
"""Where an object keeps the gold answer; the first that has one counts."""
_ALIASES = "aliases"
_SHOWN = 12


def is_missing(value: Any) -> bool:
    """Whether a cell holds nothing: null, NaN, blank, or an empty list or object."""
    if isinstance(value, float):
        return math.isnan(value)
    if isinstance(value, str | bytes):
        return not value.strip()
    return value is None or (isinstance(value, list | tuple | Mapping) and not value)


def cell_text(value: Any, what: str) -> str:
    """A value as text, stripped: numbers as they are written, whole ones without ``.0``.

    Args:
        value: the cell.
        what: how the error calls it.

    Raises:
        TaskDataError: when it is no text or number, too long, or no text that can be written.
    """
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    value = written_number(value)
    if not isinstance(value, str):
        raise TaskDataError(f"{what} is {cell_kind(value)}, not a text or number")
    if len(value) > MAX_CHARACTERS:
        raise TaskDataError(f"{what} has {len(value):,} characters, over {MAX_CHARACTERS:,}")
    if "\x00" in value:
        raise TaskDataError(f"{what} has a NUL character at {value.index(chr(0))}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        escaped = 0xDC80 <= ord(value[error.start]) <= 0xDCFF
        fault = "a byte that the encoding does not have" if escaped else "half a surrogate pair"
        mend = "; save the file as UTF-8" if escaped else ""
        raise TaskDataError(f"{what} has {fault} at character {error.start}{mend}") from None
    return value.strip()


def gold_answers(value: Any, separator: str = ANSWER_SEPARATOR) -> tuple[str, ...]:
    """The gold answers in a cell, each once, in order; () where it holds none.

    A text or a number is one answer, or several with ``separator`` between; lists are taken
    apart however deep they are nested, also where a text writes one out; of an object one
    field counts (``target``, ``ground_truth``, ``answers``, ``answer``, ``golden_answers``,
    ``gold_answers``, ``value``, ``text``), with its ``aliases`` after it.

    Raises:
        TaskDataError: for what is no text or number, and an object with none of these fields.

    Example:
        >>> gold_answers([["A"], 1912]), gold_answers({"target": ["A", "B"], "style": "rule"})
        (('A', '1912'), ('A', 'B'))
    """
    found: dict[str, None] = {}
    try:
        _gather(_written_out(value) if isinstance(value, str) else value, separator, found)
    except RecursionError:
        raise TaskDataError("the answer is nested too deeply") from None
    return tuple(found)


def _gather(value: Any, separator: str, found: dict[str, None]) -> None:
    if is_missing(value):
        return
    if isinstance(value, Mapping):
        name = next((name for name in _FIELDS if not is_missing(value.get(name))), None)
        if name is None and is_missing(value.get(_ALIASES)):
            raise TaskDataError(
                f"the answer has fields of its own ({listed(list(value))}); "
                "name one with answer='column.field'"
            )
        _gather(None if name is None else value[name], separator, found)
        _gather(value.get(_ALIASES), separator, found)
    elif isinstance(value, list | tuple):
        for item in value:
            _gather(item, separator, found)
    else:
        for part in cell_text(value, "the answer").split(separator):
            if part.strip():
                found[part.strip()] = None


def cell_kind(value: Any) -> str:
    """What kind of value it is, in words."""
    if isinstance(value, bool):
        return "true or false"
    names = {list: "a list", tuple: "a list", dict: "an object", type(None): "null"}
    return names.get(type(value), f"a {type(value).__name__}")


def listed(names: Sequence[Any]) -> str:
    """Some names for a message, broken characters replaced; the first dozen, each cut."""
    shown = [sound_text(str(name))[:60] for name in names[:_SHOWN]]
    more = len(names) - len(shown)
    return (", ".join(shown) or "none") + (f" and {more} more" if more > 0 else "")


def _written_out(given: str) -> Any:
    """The list of texts, or the object, that a text writes out; else the text."""
    text = given.strip()
    if (text[:1], text[-1:]) not in (("[", "]"), ("{", "}")):
        return given
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        if isinstance(value, list) and value and _only_texts(value):
            return value
        if isinstance(value, dict) and any(name in value for name in (*_FIELDS, _ALIASES)):
            return value
    return given


def _only_texts(items: list[Any]) -> bool:
    return all(
        _only_texts(item) if isinstance(item, list) else isinstance(item, str) for item in items
    )
