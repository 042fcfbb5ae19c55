"""Recorded results, tool calls above all, in one SQLite file that many processes share.

A recording is found by its kind (a tool's name, say), a namespace (the world a call was
made in) and a key: any JSON object, compared by :func:`~drv_env.cassette.canonical`.  The
store doesn't know what a kind means; judges' verdicts go in like tool calls.

* What failed is never recorded: a status ``failed`` is refused.
* Text comes back as it was put in, to the character.
* ``aget``, ``aput``, ``anearest`` and ``aclose`` work on the store's own thread; the
  event loop never waits for the disk.  The other methods work on the caller's.
* One connection a process, used by one thread at a time.  A store may be pickled (it
  carries its path and settings) and survives a fork; other processes may read and write
  the same file meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from drv_env.cassette import near, table
from drv_env.cassette.connection import Connection
from drv_env.cassette.file import writing
from drv_env.cassette.records import (
    Entry,
    Recorded,
    Row,
    canonical,
    to_entry,
    to_line,
    to_recorded,
    to_row,
)
from drv_env.errors import SettingError
from drv_env.settings import above, checked_number
from drv_env.whole_files import output

Keep = Literal["first", "last"]


@dataclass(frozen=True, slots=True)
class KindStats:
    """What is recorded of one kind.

    Attributes:
        kind: a tool's name, or another kind of result.
        recordings: how many.
        empty: how many of them have the status ``empty``.
        namespaces: in how many namespaces.
        text_bytes: size of the texts.
        latency: seconds that the originals took, summed.
        cost: US dollars that they cost, summed.
        first: when the oldest was recorded, seconds since 1970.
        last: when the newest was.
    """

    kind: str
    recordings: int
    empty: int
    namespaces: int
    text_bytes: int
    latency: float
    cost: float
    first: float
    last: float


@dataclass(slots=True)
class Merged:
    """What became of recordings that were added.

    Attributes:
        added: were not there.
        same: were there with the same text, status and data.
        kept: were there with others, which stayed.
        replaced: were there with others, which they replaced.
    """

    added: int = 0
    same: int = 0
    kept: int = 0
    replaced: int = 0

    @property
    def conflicts(self) -> int:
        """Recordings that differed from the one that was there."""
        return self.kept + self.replaced


class CassetteStore:
    """A cassette's file.

    Nothing is opened before the first use, and a closed store opens again when it is used.

    Args:
        path: the file; made, with its folder, at the first use.
        keep: which of two recordings of one key stands: the ``first``, or the ``last``.
        read_only: never write; the file must exist.
        clock: seconds since 1970, for what is recorded from now on.
        busy_seconds: how long to wait for other processes that write, above 0.

    Raises:
        SettingError: when a setting can't work.

    Methods raise :class:`~drv_env.cassette.CassetteError`, which names the file, when it
    is no cassette, is damaged, of another version, or held for too long.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, CassetteStore(f"{folder}/c") as store:
        ...     _ = store.put("double", {"of": 2}, Recorded("4"))
        ...     store.get("double", {"of": 2}).text
        '4'
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        keep: Keep = "first",
        read_only: bool = False,
        clock: Callable[[], float] = time.time,
        busy_seconds: float = 30.0,
    ) -> None:
        if keep not in ("first", "last"):
            raise SettingError(f"keep must be 'first' or 'last', got {keep!r}")
        checked_number("busy_seconds", busy_seconds, above(0))
        self.path = Path(path).absolute()
        self.keep: Keep = keep
        self.read_only = read_only
        self.clock = clock
        self.busy_seconds = busy_seconds
        self._connection = Connection(self.path, read_only, busy_seconds)

    # -- one recording ------------------------------------------------------------------

    def get(
        self,
        kind: str,
        key: Mapping[str, Any],
        namespace: str = "",
        *,
        newer_than: float = -math.inf,
    ) -> Recorded | None:
        """The recording for a key, or None.

        Args:
            kind: a tool's name, or another kind of result.
            key: what was asked, a JSON object.
            namespace: where.
            newer_than: seconds since 1970; older recordings don't count.

        Raises:
            TypeError: when the key holds what JSON does not know.
        """
        address = (kind, namespace, canonical(key))
        row = self._connection.work(lambda connection: table.find(connection, address))
        return to_recorded(row) if row is not None and row.recorded_at >= newer_than else None

    def put(
        self,
        kind: str,
        key: Mapping[str, Any],
        value: Recorded,
        namespace: str = "",
        *,
        replace_before: float | None = None,
    ) -> Recorded:
        """Record a result, unless another stands; give the one that stands now.

        Args:
            kind: a tool's name, or another kind of result.
            key: what was asked, a JSON object.
            value: what came back; not a failure.
            namespace: where.
            replace_before: seconds since 1970; a recording that is older gives way.  By
                default as ``keep`` says: none gives way, or every one.

        Raises:
            SettingError: when the value's status is ``failed``.
            TypeError: when the key holds what JSON does not know.
        """
        if replace_before is None:
            replace_before = math.inf if self.keep == "last" else -math.inf
        row = to_row(Entry(kind, key, value, namespace), self.clock())

        def job(connection: sqlite3.Connection) -> Row:
            with writing(connection):
                standing = table.find(connection, row.address)
                if standing is not None and standing.recorded_at >= replace_before:
                    return standing
                table.write(connection, row, standing)
                return row

        return to_recorded(self._connection.work(job))

    def nearest(self, kind: str, key: Mapping[str, Any], namespace: str = "") -> near.Near | None:
        """The recorded key of this kind that is most like ``key``, for a message.

        Looks in all namespaces; takes some milliseconds, however large the cassette.
        """
        return self._connection.work(
            lambda connection: near.nearest(connection, kind, key, namespace)
        )

    # -- all of them --------------------------------------------------------------------

    def put_many(self, entries: Iterable[Entry]) -> Merged:
        """Record many results, some hundreds a transaction.

        Of two that differ, ``keep`` says which stands: the one that was there, or the one
        whose time is later.

        Raises:
            SettingError: when one has failed; those of earlier transactions stay.
        """
        return self._put_rows((to_row(entry, self.clock()) for entry in entries), dry_run=False)

    def merge(self, other: str | os.PathLike[str], *, dry_run: bool = False) -> Merged:
        """Record everything that another cassette holds, as :meth:`put_many` does.

        Args:
            other: its path.
            dry_run: write nothing; only count.

        Raises:
            SettingError: when the other is this one.
        """
        path = Path(other).absolute()
        if path == self.path or (path.exists() and self.path.exists() and path.samefile(self.path)):
            raise SettingError(f"{path} can't be merged into itself; name another cassette")
        with CassetteStore(path, read_only=True, busy_seconds=self.busy_seconds) as source:
            if dry_run and not self.path.exists():
                return Merged(added=sum(1 for _ in source._rows()))
            return self._put_rows(source._rows(), dry_run)

    def entries(self) -> Iterator[Entry]:
        """Every recording, by kind, namespace and key; the file is free between batches."""
        return map(to_entry, self._rows())

    def export(self, out: str | os.PathLike[str], replace: bool = True) -> int:
        """Write every recording to a file of JSON lines, whole or not at all.

        Each line has ``kind``, ``namespace``, ``arguments`` (the key), ``text``,
        ``status``, ``data``, ``latency``, ``cost``, ``recorded_at`` and ``provenance``.
        An existing file is replaced when all is written, or stays where ``replace`` is False.

        Returns:
            How many recordings were written.

        Raises:
            SettingError: when the file is the cassette itself, no regular file, or one that
                may not be replaced.
            DiskError: when it can't be written.
        """
        out = Path(out)
        if out.exists() and self.path.exists() and out.samefile(self.path):
            raise SettingError(f"{out} is the cassette itself; export to another file")
        count = 0
        with output(out, replace, parents=False) as temporary, temporary.open("wb") as file:
            for row in self._rows():
                file.write(to_line(row))
                count += 1
        return count

    def stats(self) -> list[KindStats]:
        """What is recorded, by kind; reads the whole file."""
        return [KindStats(*counted) for counted in self._connection.work(table.count_kinds)]

    def provenance_of_kinds(self) -> dict[str, Mapping[str, Any]]:
        """By kind, where one of its recordings came from; fast, however many there are."""
        found = self._connection.work(table.provenance_of_kinds)
        return {kind: json.loads(text) for kind, text in found.items()}

    # -- opening and closing ------------------------------------------------------------

    def check(self) -> None:
        """Open the file now, to hear at once whether it can be used."""
        self._connection.work(lambda connection: None)

    def close(self) -> None:
        """Give the file and the thread back, once what was begun is done.

        May be called twice.
        """
        self._connection.close()

    def __enter__(self) -> CassetteStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the same for an event loop -----------------------------------------------------

    async def aget(
        self,
        kind: str,
        key: Mapping[str, Any],
        namespace: str = "",
        *,
        newer_than: float = -math.inf,
    ) -> Recorded | None:
        """:meth:`get`, on the store's thread."""
        return await self._connection.away(
            partial(self.get, kind, key, namespace, newer_than=newer_than)
        )

    async def aput(
        self,
        kind: str,
        key: Mapping[str, Any],
        value: Recorded,
        namespace: str = "",
        *,
        replace_before: float | None = None,
    ) -> Recorded:
        """:meth:`put`, on the store's thread; done also where the caller is cancelled."""
        put = partial(self.put, kind, key, value, namespace, replace_before=replace_before)
        return await asyncio.shield(self._connection.away(put))

    async def anearest(
        self, kind: str, key: Mapping[str, Any], namespace: str = ""
    ) -> near.Near | None:
        """:meth:`nearest`, on the store's thread."""
        return await self._connection.away(partial(self.nearest, kind, key, namespace))

    async def aclose(self) -> None:
        """:meth:`close`, without holding the loop up."""
        await asyncio.to_thread(self.close)

    # -- within -------------------------------------------------------------------------

    def _rows(self) -> Iterator[Row]:
        after: tuple[str, str, str] | None = None
        while True:
            rows = self._connection.work(partial(table.rows_after, after=after))
            yield from rows
            if len(rows) < table.BATCH:
                return
            after = rows[-1].address

    def _put_rows(self, rows: Iterable[Row], dry_run: bool) -> Merged:
        total, rows = Merged(), iter(rows)
        while batch := list(islice(rows, table.BATCH)):
            counted = self._connection.work(partial(self._put_batch, batch=batch, dry_run=dry_run))
            total.added += counted.added
            total.same += counted.same
            total.kept += counted.kept
            total.replaced += counted.replaced
        return total

    def _put_batch(
        self, connection: sqlite3.Connection, *, batch: list[Row], dry_run: bool
    ) -> Merged:
        counted = Merged()
        with nullcontext() if dry_run else writing(connection):
            for row in batch:
                standing = table.find(connection, row.address)
                if standing is None:
                    counted.added += 1
                elif standing.content == row.content:
                    counted.same += 1
                    continue
                elif self.keep == "last" and row.recorded_at > standing.recorded_at:
                    counted.replaced += 1
                else:
                    counted.kept += 1
                    continue
                if not dry_run:
                    table.write(connection, row, standing)
        return counted

    def __getstate__(self) -> dict[str, Any]:
        names = ("path", "keep", "read_only", "clock", "busy_seconds")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        CassetteStore.__init__(self, **state)
