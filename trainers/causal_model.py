"""What scoring needs of a Transformers causal language model.

Finds the decoder and the head under whatever wraps them, says which models can't be scored
from keys and values that are kept, and gives log-probs of hidden states in chunks.  Knows
tensors and the model's configuration; nothing of trajectories.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from agents.engines.attention_kinds import changing_rotary, other_layers
from agents.engines.final_logits import evaluating as evaluating
from agents.engines.final_logits import final_logits
from drv_env.errors import SettingError

LOGITS_HELD = 2**24
"""Logits that are held at once: positions × vocabulary."""

_UNKNOWN = ("sliding_window", "softcap", "s_aux", "position_bias")
"""What some models' attention asks for besides, and attention of ours does not do."""


def unknown_attention(module: nn.Module, asked: Mapping[str, Any]) -> str:
    """What a layer asks of its attention that ours does not do, in words; "" for nothing."""
    found = [name for name in _UNKNOWN if asked.get(name) is not None]
    return f"{type(module).__name__} has {', '.join(found)} in its attention" if found else ""


class CausalModel:
    """The decoder and the head of a causal language model.

    Args:
        model: as Transformers makes it, or wrapped by peft (adapters count) or
            ``torch.compile``.

    Attributes:
        decoder: ids to hidden states.
        head: hidden states to logits.
        final: those logits to the model's own, with its scale and cap.
        config: the decoder's.
        cache_name: the decoder's argument for keys and values that are kept.

    Raises:
        SettingError: when the model has no head, or does more with its logits than is known
            (:mod:`agents.engines.final_logits`).
    """

    def __init__(self, model: nn.Module) -> None:
        whole = unwrapped(model)
        head = whole.get_output_embeddings() if hasattr(whole, "get_output_embeddings") else None
        if head is None:
            raise SettingError(
                f"{type(whole).__name__} has no output head; scoring needs a causal language model"
            )
        self.whole: Any = whole
        self.head: Any = head
        self.decoder: Any = whole.get_decoder()
        self.final = final_logits(whole)
        self.config: Any = self.decoder.config
        self.device: torch.device = head.weight.device
        self.vocabulary = int(head.weight.shape[0])
        parameters = inspect.signature(self.decoder.forward).parameters
        self.cache_name = "cache" if "cache" in parameters else "past_key_values"

    def states(self, ids: Tensor) -> Tensor:
        """Hidden states (rows, length, hidden) of ids (rows, length), by the model's own way."""
        found: Tensor = self.decoder(input_ids=ids, use_cache=False).last_hidden_state
        return found

    def log_probs(self, states: Tensor, targets: Tensor) -> Tensor:
        """Raw log-probs (n,) of targets (n,) after hidden states (n, hidden), in float32.

        No more logits are made at once than ``LOGITS_HELD``.
        """
        chunk = max(16, LOGITS_HELD // self.vocabulary)
        parts = [
            _picked(
                self.final(self.head(states[start : start + chunk])),
                targets[start : start + chunk],
            )
            for start in range(0, len(targets), chunk)
        ]
        return torch.cat(parts) if parts else states.new_zeros(0, dtype=torch.float32)


def _picked(logits: Tensor, targets: Tensor) -> Tensor:
    return logits.gather(-1, targets[:, None])[:, 0] - logits.logsumexp(-1)


def unwrapped(model: nn.Module) -> Any:
    """The Transformers model inside ``torch.compile`` and peft; adapters stay in its layers."""
    found: Any = model
    while True:
        if hasattr(found, "_orig_mod"):
            found = found._orig_mod
        elif hasattr(found, "get_base_model"):
            found = found.get_base_model()
        else:
            return found


def refuse_changing_past(config: Any) -> None:
    """Refuse models in which a later token sees other keys and values than an earlier one.

    Raises:
        SettingError: for layers that aren't full attention (sliding windows, linear
            attention), and for rotary embeddings that change with the length.
    """
    why = other_layers(config) or changing_rotary(config)
    if why:
        raise SettingError(
            "log-probs are scored from the trajectory's own keys and values, which needs full "
            f"attention in every layer and keys that stay, but {why}; set rl.scoring to plain "
            '(method="plain"), which makes one full pass a history'
        )
