"""Turn-aware weights, and a seeded shuffle of tables that don't fit into memory.

Long trajectories are few and teach what short ones can't, so that they count more often.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from drv_env.errors import SettingError
from drv_env.settings import check_fields

BUCKET_BYTES = 2**26
_FAN_OUT_BITS = 6
_KEY = "__shuffle_key"


@dataclass(frozen=True, slots=True)
class Resampling:
    """How often a trajectory counts, by its turns; the defaults are the published ones.

    Attributes:
        steps: ``(most turns, weight)`` in rising order of turns.
        beyond: the weight of trajectories with more turns than all steps.

    Raises:
        SettingError: for steps that don't rise, or a weight below 1.

    Example:
        >>> [Resampling().weight(turns) for turns in (50, 51, 100, 101)]
        [1, 2, 2, 5]
    """

    steps: tuple[tuple[int, int], ...] = ((50, 1), (100, 2))
    beyond: int = 5

    def __post_init__(self) -> None:
        check_fields(self)
        limits = [limit for limit, _ in self.steps]
        if limits != sorted(set(limits)):
            raise SettingError(f"the steps of turns must rise, got {limits}")
        if min([*(weight for _, weight in self.steps), self.beyond]) < 1:
            raise SettingError(f"weights must be at least 1, got {self}", setting="weights")

    @classmethod
    def parse(cls, text: str) -> Resampling:
        """Steps as a user writes them.

        Raises:
            SettingError: when it can't be read.

        Example:
            >>> Resampling.parse("50:1,100:2,5") == Resampling()
            True
        """
        *steps, beyond = text.split(",")
        try:
            pairs = [(int(most), int(weight)) for most, weight in (s.split(":") for s in steps)]
            return cls(tuple(pairs), int(beyond))
        except ValueError as error:
            if isinstance(error, SettingError):
                raise
            raise SettingError(
                f"weights are written MOST_TURNS:WEIGHT,…,WEIGHT as in 50:1,100:2,5, got {text!r}",
                setting="weights",
            ) from None

    def weight(self, turns: int) -> int:
        """The weight of a trajectory with so many turns."""
        return next((weight for most, weight in self.steps if turns <= most), self.beyond)


def shuffled(
    tables: Iterable[pa.Table],
    seed: int,
    folder: Path | None = None,
    bucket_bytes: int = BUCKET_BYTES,
) -> Iterator[pa.Table]:
    """The rows of all tables in an order that depends on their number and the seed alone.

    Every row gets a random key from the seed and its position; rows come out in the order of
    their keys.  What doesn't fit into ``bucket_bytes`` is scattered over files by the first
    bits of the keys, and those that are still too large again by the next ones.

    Args:
        tables: of one schema, in an order that is always the same.
        seed: any whole number.
        folder: where temporary files go; the system's usual place by default.
        bucket_bytes: of rows that are sorted in memory at a time; about three times as much
            is used.
    """
    with tempfile.TemporaryDirectory(prefix=".shuffle-", dir=folder) as scratch:
        yield from _sorted(_keyed(tables, seed), Path(scratch), bucket_bytes, 0)


def _keyed(tables: Iterable[pa.Table], seed: int) -> Iterator[pa.Table]:
    position = 0
    for table in tables:
        keys = random_keys(seed, position, len(table))
        position += len(table)
        yield table.append_column(_KEY, pa.array(keys))


def random_keys(seed: int, start: int, count: int) -> np.ndarray:
    """Random keys of 64 bits for positions from ``start`` on (SplitMix64)."""
    golden = 0x9E3779B97F4A7C15
    origin = (seed * 0xD1342543DE82EF95 + golden) % 2**64
    state = np.arange(start + 1, start + count + 1, dtype=np.uint64) * np.uint64(golden)
    state += np.uint64(origin)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(state ^ (state >> np.uint64(31)))


def _sorted(
    tables: Iterable[pa.Table], folder: Path, bucket_bytes: int, used_bits: int
) -> Iterator[pa.Table]:
    tables = iter(tables)
    gathered: list[pa.Table] = []
    size = 0
    for table in tables:
        gathered.append(table)
        size += table.nbytes
        if size > bucket_bytes and used_bits + _FAN_OUT_BITS <= 64:
            break
    else:
        if gathered:
            whole = pa.concat_tables(gathered)
            order = np.argsort(whole[_KEY].to_numpy(), kind="stable")
            yield whole.take(pa.array(order)).drop_columns([_KEY])
        return
    buckets = _scatter(gathered, tables, folder, used_bits)
    for bucket in buckets:
        yield from _sorted(_read(bucket), folder, bucket_bytes, used_bits + _FAN_OUT_BITS)
        bucket.unlink()


def _scatter(
    first: list[pa.Table], rest: Iterator[pa.Table], folder: Path, used_bits: int
) -> list[Path]:
    shift = np.uint64(64 - used_bits - _FAN_OUT_BITS)
    mask = np.uint64(2**_FAN_OUT_BITS - 1)
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    writers: dict[int, pa.RecordBatchStreamWriter] = {}
    paths: dict[int, Path] = {}
    place = Path(tempfile.mkdtemp(dir=folder))
    try:
        while True:
            table = first.pop(0) if first else next(rest, None)
            if table is None:
                break
            numbers = (table[_KEY].to_numpy() >> shift) & mask
            for number in np.unique(numbers).tolist():
                if number not in writers:
                    paths[number] = place / f"{number:02d}"
                    writers[number] = pa.ipc.new_stream(
                        paths[number], table.schema, options=options
                    )
                rows = pa.array(np.flatnonzero(numbers == number))
                writers[number].write_table(table.take(rows))
    finally:
        for writer in writers.values():
            writer.close()
    return [paths[number] for number in sorted(paths)]


def _read(bucket: Path) -> Iterator[pa.Table]:
    with pa.ipc.open_stream(bucket) as stream:
        for batch in stream:
            yield pa.Table.from_batches([batch])
