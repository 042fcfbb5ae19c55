"""AdamW as every trainer uses it: made, given a step's rate, stepped with clipped gradients."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainers.model_setup import check_finite
from trainers.optimiser_settings import OptimiserSettings


def make_optimiser(model: nn.Module, settings: OptimiserSettings) -> torch.optim.AdamW:
    """AdamW over all that is trained in ``model``, in one group: everything decays alike."""
    return torch.optim.AdamW(
        [each for each in model.parameters() if each.requires_grad],
        lr=settings.learning_rate,
        betas=settings.betas,
        weight_decay=settings.weight_decay,
        fused=True,
    )


def set_rate(
    optimiser: torch.optim.Optimizer, settings: OptimiserSettings, step: int, steps: int
) -> float:
    """Give the optimiser the learning rate of a step, which is returned.

    The rate comes of the step's number alone, so that a run that is taken up goes on with it.

    Args:
        optimiser: of :func:`make_optimiser`.
        settings: say the schedule.
        step: its number, from 1.
        steps: of the run.
    """
    rate = settings.rate(step, steps)
    for group in optimiser.param_groups:
        group["lr"] = rate
    return rate


def clipped_step(
    optimiser: torch.optim.Optimizer, settings: OptimiserSettings, what: str
) -> Tensor:
    """Clip the gradients, step; the norm before clipping is returned.

    Args:
        optimiser: whose parameters have their gradients.
        settings: say the largest norm.
        what: is stepped, for the message.

    Raises:
        DrvError: when a gradient is not finite; the weights are as they were.
    """
    trained = [each for group in optimiser.param_groups for each in group["params"]]
    norm = nn.utils.clip_grad_norm_(trained, settings.max_grad_norm)
    check_finite(norm, what)
    optimiser.step()
    return norm
