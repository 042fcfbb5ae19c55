"""The decoding step of Llama-like models, written out in few operations.

For small models a step's time is mostly the calls, not the arithmetic; this computes
what the model's own modules do for one new position a row, in about half the time.
:class:`agents.engines._forward.Forward` compares it with the model before using it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

KNOWN = frozenset({"qwen3", "qwen2", "llama"})
"""Model types whose layers are the ones written here."""


def decode_step(
    decoder: Any, tokens: Tensor, positions: Tensor, mask: Tensor, cache: Any
) -> Tensor:
    """Hidden states of one new position a row.

    Args:
        decoder: the model without its head.
        tokens: int64 (rows, 1).
        positions: int64 (rows, 1).
        mask: added to the attention's scores, (rows, 1, 1, length).
        cache: its ``update`` takes and gives (rows, heads, positions, size).

    Returns:
        (rows, 1, hidden).
    """
    hidden = decoder.embed_tokens(tokens)[:, 0]
    cos, sin = decoder.rotary_emb(hidden, positions)  # (rows, 1, size): one for all heads
    for index, layer in enumerate(decoder.layers):
        attention, mlp = layer.self_attn, layer.mlp
        normed = _rms(layer.input_layernorm, hidden)
        heads = (len(hidden), -1, attention.head_dim)
        query = _linear(attention.q_proj, normed).view(heads)
        key = _linear(attention.k_proj, normed).view(heads)
        value = _linear(attention.v_proj, normed).view(heads)
        if hasattr(attention, "q_norm"):
            query, key = _rms(attention.q_norm, query), _rms(attention.k_norm, key)
        count, own = query.shape[1], key.shape[1]
        both = torch.cat([query, key], 1)
        first, second = both.chunk(2, -1)
        both = both * cos + torch.cat([-second, first], -1) * sin
        keys, values = cache.update(both[:, count:, None], value[:, :, None], index)
        # the query heads that share a key head stand where positions usually do
        query = both[:, :count].reshape(len(hidden), own, count // own, attention.head_dim)
        seen = F.scaled_dot_product_attention(
            query, keys, values, attn_mask=mask, scale=attention.scaling
        )
        hidden = hidden + _linear(attention.o_proj, seen.reshape(len(hidden), -1))
        normed = _rms(layer.post_attention_layernorm, hidden)
        gate = F.silu(_linear(mlp.gate_proj, normed))
        hidden = hidden + _linear(mlp.down_proj, gate * _linear(mlp.up_proj, normed))
    return _rms(decoder.norm, hidden)[:, None]


def _linear(module: Any, x: Tensor) -> Tensor:
    return F.linear(x, module.weight, module.bias)


def _rms(module: Any, x: Tensor) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), module.weight, module.variance_epsilon)
