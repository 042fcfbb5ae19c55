"""Copying new weights into a model, all or nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from agents.engines.base import WeightSource
from drv_env.errors import EngineError


def load_weights(model: nn.Module, source: WeightSource) -> None:
    """Copy weights into ``model`` in place.

    Names must match exactly, except that of tied weights one name is enough.

    Raises:
        EngineError: when names or shapes don't match, or two values for tied weights
            differ; the model is then as it was.
    """
    given = tensors_of(source)
    own = model.state_dict(keep_vars=True)
    tied: dict[int, list[str]] = {}
    for name, tensor in own.items():
        tied.setdefault(tensor.data_ptr(), []).append(name)
    unknown = sorted(set(given) - set(own))
    missing = [names[0] for names in tied.values() if not any(name in given for name in names)]
    if unknown or missing:
        raise EngineError(
            f"the new weights don't fit: missing {missing[:5]}, unknown {unknown[:5]} "
            f"({len(missing)} and {len(unknown)} in all)"
        )
    plan: list[tuple[Tensor, Tensor]] = []
    for names in tied.values():
        values = [given[name] for name in names if name in given]
        for value in values:
            if value.shape != own[names[0]].shape:
                raise EngineError(
                    f"weight {names[0]} has shape {tuple(value.shape)}, "
                    f"the engine's {tuple(own[names[0]].shape)}"
                )
            if value is not values[0] and not torch.equal(value, values[0]):
                raise EngineError(f"{names} are tied in the engine but differ in the new weights")
        plan.append((own[names[0]], values[0]))
    with torch.no_grad():
        for target, value in plan:
            target.copy_(value)


def tensors_of(source: WeightSource) -> Mapping[str, Tensor]:
    if isinstance(source, nn.Module):
        return source.state_dict()
    if isinstance(source, Mapping):
        return source
    if isinstance(source, str | Path):
        return _read(Path(source))
    raise EngineError(
        f"weights come from a state dict, a module or a path, not {type(source).__name__}"
    )


def _read(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    files = [path]
    if path.is_dir():
        index = path / "model.safetensors.index.json"
        names: Any = ["model.safetensors"]
        if index.is_file():
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        files = [path / name for name in names]
    found: dict[str, Tensor] = {}
    for file in files:
        if not file.is_file():
            raise EngineError(f"no weights at {file}")
        found |= load_file(file)
    return found
