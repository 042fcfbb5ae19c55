"""Where a checkpoint's tensor stands in vLLM's model, on a rank that may hold a part of it.

A tensor is a parameter of the engine's model, or a stretch of one where vLLM has put several
together (``qkv_proj``, ``gate_up_proj``); with tensor parallelism a rank has some of its rows
or columns, and of an embedding some of the ids, with rows to spare behind them.  Rows of keys
and values that are fewer than the ranks stand on several.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Place:
    """A checkpoint's tensor in the engine.

    Attributes:
        view: what the rank has of it.
        dim: along which it is split.
        pieces: ``(start, length)`` along ``dim``, of the checkpoint's tensor, that ``view`` is
            made of, one behind the other.
    """

    view: Tensor
    dim: int
    pieces: Sequence[tuple[int, int]]

    def of(self, whole: Tensor) -> Tensor:
        """The rank's part of the checkpoint's tensor."""
        parts = [whole.narrow(self.dim, start, length) for start, length in self.pieces]
        return parts[0] if len(parts) == 1 else torch.cat(parts, self.dim)


def place(model: nn.Module, name: str, shape: Sequence[int]) -> Place:
    """Where the checkpoint's tensor ``name`` stands.

    Args:
        model: vLLM's, on this rank.
        name: by the checkpoint.
        shape: of the whole tensor.

    Raises:
        KeyError: when no parameter has the name, or has taken it up.
        ValueError: when the shapes don't fit each other.
    """
    view, layer, alone = _found(model, name)
    if hasattr(layer, "shard_indices"):
        return _of_embedding(view, layer, shape)
    if list(view.shape) == list(shape):
        return Place(view, 0, [(0, shape[0])] if shape else [])
    differing = [at for at, size in enumerate(view.shape) if tuple(shape[at : at + 1]) != (size,)]
    if len(view.shape) != len(shape) or len(differing) != 1:
        raise _unfit(view, shape)
    (dim,) = differing
    own, whole = [view.shape[dim]], [shape[dim]]
    if alone and dim == 0 and len(getattr(layer, "output_partition_sizes", ())) > 1:
        own, whole = _merged(layer)
    if (sum(own), sum(whole)) != (view.shape[dim], shape[dim]):
        raise _unfit(view, shape)
    rank, ranks = _rank(layer)
    pieces, before = [], 0
    for part, all_of_it in zip(own, whole, strict=True):
        count = all_of_it // part
        if count * part != all_of_it or ranks % count:
            raise _unfit(view, shape)
        pieces.append((before + rank * count // ranks * part, part))
        before += all_of_it
    return Place(view, dim, pieces)


def values_used(model: nn.Module, name: str, parameter: Tensor) -> int:
    """Values of the engine's parameter that a checkpoint decides: not the rows to spare."""
    shards: Any = getattr(_layer(model, name), "shard_indices", None)
    if shards is None:
        return parameter.numel()
    return parameter[: shards.org_vocab_end_index - shards.org_vocab_start_index].numel()


def _found(model: nn.Module, name: str) -> tuple[Tensor, nn.Module, bool]:
    """The parameter, or stretch of one, its layer, and whether it is the whole parameter."""
    parameters = dict(model.named_parameters())
    if name in parameters:
        return parameters[name].detach(), _layer(model, name), True
    path, _, leaf = name.rpartition(".")
    parent, _, part = path.rpartition(".")
    packed: Mapping[str, Sequence[str]] = getattr(model, "packed_modules_mapping", {})
    for whole, parts in packed.items():
        whole_name = f"{parent}.{whole}.{leaf}".lstrip(".")
        if part in parts and whole_name in parameters:
            layer: Any = _layer(model, whole_name)
            sizes, at = layer.output_partition_sizes, list(parts).index(part)
            start = sum(sizes[:at])
            return parameters[whole_name].detach()[start : start + sizes[at]], layer, False
    raise KeyError("no parameter of that name")


def _layer(model: nn.Module, name: str) -> nn.Module:
    return model.get_submodule(name.rpartition(".")[0])


def _of_embedding(view: Tensor, layer: Any, shape: Sequence[int]) -> Place:
    shards = layer.shard_indices
    start, stop = int(shards.org_vocab_start_index), int(shards.org_vocab_end_index)
    if not shape or shape[0] != layer.org_vocab_size or view.shape[1:] != tuple(shape[1:]):
        raise _unfit(view, shape)
    return Place(view[: stop - start], 0, [(start, stop - start)])


def _merged(layer: Any) -> tuple[list[int], list[int]]:
    """Rows of each part of a merged layer: the rank's, and all ranks' together."""
    # vLLM counts heads of keys and values as often as they stand somewhere
    copies = int(getattr(layer, "num_kv_head_replicas", 1))
    sizes = [size // (copies if number else 1) for number, size in enumerate(layer.output_sizes)]
    return list(layer.output_partition_sizes), sizes


def _rank(layer: nn.Module) -> tuple[int, int]:
    """The rank's number, and how many there are."""
    if hasattr(layer, "tp_size"):
        return int(layer.tp_rank), int(layer.tp_size)  # type: ignore[arg-type]
    if "vllm" in sys.modules:
        from vllm.distributed import parallel_state as state

        if state.model_parallel_is_initialized():
            ranks = state.get_tensor_model_parallel_world_size()
            return int(state.get_tensor_model_parallel_rank()), int(ranks)
    return 0, 1


def _unfit(view: Tensor, shape: Sequence[int]) -> ValueError:
    return ValueError(f"its shape is {list(view.shape)}, the checkpoint's {list(shape)}")
