"""What a run needs of the device's memory, by part, from the model's configuration alone.

Bytes a parameter: trained ones are float32 with a float32 gradient and AdamW's two float32
moments (16 bytes together); under mixed precision autocast holds bfloat16 copies of them; the
frozen ones of LoRA have 2 bytes under bfloat16.  Activations are what autograd keeps for the
backward pass, counted on Qwen3's layer (the test counts them on a real one):

- a layer, a token: 6 h + 4 f + 4 (q + k) values, h the hidden size, f the feed-forward's, q
  and k the widths of all query and of all key heads.  Under bfloat16 the residual stream (6 h)
  stays in float32 and the rest is bfloat16, with another q + k of it for the norms of q and k.
- with checkpointing: h float32 values a layer and token, and one layer whole.

Knows shapes and numbers, no tasks.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from agents.engines.attention_kinds import changing_rotary, other_layers
from agents.engines.final_logits import cap_of
from drv_env.errors import SettingError, boundary
from trainers.model_setup import LoRASettings, ModelSettings
from trainers.output_head import CHUNK, LOGITS_HELD
from trainers.packed_attention import packing_problem


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a model, as its configuration says.

    Attributes:
        parameters: each once, tied ones too.
        adapters: parameters of the adapters, 0 without.
        layers, hidden, feed_forward, vocabulary: as named.
        queries, keys: width of all query heads, and of all key heads.
        positions: tokens of context; None where it doesn't say.
        dropout: the largest of its dropouts.
        past: why keys and values that are kept are not what full passes make, in words; "" where
            they are.
        packing: why documents can't be packed; "" where they can.
        capped: whether its logits are capped.
        balancing: what its own loss adds to the tokens', in words.
    """

    parameters: int
    adapters: int
    layers: int
    hidden: int
    feed_forward: int
    vocabulary: int
    queries: int
    keys: int
    positions: int | None
    dropout: float
    past: str = ""
    packing: str = ""
    capped: bool = False
    balancing: str = ""

    @classmethod
    def of(cls, folder: str | Path, lora: LoRASettings | None = None) -> ModelShape:
        """Of the model in a folder, whose weights are not read.

        Raises:
            SettingError: naming the folder, when its configuration can't be used.
        """
        with boundary(SettingError, f"the model in {folder} can't be planned"):
            config = AutoConfig.from_pretrained(folder, local_files_only=True)
            with torch.device("meta"):
                model = AutoModelForCausalLM.from_config(config)
        text: Any = config.get_text_config()
        heads = int(text.num_attention_heads)
        head = getattr(text, "head_dim", None) or text.hidden_size // heads
        kv_heads = getattr(text, "num_key_value_heads", None) or heads
        return cls(
            parameters=sum(each.numel() for each in model.parameters()),
            adapters=0 if lora is None else _adapters(model, lora),
            layers=int(text.num_hidden_layers),
            hidden=int(text.hidden_size),
            feed_forward=int(getattr(text, "intermediate_size", None) or 4 * text.hidden_size),
            vocabulary=int(text.vocab_size),
            queries=heads * int(head),
            keys=int(kv_heads) * int(head),
            positions=getattr(text, "max_position_embeddings", None),
            dropout=max((_dropout(text, name) for name in _DROPOUTS), default=0.0),
            past=other_layers(text) or changing_rotary(text),
            packing=packing_problem(model),
            capped=cap_of(text) is not None,
            balancing=_balancing(text),
        )


_DROPOUTS = (
    "attention_dropout",
    "hidden_dropout",
    "hidden_dropout_prob",
    "resid_pdrop",
    "embd_pdrop",
    "attn_pdrop",
    "dropout",
)


def _dropout(config: Any, name: str) -> float:
    value = getattr(config, name, 0.0)
    return float(value) if isinstance(value, int | float) else 0.0


def _balancing(config: Any) -> str:
    """Terms of a model's own loss that depend on more than the tokens."""
    router = getattr(config, "output_router_logits", False)
    found = {"output_router_logits, which balances experts": router}
    found["z_loss_coefficient"] = getattr(config, "z_loss_coefficient", 0.0)
    return " and ".join(name for name, asked in found.items() if asked)


def _adapters(model: nn.Module, lora: LoRASettings) -> int:
    """rank × (in + out) of every layer that gets one (arXiv 2106.09685)."""
    head = model.get_output_embeddings()  # type: ignore[operator]
    found = 0
    for name, layer in model.named_modules():
        if not isinstance(layer, nn.Linear) or layer is head:
            continue
        if lora.targets == "all-linear" or name.rsplit(".", 1)[-1] in lora.targets:
            found += lora.rank * (layer.in_features + layer.out_features)
    return found


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the memory, and how its size comes about."""

    name: str
    bytes: int
    how: str


def training_memory(shape: ModelShape, settings: ModelSettings, tokens: int) -> list[Part]:
    """Weights, gradients, optimiser, and what a pass over ``tokens`` holds.

    Args:
        shape: of the model.
        settings: precision, checkpointing, adapters.
        tokens: of the largest forward pass.
    """
    half = settings.precision == "bfloat16"
    trained = shape.adapters or shape.parameters
    parts = [
        Part(
            "weights",
            weight_bytes(shape, settings),
            _counted(shape.parameters, 2 if half and shape.adapters else 4)
            + (f" + adapters {_counted(shape.adapters, 4)}" if shape.adapters else ""),
        ),
        Part("gradients", 4 * trained, _counted(trained, 4)),
        Part("AdamW's moments", 8 * trained, _counted(trained, 8)),
    ]
    if half and not shape.adapters:
        name = "bfloat16 copies of the weights"
        parts.append(Part(name, 2 * shape.parameters, _counted(shape.parameters, 2)))
    checkpointing = settings.gradient_checkpointing
    held = tokens * activation_bytes(shape, settings.precision, checkpointing)
    how = f"{tokens:,} tokens at once, {'with' if checkpointing else 'without'} checkpointing"
    parts.append(Part("activations", held, how))
    chunk = max(16, min(CHUNK, LOGITS_HELD // shape.vocabulary))
    held = 3 if shape.capped else 2
    logits = held * 4 * chunk * shape.vocabulary
    how = f"{held} × {chunk:,} positions × {shape.vocabulary:,} × 4"
    parts.append(Part("logits", logits, how))
    return parts


def weight_bytes(shape: ModelShape, settings: ModelSettings) -> int:
    """Of the weights as they are trained, adapters among them."""
    frozen_half = settings.precision == "bfloat16" and shape.adapters
    return shape.parameters * (2 if frozen_half else 4) + 4 * shape.adapters


def activation_bytes(shape: ModelShape, precision: str, checkpointing: bool) -> int:
    """What autograd keeps of one token; see the module."""
    attention = shape.queries + shape.keys
    if precision == "bfloat16":
        layer = 4 * 6 * shape.hidden + 2 * (4 * shape.feed_forward + 5 * attention)
    else:
        layer = 4 * (6 * shape.hidden + 4 * shape.feed_forward + 4 * attention)
    ends = 4 * 4 * shape.hidden  # around the layers
    if checkpointing:
        return shape.layers * 4 * shape.hidden + layer + ends
    return shape.layers * layer + ends


def engine_memory(shape: ModelShape, size: int, slots: int, context: int) -> list[Part]:
    """The Transformers engine's copy of the weights, and its keys and values.

    Args:
        shape: of the model.
        size: bytes of a value.
        slots: episodes at once.
        context: tokens of each.
    """
    values = 2 * shape.layers * shape.keys
    return [
        Part("engine's weights", size * shape.parameters, _counted(shape.parameters, size)),
        Part(
            "engine's keys and values",
            slots * context * values * size,
            f"{slots:,} episodes × {context:,} tokens × {values:,} × {size}",
        ),
    ]


def device_memory(device: str) -> int:
    """Bytes of memory that the device has, or this machine."""
    if device.startswith("cuda") and torch.cuda.is_available():
        return int(torch.cuda.get_device_properties(torch.device(device)).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def readable(size: float) -> str:
    """Bytes for people.

    Example:
        >>> readable(3 * 2**30), readable(1536)
        ('3.0 GiB', '1.5 KiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def _counted(parameters: int, size: int) -> str:
    return f"{parameters:,} × {size}"
