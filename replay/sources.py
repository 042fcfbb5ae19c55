"""Trajectories from any file: the project's own, or recorded chat messages.

Chat files are Parquet, JSON lines or JSON in the layouts of :mod:`replay.layouts`; beside
their columns a row may hold ``world``, ``weight`` and ``request_id``.  Rows are streamed; a
row that is no recording is counted and passed over, not repaired: that is what cleaning is
for.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from drv_env.errors import SettingError, TaskDataError
from replay.json_texts import json_lines, json_objects
from replay.layouts import CLEAN, ROLLOUT, Drop, Source, layout_of, read_row
from replay.read import FileProblem, input_files
from replay.recorded import from_messages
from replay.store import is_trajectory_file, read_trajectories
from replay.trajectory import Trajectory


@dataclass(slots=True)
class Passed:
    """Rows that were no recordings: how many, and why the first few weren't."""

    count: int = 0
    reasons: list[str] = field(default_factory=list)

    def add(self, reason: str) -> None:
        """Count one."""
        self.count += 1
        if len(self.reasons) < 5:
            self.reasons.append(reason)


def open_trajectories(
    paths: Iterable[str | Path], passed: Passed | None = None
) -> Iterator[Trajectory]:
    """Trajectories of files and folders, in order, streamed.

    Args:
        paths: trajectory files or folders of their parts, and chat files or folders.
        passed: counts rows that are no recordings; without it the first of them raises.

    Raises:
        TaskDataError: naming a file that can't be read, or a row that is no recording.
    """
    for path in map(Path, paths):
        if _is_store(path):
            yield from read_trajectories(path)
            continue
        for file, number, row in _all_rows(path, passed):
            try:
                yield _trajectory(row, file, number)
            except TaskDataError as error:
                if passed is None:
                    raise TaskDataError(f"{file}, row {number}: {error}") from error
                passed.add(f"{file.name}, row {number}: {error}")


def trajectory_at(path: str | Path, row: int) -> Trajectory:
    """One trajectory of a file or folder, by its number from 0.

    Raises:
        TaskDataError: when there are fewer, or the row is no recording.
    """
    path = Path(path)
    if row < 0:
        raise SettingError(f"rows are counted from 0, got {row}")
    if _is_store(path):
        found = next(read_trajectories(path, first=row), None)
        if found is not None:
            return found
    else:
        for file, number, content in islice(_all_rows(path), row, None):
            return _trajectory(content, file, number)
    raise TaskDataError(f"{path} has no row {row}")


def _all_rows(
    path: Path, passed: Passed | None = None
) -> Iterator[tuple[Path, int, Mapping[str, Any]]]:
    """Every row of a chat file or folder, with its file and its number in it."""

    def problem(found: FileProblem) -> None:
        if passed is None:
            raise TaskDataError(str(found))
        passed.add(str(found))

    for file in input_files([path], problem):
        for number, row in enumerate(_rows(file)):
            yield file, number, row


def _is_store(path: Path) -> bool:
    if not path.exists():
        raise TaskDataError(f"there is no file or folder {path}")
    return (path.is_dir() or path.suffix == ".parquet") and is_trajectory_file(path)


def _rows(file: Path) -> Iterator[Mapping[str, Any]]:
    """Rows of one chat file."""
    zipped = file.suffix == ".gz"
    kind = Path(file.stem).suffix if zipped else file.suffix
    if kind in (".parquet", ".pq"):
        yield from _parquet_rows(file)
        return
    cut = json_objects if kind == ".json" else json_lines
    with gzip.open(file, "rb") if zipped else file.open("rb") as stream:
        for number, text in cut(cast(IO[bytes], stream)):
            if text is None:
                raise TaskDataError(f"{file}, row {number} is too long or was cut off")
            yield _json(text, f"{file}, row {number}")


def _parquet_rows(file: Path) -> Iterator[Mapping[str, Any]]:
    try:
        with pq.ParquetFile(file) as opened:
            for batch in opened.iter_batches(batch_size=16):
                yield from batch.to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise TaskDataError(f"{file} can't be read as Parquet: {error}") from error


def _json(text: bytes, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TaskDataError(f"{where} is not JSON: {error}") from error


def _trajectory(row: Mapping[str, Any], file: Path, number: int) -> Trajectory:
    if not isinstance(row, Mapping):
        raise TaskDataError(f"it is {type(row).__name__}, not an object with messages")
    layout = layout_of(row.keys())
    if layout is CLEAN or (isinstance(layout, str) and "messages" in row):
        layout = ROLLOUT  # without a gold answer it can be replayed and shown all the same
    if isinstance(layout, str):
        raise TaskDataError(layout)
    raw = read_row(row, layout, Source(file.name, number))
    if isinstance(raw, Drop):
        raise TaskDataError(f"{raw.reason}: {raw.detail}" if raw.detail else str(raw.reason))
    system = raw.system_prompt
    opening = [] if system is None else [{"role": "system", "content": system}]
    provenance: dict[str, Any] = {"file": file.name, "row": number}
    for name in ("request_id", "weight"):
        if isinstance(row.get(name), str | int | float):
            provenance[name] = row[name]
    world = row.get("world")
    return from_messages(
        [*opening, *raw.messages],
        raw.answers,
        world=world if isinstance(world, str) else None,
        provenance=provenance,
    )
