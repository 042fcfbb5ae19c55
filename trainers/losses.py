"""Losses of reinforcement learning, on flat tensors of agent tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """A loss with what is worth logging of it.

    Attributes:
        loss: scalar with gradient.
        clip_share: share of tokens whose ratio left the clip range in [0, 1].
        kl: mean k3 estimate of KL(old ‖ new) in nats.
    """

    loss: Tensor
    clip_share: float
    kl: float


def clipped_surrogate(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    rollout: Tensor,
    rollouts: int,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> PolicyLoss:
    """−mean over rollouts of the mean over their tokens of min(ρA, clip(ρ)A).

    ρ = π/π_old per token (PPO's surrogate as in IGPO, arXiv 2510.14967).

    Args:
        log_probs: new log-probs, ``(tokens,)``, with gradient.
        old_log_probs: log-probs at sampling time, ``(tokens,)``; both raw (temperature 1).
        advantages: ``(tokens,)``.
        rollout: int64 ``(tokens,)``, which rollout each token belongs to, 0 … rollouts − 1.
        rollouts: number of rollouts to average over; those without tokens count as 0.
        clip_low: ρ is clipped from below at 1 − clip_low.
        clip_high: and from above at 1 + clip_high.
    """
    difference = log_probs - old_log_probs
    ratio = difference.exp()
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    per_token = torch.minimum(ratio * advantages, clipped * advantages)
    counts = torch.bincount(rollout, minlength=rollouts).clamp(min=1)
    loss = -(per_token / counts[rollout]).sum() / rollouts
    with torch.no_grad():
        out_of_range = (ratio < 1 - clip_low) | (ratio > 1 + clip_high)
        clip_share = float(out_of_range.float().mean()) if len(ratio) else 0.0
        kl = float((ratio - 1 - difference).mean()) if len(ratio) else 0.0
    return PolicyLoss(loss, clip_share, kl)
