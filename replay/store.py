"""Trajectories to and from Parquet: files, folders of parts, filters.

A file, or a part, is written under a hidden temporary name and renamed when it is whole:
what has its name can be read.  Reading is lazy, row group by row group, and keeps order.

A filter is a pyarrow expression on the plain columns of :data:`replay.schema.SCHEMA`::

    import pyarrow.compute as pc
    long_and_right = (pc.field("turn_count") > 50) & (pc.field("outcome") == 1.0)
    for trajectory in read_trajectories("runs/a/trajectories", where=long_and_right): ...
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from drv_env.errors import TaskDataError
from drv_env.parquet_batches import DAMAGE, batches_of, opened, rows_told, short
from drv_env.settings import at_least, checked_whole
from drv_env.whole_files import publish, replacing, temporary_beside
from replay.schema import (
    READABLE_VERSIONS,
    SCHEMA,
    SCHEMA_VERSION,
    check_schema,
    from_row,
    row_bytes,
    to_row,
)
from replay.trajectory import Trajectory

__all__ = [
    "SCHEMA",
    "SCHEMA_VERSION",
    "TrajectoryWriter",
    "count_trajectories",
    "is_trajectory_file",
    "parts_of",
    "read_columns",
    "read_rows",
    "read_trajectories",
    "trajectories_in",
    "write_trajectories",
]

_GROUP_ROWS = 256
_GROUP_BYTES = 32_000_000
"""A row group is closed at this many rows or about this many bytes."""

_FILTERABLE = tuple(
    field.name
    for field in SCHEMA
    if not (pa.types.is_nested(field.type) or field.name in ("task_metadata", "provenance"))
)


def write_trajectories(path: str | Path, trajectories: Iterable[Trajectory]) -> int:
    """Write a Parquet file of trajectories, whole or not at all.

    Lone surrogates, which Parquet's UTF-8 text can't hold, become U+FFFD.

    Returns:
        How many were written.

    Raises:
        DiskError: when the file can't be written.
    """
    with replacing(path) as temporary:
        return fill_trajectories(temporary, trajectories)


def fill_trajectories(path: Path, trajectories: Iterable[Trajectory]) -> int:
    """Fill an open temporary file; how many.  :func:`write_trajectories` writes one whole."""
    return _write(path, trajectories)


class TrajectoryWriter:
    """Writes trajectories in parts while they come in.

    A crash loses at most the part that was being gathered.  Numbering goes on after the
    parts that are there, and several processes may write to one folder: a part never
    replaces another.

    Args:
        folder: made where it is missing; parts are ``part-00000.parquet`` and so on.
        part_rows: trajectories of a part, at least 1.
        part_bytes: a part is also closed at about this size in memory.

    Raises:
        SettingError: when a setting can't work.

    Example::

        with TrajectoryWriter("runs/a/trajectories") as writer:
            for trajectory in rollouts:
                writer.write(trajectory)
    """

    def __init__(
        self, folder: str | Path, part_rows: int = 64, part_bytes: int = 128_000_000
    ) -> None:
        for name, value in (("part_rows", part_rows), ("part_bytes", part_bytes)):
            checked_whole(name, value, at_least(1))
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._part_rows = part_rows
        self._part_bytes = part_bytes
        self._waiting: list[Trajectory] = []
        self._bytes = 0
        self.written = 0
        """Trajectories in parts that are on the disk."""

    def write(self, trajectory: Trajectory) -> None:
        """Take a trajectory; it is on the disk once its part is full or flushed."""
        self._waiting.append(trajectory)
        self._bytes += _rough_bytes(trajectory)
        if len(self._waiting) >= self._part_rows or self._bytes >= self._part_bytes:
            self.flush()

    def flush(self) -> Path | None:
        """Write what waits as a part; its path, or None where nothing waited."""
        if not self._waiting:
            return None
        with temporary_beside(self.folder / "part.parquet") as temporary:
            _write(temporary, self._waiting)
            path = self._publish(temporary)
        self.written += len(self._waiting)
        self._waiting, self._bytes = [], 0
        return path

    def _publish(self, temporary: Path) -> Path:
        number = 1 + max(map(_part_number, self.folder.glob("part-*.parquet")), default=-1)
        while True:
            path = self.folder / f"part-{number:05}.parquet"
            try:
                publish(temporary, path, may_replace=False)
            except FileExistsError:
                number += 1
                continue
            return path

    def close(self) -> None:
        """Write what waits; may be called twice."""
        self.flush()

    def __enter__(self) -> TrajectoryWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def parts_of(path: str | Path) -> list[Path]:
    """The file itself, or the Parquet files of a folder in the order of their names.

    A folder that a rollout or a run filled stands for its ``trajectories``.

    Raises:
        TaskDataError: naming the path, when there is none.
    """
    path = Path(path)
    if not path.is_dir():
        return [path]
    path = trajectories_in(path)
    parts = sorted(item for item in path.glob("*.parquet") if not item.name.startswith("."))
    if not parts:
        raise TaskDataError(f"{path} holds no Parquet files")
    return parts


def trajectories_in(folder: Path) -> Path:
    """The folder itself, or its ``trajectories`` where a rollout or a run filled it."""
    below = folder / "trajectories"
    return below if below.is_dir() and not any(folder.glob("*.parquet")) else folder


def is_trajectory_file(path: str | Path) -> bool:
    """Whether a Parquet file, or the first of a folder, is one of :data:`SCHEMA`."""
    try:
        metadata = pq.read_schema(parts_of(path)[0]).metadata
    except (*DAMAGE, TaskDataError):
        return False
    return b"drv_schema_version" in (metadata or {})


def count_trajectories(path: str | Path) -> int:
    """How many trajectories a file or folder holds; reads none.

    Raises:
        TaskDataError: as :func:`read_trajectories`.
    """
    return sum(_with_file(part)[0].metadata.num_rows for part in parts_of(path))


def read_trajectories(
    path: str | Path,
    *,
    where: pc.Expression | None = None,
    transcripts: bool = True,
    first: int = 0,
) -> Iterator[Trajectory]:
    """Trajectories of a file or a folder of parts, in order, a row group at a time.

    Args:
        path: a Parquet file, or a folder of them.
        where: keeps the rows for which it holds; of a row group without such rows only
            the plain columns are read.
        transcripts: False leaves the tokens out, and their reading.
        first: rows to pass over, before any filter, at least 0.

    Raises:
        TaskDataError: naming the file, when it is no trajectory file of a version that
            can be read, or can't be filtered.
    """
    columns = [name for name in SCHEMA.names if transcripts or name != "transcript"]
    for part, number, table in _tables(path, columns, where, first):
        for row in table.to_pylist():
            try:
                yield from_row(row)
            except TaskDataError as error:
                place = "" if where is not None else f" row {number}"
                raise TaskDataError(f"{part}{place}: {error}") from error
            number += 1


def read_rows(
    path: Path, on_problem: Callable[[object], None]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of one trajectory file as they are written, with their numbers from 0.

    Args:
        path: the file.
        on_problem: told of rows that can't be read, or of the whole file.
    """
    try:
        file, _ = _with_file(path)
    except TaskDataError as error:
        on_problem(error)
        return
    with file:
        columns = [name for name in SCHEMA.names if _has(file, name)]

        def damaged(first: int, last: int, why: str) -> None:
            on_problem(f"{path}: {rows_told(first, last, why)}")

        for first, batch in batches_of(file, columns, 16, damaged):
            try:
                rows = batch.to_pylist()
            except DAMAGE as error:  # text that is no UTF-8
                damaged(first, first + len(batch) - 1, short(error))
                continue
            yield from enumerate(rows, start=first)


def read_columns(
    path: str | Path,
    columns: Sequence[str],
    *,
    where: pc.Expression | None = None,
    first: int = 0,
) -> Iterator[pa.Table]:
    """Tables of some columns, one a row group; arguments as :func:`read_trajectories`.

    A column inside the turns is named as Parquet does: ``turns.list.element.tool``.
    """
    for _, _, table in _tables(path, columns, where, first):
        yield table


def _tables(
    path: str | Path, columns: Sequence[str], where: pc.Expression | None, first: int
) -> Iterator[tuple[Path, int, pa.Table]]:
    """Each table with its part and the number of its first row in it."""
    for part in parts_of(path):
        file, version = _with_file(part)
        number = 0
        with file:
            if where is not None and version == 1:
                raise TaskDataError(
                    f"{part} was written by an older version and can't be filtered; rewrite it: "
                    "drv data convert OLD NEW.parquet"
                )
            for group in range(file.num_row_groups):
                rows = file.metadata.row_group(group).num_rows
                begins, number = number, number + rows
                if first >= rows:
                    first -= rows
                    continue
                keep = None if where is None else _matching(file, group, where, part)
                if first:
                    numbers = range(rows) if keep is None else keep
                    keep = [row for row in numbers if row >= first]
                    begins, first = begins + first, 0
                if keep is not None and not keep:
                    continue
                there = [name for name in columns if _has(file, name)]
                table = _row_group(file, group, there, part)
                if keep is not None:
                    table = table.take(pa.array(keep, pa.int64()))
                yield part, begins, table


def _matching(file: pq.ParquetFile, group: int, where: pc.Expression, part: Path) -> list[int]:
    """Rows of a row group for which the expression holds; reads only plain columns."""
    plain = [name for name in _FILTERABLE if _has(file, name)]
    table = _row_group(file, group, plain, part)
    numbers = pa.array(range(table.num_rows), pa.int64())
    try:
        return table.append_column("row", numbers).filter(where)["row"].to_pylist()
    except pa.ArrowException as error:
        known = ", ".join(_FILTERABLE)
        raise TaskDataError(
            f"{part} can't be filtered by {where}: {error}; the columns for it are {known}"
        ) from error


def _row_group(file: pq.ParquetFile, group: int, columns: Sequence[str], part: Path) -> pa.Table:
    try:
        return file.read_row_group(group, columns=columns)
    except DAMAGE as error:
        raise TaskDataError(f"{part}: row group {group} can't be read: {short(error)}") from error


def _has(file: pq.ParquetFile, column: str) -> bool:
    return column.partition(".")[0] in file.schema_arrow.names


def _with_file(path: Path) -> tuple[pq.ParquetFile, int]:
    """The open file and its version."""
    file = opened(path)
    version = (file.schema_arrow.metadata or {}).get(b"drv_schema_version")
    if version not in [str(known).encode() for known in READABLE_VERSIONS]:
        file.close()
        found = (
            "no trajectory file"
            if version is None
            else f"version {version.decode(errors='replace')}"
        )
        known = " or ".join(map(str, READABLE_VERSIONS))
        raise TaskDataError(f"{path}: expected trajectories of version {known}, it is {found}")
    try:
        check_schema(file.schema_arrow)
    except TaskDataError as error:
        file.close()
        raise TaskDataError(f"{path}: {error}") from None
    return file, int(version)


def _write(path: Path, trajectories: Iterable[Trajectory]) -> int:
    count, size = 0, 0
    rows: list[dict[str, Any]] = []
    with path.open("wb") as sink, pq.ParquetWriter(sink, SCHEMA, compression="zstd") as writer:
        for trajectory in trajectories:
            rows.append(to_row(trajectory))
            count += 1
            size += row_bytes(rows[-1])
            if len(rows) == _GROUP_ROWS or size >= _GROUP_BYTES:
                writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
                rows, size = [], 0
        writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
    return count


def _rough_bytes(trajectory: Trajectory) -> int:
    text = sum(len(turn.text) + len(turn.observation or "") for turn in trajectory.turns)
    tokens = 0 if trajectory.transcript is None else len(trajectory.transcript)
    return 1_000 + text + 8 * tokens


def _part_number(path: Path) -> int:
    found = re.fullmatch(r"part-(\d+)\.parquet", path.name)
    return -1 if found is None else int(found[1])
