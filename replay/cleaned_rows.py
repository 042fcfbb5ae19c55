"""Cleaned trajectories as a table: the schema, and files of it.

The columns are those of the clean layout (``question``, ``gt``, ``messages``) and what was
learnt on the way, so that any reader of that layout reads these files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from drv_env.errors import TaskDataError
from drv_env.json_files import why_unread
from drv_env.tasks import ANSWER_SEPARATOR
from drv_env.unicode_text import sound_text
from drv_env.whole_files import disk_faults_told, replacing, write_text
from replay.clean import Cleaned

VERSION = 1
_VERSION_KEY = b"drv_cleaned_version"
SHARD_BYTES = 2**28
_GROUP_BYTES = 2**25

MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])
_MESSAGES = pa.list_(pa.field("element", MESSAGE))
SCHEMA = pa.schema(
    [
        ("question", pa.string()),
        ("gt", pa.string()),
        ("messages", _MESSAGES),
        ("answer", pa.string()),
        ("turns", pa.int32()),
        ("weight", pa.int32()),
        ("copy", pa.int32()),
        ("outcome", pa.float64()),
        ("pruned", pa.int32()),
        ("repeated", pa.int32()),
        ("unread", pa.int32()),
        ("file", pa.string()),
        ("row", pa.int64()),
    ],
    metadata={_VERSION_KEY: str(VERSION).encode()},
)
"""Columns of a file of cleaned trajectories; docs/data.md says what each holds."""


def to_table(
    rows: Sequence[Cleaned], weights: Sequence[int], system_prompt: str | None
) -> pa.Table:
    """Cleaned rows as a table; ``outcome`` is null, ``copy`` 0.

    Args:
        rows: the rows.
        weights: one for each.
        system_prompt: of every row; None keeps each row's own, "" writes none.
    """
    roles: list[str] = []
    contents: list[str] = []
    offsets = [0]
    for row in rows:
        system = (row.raw.system_prompt or "") if system_prompt is None else system_prompt
        if system:
            roles.append("system")
            contents.append(sound_text(system))
        roles += [message["role"] for message in row.messages]
        contents += [message["content"] for message in row.messages]
        offsets.append(len(roles))
    texts = (pa.array(roles, pa.string()), pa.array(contents, pa.string()))
    messages = pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()),
        pa.StructArray.from_arrays(texts, fields=list(MESSAGE)),
        type=_MESSAGES,
    )
    columns = {
        "question": [sound_text(row.raw.question) for row in rows],
        "gt": [sound_text(ANSWER_SEPARATOR.join(row.raw.answers)) or None for row in rows],
        "messages": messages,
        "answer": [row.answer for row in rows],
        "turns": [row.turns for row in rows],
        "weight": list(weights),
        "copy": [0] * len(rows),
        "outcome": [None] * len(rows),
        "pruned": [row.pruned.total() for row in rows],
        "repeated": [row.repeated.total() for row in rows],
        "unread": [row.unread for row in rows],
        "file": [sound_text(row.raw.source.file) for row in rows],
        "row": [row.raw.source.row for row in rows],
    }
    return pa.table(columns, schema=SCHEMA)


def with_outcomes(table: pa.Table, outcomes: Sequence[float]) -> pa.Table:
    """The table with the correctness filter's scores."""
    place = SCHEMA.get_field_index("outcome")
    return table.set_column(place, SCHEMA.field(place), pa.array(outcomes, pa.float64()))


def as_copies(table: pa.Table) -> pa.Table:
    """Each row as often as its weight says, ``weight`` 1 and ``copy`` counting from 0."""
    weights = table["weight"].to_numpy()
    taken = table.take(pa.array(np.repeat(np.arange(len(table)), weights)))
    ones = pa.array(np.ones(len(taken), np.int32))
    numbers = [number for weight in weights for number in range(weight)]
    place, other = SCHEMA.get_field_index("weight"), SCHEMA.get_field_index("copy")
    taken = taken.set_column(place, SCHEMA.field(place), ones)
    return taken.set_column(other, SCHEMA.field(other), pa.array(numbers, pa.int32()))


def write_file(path: Path, table: pa.Table, level: int = 3) -> None:
    """One zstd Parquet file, whole or not at all.

    Args:
        path: the file.
        table: what is in it.
        level: of compression, from 1.
    """
    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", compression_level=level)


def write_shards(
    tables: Iterable[pa.Table], folder: Path, shard_bytes: int = SHARD_BYTES
) -> list[str]:
    """Write tables as ``part-00000.parquet`` and so on; at least one file.

    Args:
        tables: in order; put together into row groups of some 32 MiB.
        folder: must exist; files of the same names are replaced.
        shard_bytes: size of a shard before compression, about.

    Returns:
        The names of the files.

    Raises:
        DiskError: when the disk is full.
    """
    with disk_faults_told(folder):
        return _write_shards(tables, folder, shard_bytes)


def _write_shards(tables: Iterable[pa.Table], folder: Path, shard_bytes: int) -> list[str]:
    names: list[str] = []
    writer: pq.ParquetWriter | None = None
    size = 0
    try:
        for group in _groups(tables):
            if writer is None:
                names.append(f"part-{len(names):05d}.parquet")
                writer = pq.ParquetWriter(folder / names[-1], SCHEMA, compression="zstd")
                size = 0
            writer.write_table(group)
            size += group.nbytes
            if size >= shard_bytes:
                writer.close()
                writer = None
    finally:
        if writer is not None:
            writer.close()
    return names


class RowsAside:
    """The file of rows that could not be judged, with ``why``; made at the first one."""

    def __init__(self, path: Path) -> None:
        self.rows = 0
        self._path = path
        self._writer: pq.ParquetWriter | None = None

    def add(self, table: pa.Table) -> None:
        """Add rows with the columns of :data:`SCHEMA` and ``why``; of none nothing is made."""
        if not len(table):
            return
        if self._writer is None:
            schema = SCHEMA.append(pa.field("why", pa.string()))
            self._writer = pq.ParquetWriter(self._path, schema, compression="zstd")
        self._writer.write_table(table)
        self.rows += len(table)

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.close()


def read_cleaned(path: str | Path) -> Iterator[pa.Table]:
    """Tables of a file or folder of cleaned trajectories, in order, some MiB each.

    Raises:
        TaskDataError: naming the file, when it is no such file of this version.
    """
    path = Path(path)
    files = sorted(path.glob("part-*.parquet")) if path.is_dir() else [path]
    if not files:
        raise TaskDataError(f"{path}: no files part-*.parquet there")
    for file in files:
        try:
            with pq.ParquetFile(file, buffer_size=2**20, pre_buffer=False) as opened:
                version = (opened.schema_arrow.metadata or {}).get(_VERSION_KEY)
                if version != str(VERSION).encode():
                    found = "no such file" if version is None else f"version {version.decode()}"
                    raise TaskDataError(
                        f"{file}: expected cleaned trajectories of version {VERSION}, it is {found}"
                    )
                for batch in opened.iter_batches(batch_size=128, use_threads=False):
                    yield pa.Table.from_batches([batch])
        except (OSError, pa.ArrowException) as error:
            raise TaskDataError(f"{file} can't be read: {why_unread(error)}") from error


def _groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    gathered: list[pa.Table] = []
    size, any_group = 0, False
    for table in tables:
        gathered.append(table)
        size += table.nbytes
        if size >= _GROUP_BYTES:
            yield pa.concat_tables(gathered)
            gathered, size, any_group = [], 0, True
    if gathered or not any_group:
        yield pa.concat_tables([SCHEMA.empty_table(), *gathered])


def write_json(path: Path, value: object) -> None:
    """A JSON file, whole or not at all."""
    write_text(path, sound_text(json.dumps(value, indent=2, ensure_ascii=False)) + "\n")
