"""Cutting ragged rows of ids into passes of bounded size.  Plain numpy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

_MASK_ELEMENTS = 2**24
"""Bound on (rows, new positions, all positions) of one pass."""


def groups(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indexes of rows that go together: of like length, ``rows * longest <= budget``."""
    found: list[list[int]] = []
    longest = 0
    for index in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if not found or (len(found[-1]) + 1) * longest > budget:
            found.append([])
            longest = lengths[index]
        found[-1].append(index)
    return found


def chunks(
    tokens: Sequence[NDArray[np.int32]], starts: NDArray[np.int64], budget: int
) -> Iterator[tuple[int, int]]:
    """(begin, width) of each pass over rows of new ids, bounded in ids and in the mask."""
    lengths = np.array([len(row) for row in tokens])
    longest, total = int(lengths.max()), int((starts + lengths).max())
    width = max(1, min(budget, _MASK_ELEMENTS // total) // len(tokens))
    for begin in range(0, longest, width):
        yield begin, min(width, longest - begin)


def padded(
    tokens: Sequence[NDArray[np.int32]], begin: int, width: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Counts (rows,) and ids (rows, width) of columns ``begin`` to ``begin + width``."""
    counts = np.array([min(max(len(row) - begin, 0), width) for row in tokens])
    ids = np.zeros((len(tokens), width), np.int64)
    for row, (count, own) in enumerate(zip(counts, tokens, strict=True)):
        ids[row, :count] = own[begin : begin + count]
    return counts, ids


def positions(spans: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    """All positions in spans, in order, each once."""
    parts = [np.arange(start, stop) for start, stop in spans]
    return np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
