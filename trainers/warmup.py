"""Teaching a fresh model to copy, before it is shown trajectories.

Reading an answer off a page is copying by induction, which a small model learns ten
times faster from random sequences that repeat with a random period.  A fixed period
would teach a positional short cut instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from drv_env.settings import SEED, above, at_least, between, check_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyConfig:
    """Settings of the warm-up: it ends at ``accuracy`` or after ``max_steps``.

    Higher learning rates are no faster: at 3e-3 and above some seeds stay on the plateau
    before copying for a thousand steps.

    Raises:
        SettingError: naming a value that can't work.
    """

    length: int = 48
    batch_size: int = 32
    min_period: int = 4
    max_period: int = 20
    learning_rate: float = 2e-3
    accuracy: float = 0.9
    max_steps: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        check_fields(
            self,
            length=at_least(1),
            batch_size=at_least(1),
            min_period=at_least(1),
            max_period=at_least(self.min_period),
            learning_rate=above(0),
            accuracy=between(0, 1),
            max_steps=at_least(1),
            seed=SEED,
        )


def warm_up_copying(
    model: nn.Module,
    vocabulary: int,
    config: CopyConfig,
    on_step: Callable[[int, float], None] = lambda step, accuracy: None,
) -> float:
    """Train ``model`` in place until it copies; returns the accuracy reached.

    Args:
        model: a Transformers causal language model.
        vocabulary: ids are drawn from 0 … vocabulary − 1.
        config: the settings.
        on_step: told of every step's number and running accuracy in [0, 1].
    """
    generator = torch.Generator().manual_seed(config.seed)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, weight_decay=0.0, fused=True
    )
    model.train()
    running = 0.0
    for step in range(1, config.max_steps + 1):
        ids, repeated = _repeating(vocabulary, config, generator)
        logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
        wanted, targets = repeated[:, 1:], ids[:, 1:]
        loss = nn.functional.cross_entropy(logits[wanted], targets[wanted])
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        correct = logits.detach().argmax(-1)[wanted] == targets[wanted]
        running = 0.9 * running + 0.1 * float(correct.float().mean())
        on_step(step, running)
        if running >= config.accuracy:
            break
    model.eval()
    return running


def _repeating(
    vocabulary: int, config: CopyConfig, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids ``(batch, length)`` repeating with a period a row, and where they repeat."""
    shape = (config.batch_size, config.length)
    base = torch.randint(vocabulary, shape, generator=generator)
    periods = torch.randint(
        config.min_period, config.max_period + 1, (config.batch_size, 1), generator=generator
    )
    position = torch.arange(config.length).expand(shape)
    return base.gather(1, position % periods), position >= periods
