"""Last digits as another processor has them: a relative noise on what the output head reads.

``DRV_TEST_NOISE=1e-6:3`` switches it on for the suite: amplitude, and a number that chooses
the noise.  Every hidden state that a Transformers decoder gives to its output head is
multiplied by 1 + amplitude · u, u in [-1, 1].  All logits pass by there: the model's own, the
engine's, the scores', the losses'.

u follows from the value's own bits, so that the same computation gives the same result twice,
as it does on any one processor; what is computed in batches of another shape does not.
"""

from __future__ import annotations

import os
from typing import Any

SWITCH = "DRV_TEST_NOISE"


def asked() -> tuple[float, int] | None:
    """Amplitude and number, where the switch is on."""
    amplitude, _, number = os.environ.get(SWITCH, "").partition(":")
    return (float(amplitude), int(number or 0)) if amplitude else None


def described() -> str | None:
    """A line about it, where it is on."""
    found = asked()
    return None if found is None else f"noise on hidden states: {found[0]:g}, number {found[1]}"


def noisy(states: Any, amplitude: float, number: int) -> Any:
    """The states, each value a little off; their gradient passes through.

    Args:
        states: float tensor.
        amplitude: of the relative noise.
        number: another one gives another noise.
    """
    import torch

    bits = states.detach().float().contiguous().view(torch.int32).long()
    mixed = (bits * 0x9E3779B1 + number * 0x85EBCA77) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 0x2C1B3C6D) & 0xFFFFFFFF
    mixed = mixed ^ (mixed >> 12)
    return states * (1 + amplitude * (mixed.double() / 2**31 - 1)).to(states.dtype)


def install_if_asked() -> None:
    """Put the noise behind every decoder of Transformers that is made from now on."""
    found = asked()
    if found is not None:
        install(*found)


def install(amplitude: float, number: int) -> None:
    from torch import nn
    from transformers import PreTrainedModel

    def add(module: nn.Module, inputs: Any, output: Any) -> Any:
        states = getattr(output, "last_hidden_state", None)
        if states is not None:
            output.last_hidden_state = noisy(states, amplitude, number)
        return output

    post_init = PreTrainedModel.post_init

    def hooked(self: Any) -> None:
        post_init(self)
        if getattr(self, "base_model", None) is self:  # the decoder, without a head
            self.register_forward_hook(add)

    PreTrainedModel.post_init = hooked  # type: ignore[method-assign]
