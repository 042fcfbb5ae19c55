"""Questions from the files that people have.

    Parquet (verl's layout or named columns), JSON lines, JSON, CSV, TSV; one file, a folder
    of shards, or a pattern; text files also gzipped

Every row becomes a task or a :class:`BadRow` that says where it is and what is wrong with
it; a bad row never hides the others.  A file that can't be read, has no rows or lacks a
column raises :class:`~drv_env.errors.TaskDataError` with its name.  How a file is read is in
:mod:`drv_env.task_formats`, what a row must hold in :mod:`drv_env.task_rows`.
"""

from __future__ import annotations

import glob
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium

from drv_env.ciphertext import encrypted_rows
from drv_env.errors import TaskDataError, boundary
from drv_env.task_formats import KINDS, TextFormat, kind_of, rows_of
from drv_env.task_rows import Columns, mentions
from drv_env.tasks import ANSWER_SEPARATOR, Task, tasks_from

_TOLD = 3
"""Bad rows that an error shows when all rows are bad."""
_LOOKED_AT = 32
"""Tasks at the beginning that are looked at together, whether the file is encrypted."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that is no task.

    Attributes:
        file: where it is.
        row: in text files the number of its first line, from 1; in Parquet and JSON its
            index, from 0.
        reason: what is wrong with it.
        unit: ``"line"`` or ``"row"``, what ``row`` counts.
    """

    file: str
    row: int
    reason: str
    unit: str = "line"

    def __str__(self) -> str:
        return f"{self.file} {self.unit} {self.row}: {self.reason}"


@dataclass(frozen=True, slots=True)
class TaskFile:
    """The tasks of a file or folder, in its order.

    Attributes:
        path: as it was given.
        tasks: at least one.
        problems: the rows that are no tasks.
        duplicate_ids: how often each id occurs that occurs more than once; those tasks are
            all in ``tasks``.
    """

    path: str
    tasks: tuple[Task, ...]
    problems: tuple[BadRow, ...] = ()
    duplicate_ids: Mapping[str, int] = field(default_factory=dict, hash=False)

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)


def read_tasks(
    path: str | os.PathLike[str],
    *,
    question: str | None = None,
    answer: str | None = None,
    id: str | None = None,
    world: str | None = None,
    difficulty: str | None = None,
    separator: str = ANSWER_SEPARATOR,
    encoding: str = "utf-8",
    delimiter: str | None = None,
) -> TaskFile:
    """All tasks of a file, a folder of shards, or a pattern such as ``data/train-*``.

    The arguments are those of :func:`iter_tasks`.

    Raises:
        TaskDataError: when a file can't be read or lacks a column, or there is no task.
        SettingError: for a setting that can't work.

    Example:
        >>> import tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "train.csv")
        ...     _ = file.write_text("question,answer\\nCapital of France?,Paris\\nWho?,\\n")
        ...     found = read_tasks(file)
        >>> found.tasks[0].answers, found.problems[0].row, found.problems[0].reason
        (('Paris',), 3, 'the answer is empty (answer)')
    """
    problems: list[BadRow] = []
    found = iter_tasks(
        path,
        question=question,
        answer=answer,
        id=id,
        world=world,
        difficulty=difficulty,
        separator=separator,
        encoding=encoding,
        delimiter=delimiter,
        on_bad_row=problems.append,
    )
    tasks = tuple(found)
    counts = Counter(task.id for task in tasks)
    repeated = {task_id: count for task_id, count in counts.items() if count > 1}
    return TaskFile(os.fspath(path), tasks, tuple(problems), repeated)


def iter_tasks(
    path: str | os.PathLike[str],
    *,
    question: str | None = None,
    answer: str | None = None,
    id: str | None = None,
    world: str | None = None,
    difficulty: str | None = None,
    separator: str = ANSWER_SEPARATOR,
    encoding: str = "utf-8",
    delimiter: str | None = None,
    on_bad_row: Callable[[BadRow], None] | None = None,
) -> Iterator[Task]:
    """The tasks of a file one by one, without holding it in memory (``.json`` is held).

    Args:
        path: a file, a folder whose files are all of one kind (read in order of name,
            hidden ones and those that begin with ``_`` left out), or a pattern with ``*``.
        question, answer, id, world: names of columns, with dots for nested ones; by default
            the usual names of ``docs/tasks.md``.
        difficulty: a column to keep as ``metadata["difficulty"]``.
        separator: stands between alternative answers in one text.
        encoding: of text files; a byte order mark is skipped.
        delimiter: of CSV, one character; by default the one that the header shows.
        on_bad_row: told of each row that is no task; when None, the first one raises.

    Raises:
        TaskDataError: when a file can't be read or lacks a column, there is no task, or
            a row is bad and ``on_bad_row`` is None.
        SettingError: for a setting that can't work.
    """
    columns = Columns.of(question, answer, id, world, difficulty, separator)
    text = TextFormat(encoding, delimiter)
    return _tasks(os.fspath(path), columns, text, on_bad_row)


TaskSource = str | os.PathLike[str] | TaskFile | Iterable[Any]
"""Where tasks come from: a path, what :func:`read_tasks` gave, or values."""


def load_tasks(value: TaskSource) -> list[Task]:
    """Tasks from a path, from what :func:`read_tasks` gave, or from values.

    A path is read with the usual names of columns.  Bad rows and repeated ids in a file are
    told with ``gymnasium.logger.warn``.

    Raises:
        TaskDataError: when there is no task, or a value is none.
    """
    if isinstance(value, str | os.PathLike):
        value = read_tasks(value)
    if not isinstance(value, TaskFile):
        return list(_refuse_encrypted("the tasks given", iter(tasks_from(value))))
    if value.problems:
        gymnasium.logger.warn(
            "%s: %d bad rows left out, %d tasks read; the first: %s",
            value.path,
            len(value.problems),
            len(value.tasks),
            value.problems[0],
        )
    if value.duplicate_ids:
        gymnasium.logger.warn(
            "%s: %d ids occur more than once; the first: %s",
            value.path,
            len(value.duplicate_ids),
            next(iter(value.duplicate_ids)),
        )
    return list(value.tasks)


def _refuse_encrypted(called: str, tasks: Iterator[Task]) -> Iterator[Task]:
    """The tasks, unless the first of them look encrypted."""
    first: list[Task] = []
    bad: TaskDataError | None = None
    try:
        for task in itertools.islice(tasks, _LOOKED_AT):
            first.append(task)
    except TaskDataError as error:
        bad = error
    why = encrypted_rows([(task.question, task.answers, task.metadata) for task in first])
    if why is not None:
        raise TaskDataError(
            f"{called} is encrypted: {why}; decrypt it as its publisher says, and read what "
            "comes out"
        )
    yield from first
    if bad is not None:
        raise bad
    yield from tasks


def _tasks(
    path: str,
    columns: Columns,
    text: TextFormat,
    on_bad_row: Callable[[BadRow], None] | None,
) -> Iterator[Task]:
    found = 0
    bad: list[BadRow] = []
    bad_count = 0
    files = _files(path)
    # Tables were asked for their columns; of JSON one knows only at the end.
    unseen = set(columns.named) if kind_of(files[0]) in ("json", "jsonl") else set()

    def tasks_of(file: Path) -> Iterator[Task]:
        nonlocal unseen, bad, bad_count
        for number, unit, row in rows_of(file, columns, text):
            try:
                if isinstance(row, str):
                    raise TaskDataError(row)
                unseen -= {name for name in unseen if mentions(row, name)}
                task = columns.task(row)
            except TaskDataError as error:
                problem = BadRow(str(file), number, str(error), unit)
                if on_bad_row is None:
                    raise TaskDataError(str(problem)) from None
                bad_count += 1
                bad += [problem] if bad_count <= _TOLD else []
                on_bad_row(problem)
            else:
                yield task

    for file in files:
        for task in _refuse_encrypted(str(file), tasks_of(file)):
            found += 1
            yield task
    if not found and not bad_count:
        raise TaskDataError(f"{path}: no rows")
    if not found:
        first = {problem.reason: problem for problem in reversed(bad)}
        told = "; ".join(str(problem) for problem in bad if first[problem.reason] is problem)
        raise TaskDataError(f"{path}: no task in {bad_count} rows, all of them bad: {told}")
    if unseen:
        raise TaskDataError(f"{path}: no row has the column {', '.join(sorted(unseen))}")


RECORDS = ("stats.json", "dataset_info.json", "dataset_infos.json", "metadata.json", "state.json")
"""Beside files of rows in a folder: what was said of them, by ``drv data clean`` or by others."""


def _files(path: str) -> list[Path]:
    known = f"{', '.join(KINDS)} (text ones also with .gz)"
    with boundary(TaskDataError, path):
        whole = Path(path)
        if whole.is_dir():
            files = sorted(file for file in whole.iterdir() if not file.is_dir())
        elif not whole.exists() and glob.has_magic(path):
            files = sorted(Path(name) for name in glob.glob(path, recursive=True))
        elif kind_of(whole) is None and whole.exists():
            raise TaskDataError(f"{path}: unknown kind of file; known are {known}")
        else:
            return [whole]
    files = [file for file in files if not file.name.startswith((".", "_"))]
    kinds = {kind_of(file) for file in files} - {None}
    if len(kinds) > 1:
        files = [file for file in files if file.name not in RECORDS]
        kinds = {kind_of(file) for file in files} - {None}
    if not kinds:
        raise TaskDataError(f"{path}: no files of tasks there; known are {known}")
    if len(kinds) > 1:
        raise TaskDataError(
            f"{path}: files of several kinds ({', '.join(sorted(map(str, kinds)))}); "
            "choose some with a pattern, such as 'data/train-*.parquet'"
        )
    return [file for file in files if kind_of(file) is not None]
