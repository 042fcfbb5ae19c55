"""Attention of documents that stand one behind the other in one row, each to itself alone.

Nothing is padded and no mask is made: a document costs what it would cost by itself, where a
mask over the row costs the square of the row.  :class:`Documents` says where the documents
stand; inside :func:`attending` a model takes it with its ids, and keeps to it.

One function, :func:`attend`, two ways:

- on CUDA in 16 bits: flash attention over ragged sequences (``torch.nn.attention.varlen``,
  FlashAttention-2, https://arxiv.org/abs/2307.08691), where this torch has it;
- else: scaled dot-product attention document by document, which is flash attention on a CPU.

The documents travel with the pass as an argument, so that gradient checkpointing finds them
again in the backward pass, whatever thread runs that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from agents.engines.attention_kinds import capped_attention, other_layers
from drv_env.errors import SettingError
from trainers.causal_model import CausalModel, evaluating, unknown_attention
from trainers.rows import Row

ATTENTION = "drv_documents"
"""The name under which Transformers knows this attention."""


class Documents:
    """Where documents stand in a row.

    Args:
        lengths: of the documents, each at least 1.
        device: of the tensors.

    Attributes:
        lengths: as given.
        positions: position ids (1, tokens), from 0 in every document.
        edges: int32 (documents + 1,), where each starts and the last ends.
        layers: attention layers that have asked so far.
    """

    def __init__(self, lengths: Sequence[int], device: torch.device | str = "cpu") -> None:
        self.lengths = [int(length) for length in lengths]
        positions = np.concatenate([np.arange(length) for length in self.lengths])
        edges = np.cumsum([0, *self.lengths], dtype=np.int32)
        self.positions = torch.from_numpy(positions).to(device)[None]
        self.edges = torch.from_numpy(edges).to(device)
        self.layers = 0


def pack_rows(
    rows: Sequence[Row], device: torch.device | str = "cpu"
) -> tuple[Tensor, Tensor, Documents]:
    """``(ids int64, mask bool)``, each (1, tokens), the rows behind one another; and where."""
    ids = np.concatenate([row.ids for row in rows]).astype(np.int64)[None]
    mask = np.concatenate([row.mask for row in rows])[None]
    documents = Documents([len(row) for row in rows], device)
    return torch.from_numpy(ids).to(device), torch.from_numpy(mask).to(device), documents


@contextmanager
def attending(model: nn.Module) -> Iterator[None]:
    """Inside, the model's attention is this one; forward and backward pass both belong there.

    Outside it is what it was.  Inside, only passes that are given documents work.
    """
    with _replacing(CausalModel(model).config):
        yield


@contextmanager
def _replacing(config: Any) -> Iterator[None]:
    AttentionInterface.register(ATTENTION, _attend)
    before = config._attn_implementation
    config._attn_implementation = ATTENTION
    try:
        yield
    finally:
        config._attn_implementation = before


def document_states(model: CausalModel, ids: Tensor, documents: Documents) -> Tensor:
    """Hidden states (1, tokens, hidden) of documents in one row, inside :func:`attending`.

    Raises:
        SettingError: for a model in which something besides this attention would see over
            the documents' ends.
    """
    if model.config._attn_implementation != ATTENTION:
        raise ValueError("documents are packed inside `with attending(model):` only")
    before = documents.layers
    try:
        found: Tensor = model.decoder(
            input_ids=ids,
            position_ids=documents.positions,
            use_cache=False,
            documents=documents,
        ).last_hidden_state
    except _NotGivenError as error:
        raise SettingError(
            f"{type(model.whole).__name__} can't be trained on packed documents: its layers don't "
            "hand them to their attention; set packed to False"
        ) from error
    if documents.layers - before != model.config.num_hidden_layers:
        raise SettingError(
            f"{type(model.whole).__name__} can't be trained on packed documents: "
            f"{documents.layers - before} of its {model.config.num_hidden_layers} layers take "
            "their attention from Transformers' interface; set packed to False"
        )
    return found


def packing_problem(model: Any) -> str:
    """Why a model can't be trained on packed documents, in words; "" where nothing says so.

    Args:
        model: of Transformers; may be without weights, on PyTorch's device ``meta``.
    """
    decoder = model.get_decoder()
    config, name = decoder.config, type(model).__name__
    why = other_layers(config) or capped_attention(config)
    if why:
        return why
    documents = Documents([2, 2], "meta")
    try:
        with _replacing(config), torch.no_grad():
            decoder(
                input_ids=torch.zeros(1, 4, dtype=torch.long, device="meta"),
                position_ids=documents.positions,
                use_cache=False,
                documents=documents,
            )
    except _NotGivenError:
        return f"{name}'s layers don't hand them to their attention"
    except SettingError as error:
        return str(error).partition(",")[0]
    except Exception:  # noqa: BLE001 (not every model runs without weights; it is tried again with)
        return ""
    if documents.layers != config.num_hidden_layers:
        return f"not all layers of {name} take their attention from Transformers' interface"
    return ""


def refuse_unpackable(model: nn.Module) -> None:
    """Refuse a model whose hidden states of packed documents differ from those of each alone.

    Raises:
        SettingError: naming the model, and what to set.
    """
    causal = CausalModel(model)
    ids = torch.arange(12, device=causal.device)[None] * 7 % causal.vocabulary
    lengths = [5, 3, 4]
    with evaluating(causal.whole):
        alone = torch.cat([causal.states(part) for part in ids.split(lengths, dim=1)], dim=1)
        with attending(model):
            packed = document_states(causal, ids, Documents(lengths, causal.device))
    share = 1e-4 if causal.head.weight.dtype == torch.float32 else 0.05
    if not torch.allclose(
        packed.float(), alone.float(), atol=share * float(alone.abs().max()), equal_nan=True
    ):
        raise SettingError(
            f"{type(causal.whole).__name__} computes packed documents otherwise than each by "
            "itself; set packed to False"
        )


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    documents: Documents,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Causal attention within documents; all tensors (1, heads, tokens, size).

    There may be fewer key and value heads: each then serves a run of query heads.
    """
    query, key = query.to(value.dtype), key.to(value.dtype)  # autocast leaves them apart
    varlen = _varlen() if query.is_cuda and value.dtype.itemsize == 2 and not dropout else None
    if varlen is not None and len(documents.lengths) > 1:
        longest = max(documents.lengths)
        found: Tensor = varlen(
            query[0].transpose(0, 1).contiguous(),
            key[0].transpose(0, 1).contiguous(),
            value[0].transpose(0, 1).contiguous(),
            documents.edges,
            documents.edges,
            longest,
            longest,
            scale=scale,
            window_size=(-1, 0),  # causal
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return found.transpose(0, 1)[None]
    split = [each.split(documents.lengths, dim=2) for each in (query, key, value)]
    alone = [
        nn.functional.scaled_dot_product_attention(
            one,
            two,
            three,
            is_causal=True,
            dropout_p=dropout,
            scale=scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        for one, two, three in zip(*split, strict=True)
    ]
    return torch.cat(alone, dim=2)


class _NotGivenError(RuntimeError):
    """A layer's attention doesn't know of the documents."""


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    documents: Documents | None = None,
    **other: Any,
) -> tuple[Tensor, None]:
    if documents is None:
        raise _NotGivenError(f"{type(module).__name__} was not given the documents it attends in")
    unknown = unknown_attention(module, other)
    if unknown:
        raise SettingError(f"{unknown}, which packing does not do; set packed to False")
    documents.layers += 1
    return attend(query, key, value, documents, scaling, dropout).transpose(1, 2), None


def _varlen() -> Any:
    """``varlen_attn`` where this torch has it with grouped heads and windows, else None."""
    try:
        from inspect import signature

        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    known = signature(varlen_attn).parameters
    return varlen_attn if {"enable_gqa", "window_size", "scale"} <= set(known) else None
