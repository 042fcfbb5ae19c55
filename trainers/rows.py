"""Rows of tokens with a loss mask: their padding into tensors, and parts of like size."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence of tokens.

    Attributes:
        ids: int32 ``(length,)``.
        mask: bool ``(length,)``, True at the tokens that are learnt (the agent's).
    """

    ids: np.ndarray
    mask: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)


def by_tokens(lengths: Sequence[int], most: int) -> list[list[int]]:
    """Indices in parts of like length, each at most ``most`` tokens once it is padded.

    Args:
        lengths: tokens of each row.
        most: padded tokens of a part; a row longer than that is a part by itself.

    Example:
        >>> by_tokens([5, 1, 2, 9], 6)
        [[1, 2], [0], [3]]
    """
    parts: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: (lengths[index], index)):
        if parts and (len(parts[-1]) + 1) * lengths[index] <= most:
            parts[-1].append(index)
        else:
            parts.append([index])
    return parts


def balanced(lengths: Sequence[int], most: int) -> list[list[int]]:
    """Indices in as few parts as hold ``most`` tokens each, of like sums, unpadded.

    The longest first, each into the emptiest part (LPT, Graham 1969), with one part more
    until none is too full.

    Args:
        lengths: tokens of each row.
        most: tokens of a part; a row longer than that is a part by itself.

    Example:
        >>> balanced([5, 1, 2, 9, 4], 6)
        [[3], [0, 1], [2, 4]]
    """
    alone = [[index] for index, length in enumerate(lengths) if length > most]
    rest = [index for index, length in enumerate(lengths) if length <= most]
    rest.sort(key=lambda index: -lengths[index])
    count = -(-sum(lengths[index] for index in rest) // most)
    while True:
        parts: list[list[int]] = [[] for _ in range(count)]
        sums = [(0, part) for part in range(count)]
        for index in rest:
            size, part = heapq.heappop(sums)
            parts[part].append(index)
            heapq.heappush(sums, (size + lengths[index], part))
        if all(size <= most for size, _ in sums):
            return alone + [sorted(part) for part in parts]
        count += 1


def pad_rows(rows: Sequence[Row], device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """``(ids int64, mask bool)``, each ``(rows, longest)``, padded right with 0 and False."""
    longest = max(len(row) for row in rows)
    ids = np.zeros((len(rows), longest), dtype=np.int64)
    mask = np.zeros((len(rows), longest), dtype=bool)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row.ids
        mask[index, : len(row)] = row.mask
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)
