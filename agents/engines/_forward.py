"""One forward pass of a Transformers model over ragged rows of a key-value store.

Knows the model and tensors; nothing of requests, threads or sampling.  Works for decoder
models whose every layer is plain causal attention; others are refused, by their
configuration and by comparing one small pass with the model's own.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers.cache_utils import Cache

from agents.engines.attention_kinds import changing_rotary, other_layers
from agents.engines.final_logits import final_logits
from drv_env.errors import SettingError

Ints = NDArray[np.int64]


class KeyValues:
    """Keys and values by layer, each (slots, context, heads, head size)."""

    def __init__(
        self, layers: int, slots: int, context: int, heads: int, size: int, like: Tensor
    ) -> None:
        shape = (slots, context, heads, size)
        self.keys = [like.new_zeros(shape) for _ in range(layers)]
        self.values = [like.new_zeros(shape) for _ in range(layers)]
        self.context = context

    def copy(self, source: KeyValues, donor: int, slot: int, start: int, stop: int) -> None:
        """Copy positions ``start:stop`` of a slot of ``source`` into a slot here."""
        for mine, theirs in zip(self.keys + self.values, source.keys + source.values, strict=True):
            mine[slot, start:stop] = theirs[donor, start:stop]


class _View(Cache):  # type: ignore[misc]
    """What the model sees as its cache during one pass: chosen rows, up to a length."""

    def __init__(
        self,
        store: KeyValues,
        rows: slice | Tensor,
        length: int,
        where: Tensor,
        taken: Tensor | None,
    ) -> None:
        self.layers: list[Any] = []
        self._store, self._rows, self._length = store, rows, length
        self._where, self._taken = where, taken

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write (rows, heads, new, size) at their positions; return what the rows hold."""
        store = self._store
        return (
            self._one(store.keys[layer_idx], keys),
            self._one(store.values[layer_idx], values),
        )

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Positions visible to this pass."""
        return self._length

    def _one(self, held: Tensor, new: Tensor) -> Tensor:
        flat = new.transpose(1, 2).flatten(0, 1)
        if self._taken is not None:
            flat = flat[self._taken]
        held.view(-1, *held.shape[2:]).index_copy_(0, self._where, flat)
        seen = held[:, : self._length]
        seen = (
            seen[self._rows] if isinstance(self._rows, slice) else seen.index_select(0, self._rows)
        )
        return seen.transpose(1, 2)


class Forward:
    """Runs a model over rows of a store.

    Args:
        model: a Transformers causal language model; used in evaluation mode.

    Raises:
        SettingError: when the model isn't plain causal attention throughout.
    """

    def __init__(self, model: Any) -> None:
        self.model: Any = model.eval()
        self.config: Any = self.model.config
        _refuse_unfit(self.config)
        self.decoder: Any = self.model.base_model
        self._output: Any = self.model.get_output_embeddings()
        self.embedding: Tensor = self.model.get_input_embeddings().weight
        self.layers = int(self.config.num_hidden_layers)
        heads = int(self.config.num_attention_heads)
        self.heads = int(getattr(self.config, "num_key_value_heads", None) or heads)
        self.size = int(getattr(self.config, "head_dim", None) or self.config.hidden_size // heads)
        self.vocabulary = int(self._output.weight.shape[0])
        self.device = self._output.weight.device
        self.positions: int = int(getattr(self.config, "max_position_embeddings", 0) or 2**31)
        parameters = inspect.signature(self.decoder.forward).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        self._final = final_logits(self.model)
        self._check()

    def store(self, slots: int, context: int) -> KeyValues:
        """Room for the keys and values of so many rows."""
        return KeyValues(self.layers, slots, context, self.heads, self.size, self.embedding)

    def __call__(
        self, store: KeyValues, rows: Ints, starts: Ints, counts: Ints, tokens: NDArray[np.integer]
    ) -> Tensor:
        """Compute new positions of some rows, given all positions before them.

        Args:
            store: read, and written at the new positions.
            rows: (n,) different rows of the store.
            starts: (n,) first new position of each.
            counts: (n,) how many new positions; rows with 0 are computed but not written.
            tokens: (n, width) ids, padded on the right.

        Returns:
            hidden states (n, width, hidden); past a row's count they mean nothing.
        """
        width = tokens.shape[1]
        starts = np.where(counts > 0, starts, 0)
        steps = np.arange(width)
        positions = starts[:, None] + np.minimum(steps, np.maximum(counts - 1, 0)[:, None])
        valid = steps < counts[:, None]
        where = (rows[:, None] * store.context + positions)[valid]
        taken = None if valid.all() else self._tensor(np.flatnonzero(valid))
        length = int((starts + np.maximum(counts, 1)).max())
        lowest = int(rows[0])
        in_a_row = bool((rows == np.arange(lowest, lowest + len(rows))).all())
        chosen: slice | Tensor = (
            slice(lowest, lowest + len(rows)) if in_a_row else self._tensor(rows)
        )
        position_ids = self._tensor(positions)
        beyond = torch.arange(length, device=self.device) > position_ids[:, None, :, None]
        mask = torch.zeros(beyond.shape, dtype=self.embedding.dtype, device=self.device)
        mask.masked_fill_(beyond, -torch.inf)
        view = _View(store, chosen, length, self._tensor(where), taken)
        out = self.decoder(
            input_ids=self._tensor(tokens),
            attention_mask=mask,
            position_ids=position_ids,
            use_cache=True,
            **{self._cache_name: view},
        )
        hidden: Tensor = out.last_hidden_state
        return hidden

    def head(self, hidden: Tensor) -> Tensor:
        """Final logits (n, vocabulary), float32, after hidden states (n, hidden)."""
        return self._final(self._output(hidden))

    def log_probs(self, hidden: Tensor, targets: NDArray[np.integer]) -> NDArray[np.float32]:
        """Raw log-probs of targets (n,) given hidden states (n, hidden), in chunks."""
        chunk = max(16, 2**24 // self.vocabulary)
        parts = []
        for start in range(0, len(targets), chunk):
            logits = self.head(hidden[start : start + chunk])
            wanted = self._tensor(np.asarray(targets[start : start + chunk]))
            picked = logits.gather(-1, wanted[:, None])[:, 0] - logits.logsumexp(-1)
            parts.append(picked.cpu().numpy())
        return np.concatenate(parts) if parts else np.zeros(0, np.float32)

    def _tensor(self, array: NDArray[np.integer]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array, np.int64)).to(self.device)

    @torch.inference_mode()
    def _check(self) -> None:
        """A few ids, in passes of several and of one, must give the model's own logits."""
        ids = np.arange(6) * 7 % self.vocabulary
        problem = "logits differ from the model's own"
        try:
            own = self.model(input_ids=self._tensor(ids[None])).logits[0].float().log_softmax(-1)
            store = self.store(2, 8)
            row = np.array([1])
            parts = []
            for start, stop in ((0, 2), (2, 3), (3, 5), (5, 6)):
                at, count = np.array([start]), np.array([stop - start])
                parts.append(self(store, row, at, count, ids[None, start:stop])[0])
            ours = self.head(torch.cat(parts)).log_softmax(-1)
            exact = self._output.weight.dtype == torch.float32
            same = torch.allclose(ours, own, atol=1e-3 if exact else 0.2, rtol=0.0)
        except Exception as error:  # noqa: BLE001 (whatever the model does, it can't be driven)
            same, problem = False, f"{type(error).__name__}: {error}"
        if not same:
            raise SettingError(
                f"{type(self.model).__name__} can't be driven by this engine ({problem}); "
                "use the vLLM engine or an OpenAI-style server"
            )


def _refuse_unfit(config: Any) -> None:
    why = other_layers(config) or changing_rotary(config)
    if why:
        raise SettingError(
            "this engine needs full attention in every layer and keys that stay, but "
            f"{why}; use the vLLM engine"
        )
    attention = getattr(config, "_attn_implementation", None)
    if attention not in ("sdpa", "eager"):
        raise SettingError(
            f'this engine needs attn_implementation="sdpa" or "eager", not {attention!r}'
        )
