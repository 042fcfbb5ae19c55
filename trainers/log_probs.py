"""Log-probs of given tokens from a causal language model, and their likelihood as a loss.

Rows are padded on the right, or stand packed behind one another
(:mod:`trainers.packed_attention`).  Logits are only ever made for a chunk of positions
(:mod:`trainers.output_head`): memory grows with the chunk, not with length × vocabulary.
"""

from __future__ import annotations

from torch import Tensor, nn

from trainers.causal_model import CausalModel
from trainers.output_head import head_log_probs, head_nll
from trainers.packed_attention import Documents, document_states


def token_log_probs(
    model: nn.Module,
    ids: Tensor,
    wanted: Tensor,
    chunk: int | None = None,
    documents: Documents | None = None,
    *,
    entropies_too: bool = False,
) -> tuple[Tensor, Tensor]:
    """Log-probs and entropies at the wanted tokens, given everything before each.

    Args:
        model: a Transformers causal language model, perhaps with adapters.
        ids: token ids, ``(rows, length)``, padded on the right with any id.
        wanted: bool, ``(rows, length)``; True at the tokens to score, never in column 0.
            Padding must not be wanted; causality keeps it from touching anything else.
        chunk: positions whose logits are held at once; see
            :func:`trainers.output_head.head_log_probs`.
        documents: of a packed row, as :func:`trainers.packed_attention.pack_rows` gives it
            with ids and mask; no document's first token is wanted.
        entropies_too: whether entropies have a gradient.

    Returns:
        Two float32 tensors ``(wanted tokens,)`` in row-major order: raw log-probs (at
        temperature 1) with gradient, and entropies in nats.
    """
    causal = CausalModel(model)
    states, targets = _wanted(causal, ids, wanted, documents)
    return head_log_probs(
        causal.head, states, targets, chunk, causal.final, entropies_too=entropies_too
    )


def token_nll(
    model: nn.Module,
    ids: Tensor,
    wanted: Tensor,
    total: int,
    documents: Documents | None = None,
) -> Tensor:
    """−Σ log p(wanted tokens) / total, a scalar with gradient.

    The same as by :func:`token_log_probs`, for less: nothing is made twice.

    Args:
        model: like the other arguments, as for :func:`token_log_probs`.
        ids: token ids.
        wanted: the tokens that are learnt.
        total: what is divided by: the wanted tokens of all parts of a batch.
        documents: of a packed row.
    """
    causal = CausalModel(model)
    states, targets = _wanted(causal, ids, wanted, documents)
    return head_nll(causal.head, states, targets, total, final=causal.final)


def _wanted(
    model: CausalModel, ids: Tensor, wanted: Tensor, documents: Documents | None
) -> tuple[Tensor, Tensor]:
    """Hidden states before the wanted tokens, and the tokens."""
    first = wanted[:, :1] if documents is None else wanted[0, documents.edges[:-1]]
    if bool(first.any()):
        raise ValueError("the first token of a row has no log-prob: nothing stands before it")
    hidden = model.states(ids) if documents is None else document_states(model, ids, documents)
    return hidden[:, :-1][wanted[:, 1:]], ids[:, 1:][wanted[:, 1:]]
