"""Which slot of a key-value cache holds which ids: a table, without the cache itself.

Plain numpy.  A slot is *busy* while a request is in it; a free slot keeps its ids until
another request needs the room.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request was put, and what of its ids need not be computed.

    Attributes:
        slot: its own slot.
        kept: number of its first ids that the slot holds already.
        donor: another slot to copy from, or None.
        have: number of its first ids that are there after copying ``kept:have``.
        level: copies and computations of level n come after those of level n - 1.
    """

    slot: int
    kept: int
    donor: int | None
    have: int
    level: int


class SlotTable:
    """Ids by slot.

    Args:
        slots: number of slots.
        context: ids that fit in one.

    Attributes:
        lengths: int64 (slots,), number of ids whose keys and values a slot holds.
        busy: bool (slots,).
    """

    def __init__(self, slots: int, context: int) -> None:
        self.lengths = np.zeros(slots, np.int64)
        self.busy = np.zeros(slots, bool)
        self._ids = np.full((slots, context), -1, np.int32)
        self._used = np.zeros(slots, np.int64)
        self._level = np.zeros(slots, np.int64)
        self._clock = 0

    def clear(self) -> None:
        """Forget all ids; no slot may be busy."""
        self.lengths[:] = 0

    def begin_round(self) -> None:
        """What was placed before counts as computed from now on."""
        self._level[:] = 0

    def common_prefixes(self, ids: NDArray[np.int32]) -> NDArray[np.int64]:
        """How many first ids each slot shares with ``ids``; int64 (slots,)."""
        length = min(len(ids), int(self.lengths.max(initial=0)))
        if not length:
            return np.zeros(len(self.lengths), np.int64)
        differs = self._ids[:, :length] != ids[:length]
        prefixes = np.where(differs.any(axis=1), differs.argmax(axis=1), length)
        return np.minimum(prefixes, self.lengths)

    def place(self, ids: NDArray[np.int32]) -> Place | None:
        """Give ``ids`` a slot, whose keys and values the caller then completes.

        The free slot that mostly holds these ids already, else the least recently used.
        None when every slot is busy.
        """
        free = np.flatnonzero(~self.busy)
        if not len(free):
            return None
        prefixes = self.common_prefixes(ids)
        slot = int(free[prefixes[free].argmax()])
        if 2 * prefixes[slot] < self.lengths[slot] or not prefixes[slot]:
            slot = int(free[np.where(self.lengths[free] > 0, self._used[free], -1).argmin()])
        kept = have = int(prefixes[slot])
        level, donor = 0, None
        best = int(prefixes.argmax())
        if prefixes[best] > kept:
            donor, have, level = best, int(prefixes[best]), int(self._level[best])
        self._ids[slot, : len(ids)] = ids
        self.lengths[slot] = len(ids)
        self._level[slot] = level + 1
        self.busy[slot] = True
        return Place(slot, kept, donor, have, level)

    def extend(self, slots: NDArray[np.int64], ids: NDArray[np.int64]) -> None:
        """One more id in each of these slots."""
        self._ids[slots, self.lengths[slots]] = ids
        self.lengths[slots] += 1

    def free(self, slot: int) -> None:
        """The request is gone; its ids stay until the room is needed."""
        self.busy[slot] = False
        self._clock += 1
        self._used[slot] = self._clock
