"""What can be read of a Parquet file, batch by batch, damage or not.

Knows no layouts and no trajectories.  A damaged page hides the rest of its row group, not the
rows before it and not the other groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from drv_env.errors import TaskDataError

DAMAGE = (OSError, ValueError, pa.ArrowException, MemoryError, RuntimeError, LookupError, TypeError)
"""What pyarrow raises over bytes that can't be; much of it is not of its own types."""

OnDamage = Callable[[int, int, str], None]
"""Told of rows that can't be read: the first, the last, and why."""


def opened(path: Path, *, buffered: bool = False) -> pq.ParquetFile:
    """The file, open.

    Args:
        path: of the file.
        buffered: read it in pieces, so that memory doesn't grow with its row groups.

    Raises:
        TaskDataError: naming the file, when its end is missing or can't be read.
    """
    try:
        if not path.is_file():
            raise OSError("it is no regular file")
        return pq.ParquetFile(path, buffer_size=2**20 if buffered else 0, pre_buffer=False)
    except DAMAGE as error:
        raise TaskDataError(f"{path} can't be read as Parquet: {short(error)}") from error


def batches_of(
    file: pq.ParquetFile, columns: Sequence[str] | None, rows: int, on_damage: OnDamage
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Batches in order, each with the number of its first row from 0.

    Args:
        file: open.
        columns: names of those to read; None reads all.
        rows: of a batch, at most.
        on_damage: told of the rows that are left out.
    """
    first = 0
    for group in range(file.num_row_groups):
        count = file.metadata.row_group(group).num_rows
        done = 0
        told = "the row group is shorter than it says"
        for size in dict.fromkeys((rows, 1)):  # after damage row by row, up to it
            try:
                place = 0
                for batch in file.iter_batches(
                    size, row_groups=[group], columns=columns, use_threads=False
                ):
                    if place >= done and len(batch):
                        yield first + place, batch
                        done = place + len(batch)
                    place += len(batch)
                break
            except DAMAGE as error:
                told = short(error)
        if done < count:
            on_damage(first + done, first + count - 1, told)
        first += count


def check_columns(names: Sequence[str], where: str = "") -> None:
    """Refuse a column that is there twice: nobody knows which is meant.

    Raises:
        TaskDataError: naming it.
    """
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise TaskDataError(f"{where}column {twice[0]!r} occurs more than once")


def rows_told(first: int, last: int, why: str) -> str:
    """Rows that can't be read, in words."""
    which = f"row {first:,}" if first == last else f"rows {first:,} to {last:,}"
    return (f"after {first:,} rows: " if first else "") + f"{which} can't be read: {why}"


def short(error: BaseException) -> str:
    """An error in one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__
