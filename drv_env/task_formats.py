"""The rows of one file, whatever its format, numbered as a person would look them up.

Text files (JSON lines, CSV, TSV) count lines from 1, and a row is named by its first line;
Parquet and JSON count rows from 0.  A row that can't be read comes as the reason why; what
makes the whole file unreadable raises.  This module doesn't know what makes a good task:
it is told which columns a table must have (:class:`~drv_env.task_rows.Columns`).
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TextIO

from drv_env.cells import MAX_CHARACTERS
from drv_env.charsets import unicode_encoding
from drv_env.csv_dialect import Lines, delimiter_of, said_delimiter
from drv_env.errors import SettingError, TaskDataError, boundary
from drv_env.json_files import why_unread
from drv_env.settings import shown
from drv_env.task_rows import has

TEXT_KINDS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".csv": "csv", ".tsv": "csv"}
KINDS = {".parquet": "parquet", ".pq": "parquet", **TEXT_KINDS}
"""Formats by the end of a file's name; those of text may have ``.gz`` after it."""

_BATCH = 1024

Row = Mapping[str, Any] | str
"""A row's columns, or why it can't be read."""


@dataclass(frozen=True, slots=True)
class TextFormat:
    """How text files are written.

    Attributes:
        encoding: a byte order mark is skipped; what shows itself as UTF-16 or UTF-32 is read
            as that in place of UTF-8.
        delimiter: of CSV, one character; None for the one under which the header has the columns
            that are wanted (:mod:`drv_env.csv_dialect`).

    Raises:
        SettingError: naming a value that can't work.
    """

    encoding: str = "utf-8"
    delimiter: str | None = None

    def __post_init__(self) -> None:
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise SettingError(
                f"encoding must be one that Python knows, got {self.encoding!r}"
            ) from None
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise SettingError(
                f"delimiter must be one character, not a quote, got {self.delimiter!r}"
            )


class TableColumns(Protocol):
    """What is wanted of a table.

    Attributes:
        row_mark: columns of which a JSON object has one that is a row by itself, and no table.
    """

    @property
    def row_mark(self) -> Sequence[str]: ...

    def check(self, names: Sequence[str]) -> None:
        """Raise :class:`TaskDataError` for a table without what every row needs.

        Args:
            names: its columns, nested ones with dots.
        """
        ...


def kind_of(file: Path) -> str | None:
    """The format by the file's name, None when it is not known."""
    suffix, gzipped = _suffix(file)
    return (TEXT_KINDS if gzipped else KINDS).get(suffix)


def rows_of(file: Path, columns: TableColumns, text: TextFormat) -> Iterator[tuple[int, str, Row]]:
    """Each row of the file with its number and what that counts, ``"line"`` or ``"row"``.

    Raises:
        TaskDataError: with the file's name, when it can't be read or lacks a column.
    """
    last: tuple[int, str] | None = None
    try:
        with boundary(TaskDataError, str(file)):
            if file.exists() and not file.is_file():
                raise TaskDataError("it is no regular file")
            try:
                for number, unit, row in _rows(file, columns, text):
                    last = number, unit
                    yield number, unit, row
            except OSError as error:
                if error.errno is None:  # of a library, whose words say more
                    raise
                raise TaskDataError(f"it can't be read: {why_unread(error)}") from error
    except TaskDataError as error:
        told = str(error).removeprefix(f"{file}: ")
        if last is None:
            raise TaskDataError(f"{file}: {told}") from error.__cause__
        # What came before the damage is used.
        yield last[0] + 1, last[1], f"the file is damaged from here on: {told}"


def _rows(file: Path, columns: TableColumns, text: TextFormat) -> Iterator[tuple[int, str, Row]]:
    kind = kind_of(file)
    if kind == "parquet":
        yield from _parquet_rows(file, columns)
    elif kind == "json":
        yield from _json_rows(file, columns, text)
    elif kind == "csv":
        yield from _csv_rows(file, columns, text)
    else:
        with _open(file, text, "\n") as lines:
            yield from _json_lines(lines)


def _suffix(file: Path) -> tuple[str, bool]:
    """The end of a name in lower case, and whether ``.gz`` follows it."""
    gzipped = file.suffix.lower() == ".gz"
    return (file.with_suffix("") if gzipped else file).suffix.lower(), gzipped


@contextmanager
def _open(file: Path, text: TextFormat, newline: str) -> Iterator[TextIO]:
    """A text file whose undecodable bytes come as lone surrogates, found per row later."""
    encoding = text.encoding
    with gzip.open(file, "rb") if _suffix(file)[1] else file.open("rb") as raw:
        if codecs.lookup(encoding).name in ("utf-8", "utf-8-sig"):
            name, codec = unicode_encoding(raw.peek(64)[:64])
            encoding = "utf-8-sig" if name == "UTF-8" else codec
        with io.TextIOWrapper(
            raw,  # type: ignore[type-var]
            encoding,
            errors="surrogateescape",
            newline=newline,
        ) as stream:
            yield stream


def _json_lines(lines: Iterable[str]) -> Iterator[tuple[int, str, Row]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield number, "line", f"not JSON: {error}"
            continue
        yield number, "line", _object(row)


def _json_rows(
    file: Path, columns: TableColumns, text: TextFormat
) -> Iterator[tuple[int, str, Row]]:
    with _open(file, text, "\n") as stream:
        content, damage = _up_to_damage(stream)
    if not content.strip():
        if damage is not None:
            raise damage
        return
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        if isinstance(error, json.JSONDecodeError) and error.msg == "Extra data":
            # Many data sets keep JSON lines in files named .json.
            yield from _json_lines(content.split("\n"))
            if damage is not None:
                raise damage from None
        else:
            yield from _whole_items(content, damage or error)
        return
    if isinstance(value, dict):
        lists = [item for item in value.values() if isinstance(item, list)]
        if has(value, columns.row_mark):
            value = [value]
        elif len(lists) == 1:
            value = lists[0]
    if not isinstance(value, list):
        raise TaskDataError("a JSON file must hold a list of objects, or an object with one list")
    for index, row in enumerate(value):
        yield index, "row", _object(row)
    if damage is not None:
        raise damage


def _up_to_damage(stream: TextIO) -> tuple[str, Exception | None]:
    """A file's text, and what went wrong at its end if anything did."""
    parts: list[bytes] = []
    damage: Exception | None = None
    try:
        while part := stream.buffer.read1():  # type: ignore[attr-defined]
            parts.append(part)
    except (OSError, EOFError, zlib.error) as error:
        damage = error
    return b"".join(parts).decode(stream.encoding, stream.errors or "strict"), damage


_BLANKS = re.compile(r"\s*")


def _past_blanks(text: str, place: int) -> int:
    found = _BLANKS.match(text, place)
    return place if found is None else found.end()


def _whole_items(content: str, damage: Exception) -> Iterator[tuple[int, str, Row]]:
    """The items of a JSON list up to its damage, which is raised after them."""
    decoder = json.JSONDecoder()
    place = _past_blanks(content, 0)
    index = 0
    while content[place : place + 1] == ("," if index else "["):
        place += 1
        place = _past_blanks(content, place)
        try:
            row, place = decoder.raw_decode(content, place)
        except (ValueError, RecursionError):
            break
        yield index, "row", _object(row)
        index += 1
        place = _past_blanks(content, place)
    raise damage


def _object(row: Any) -> Row:
    return row if isinstance(row, dict) else f"not an object: {shown(row)}"


def _csv_rows(
    file: Path, columns: TableColumns, text: TextFormat
) -> Iterator[tuple[int, str, Row]]:
    # The limit is the process's: it is only ever raised.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_CHARACTERS))
    with _open(file, text, "") as stream:
        lines = Lines(stream)
        delimiter = _delimiter(lines, columns, "\t" if _suffix(file)[0] == ".tsv" else ",", text)
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        header: Sequence[str] | None = None
        while True:
            start = lines.begin()
            try:
                fields = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                fault = f"not CSV: {error}"
                if lines.give_back():
                    fault = "not CSV: a quote is opened and never closed"
                elif lines.number > start:
                    fault += f" (lines {start} to {lines.number})"
                if header is None:
                    raise TaskDataError(f"the header is {fault}") from None
                yield start, "line", fault
                continue
            if not any(value.strip() for value in fields):
                continue
            if header is None:
                header = [name.strip() for name in fields]
                _no_repeats(header)
                columns.check(header)
            elif len(fields) != len(header):
                yield start, "line", f"{len(fields)} fields where the header has {len(header)}"
            else:
                yield start, "line", dict(zip(header, fields, strict=True))


def _delimiter(lines: Lines, columns: TableColumns, usual: str, text: TextFormat) -> str:
    """The delimiter of the rows; the lines begin with the header after it."""

    def fits(names: Sequence[str]) -> bool:
        try:
            columns.check(names)
        except TaskDataError:
            return False
        return True

    said = said_delimiter(lines.first())
    while said is not None and said_delimiter(next(lines)) is None:
        pass  # blank lines before the one that says it
    return text.delimiter or said or delimiter_of(lines.first(), fits, usual)


def _parquet_rows(file: Path, columns: TableColumns) -> Iterator[tuple[int, str, Row]]:
    # Imported here: only who reads Parquet pays for it.
    import pyarrow as pa
    import pyarrow.parquet as pq

    from drv_env.parquet_batches import batches_of, rows_told

    damage: list[tuple[int, str, str]] = []

    def damaged(first: int, last: int, why: str) -> None:
        damage.append((first, "row", rows_told(first, last, why)))

    index = -1
    with pq.ParquetFile(file) as table:
        schema = table.schema_arrow
        _no_repeats(schema.names)
        columns.check(_nested_names(schema))
        for start, batch in batches_of(table, None, _BATCH, damaged):
            for place, kind in enumerate(batch.schema.types):
                if pa.types.is_timestamp(kind):
                    # Nanoseconds don't fit Python's datetime.
                    cells = batch.column(place).cast(pa.timestamp("us", kind.tz), safe=False)
                    batch = batch.set_column(place, batch.schema.names[place], cells)
            try:
                rows: list[Row] = batch.to_pylist()
            except ValueError:
                rows = [_parquet_row(batch, place) for place in range(batch.num_rows)]
            for index, row in enumerate(rows, start=start):
                yield index, "row", row
    if damage and index < 0:
        raise TaskDataError(damage[0][2])
    yield from damage


def _parquet_row(batch: Any, place: int) -> Row:
    row = {}
    for name, cells in zip(batch.schema.names, batch.columns, strict=True):
        try:
            row[name] = cells[place].as_py()
        except ValueError as error:
            return f"column {name!r} can't be read: {error}"
    return row


def _nested_names(fields: Any, above: str = "") -> list[str]:
    """Names of a schema's columns, those inside structs with dots."""
    found = []
    for entry in fields:
        found.append(f"{above}{entry.name}")
        if str(entry.type).startswith("struct"):
            found += _nested_names(entry.type, f"{above}{entry.name}.")
    return found


def _no_repeats(names: Sequence[str]) -> None:
    repeated = [name for name, count in Counter(names).items() if count > 1 and name]
    if repeated:
        raise TaskDataError(f"column {repeated[0]!r} occurs more than once")
