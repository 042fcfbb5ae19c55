"""The settings of behaviour cloning, apart from its loop: whoever reads them needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from drv_env.settings import SEED, above, at_least, check_fields
from trainers.model_settings import Precision
from trainers.optimiser_settings import OptimiserSettings, Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class SFTConfig(OptimiserSettings):
    """Settings of one run; learning rate, schedule and decay are :class:`OptimiserSettings`'s.

    Attributes:
        epochs: passes over the rows.
        max_steps: stop after so many steps, whatever the epochs; the schedule ends there.
        batch_size: rows a step.
        batch_tokens: where given, a step takes rows as long as they have together no more
            tokens than this, instead of ``batch_size``.
        microbatch_tokens: the most tokens of one forward pass, padding counted; a longer row
            is alone.  None takes the batch in one.  It changes memory and speed only.
        packed: put the rows of a pass behind one another, each attending to itself alone
            (:mod:`trainers.packed_attention`), instead of padding them to the longest.  It
            changes memory and speed only.
        aggregation: how a step's tokens are averaged: ``token_mean``, every token alike, or
            ``row_mean``, a mean over trajectories of the means over their tokens, as the
            release does with one trajectory a pass.
        precision: see :mod:`trainers.model_setup`.
        eval_every: steps between two losses on held-out rows; 0 is after the last alone.
        save_every: steps between two states; 0 is after the last (and on Ctrl-C) alone.
        seed: decides the order of the rows.

    Raises:
        SettingError: naming a value that can't work.
    """

    epochs: int = 1
    max_steps: int | None = None
    batch_size: int = 8
    batch_tokens: int | None = None
    microbatch_tokens: int | None = None
    packed: bool = False
    learning_rate: float = 3e-3
    schedule: Schedule = "linear"
    warmup_steps: int = 20
    aggregation: Literal["token_mean", "row_mean"] = "token_mean"
    precision: Precision = "float32"
    eval_every: int = 0
    save_every: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        OptimiserSettings.__post_init__(self)
        check_fields(
            self,
            epochs=at_least(1),
            max_steps=at_least(1),
            batch_size=at_least(1),
            batch_tokens=at_least(1),
            microbatch_tokens=at_least(1),
            max_grad_norm=above(0, infinite=True),  # said again: every field is looked at
            eval_every=at_least(0),
            save_every=at_least(0),
            seed=SEED,
        )
