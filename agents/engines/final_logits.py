"""A causal language model's final logits: what it makes of its head's before the softmax.

Some models scale the head's logits (Granite, Cohere, Falcon H1), some cap them (Gemma 2 and 3,
with a hyperbolic tangent), and each says so in its configuration in words of its own.  Whoever
computes log-probs from hidden states asks here, so that training, scoring and sampling are of
one distribution.  Knows the model and tensors.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from drv_env.errors import SettingError

_FACTORS = ("logit_scale", "lm_head_multiplier", "output_multiplier", "logits_scaling")
_DIVISORS = ("logits_scaling", "logits_mup_width_multiplier")
_CAPS = ("final_logit_softcapping", "logits_soft_cap", "output_logit_soft_cap")
"""What configurations call them.  One name may multiply in one model and divide in another."""

_LARGEST = 1000.0
"""Size of the largest logit that a model is tried on: caps are 15 to 50, and show far below."""

_KNOWN: weakref.WeakKeyDictionary[nn.Module, FinalLogits] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class FinalLogits:
    """cap · tanh(scale · logits / cap), of the head's logits.

    Attributes:
        scale: above 0; 1 leaves them.
        cap: the largest that a logit can become; None leaves them.
    """

    scale: float = 1.0
    cap: float | None = None

    @property
    def plain(self) -> bool:
        """Whether they are the head's own."""
        return self.scale == 1.0 and self.cap is None

    def __call__(self, logits: Tensor) -> Tensor:
        """Of the head's logits, any shape, in their type or at least float32's precision."""
        found = logits.float()
        if self.scale != 1.0:
            found = found * self.scale
        return found if self.cap is None else (found / self.cap).tanh() * self.cap


def cap_of(config: Any) -> float | None:
    """The cap that a configuration names, whether or not its model uses it."""
    named = [getattr(config, name, None) for name in _CAPS]
    return next((float(value) for value in named if value), None)


def final_logits(model: Any) -> FinalLogits:
    """How a model's final logits come from its head's; found once, by trying.

    The configuration gives the numbers; the reading of them is taken that gives the model's own
    logits, on a few ids whose hidden states are enlarged step by step, so that a cap shows.

    Args:
        model: a Transformers causal language model, on a device, with nothing around it; its
            mode, its gradients and its attention stay as they are.

    Raises:
        SettingError: when the model does anything else with hidden states or logits.
    """
    if model not in _KNOWN:
        _KNOWN[model] = _tried(model)
    return _KNOWN[model]


def _tried(model: Any) -> FinalLogits:
    name = type(model).__name__
    head, decoder = model.get_output_embeddings(), model.get_decoder()
    device, vocabulary = head.weight.device, int(head.weight.shape[0])
    exact = head.weight.dtype == torch.float32
    ids = torch.arange(9, device=device)[None] * 7 % vocabulary
    with evaluating(model), torch.autocast(device.type, enabled=False):
        states = decoder(input_ids=ids, use_cache=False).last_hidden_state
        largest = float(head(states).float().abs().max())
        steps = max(_LARGEST / largest, 1.0) if 0 < largest < torch.inf else 1.0
        factors = torch.logspace(0, 1, 9, base=steps, device=device).to(states.dtype)[:, None]
        seen: list[Tensor] = []

        def enlarge(module: nn.Module, taken: Any, given: Any) -> Any:
            seen.append(given.last_hidden_state)
            given.last_hidden_state = given.last_hidden_state * factors
            return given

        hook = decoder.register_forward_hook(enlarge)
        try:
            own = model(input_ids=ids, use_cache=False).logits
        finally:
            hook.remove()
        if len(seen) != 1 or not _near(seen[0], states, 1e-4 if exact else 0.05):
            raise SettingError(
                f"{name} computes its hidden states otherwise than its decoder does from ids "
                "alone: its log-probs can't be computed here; take another model (drv doctor "
                "lists the architectures that work)"
            )
        made = head(states * factors)
        for reading in _readings(model.config):
            ours = reading(made)
            if ours.shape == own.shape and _near(ours, own.float(), 1e-4 if exact else 0.02):
                return reading
    raise SettingError(
        f"{name} does more with its head's logits than the scale and the cap that are known "
        "here: its log-probs can't be computed exactly; take another model (drv doctor lists "
        "the architectures that work)"
    )


def _readings(config: Any) -> Iterator[FinalLogits]:
    """What the numbers of a configuration may mean, as they are mostly meant first."""
    text = config.get_text_config()

    def numbers(names: tuple[str, ...]) -> list[float]:
        return [float(each) for each in (getattr(text, name, None) for name in names) if each]

    scales = [1 / each for each in numbers(_DIVISORS)] + numbers(_FACTORS)
    cap = cap_of(text)
    for limit, scale in product([cap, None] if cap else [None], [*scales, 1.0]):
        yield FinalLogits(scale, limit)


def _near(ours: Tensor, own: Tensor, share: float) -> bool:
    """Equal but for a share of the largest value of each position; damaged in the same places."""
    atol = share * own.float().nan_to_num(0.0, 0.0, 0.0).abs().amax(-1, keepdim=True)
    apart = (ours.float() - own.float()).abs() > atol
    return not bool(apart.any()) and torch.equal(ours.isnan(), own.isnan())


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """No gradient and no dropout inside; each module's mode is as before afterwards."""
    training = [module for module in model.modules() if module.training]
    for module in training:
        module.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True
