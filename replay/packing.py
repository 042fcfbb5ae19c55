"""Packing token documents into rows of one length, and drawing them by weight.

Rows are a plan over a :class:`replay.token_store.TokenStore`: which documents stand in
which row.  Nothing is copied until a row is read, so that another epoch, with other draws,
costs a new plan and no disk.  A document never crosses a row; where one ends, the row says.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drv_env.errors import SettingError
from drv_env.json_files import why_unread
from drv_env.settings import at_least, checked_seed, checked_whole
from drv_env.whole_files import disk_faults_told, read_json, refuse_irregular, write_json
from replay.token_store import TokenStore


@dataclass(frozen=True, slots=True)
class PackedRow:
    """One row, filled up at its end.

    Attributes:
        ids: int32 ``(row_length,)``; padding is 0.
        mask: bool ``(row_length,)``, True at the agent's tokens; False on padding.
        starts: int64 ``(documents + 1,)``: where each document starts, and last where the
            padding does.
        documents: their numbers in the store.
    """

    ids: NDArray[np.int32]
    mask: NDArray[np.bool_]
    starts: NDArray[np.int64]
    documents: tuple[int, ...]

    def positions(self) -> NDArray[np.int64]:
        """Position ids ``(row_length,)``: from 0 in every document, and in the padding."""
        ends = np.append(self.starts[1:], len(self.ids))
        sizes = ends - self.starts
        return np.arange(len(self.ids)) - np.repeat(self.starts, sizes)

    def segments(self) -> NDArray[np.int64]:
        """Segment ids ``(row_length,)``: 1 for the first document and so on, 0 for padding."""
        ends = np.append(self.starts[1:], len(self.ids))
        names = np.append(np.arange(1, len(self.documents) + 1), 0)
        return np.repeat(names, ends - self.starts)


def draw(weights: ArrayLike, seed: int = 0, epoch: int = 0) -> NDArray[np.int64]:
    """The documents of one epoch, with repetitions, shuffled.

    A document of weight w comes ⌊w⌋ times, and once more with the probability that is
    left: over the epochs w times on average.

    Example:
        >>> sorted(draw([1.0, 0.0, 2.0]).tolist())
        [0, 2, 2]

    Raises:
        SettingError: for a seed that is none.
    """
    checked_seed(seed)
    wanted = np.asarray(weights, np.float64)
    rng = np.random.default_rng((seed, epoch))
    copies = np.floor(wanted + rng.random(len(wanted))).astype(np.int64)
    return rng.permutation(np.repeat(np.arange(len(wanted)), copies))


def best_fit(lengths: ArrayLike, row_length: int) -> list[list[int]]:
    """Best-fit decreasing: the longest first, each into the fullest row with room for it.

    Args:
        lengths: of the items, each from 1 to ``row_length``.
        row_length: of the rows, at least 1.

    Returns:
        Indices of the items, by rows.  Time grows as n log n for up to some hundred
        thousand items.

    Raises:
        SettingError: when an item is too long.

    Example:
        >>> best_fit([3, 5, 5, 2], 8)
        [[1, 0], [2, 3]]
    """
    sizes = np.asarray(lengths, np.int64)
    if len(sizes) and int(sizes.max()) > row_length:
        raise SettingError(
            f"row_length {row_length} is below the longest document's {int(sizes.max())} tokens; "
            "raise it, or make the documents with a lower max_tokens"
        )
    rows: list[list[int]] = []
    rooms: list[tuple[int, int]] = []  # (room left, row), in order
    for item in np.argsort(-sizes, kind="stable").tolist():
        size = int(sizes[item])
        at = bisect_left(rooms, (size, -1))
        if at < len(rooms):
            room, row = rooms.pop(at)
            rows[row].append(item)
        else:
            room, row = row_length, len(rows)
            rows.append([item])
        if room > size:
            insort(rooms, (room - size, row))
    return rows


class PackedRows(Sequence[PackedRow]):
    """Rows of one epoch over a store; read when they are asked for.

    Args:
        store: the documents.
        plan: documents by rows.
        row_length: of every row.
    """

    def __init__(self, store: TokenStore, plan: Sequence[Sequence[int]], row_length: int) -> None:
        self.store = store
        self.row_length = row_length
        self.plan = [tuple(row) for row in plan]

    @classmethod
    def of(
        cls, store: TokenStore, row_length: int | None = None, *, seed: int = 0, epoch: int = 0
    ) -> PackedRows:
        """Draw an epoch's documents by weight, pack them, and shuffle the rows.

        Args:
            store: the documents.
            row_length: by default the store's ``max_tokens``.
            seed: decides draws and order, with the epoch.
            epoch: from 0.

        Raises:
            SettingError: when a document is longer than a row, or no document is drawn.
        """
        if row_length is None:
            row_length = store.max_tokens
        row_length = checked_whole("row_length", row_length, at_least(1))
        drawn = draw(store.weights, seed, epoch)
        if not len(drawn):
            raise SettingError("no document was drawn; are all weights 0?")
        packed = best_fit(store.lengths[drawn], row_length)
        order = np.random.default_rng((seed, epoch, 1)).permutation(len(packed))
        return cls(store, [drawn[packed[row]].tolist() for row in order], row_length)

    @property
    def tokens(self) -> int:
        """Tokens of all rows, padding left out."""
        return sum(int(self.store.lengths[list(row)].sum()) for row in self.plan)

    @property
    def fill(self) -> float:
        """Share of the rows that is not padding, in (0, 1]."""
        return self.tokens / (len(self) * self.row_length)

    def __len__(self) -> int:
        return len(self.plan)

    def __getitem__(self, number: int) -> PackedRow:  # type: ignore[override]
        """A row, put together from the memory-mapped documents."""
        documents = self.plan[number]
        lengths = self.store.lengths[list(documents)]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        ids = np.zeros(self.row_length, np.int32)
        mask = np.zeros(self.row_length, bool)
        for start, document in zip(starts, documents, strict=False):
            found = self.store[document]
            ids[start : start + len(found)] = found.ids
            mask[start : start + len(found)] = found.mask
        return PackedRow(ids, mask, starts, documents)

    def __iter__(self) -> Iterator[PackedRow]:
        return (self[number] for number in range(len(self)))

    def save(self, path: str | Path) -> None:
        """Write the plan as JSON, whole or not at all: ``row_length``, ``fill``, ``rows``."""
        plan = {"row_length": self.row_length, "fill": self.fill, "rows": self.plan}
        write_json(path, plan, indent=None)

    @classmethod
    def load(cls, store: TokenStore, path: str | Path) -> PackedRows:
        """The rows of a plan that was saved for this store.

        Raises:
            SettingError: when it is no plan for these documents.
        """
        try:
            plan = json.loads(Path(path).read_text(encoding="utf-8"))
            rows, length = plan["rows"], int(plan["row_length"])
            highest = max((max(row) for row in rows if row), default=-1)
        except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
            raise SettingError(
                f"{path} can't be read as a packing plan: {why_unread(error)}"
            ) from error
        if highest >= len(store):
            raise SettingError(f"{path} names document {highest}; {store.path} has {len(store)}")
        return cls(store, rows, length)

    def write_arrays(self, out: str | Path) -> None:
        """Write the rows out whole, for programs that read arrays and nothing else.

        ``ids.npy`` int32 and ``mask.npy`` bool, each ``(rows, row_length)``, filled row by
        row through a memory map; ``rows.json`` has each row's ``starts`` and is written
        last.
        """
        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        about = folder / "rows.json"
        about.unlink(missing_ok=True)
        shape = (len(self), self.row_length)
        ids = _array_file(folder / "ids.npy", np.dtype(np.int32), shape)
        mask = _array_file(folder / "mask.npy", np.dtype(np.bool_), shape)
        starts = []
        for number, row in enumerate(self):
            ids[number], mask[number] = row.ids, row.mask
            starts.append(row.starts.tolist())
        ids.flush()
        mask.flush()
        write_json(about, {"row_length": self.row_length, "starts": starts}, indent=None)


def refuse_other_plan(path: Path) -> None:
    """Refuse a file that a packing plan would replace and that is none.

    Raises:
        SettingError: naming it.
    """
    refuse_irregular(path)
    found = read_json(path)
    if path.exists() and not (isinstance(found, dict) and {"row_length", "rows"} <= found.keys()):
        raise SettingError(f"{path} is no packing plan and would be replaced; move it elsewhere")


def _array_file(path: Path, kind: np.dtype[Any], shape: tuple[int, int]) -> np.memmap[Any, Any]:
    """A memory-mapped array on a new file that has its room: a full disk would kill a write."""
    refuse_irregular(path)
    with disk_faults_told(path):
        array = np.lib.format.open_memmap(path, "w+", kind, shape)
        try:
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    return array
