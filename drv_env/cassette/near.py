"""The recording nearest to a key that was never recorded, found by its words.

Every recorded key is indexed by its first words.  A search reads a bounded part of the
index and compares a few keys letter by letter: some milliseconds, however many recordings
there are.  Words that nearly every key has count for little.
"""

from __future__ import annotations

import heapq
import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from drv_env.cassette.file import restored, stored
from drv_env.unicode_text import terms

MOST_WORDS = 32
"""Different words of a key that are indexed."""

MOST_HOLDERS = 1_000
"""Recordings that are looked at for one word; a word with more of them counts for little."""

MOST_READ = 200
"""Recordings, of any kind, that are read for those worth comparing."""

MOST_COMPARED = 16
"""Recordings that are compared letter by letter."""

COMPARED_CHARS = 300
"""Characters of a key that are compared."""


@dataclass(frozen=True, slots=True)
class Near:
    """A recorded key like the one that was sought.

    Attributes:
        key: the recorded key.
        namespace: where it is recorded; not always where it was sought.
        similarity: of the texts in both keys, in [0, 1].
    """

    key: Mapping[str, Any]
    namespace: str
    similarity: float


def index(connection: sqlite3.Connection, key: str, call: int) -> None:
    """Make the recording ``call`` findable by the words of its key."""
    words = " ".join(_words(json.loads(key)))
    connection.execute("INSERT INTO words (rowid, held) VALUES (?, ?)", (call, words))


def nearest(
    connection: sqlite3.Connection, kind: str, key: Mapping[str, Any], namespace: str
) -> Near | None:
    """The recorded key of this kind, in any namespace, that is most like ``key``.

    Of equally like ones, one of this namespace.  None when nothing of the kind is
    recorded.
    """
    sought = _text(key)
    found = []
    for other, place in _candidates(connection, kind, key):
        recorded = json.loads(restored(other))
        matcher = SequenceMatcher(None, sought, _text(recorded), autojunk=False)
        found.append(Near(recorded, restored(place), matcher.ratio()))
    return max(found, key=lambda near: (near.similarity, near.namespace == namespace), default=None)


def _candidates(
    connection: sqlite3.Connection, kind: str, key: Mapping[str, Any]
) -> list[tuple[str | bytes, str | bytes]]:
    """Keys and namespaces of the recordings that share the most telling words."""
    weights: dict[int, float] = {}
    for word in _words(key):
        rows = connection.execute(
            "SELECT rowid FROM words WHERE words MATCH ? LIMIT ?", (f'"{word}"', MOST_HOLDERS)
        ).fetchall()
        for (call,) in rows:
            weights[call] = weights.get(call, 0.0) + 1 / len(rows)
    found: list[tuple[str | bytes, str | bytes]] = []
    for call in heapq.nlargest(MOST_READ, weights, key=weights.__getitem__):
        found += connection.execute(
            "SELECT key, namespace FROM calls WHERE id = ? AND kind = ?", (call, stored(kind))
        ).fetchall()
        if len(found) == MOST_COMPARED:
            return found
    return (
        found
        or connection.execute(
            "SELECT key, namespace FROM calls WHERE kind = ? LIMIT ?", (stored(kind), MOST_COMPARED)
        ).fetchall()
    )


def _words(key: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(terms(_text(key, 4_000))))[:MOST_WORDS]


def _text(key: Mapping[str, Any], most: int = COMPARED_CHARS) -> str:
    """The values in a key as one text, without their names."""
    return " ".join(_values(key))[:most]


def _values(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name in sorted(value):
            yield from _values(value[name])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _values(item)
    else:
        yield str(value)
