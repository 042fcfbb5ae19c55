"""The table of recordings: finding rows, writing them, going through them all."""

from __future__ import annotations

import sqlite3
from typing import Any

from drv_env.cassette import near
from drv_env.cassette.file import restored, stored
from drv_env.cassette.records import Row

BATCH = 500
"""Rows read at a time."""

_COLUMNS = ", ".join(Row._fields)
_SELECT = f"SELECT {_COLUMNS} FROM calls"
_THIS = "WHERE kind = ? AND namespace = ? AND key = ?"
_INSERT = f"INSERT INTO calls ({_COLUMNS}) VALUES ({', '.join('?' * len(Row._fields))})"
_UPDATE = (
    "UPDATE calls SET text = ?, status = ?, data = ?, latency = ?, cost = ?, recorded_at = ?, "
    f"provenance = ? {_THIS}"
)
_STATS = """
    SELECT kind, count(*), sum(status = 'empty'), count(DISTINCT namespace),
        sum(length(CAST(text AS BLOB))), sum(latency), sum(cost),
        min(recorded_at), max(recorded_at)
    FROM calls GROUP BY kind ORDER BY kind
"""
_NEXT_KIND = """
    SELECT kind, provenance FROM calls WHERE kind > ? ORDER BY kind, namespace, key LIMIT 1
"""


def find(connection: sqlite3.Connection, address: tuple[str, str, str]) -> Row | None:
    """The row of a kind, namespace and key."""
    found = connection.execute(f"{_SELECT} {_THIS}", tuple(map(stored, address))).fetchone()
    return None if found is None else _row(found)


def write(connection: sqlite3.Connection, row: Row, standing: Row | None) -> None:
    """Write a row, in the place of the one that stands, if any; inside a transaction."""
    values = [stored(value) if isinstance(value, str) else value for value in row]
    if standing is not None:
        connection.execute(_UPDATE, (*values[3:], *values[:3]))
        return
    call = connection.execute(_INSERT, values).lastrowid
    assert call is not None
    near.index(connection, row.key, call)


def rows_after(connection: sqlite3.Connection, after: tuple[str, str, str] | None) -> list[Row]:
    """The next rows, up to :data:`BATCH`, after an address, in the addresses' order."""
    beyond = "" if after is None else "WHERE (kind, namespace, key) > (?, ?, ?)"
    query = f"{_SELECT} {beyond} ORDER BY kind, namespace, key LIMIT {BATCH}"
    return [_row(found) for found in connection.execute(query, tuple(map(stored, after or ())))]


def count_kinds(connection: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """A tuple a kind, with the fields of :class:`drv_env.cassette.KindStats`."""
    return [(restored(kind), *numbers) for kind, *numbers in connection.execute(_STATS)]


def provenance_of_kinds(connection: sqlite3.Connection) -> dict[str, str]:
    """By kind, where one of its calls came from, as JSON; one look-up in the index a kind."""
    found: dict[str, str] = {}
    last: Any = ""
    while row := connection.execute(_NEXT_KIND, (last,)).fetchone():
        last = row[0]
        kind, provenance = (restored(item) for item in row)
        found[kind] = provenance
    return found


def _row(found: tuple[Any, ...]) -> Row:
    return Row._make(restored(value) if isinstance(value, bytes) else value for value in found)
