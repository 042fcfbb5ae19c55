"""Log-probs of given tokens from a causal language model, in chunks.

Logits are only ever made for a chunk of positions, and made again in the backward pass:
memory grows with the chunk, not with length × vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

CHUNK = 2048
"""Positions whose logits are held at once."""


def token_log_probs(
    model: nn.Module, ids: Tensor, wanted: Tensor, chunk: int = CHUNK
) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies at the wanted tokens, given everything before each.

    Args:
        model: a Transformers causal language model (``.model`` gives hidden states,
            ``.lm_head`` logits).
        ids: token ids, ``(rows, length)``, padded on the right with any id.
        wanted: bool, ``(rows, length)``; True at the tokens to score, never in column 0.
            Padding must not be wanted; causality keeps it from touching anything else.
        chunk: positions whose logits are held at once.

    Returns:
        Two float32 tensors ``(wanted tokens,)`` in row-major order: raw log-probs (at
        temperature 1) with gradient, and entropies in nats without.
    """
    if bool(wanted[:, 0].any()):
        raise ValueError("the first token of a row has no log-prob: nothing stands before it")
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state  # type: ignore[operator, union-attr]
    states = hidden[:, :-1][wanted[:, 1:]]
    targets = ids[:, 1:][wanted[:, 1:]]
    log_probs, entropies = [], []
    for start in range(0, len(targets), chunk):
        part = checkpoint(
            _chunk_log_probs,
            model.lm_head,
            states[start : start + chunk],
            targets[start : start + chunk],
            use_reentrant=False,
        )
        log_probs.append(part[0])
        entropies.append(part[1])
    if not log_probs:
        empty = states.new_zeros(0, dtype=torch.float32)
        return empty, empty
    return torch.cat(log_probs), torch.cat(entropies)


def _chunk_log_probs(head: nn.Module, states: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    log_probs = torch.log_softmax(head(states).float(), dim=-1)
    with torch.no_grad():
        entropies = -(log_probs.exp() * log_probs).sum(-1)
    return log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1), entropies
