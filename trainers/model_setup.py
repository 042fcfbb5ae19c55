"""How a model is trained: precision, gradient checkpointing, adapters (LoRA).

- *Precision.*  ``bfloat16`` is mixed precision: what is trained stays in float32, and
  matrices are multiplied in bfloat16 (``torch.autocast``), as in
  https://arxiv.org/abs/1710.03740, whose loss scaling bfloat16's range does without
  (https://arxiv.org/abs/1905.12322).  Weights that are rounded to bfloat16 after every step
  would lose updates below 1/256 of a weight, and at a learning rate of 1e-6 that is all of
  them.  Under LoRA the frozen weights are stored in bfloat16, for nothing is added to them.
- *Gradient checkpointing* keeps one hidden state a layer and makes the rest again
  (https://arxiv.org/abs/1604.06174).
- *LoRA* (https://arxiv.org/abs/2106.09685) needs the package peft.
"""

from __future__ import annotations

import copy
import importlib
import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

from agents.engines.base import WeightSource
from agents.engines.final_logits import final_logits
from drv_env.errors import DrvError, SettingError, boundary
from trainers.causal_model import unwrapped
from trainers.model_settings import LoRASettings, ModelSettings, Precision


def prepare_model(model: nn.Module, settings: ModelSettings) -> nn.Module:
    """The model, ready to be trained as the settings say; it is changed in place.

    Args:
        model: a Transformers causal language model.
        settings: of the training; its precision goes to the trainer's settings too.

    Returns:
        The model itself, or with LoRA peft's wrapper around it, which is what to train.

    Raises:
        SettingError: without peft, when no layer has a name among LoRA's targets, or when the
            model's log-probs can't be computed (:mod:`agents.engines.final_logits`).
    """
    found: Any = model
    if settings.lora is None:
        found.float()
    else:
        found.to(torch.bfloat16 if settings.precision == "bfloat16" else torch.float32)
        found = _with_adapters(found, settings.lora)
    if settings.gradient_checkpointing:
        _checkpoint(unwrapped(found))
    final_logits(unwrapped(found))  # known, or refused
    return found  # type: ignore[no-any-return]


def merged(model: nn.Module) -> Any:
    """What to save: a Transformers model, with its adapters, if any, added to the weights.

    A model without adapters is returned as it is; one with them is copied, so that training
    can go on, and merged in float32 before it is rounded to what its weights are stored in.
    """
    if not hasattr(model, "merge_and_unload"):
        return model
    plain: Any = model
    stored = next(each.dtype for each in plain.parameters() if not each.requires_grad)
    return copy.deepcopy(plain).float().merge_and_unload().to(stored)


def engine_weights(model: nn.Module) -> WeightSource:
    """What an engine takes over: the model, or of one with adapters the merged weights.

    One layer after another is merged, in float32, and rounded to what its weights are stored
    in: log-probs of an engine differ from the trainer's by that rounding.
    """
    if not hasattr(model, "merge_and_unload"):
        return model
    base = unwrapped(model)
    found: dict[str, torch.Tensor] = {}
    with torch.no_grad():
        for name, tensor in base.state_dict().items():
            layer, adapted, rest = name.partition(".base_layer.")
            if not adapted and ".lora_" not in name:
                found[name] = tensor
            elif adapted and rest == "weight":
                found[f"{layer}.{rest}"] = _merged_weight(base.get_submodule(layer), tensor)
            elif adapted:
                found[f"{layer}.{rest}"] = tensor
    return found


def _merged_weight(layer: Any, weight: torch.Tensor) -> torch.Tensor:
    delta = sum(layer.get_delta_weight(name).float() for name in layer.active_adapters)
    return (weight.float() + delta).to(weight.dtype)


def computing(device: torch.device, precision: Precision) -> AbstractContextManager[Any]:
    """Inside, matrices are multiplied in ``precision``; for forward passes."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


def check_finite(norm: torch.Tensor, what: str) -> None:
    """Refuse to go on from a gradient that is no number, before it is in the weights.

    Args:
        norm: of all gradients.
        what: whose they are, for the message.

    Raises:
        DrvError: naming what to look at.
    """
    if not bool(torch.isfinite(norm)):
        raise DrvError(
            f"the gradient of {what} is {float(norm)}: the learning rate is too high, or the "
            "model's weights are damaged; the last state is from before it"
        )


def _checkpoint(model: Any) -> None:
    arguments = {"use_reentrant": False}
    if hasattr(model, "activation_checkpointing_enable"):  # its newer name
        model.activation_checkpointing_enable(arguments)
    else:
        model.gradient_checkpointing_enable(arguments)


def _with_adapters(model: nn.Module, settings: LoRASettings) -> Any:
    try:
        peft = importlib.import_module("peft")
    except ImportError as error:
        raise SettingError("lora needs the package peft: pip install 'drv-env[lora]'") from error
    targets = settings.targets if isinstance(settings.targets, str) else list(settings.targets)
    config = peft.LoraConfig(
        task_type="CAUSAL_LM",
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=targets,
    )
    with boundary(SettingError, "adapters can't be put into the model"), warnings.catch_warnings():
        # peft asks Transformers by names that are on their way out, which is not the user's affair.
        warnings.simplefilter("ignore", FutureWarning)
        return peft.get_peft_model(model, config)
