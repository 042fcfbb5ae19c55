"""The presence penalty: what the completion in each slot has sampled already.

Torch only; no requests.  Takes memory from the first penalised completion on: four bytes
for each slot and id of the vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor


class PresencePenalties:
    """What to take off the logits of every slot's completion.

    Args:
        slots: completions at once.
        vocabulary: ids of the model.
        device: of its logits.
    """

    def __init__(self, slots: int, vocabulary: int, device: torch.device) -> None:
        self._size = (slots, vocabulary)
        self._device = device
        self._taken: Tensor | None = None

    def begin(self, slot: int, penalty: float) -> None:
        """A completion begins in ``slot``; it has sampled nothing yet."""
        if self._taken is None:
            if not penalty:
                return
            self._taken = torch.zeros(self._size, device=self._device)
        self._taken[slot] = 0.0

    def of(self, slots: Tensor) -> Tensor:
        """(rows, vocabulary), to be taken off these slots' logits."""
        assert self._taken is not None, "no completion with a penalty was begun"
        return self._taken[slots]

    def add(self, slots: Tensor, ids: Tensor, penalties: Tensor) -> None:
        """These slots' completions have sampled these ids; all (rows,)."""
        assert self._taken is not None, "no completion with a penalty was begun"
        self._taken[slots, ids] = penalties
