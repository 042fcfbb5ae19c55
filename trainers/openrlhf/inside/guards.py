"""Means over the agent's tokens in OpenRLHF's updates, where there may be none.

A rollout that is left out (broken, or without a signal) has an empty mask.  OpenRLHF divides
by the number of tokens of a micro-batch, and of an update, which are then perhaps 0; 0 / 0
would go through every metric, and through the weights.  Its KL penalty is a mean over all
tokens, whatever the policy's loss is; here it is averaged as that.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from openrlhf.models import loss as losses
from openrlhf.trainer.ray import ppo_actor

_NO_TOKEN = 1e-6
"""What a micro-batch without a token to learn counts among others."""


def guard_means(token_mean: bool) -> None:
    """Put the guarded functions where OpenRLHF's actor looks for its own, in this process.

    Args:
        token_mean: how the policy's loss is averaged: over all tokens, or by rollouts.
    """
    if hasattr(losses.aggregate_loss, "__wrapped__"):
        return
    aggregate = losses.aggregate_loss

    @wraps(aggregate)
    def guarded(
        loss: Any,
        loss_mask: Any,
        token_level_loss: bool = token_mean,
        dp_size: int = 1,
        batch_num_tokens: Any = None,
        global_batch_size: Any = None,
    ) -> Any:
        return aggregate(
            loss,
            loss_mask,
            token_level_loss,
            dp_size,
            _at_least_some(batch_num_tokens),
            _at_least_some(global_batch_size),
        )

    def masked_mean(tensor: Any, mask: Any, dim: int | None = None) -> Any:
        if mask is None:
            return tensor.mean(dim=dim)
        return (tensor * mask).sum(dim=dim) / mask.sum(dim=dim).clamp(min=1)

    losses.aggregate_loss = ppo_actor.aggregate_loss = guarded
    losses.masked_mean = ppo_actor.masked_mean = masked_mean
    ppo_actor.ActorPPOTrainer = GuardedUpdates


def _at_least_some(count: Any) -> Any:
    """The count, or 1 for 0; counts are fractions where gradients are accumulated."""
    return None if count is None else count + (count == 0)


class GuardedUpdates(ppo_actor.ActorPPOTrainer):  # type: ignore[misc]
    """OpenRLHF's updates; the figures of a micro-batch weigh what it has of the update."""

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """One micro-batch."""
        status = super().training_step(*args, **kwargs)
        status["num_action_tokens"] = max(status["num_action_tokens"], _NO_TOKEN)
        if not self.args.train.dynamic_batch_enable:
            status["weights"]["policy_loss"] = "sample"  # it is its share of the update's already
        return status
