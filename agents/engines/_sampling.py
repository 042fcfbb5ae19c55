"""Sampling one id for each row of a batch, from numbers that the caller draws.

Torch only; no requests and no random state.  Each row's id depends on its own logits
and its own uniform number, never on the rest of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from agents.engines.base import Sampling


def uniforms(engine_seed: int, request: int, sampling: Sampling) -> np.random.Generator:
    """The stream of uniform numbers of one request."""
    own = sampling.seed
    entropy = (0, engine_seed, request) if own is None else (1, own)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))


class BatchSampler:
    """Samples for a fixed set of rows.

    Args:
        settings: one for each row.
        device: of the logits.

    Attributes:
        penalties: (rows,) presence penalties; None where no row has one.
    """

    def __init__(self, settings: Sequence[Sampling], device: torch.device) -> None:
        self._rows: dict[str, Tensor | None] = {"greedy": None, "plain": None, "shaped": None}
        kinds = [_kind(sampling) for sampling in settings]
        for kind in self._rows:
            rows = [row for row, own in enumerate(kinds) if own == kind]
            if rows:
                self._rows[kind] = torch.tensor(rows, device=device)
        shaped = [s for s, kind in zip(settings, kinds, strict=True) if kind == "shaped"]
        column = [[s.temperature, s.top_p, float(s.top_k)] for s in shaped]
        self._shape = torch.tensor(column, dtype=torch.float32, device=device)
        self._alone = kinds[0] if len(set(kinds)) == 1 else ""
        penalties = [sampling.presence_penalty for sampling in settings]
        self.penalties = torch.tensor(penalties, device=device) if any(penalties) else None

    def __call__(
        self, logits: Tensor, numbers: NDArray[np.float64], taken: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Ids and their raw log-probs.

        Args:
            logits: (rows, vocabulary).
            numbers: (rows,), uniform in [0, 1).
            taken: (rows, vocabulary), what penalties take off the logits; None for nothing.

        Returns:
            int64 (rows,) and float32 (rows,).
        """
        log_probs = logits.float().log_softmax(-1)
        number = torch.from_numpy(numbers).to(logits.device)
        # up to a constant in each row, which no kind of sampling minds
        shaped = log_probs if taken is None else log_probs - taken
        if self._alone:
            ids = self._sample(self._alone, shaped, number)
        else:
            ids = torch.zeros(len(logits), dtype=torch.int64, device=logits.device)
            for kind, rows in self._rows.items():
                if rows is not None:
                    ids[rows] = self._sample(kind, shaped[rows], number[rows])
        return ids, log_probs.gather(-1, ids[:, None])[:, 0]

    def _sample(self, kind: str, log_probs: Tensor, number: Tensor) -> Tensor:
        if kind == "greedy":
            return log_probs.argmax(-1)
        if kind == "plain":
            return _inverse(log_probs.exp(), number)
        temperature, top_p, top_k = self._shape.T[:, :, None]
        values, order = (log_probs / temperature).sort(dim=-1, descending=True)
        size = values.shape[-1]
        rank = torch.arange(size, device=values.device)
        beyond = rank >= torch.where(top_k > 0, top_k, float(size))
        probs = values.masked_fill(beyond, -torch.inf).softmax(-1)
        probs = probs.masked_fill(probs.cumsum(-1) - probs >= top_p, 0.0)
        return order.gather(-1, _inverse(probs, number)[:, None])[:, 0]


def _kind(sampling: Sampling) -> str:
    if sampling.temperature == 0:
        return "greedy"
    plain = sampling.temperature == 1 and sampling.top_p == 1 and sampling.top_k == 0
    return "plain" if plain else "shaped"


def _inverse(probs: Tensor, number: Tensor) -> Tensor:
    """The first id whose cumulated probability is above the number's share of the whole."""
    heights = probs.cumsum(-1, dtype=torch.float64)
    share = number * heights[:, -1]
    found = torch.searchsorted(heights, share[:, None], right=True)[:, 0]
    return found.clamp_max(probs.shape[-1] - 1)
