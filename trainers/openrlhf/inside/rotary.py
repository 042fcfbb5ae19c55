"""Rotary frequencies in float32, which DeepSpeed's ZeRO-3 rounds to bfloat16.

Under ZeRO-3 a model is made while DeepSpeed makes every new tensor a bfloat16 one, the
frequencies of the rotary embedding among them.  A frequency off by one part in a thousand turns
an id at position 10,000 by up to ten radians: the model that is trained is not the one that
vLLM samples from, the less so the longer the context.
"""

from __future__ import annotations

from typing import Any

import torch

from drv_env.errors import SettingError, boundary


def exact_rotary(model: Any) -> None:
    """Make rounded frequencies anew; a model that has its own in float32 is left alone.

    Args:
        model: of Transformers, made already.

    Raises:
        SettingError: when its rotary embedding can't be made again.
    """
    for module in model.modules():
        rounded = getattr(module, "inv_freq", None)
        if not isinstance(rounded, torch.Tensor) or rounded.dtype == torch.float32:
            continue
        with boundary(SettingError, f"{type(module).__name__} can't be made in float32"):
            fresh = type(module)(module.config)
            for name, exact in fresh.named_buffers(recurse=False):
                module.register_buffer(name, exact.float().to(rounded.device), persistent=False)
