"""Recorded trajectories from the files that people have, streamed.

Parquet, JSON lines and JSON (text also gzipped); a file, or a folder of shards, which may be
of several kinds and layouts (:mod:`replay.layouts`).  A file is cut into :class:`Chunk` s of at
most :data:`CHUNK_ROWS` rows and about :data:`CHUNK_BYTES`; where it is cut depends on the file
alone.  Cutting is cheap and done in one process; making rows of a chunk is not, and may be
done in another.

What can't be read is told in one message a file (:class:`FileProblem`) or becomes a
:class:`~replay.layouts.Drop` with its reason, and the rest is read.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa

from drv_env.errors import TaskDataError
from drv_env.parquet_batches import DAMAGE, batches_of, check_columns, opened, rows_told, short
from drv_env.settings import shown
from replay.json_texts import UNPACKING, Numbered, json_lines, json_objects
from replay.layouts import Drop, Layout, RawTrajectory, Reason, Source, layout_of, read_row
from replay.raw_trajectory import LINES

CHUNK_ROWS = 256
CHUNK_BYTES = 2**24

_PARQUET = (".parquet", ".pq")
KINDS = (*_PARQUET, *LINES, ".json")
"""Ends of names that are read; those of text may have ``.gz`` after them."""
_OWN = ("stats.json", "turns.svg")
"""What a cleaning job leaves beside its rows."""


@dataclass(frozen=True, slots=True)
class FileProblem:
    """Why a file, or the rest of one, was left out.

    Attributes:
        file: its name.
        message: what is wrong, and from where on.
    """

    file: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}: {self.message}"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some rows of a file, not yet read.

    Attributes:
        file: its name.
        rows: how many.
        first: number of the first row, as :class:`~replay.layouts.Source` counts.
        last: number of the last row.
        data: a record batch as an Arrow stream, or numbered JSON texts.
    """

    file: str
    rows: int
    first: int
    last: int
    data: bytes | list[Numbered]


Row = tuple[Source, RawTrajectory | Drop]
Plain = tuple[Source, Mapping[str, Any] | Drop]
"""A row as it is written, of whatever layout."""

FindLayout = Callable[[Collection[str]], Layout | str]
"""The layout with these columns, or what is missing; :func:`~replay.layouts.layout_of`."""


def read_raw(
    paths: str | Path | Sequence[str | Path],
    on_problem: Callable[[FileProblem], None] | None = None,
) -> Iterator[Row]:
    """Every row of some files and folders, in order: a trajectory, or why it is none.

    Args:
        paths: one, or several.
        on_problem: told of each file that can't be read, or not to its end; when None, the
            first one raises.

    Raises:
        TaskDataError: for a problem, where nobody is told.
    """
    tell = on_problem or _raise
    paths = [paths] if isinstance(paths, str | Path) else paths
    for file in input_files(paths, tell):
        for chunk in chunks_of(file, tell):
            yield from rows_of(chunk)


def input_files(
    paths: Iterable[str | Path], on_problem: Callable[[FileProblem], None]
) -> list[Path]:
    """The files to read: those named, and those of the folders named in order of their names.

    In a folder, hidden files, those that begin with ``_``, a cleaning job's figures and subfolders
    are left out, and a file of another kind is told.
    """
    found = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(file for file in path.iterdir() if file.is_file())
            inside = [file for file in inside if not file.name.startswith((".", "_"))]
            inside = [file for file in inside if file.name not in _OWN]
            if not inside:
                on_problem(FileProblem(str(path), "no files in this folder"))
        elif path.is_file():
            inside = [path]
        elif path.exists():
            on_problem(FileProblem(str(path), "it is no regular file"))
            continue
        else:
            on_problem(FileProblem(str(path), "there is no such file or folder"))
            continue
        for file in inside:
            if _kind(file) in KINDS:
                found.append(file)
            else:
                known = ", ".join(KINDS)
                on_problem(FileProblem(str(file), f"none of the kinds that are read: {known}"))
    return found


def chunks_of(
    file: Path,
    on_problem: Callable[[FileProblem], None],
    find_layout: FindLayout = layout_of,
    beside: Collection[str] = (),
) -> Iterator[Chunk]:
    """The file in pieces, in order; never more than a few of them in memory.

    Args:
        file: of one of the :data:`KINDS`.
        on_problem: told when it can't be read, or not to its end.
        find_layout: which tables are read.
        beside: columns that are read too, where they exist.
    """
    count = 0
    problems: list[str] = []
    try:
        if file.stat().st_size == 0:
            raise TaskDataError("the file is empty")
        if _kind(file) in _PARQUET:
            chunks = _parquet_chunks(file, find_layout, beside, problems.append)
        else:
            chunks = _json_chunks(file)
        for chunk in chunks:
            count += chunk.rows
            yield chunk
        if not count and not problems:
            raise TaskDataError("there are no rows in it")
    except (TaskDataError, *UNPACKING, *DAMAGE) as error:
        problems.append((f"after {count:,} rows: " if count else "") + short(error))
    if problems:
        more = f" (and {len(problems) - 1:,} more places)" if len(problems) > 1 else ""
        on_problem(FileProblem(str(file), problems[0].removeprefix(f"{file} ") + more))


def rows_of(chunk: Chunk) -> Iterator[Row]:
    """The rows of a chunk, in order."""
    for source, row in plain_rows(chunk):
        if isinstance(row, Drop):
            yield source, row
            continue
        layout = layout_of(row)
        if isinstance(layout, str):
            yield source, Drop(Reason.UNKNOWN_LAYOUT, layout[:200])
        else:
            yield source, read_row(row, layout, source)


def plain_rows(chunk: Chunk) -> Iterator[Plain]:
    """The rows of a chunk as they are written, in order."""
    if isinstance(chunk.data, bytes):
        with pa.ipc.open_stream(chunk.data) as stream:
            batch = stream.read_next_batch()
        for number, row in enumerate(_table_rows(batch), start=chunk.first):
            yield Source(chunk.file, number), row
    else:
        for number, text in chunk.data:
            yield Source(chunk.file, number), _json_row(text)


def row_count(file: Path) -> int | None:
    """How many rows of a known layout a Parquet file says it has; None for other kinds."""
    if _kind(file) not in _PARQUET:
        return None
    try:
        with opened(file) as table:
            known = isinstance(layout_of(table.schema_arrow.names), Layout)
            return int(table.metadata.num_rows) if known else 0
    except (TaskDataError, *DAMAGE):
        return 0


def _raise(problem: FileProblem) -> None:
    raise TaskDataError(str(problem))


def _kind(file: Path) -> str:
    suffix = file.suffix.lower()
    if suffix == ".gz":
        inner = file.with_suffix("").suffix.lower()
        return "" if inner in _PARQUET else inner
    return suffix


# ---- JSON -----------------------------------------------------------------------------


def _json_chunks(file: Path) -> Iterator[Chunk]:
    gathered: list[Numbered] = []
    size = 0
    with _opened(file) as stream:
        texts = json_lines(stream) if _kind(file) in LINES else json_objects(stream)
        try:
            for number, text in texts:
                gathered.append((number, text))
                size += len(text or b"")
                if len(gathered) == CHUNK_ROWS or size >= CHUNK_BYTES:
                    yield _json_chunk(file, gathered)
                    gathered, size = [], 0
        except (TaskDataError, *UNPACKING):
            if gathered:
                yield _json_chunk(file, gathered)
            raise
    if gathered:
        yield _json_chunk(file, gathered)


def _json_chunk(file: Path, texts: list[Numbered]) -> Chunk:
    return Chunk(str(file), len(texts), texts[0][0], texts[-1][0], texts)


def _opened(file: Path) -> IO[bytes]:
    if file.suffix.lower() == ".gz":
        return cast(IO[bytes], gzip.open(file, "rb"))
    return file.open("rb")


def _json_row(text: bytes | None) -> Mapping[str, Any] | Drop:
    if text is None:
        return Drop(Reason.UNREADABLE, "cut off, or too long")
    try:
        row = json.loads(_decoded(text))
    except (ValueError, RecursionError) as error:
        return Drop(Reason.UNREADABLE, f"not JSON: {error}"[:100])
    if not isinstance(row, dict):
        return Drop(Reason.UNREADABLE, f"not an object: {shown(row)}")
    return row


# ---- Parquet --------------------------------------------------------------------------


def _parquet_chunks(
    file: Path,
    find_layout: FindLayout,
    beside: Collection[str],
    on_damage: Callable[[str], None],
) -> Iterator[Chunk]:
    with opened(file, buffered=True) as table:
        names = table.schema_arrow.names
        layout = find_layout(names)
        if isinstance(layout, str):
            raise TaskDataError(layout)
        columns = [name for name in names if name in layout.columns or name in beside]
        check_columns(columns)
        meta = table.metadata
        groups = (meta.row_group(number).total_byte_size for number in range(meta.num_row_groups))
        mean = sum(groups) // max(meta.num_rows, 1) + 1
        rows = max(1, min(CHUNK_ROWS, CHUNK_BYTES // mean))
        first = count = size = 0
        gathered: list[pa.RecordBatch] = []

        def damaged(start: int, stop: int, why: str) -> None:
            on_damage(rows_told(start, stop, why))

        for number, batch in batches_of(table, columns, rows, damaged):
            if gathered and number != first + count:  # after damage
                yield _parquet_chunk(file, first, gathered)
                gathered, count, size = [], 0, 0
            if not gathered:
                first = number
            for piece in _pieces(batch):
                grown = size + piece.nbytes
                if gathered and (count + len(piece) > CHUNK_ROWS or grown > CHUNK_BYTES):
                    yield _parquet_chunk(file, first, gathered)
                    first, gathered, count, size = first + count, [], 0, 0
                gathered.append(piece)
                count += len(piece)
                size += piece.nbytes
        if gathered:
            yield _parquet_chunk(file, first, gathered)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if len(batch) == 0:
        return
    if len(batch) == 1 or batch.nbytes <= CHUNK_BYTES:
        yield batch
        return
    middle = len(batch) // 2
    yield from _pieces(batch.slice(0, middle))
    yield from _pieces(batch.slice(middle))


def _parquet_chunk(file: Path, first: int, batches: list[pa.RecordBatch]) -> Chunk:
    table = pa.Table.from_batches(batches).combine_chunks()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    data = sink.getvalue().to_pybytes()
    return Chunk(str(file), len(table), first, first + len(table) - 1, data)


def _table_rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    columns = {name: _values(batch.column(name)) for name in batch.schema.names}
    for place in range(len(batch)):
        yield {name: values[place] for name, values in columns.items()}


def _values(array: pa.Array) -> list[Any]:
    """Plain values; texts that are not UTF-8 come with what can be read of them."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _values(array.dictionary_decode())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        # Several times faster than to_pylist() for structs of texts.
        items = _values(array.flatten())
        lengths = array.value_lengths().to_pylist()
        rows: list[Any] = []
        start = 0
        for length in lengths:
            rows.append(None if length is None else items[start : start + length])
            start += length or 0
        return rows
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        fields = [_values(field) for field in array.flatten()]
        rows = [dict(zip(names, values, strict=True)) for values in zip(*fields, strict=True)]
        if array.null_count:
            rows = [
                row if there else None for row, there in zip(rows, array.is_valid(), strict=True)
            ]
        return rows
    try:
        return list(array.to_pylist())
    except UnicodeDecodeError:
        large = pa.types.is_large_string(kind)
        raw = array.cast(pa.large_binary() if large else pa.binary()).to_pylist()
        return [None if text is None else _decoded(text) for text in raw]
    except (ValueError, OverflowError) as error:  # a time that Python can't hold
        return [f"can't be read: {error}"] * len(array)


def _decoded(text: bytes) -> str:
    for errors in ("strict", "surrogatepass"):
        try:
            return text.decode("utf-8", errors)
        except UnicodeDecodeError:
            continue
    return text.decode("utf-8", "replace")
