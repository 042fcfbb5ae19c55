"""Behaviour cloning: supervised fine-tuning on the agent's tokens of trajectories.

The loss is the negative log-likelihood of the masked tokens, averaged over all of them in
the batch (DR-Venus, arXiv 2604.19859: thought, call and answer; observations masked).
It knows rows of tokens: no text, no episodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from drv_env.errors import SettingError
from trainers.log_probs import token_log_probs
from trainers.rows import Row, pad_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class SFTConfig:
    """Settings of one run.

    Attributes:
        epochs: passes over the rows.
        batch_size: rows a step.
        learning_rate: peak of the schedule: linear warm-up, then linear decay to 0.
        warmup_steps: steps of the warm-up.
        weight_decay: AdamW's.
        max_grad_norm: gradients are clipped to this norm.
        seed: decides the order of the rows.

    Raises:
        SettingError: naming a value that can't work.
    """

    epochs: int = 1
    batch_size: int = 8
    learning_rate: float = 3e-3
    warmup_steps: int = 20
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not self.learning_rate > 0:
            raise SettingError(f"learning_rate must be above 0, got {self.learning_rate}")


@dataclass(frozen=True, slots=True)
class SFTStep:
    """What one step measured: its number from 1, of how many, nats a token, tokens, time."""

    step: int
    steps: int
    loss: float
    tokens: int
    seconds: float
    learning_rate: float


def train_sft(
    model: nn.Module,
    rows: Sequence[Row],
    config: SFTConfig,
    on_step: Callable[[SFTStep], None] = lambda step: None,
) -> list[SFTStep]:
    """Train ``model`` in place on ``rows``.

    Args:
        model: a Transformers causal language model.
        rows: trajectories in tokens; rows without a learnt token are refused.
        config: the settings.
        on_step: told of every step.

    Returns:
        Every step's measurements.

    Raises:
        SettingError: when there are no rows, or a row has nothing to learn.
    """
    _check_rows(rows)
    device = next(model.parameters()).device
    per_epoch = -(-len(rows) // config.batch_size)
    steps = per_epoch * config.epochs
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
    )
    model.train()
    done: list[SFTStep] = []
    for batch in _batches(rows, config):
        started = time.perf_counter()
        number = len(done) + 1
        rate = config.learning_rate * schedule(number, steps, config.warmup_steps)
        for group in optimiser.param_groups:
            group["lr"] = rate
        ids, mask = pad_rows(batch, device)
        log_probs, _ = token_log_probs(model, ids, mask)
        loss = -log_probs.mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm)
        optimiser.step()
        seconds = time.perf_counter() - started
        done.append(SFTStep(number, steps, float(loss.detach()), ids.numel(), seconds, rate))
        on_step(done[-1])
    model.eval()
    return done


def schedule(step: int, steps: int, warmup: int) -> float:
    """The learning rate's factor at ``step`` (from 1): up linearly, then down to near 0.

    Example:
        >>> [round(schedule(step, 4, 2), 2) for step in (1, 2, 3, 4)]
        [0.5, 1.0, 0.67, 0.33]
    """
    if step < warmup:
        return step / warmup
    return (steps - step + 1) / max(1, steps - max(warmup, 1) + 1) if step > warmup else 1.0


def _batches(rows: Sequence[Row], config: SFTConfig) -> Iterator[list[Row]]:
    """Random batches: sorting rows by length would put like questions together."""
    rng = np.random.default_rng(config.seed)
    for _ in range(config.epochs):
        order = rng.permutation(len(rows))
        for start in range(0, len(rows), config.batch_size):
            yield [rows[index] for index in order[start : start + config.batch_size]]


def _check_rows(rows: Sequence[Row]) -> None:
    if not rows:
        raise SettingError("there are no rows to train on")
    for index, row in enumerate(rows):
        if not row.mask.any():
            raise SettingError(f"row {index} has no token of the agent's to learn")
        if row.mask[0]:
            raise SettingError(f"row {index} learns its first token, before which nothing stands")
