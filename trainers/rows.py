"""Rows of tokens with a loss mask, and their padding into tensors."""

from __future__ import annotations

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


def pad_rows(rows: Sequence[Row], device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
    """``(ids int64, mask bool)``, each ``(rows, longest)``, padded right with 0 and False."""
    longest = max(len(row) for row in rows)
    ids = np.zeros((len(rows), longest), dtype=np.int64)
    mask = np.zeros((len(rows), longest), dtype=bool)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row.ids
        mask[index, : len(row)] = row.mask
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device)
