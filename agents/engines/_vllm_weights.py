"""New weights on their way to vLLM: what fits the checkpoint, and the file that carries it.

Knows safetensors and torch; talks to nobody.  The file lies in shared memory where the
machine has enough, else in the folder for temporary files.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from agents.engines._weights import refuse_damaged, tensors_of
from agents.engines.base import WeightSource
from agents.engines.checkpoint_check import opened_weights, weight_files
from drv_env.errors import EngineError
from drv_env.json_files import read_object

_MEMORY = Path("/dev/shm")
_HEAD = "lm_head.weight"
_EMBEDDING = "model.embed_tokens.weight"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a model folder's weights are called, and their shapes.

    Attributes:
        shapes: by name; of tied weights the embedding's name alone.
        tied: whether the output layer is the embedding.
    """

    shapes: Mapping[str, tuple[int, ...]]
    tied: bool

    @classmethod
    def of(cls, folder: Path) -> Checkpoint:
        """Read the headers.

        Raises:
            SettingError: when there are no safetensors files, or one is damaged.
        """
        config = read_object(folder / "config.json")
        shapes: dict[str, tuple[int, ...]] = {}
        for path in weight_files(folder):
            with opened_weights(path) as file:
                for key in list(file.keys()):
                    shapes[key] = tuple(file.get_slice(key).get_shape())
        tied = bool(config.get("tie_word_embeddings", False)) and _EMBEDDING in shapes
        if tied:
            shapes.pop(_HEAD, None)
        return cls(shapes, tied)

    def fit(self, source: WeightSource) -> dict[str, Tensor]:
        """The source's tensors by the checkpoint's names.

        Raises:
            EngineError: when names or shapes don't match, or tied weights differ.
        """
        given = dict(tensors_of(source))
        if self.tied and _HEAD in given:
            head = given.pop(_HEAD)
            other = given.setdefault(_EMBEDDING, head)
            if other is not head and not torch.equal(head, other):
                raise EngineError(
                    f"{[_EMBEDDING, _HEAD]} are tied in the engine but differ in the new weights"
                )
        unknown = sorted(set(given) - set(self.shapes))
        missing = sorted(set(self.shapes) - set(given))
        if unknown or missing:
            raise EngineError(
                f"the new weights don't fit: missing {missing[:5]}, unknown {unknown[:5]} "
                f"({len(missing)} and {len(unknown)} in all)"
            )
        for name, shape in self.shapes.items():
            if tuple(given[name].shape) != shape:
                raise EngineError(
                    f"weight {name} has shape {tuple(given[name].shape)}, the engine's {shape}"
                )
            refuse_damaged(name, given[name])
        return given


@contextmanager
def carried(tensors: Mapping[str, Tensor], dtypes: Mapping[str, str]) -> Iterator[Path]:
    """A safetensors file of the tensors in the engine's types, gone afterwards."""
    from safetensors.torch import save_file

    # detached from whoever trains on, and each with memory of its own
    ready = {
        name: tensor.detach().to("cpu", getattr(torch, dtypes[name])).contiguous()
        for name, tensor in tensors.items()
    }
    size = sum(tensor.numel() * tensor.element_size() for tensor in ready.values())
    with room_for(size) as folder:
        path = folder / "weights.safetensors"
        save_file(ready, path)
        yield path


def join_parts(
    parts: Sequence[tuple[str, Mapping[str, tuple[int, Sequence[tuple[int, int]]]]]],
    shapes: Mapping[str, Sequence[int]],
    path: str,
) -> None:
    """Put the ranks' parts of the tensors together in one safetensors file.

    Args:
        parts: of each rank, its file and what of each tensor is in it, as
            :meth:`agents.engines._vllm_worker.WeightsExtension.drv_weights_save` returns it.
        shapes: of the whole tensors.
        path: of the file.
    """
    from safetensors import safe_open
    from safetensors.torch import save_file

    whole: dict[str, Tensor] = {}
    for file, places in parts:
        with safe_open(file, "pt") as opened:
            for name, (dim, pieces) in places.items():
                own = opened.get_tensor(name)
                found = whole.setdefault(name, own.new_empty(tuple(shapes[name])))
                if not pieces:  # a single number
                    found.copy_(own)
                    continue
                sizes = [length for _, length in pieces]
                for (start, length), piece in zip(pieces, own.split(sizes, dim), strict=True):
                    found.narrow(dim, start, length).copy_(piece)
    save_file(whole, path)


@contextmanager
def room_for(size: int) -> Iterator[Path]:
    """A new folder with room for so many bytes, in memory if possible; gone afterwards."""
    memory = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK)
    fits = memory and shutil.disk_usage(_MEMORY).free > size * 1.1 + 2**20
    with tempfile.TemporaryDirectory(prefix="drv-weights-", dir=_MEMORY if fits else None) as name:
        yield Path(name)
