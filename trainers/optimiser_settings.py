"""The settings of an optimiser, the same for every trainer; whoever reads them needs no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from drv_env.settings import above, at_least, between, check_fields

Schedule = Literal["linear", "cosine", "constant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimiserSettings:
    """AdamW (arXiv 1711.05101), its schedule, and the clipping of gradients.

    Attributes:
        learning_rate: the highest of the schedule.
        schedule: after the warm-up ``linear`` (down to near 0), ``cosine`` (the same by half a
            cosine, arXiv 1608.03983) or ``constant``.
        warmup_steps: steps of the linear warm-up.
        warmup_share: where given, the warm-up is this share of the run's steps, rounded down,
            instead of ``warmup_steps``; in [0, 1].
        betas: how much of its averages of gradients, and of their squares, AdamW keeps; each
            in [0, 1).
        weight_decay: AdamW's, of everything that is trained: biases and norms too, as torch
            does it and the release has it.
        max_grad_norm: gradients are clipped to this norm.

    Raises:
        SettingError: naming a value that can't work.
    """

    learning_rate: float = 1e-5
    schedule: Schedule = "constant"
    warmup_steps: int = 0
    warmup_share: float | None = None
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0

    def __post_init__(self) -> None:
        check_fields(
            self,
            learning_rate=above(0),
            warmup_steps=at_least(0),
            warmup_share=between(0, 1),
            betas=between(0, 1, most_open=True),
            weight_decay=at_least(0),
            max_grad_norm=above(0, infinite=True),
        )

    @property
    def follows_steps(self) -> bool:
        """Whether the rate at a step depends on how many steps the run has."""
        return self.schedule != "constant" or self.warmup_share is not None

    def warmup(self, steps: int) -> int:
        """Steps of the warm-up in a run of so many."""
        return self.warmup_steps if self.warmup_share is None else int(self.warmup_share * steps)

    def rate(self, step: int, steps: int) -> float:
        """The learning rate of a step (from 1) in a run of so many."""
        return self.learning_rate * schedule(step, steps, self.warmup(steps), self.schedule)

    def told(self, steps: int) -> str:
        """The rates of a run of so many steps, in words.

        Example:
            >>> OptimiserSettings(schedule="cosine", warmup_share=0.1).told(59)
            'up to 1e-05, cosine after 5 steps of warm-up'
            >>> OptimiserSettings(learning_rate=5e-4).told(40)
            '0.0005, constant'
        """
        warmup = self.warmup(steps)
        before = "up to " if warmup or self.schedule != "constant" else ""
        after = f" after {warmup:,} steps of warm-up" if warmup else ""
        return f"{before}{self.learning_rate:g}, {self.schedule}{after}"


def schedule(step: int, steps: int, warmup: int, kind: Schedule = "linear") -> float:
    """The learning rate's factor at ``step`` (from 1): up linearly, then down to near 0.

    Example:
        >>> [round(schedule(step, 4, 2), 2) for step in (1, 2, 3, 4)]
        [0.5, 1.0, 0.67, 0.33]
        >>> [round(schedule(step, 4, 2, "cosine"), 2) for step in (1, 2, 3, 4)]
        [0.5, 1.0, 0.75, 0.25]
    """
    if step < warmup:
        return step / warmup
    if kind == "constant" or step <= warmup:
        return 1.0
    left = (steps - step + 1) / max(1, steps - max(warmup, 1) + 1)
    return left if kind == "linear" else (1 - math.cos(math.pi * left)) / 2
