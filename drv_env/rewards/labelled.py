"""Answers that a person has labelled right or wrong, from a file: for checking a judge.

JSONL (one object a line) or CSV (a header, then rows), with the columns, whatever their case,

* ``question``;
* the gold answer: ``answers``, ``gold``, ``gold_answer``, ``gold_answers`` or
  ``ground_truth``; several in a list, or separated by ``<|answer_split|>``;
* what is judged: ``prediction``, or else ``answer``; may be empty.  Beside a ``prediction``,
  ``answer`` may be the gold answer;
* ``label`` or ``correct``: true, yes, 1, right, correct, or their opposites;
* ``id``, where there is one.

A row that can't be used is named by file and row and left out; the rest is read.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drv_env.charsets import unicode_encoding
from drv_env.ciphertext import encrypted_rows
from drv_env.column_names import find, has_column
from drv_env.csv_dialect import delimiter_of, said_delimiter
from drv_env.errors import TaskDataError
from drv_env.json_files import why_unread
from drv_env.tasks import Task, task_from

GOLD = ("answers", "gold", "gold_answer", "gold_answers", "ground_truth", "answer")
JUDGED = ("prediction", "answer")
LABEL = ("label", "correct")

_KNOWN = ("question", "id", *dict.fromkeys((*GOLD, *JUDGED, *LABEL)))

_LABELS = {
    **dict.fromkeys(("true", "yes", "1", "right", "correct"), True),
    **dict.fromkeys(("false", "no", "0", "wrong", "incorrect"), False),
}


@dataclass(frozen=True, slots=True)
class LabelledAnswer:
    """One answer with the label a person gave it.

    Attributes:
        task: the question and its gold answers.
        answer: what is judged.
        label: whether it is right.
        where: file and row, for messages.
    """

    task: Task
    answer: str
    label: bool
    where: str


@dataclass(frozen=True, slots=True)
class Labelled:
    """A file of labelled answers.

    Attributes:
        rows: those that could be read, in order.
        problems: for each other row, a line that names file, row and what is wrong.
    """

    rows: list[LabelledAnswer]
    problems: list[str]


def read_labelled(path: str | Path) -> Labelled:
    """Read a file of labelled answers; see the module for its columns.

    Args:
        path: ends in ``.jsonl`` or ``.csv``.  JSONL rows are counted as lines of the file
            from 1, CSV rows from 1 after the header.

    Raises:
        TaskDataError: when the file can't be read, or has no row that can.
    """
    path = Path(path)
    readers = {".jsonl": _json_lines, ".csv": _csv_rows}
    if path.suffix.lower() not in readers:
        raise TaskDataError(f"{path}: labelled answers are read from .jsonl and .csv files")
    try:
        if path.exists() and not path.is_file():
            raise OSError("it is no regular file")
        content = path.read_bytes()
        name, codec = unicode_encoding(content)
        text = content.decode(codec, errors="surrogateescape")
    except OSError as error:
        raise TaskDataError(f"{path} can't be read: {why_unread(error)}") from error
    except UnicodeDecodeError:
        raise TaskDataError(f"{path} can't be read: it is no {name} text") from None
    rows, problems = [], []
    for number, row in readers[path.suffix.lower()](text):
        where = f"{path}, row {number}"
        try:
            rows.append(_labelled(row, where))
        except TaskDataError as error:
            problems.append(f"{where}: {error}")
    if not rows:
        first = f"; the first problem: {problems[0]}" if problems else ""
        raise TaskDataError(f"{path} has no labelled answer that can be used{first}")
    hidden = encrypted_rows([(row.task.question, row.task.answers, {}) for row in rows])
    if hidden is not None:
        raise TaskDataError(f"{path} is encrypted: {hidden}")
    return Labelled(rows, problems)


_ESCAPED = re.compile("[\udc80-\udcff]")
"""Bytes that are no UTF-8, as reading with ``surrogateescape`` gives them."""


def _json_lines(text: str) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if _ESCAPED.search(line):
            yield number, TaskDataError("it can't be read: it is no UTF-8 text")
        elif line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                yield number, TaskDataError(f"not JSON: {error}")


def _csv_rows(text: str) -> Iterator[tuple[int, Any]]:
    csv.field_size_limit(sys.maxsize)
    lines = io.StringIO(text, newline="")
    start, header = 0, ""
    while line := lines.readline():
        if line.strip():
            header = line
            break
        start = lines.tell()
    said = said_delimiter(header)
    if said is None:
        lines.seek(start)
    rows = csv.DictReader(lines, delimiter=said or delimiter_of(header, _fits))
    number = 0
    while True:
        number += 1
        try:
            yield number, next(rows)
        except StopIteration:
            return
        except csv.Error as error:
            yield number, TaskDataError(f"not CSV: {error}")


def _fits(names: Sequence[str]) -> bool:
    return all(any(has_column(names, name) for name in each) for each in (JUDGED, LABEL))


def _labelled(row: Any, where: str) -> LabelledAnswer:
    if isinstance(row, TaskDataError):
        raise row
    if not isinstance(row, dict):
        raise TaskDataError(f"a row is an object with named columns, got {row!r:.100}")
    for name, value in row.items():
        if isinstance(value, str) and _ESCAPED.search(value):
            raise TaskDataError(f"{name} is no UTF-8 text")
    if None in row:
        raise TaskDataError("it has more cells than the header has names")
    known = {found[0]: name for name in _KNOWN if (found := find(row, name))}
    row = {known.get(name, name): value for name, value in row.items()}
    judged = _name(row, JUDGED)
    gold = _name({key: row[key] for key in row if key != judged}, GOLD)
    answer, label = row[judged], row[_name(row, LABEL)]
    if not isinstance(answer, str):
        raise TaskDataError(f"the judged answer must be a string, got {answer!r:.100}")
    meaning = _LABELS.get(str(label).strip().lower())
    if meaning is None:
        raise TaskDataError(f"a label is true or false (yes, no, 1, 0), got {label!r:.100}")
    task = task_from(
        {"question": row.get("question"), "answers": row[gold], "id": row.get("id") or None}
    )
    return LabelledAnswer(task, answer, meaning, where)


def _name(row: dict[str, Any], names: tuple[str, ...]) -> str:
    """The first of the names that the row has a value for."""
    for name in names:
        if row.get(name) is not None:
            return name
    raise TaskDataError(f"it has no {' or '.join(names)}; its columns are {list(row)!r:.200}")
