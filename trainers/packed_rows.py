"""Rows to train on out of the token documents on disk.

:func:`store_rows` gives every document once, with the weights by which
:func:`trainers.sft.train_sft` draws them anew in every epoch; :func:`document_rows` gives the
documents of one draw.  Both leave packing to the trainer, which packs each pass.
:func:`packed_rows` gives rows packed beforehand, whose boundaries the trainer minds too.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from replay.packing import PackedRows, draw
from replay.token_store import TokenStore
from trainers.rows import Row


class DocumentRows(Sequence[Row]):
    """One :class:`trainers.rows.Row` a document, read when it is asked for.

    Args:
        store: the documents.
        numbers: which of them, in order, with repetitions.
    """

    def __init__(self, store: TokenStore, numbers: Sequence[int] | np.ndarray) -> None:
        self._store = store
        self._numbers = np.asarray(numbers, np.int64)

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> Row:  # type: ignore[override]
        document = self._store[int(self._numbers[index])]
        return Row(document.ids, document.mask)


def store_rows(store: TokenStore) -> tuple[DocumentRows, NDArray[np.float64]]:
    """All documents, and their weights: ``train_sft(…, rows, weights=weights)``."""
    return DocumentRows(store, np.arange(len(store))), store.weights


def document_rows(store: TokenStore, *, seed: int = 0, epoch: int = 0) -> DocumentRows:
    """An epoch's documents, drawn by their weights, as rows for :func:`trainers.sft.train_sft`."""
    return DocumentRows(store, draw(store.weights, seed, epoch))


def packed_rows(
    store: TokenStore, row_length: int | None = None, *, seed: int = 0, epoch: int = 0
) -> PackedRows:
    """An epoch's packed rows; arguments as :meth:`replay.packing.PackedRows.of`."""
    return PackedRows.of(store, row_length, seed=seed, epoch=epoch)
