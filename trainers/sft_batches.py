"""Which rows each step of supervised fine-tuning learns from.

All of it follows from the rows, the weights and the seed: the number of a step is the
position in the data, and a run that is taken up at step n goes on with the rows of n.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drv_env.errors import SettingError
from drv_env.settings import at_least, checked_seed, checked_whole
from replay.packing import PackedRow, draw
from trainers.rows import Row, balanced, by_tokens

Rows = Sequence[Row] | Sequence[PackedRow]
"""What is trained on; a packed row is its documents, each for itself."""


class Batches:
    """The batches of all epochs, by step.

    Args:
        rows: each with something to learn; a packed row counts as one.
        epochs: passes over the rows.
        batch_size: rows a step.
        batch_tokens: where given, a step takes rows as long as they have together no more
            tokens than this, at least one, instead of ``batch_size``.
        seed: decides the order, with the epoch.
        weights: one a row: it comes so often in an epoch on average
            (:func:`replay.packing.draw`).  None takes every row once.

    Attributes:
        lengths: tokens of each row.
        learnt: tokens of each row that are learnt.

    Raises:
        SettingError: when there are no rows, a row has nothing to learn, or nothing is drawn.
    """

    def __init__(
        self,
        rows: Rows,
        *,
        epochs: int = 1,
        batch_size: int = 8,
        batch_tokens: int | None = None,
        seed: int = 0,
        weights: ArrayLike | None = None,
    ) -> None:
        checked_seed(seed)
        checked_whole("epochs", epochs, at_least(1))
        checked_whole("batch_size", batch_size, at_least(1))
        self._rows = rows
        self.lengths, self.learnt = checked(rows)
        self._weights = None if weights is None else np.asarray(weights, np.float64)
        if self._weights is not None and self._weights.shape != (len(rows),):
            raise SettingError(f"there are {len(rows)} rows and {self._weights.size} weights")
        self._batches: list[NDArray[np.int64]] = []
        rng = np.random.default_rng(seed)
        for epoch in range(epochs):
            if self._weights is None:
                # random order: sorting by length would put like questions together
                order = rng.permutation(len(rows))
            else:
                order = draw(self._weights, seed, epoch)
            self._batches += _cut(order, self.lengths, batch_size, batch_tokens)
        if not self._batches:
            raise SettingError("no row was drawn; are all weights 0?")

    def __len__(self) -> int:
        """Steps."""
        return len(self._batches)

    def __getitem__(self, step: int) -> list[Row]:
        """The rows of a step, from 1; packed ones as their documents."""
        if not 1 <= step <= len(self):
            raise IndexError(f"there are steps 1 to {len(self)}, not {step}")
        return [part for index in self._batches[step - 1] for part in parts(self._rows[int(index)])]

    @property
    def digest(self) -> str:
        """The same for rows of the same sizes and weights."""
        found = zlib.crc32(self.lengths.tobytes())
        found = zlib.crc32(self.learnt.tobytes(), found)
        if self._weights is not None:
            found = zlib.crc32(self._weights.tobytes(), found)
        return f"{len(self.lengths)} rows, {found:08x}"


def _cut(
    order: NDArray[np.int64], lengths: NDArray[np.int64], size: int, most: int | None
) -> Iterator[NDArray[np.int64]]:
    if most is None:
        yield from (order[start : start + size] for start in range(0, len(order), size))
        return
    start, tokens = 0, 0
    for at, index in enumerate(order):
        if at > start and tokens + lengths[index] > most:
            yield order[start:at]
            start, tokens = at, 0
        tokens += int(lengths[index])
    if start < len(order):
        yield order[start:]


def micro_batches(rows: Sequence[Row], most: int | None, packed: bool) -> list[list[Row]]:
    """A batch in parts of at most ``most`` tokens, padding among them where there is any."""
    if most is None:
        return [list(rows)]
    cut = balanced if packed else by_tokens
    return [[rows[index] for index in part] for part in cut([len(row) for row in rows], most)]


def parts(row: Row | PackedRow) -> list[Row]:
    """The documents of a packed row; any other row as it is."""
    if isinstance(row, Row):
        return [row]
    edges = zip(row.starts[:-1].tolist(), row.starts[1:].tolist(), strict=True)
    return [Row(row.ids[start:stop], row.mask[start:stop]) for start, stop in edges]


def checked(rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Tokens, and tokens to learn, of each row.

    Raises:
        SettingError: when there are no rows, or one can't be learnt from.
    """
    if not len(rows):
        raise SettingError("there are no rows to train on")
    lengths, learnt = [], []
    for index in range(len(rows)):
        found = parts(rows[index])
        if not any(part.mask.any() for part in found):
            raise SettingError(f"row {index} has no token of the agent's to learn")
        if any(len(part) and part.mask[0] for part in found):
            raise SettingError(f"row {index} learns its first token, before which nothing stands")
        lengths.append(sum(len(part) for part in found))
        learnt.append(sum(int(part.mask.sum()) for part in found))
    return np.asarray(lengths, np.int64), np.asarray(learnt, np.int64)
