"""Copying new weights into a model, all or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from agents.engines.base import WeightSource
from agents.engines.checkpoint_check import not_finite, opened_weights, weight_files
from drv_env.errors import EngineError, SettingError


def load_weights(model: nn.Module, source: WeightSource) -> None:
    """Copy weights into ``model`` in place.

    Names must match exactly, except that of tied weights one name is enough.

    Raises:
        EngineError: when names or shapes don't match, two values for tied weights differ, or
            one is NaN or infinite; the model is then as it was.
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
        refuse_damaged(names[0], values[0])
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


def refuse_damaged(name: str, tensor: Tensor) -> None:
    """Refuse a new weight that is no number.

    Raises:
        EngineError: naming it.
    """
    wrong = not_finite(tensor)
    if wrong:
        raise EngineError(
            f"the new weights are damaged: {wrong:,} of {tensor.numel():,} values of {name} are "
            "NaN or infinite"
        )


def _read(path: Path) -> dict[str, Tensor]:
    files = [path]
    try:
        if path.is_dir():
            files = list(weight_files(path))
        found: dict[str, Tensor] = {}
        for file in files:
            if not file.is_file():
                raise EngineError(f"no weights at {file}")
            with opened_weights(file) as opened:
                found |= {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except SettingError as error:
        raise EngineError(f"new weights: {error}") from None
    return found
