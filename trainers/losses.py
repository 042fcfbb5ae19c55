"""Losses of reinforcement learning, on flat tensors of agent tokens.

Whatever the average, it is a weighted sum over tokens whose weights are made for the whole
update before anything is cut into micro-batches (:func:`token_weights`): the parts' losses
add up to the whole's, exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.kl import kl_estimate
from trainers.loss_settings import LossSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTokens:
    """What is known of some agent tokens before the policy is asked; float32 ``(tokens,)``.

    Attributes:
        advantages: of each token's turn.
        weights: each token's share in the loss, see :func:`token_weights`.
        old_log_probs: of the policy before the updates; of the rollouts where there is no
            importance correction.  All log-probs are raw (temperature 1).
        rollout_log_probs: at sampling time; None without importance correction.
        reference_log_probs: of the reference model; None without a KL penalty.
    """

    advantages: Tensor
    weights: Tensor
    old_log_probs: Tensor
    rollout_log_probs: Tensor | None = None
    reference_log_probs: Tensor | None = None


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """A loss, and means over its tokens that are worth logging.

    Attributes:
        loss: scalar with gradient.
        figures: ``clip_share``, the share of tokens whose ratio left the clip range;
            ``kl``, the k3 estimate of KL(old ‖ new) in nats; with a reference
            ``reference_kl``, the penalty's estimate; with importance correction
            ``importance``, the mean weight, and ``importance_capped``, the share at the cap.
    """

    loss: Tensor
    figures: dict[str, float]


def policy_loss(
    log_probs: Tensor,
    tokens: AgentTokens,
    settings: LossSettings,
    entropies: Tensor | None = None,
) -> PolicyLoss:
    """−Σ w (c · min(ρA, clip(ρ)A) − β · KL + η · H), over the tokens given.

    The objective of IGPO (arXiv 2510.14967) and GRPO (arXiv 2402.03300, eq. 3): w is the
    average (:func:`token_weights`), ρ = π/π_old (:func:`clipped_surrogate`), KL an estimate
    to the reference (:mod:`trainers.kl`), β its weight, H the policy's entropy at the token
    and η its weight.  c corrects for rollouts that the
    old policy did not sample (:func:`truncated_importance`), and is 1 without.

    Args:
        log_probs: the policy's, ``(tokens,)``, with gradient.
        tokens: the rest.
        settings: clips, penalty, bonus and correction; the average is in the tokens' weights.
        entropies: the policy's at the tokens, in nats, ``(tokens,)``, with gradient; needed
            for the bonus alone.

    Raises:
        ValueError: when the settings need log-probs or entropies that are not there.
    """
    difference = log_probs - tokens.old_log_probs
    ratio = difference.exp()
    gain = clipped_surrogate(
        ratio, tokens.advantages, settings.clip_low, settings.clip_high, settings.dual_clip
    )
    figures: dict[str, Tensor] = {}
    if settings.importance_cap is not None:
        correction = truncated_importance(
            tokens.old_log_probs,
            _needed(tokens.rollout_log_probs, "importance_cap", "rollout_log_probs"),
            settings.importance_cap,
        )
        gain = correction * gain
        figures["importance"] = correction
        figures["importance_capped"] = (correction >= settings.importance_cap).float()
    if settings.kl_weight > 0:
        reference = _needed(tokens.reference_log_probs, "kl_weight", "reference_log_probs")
        kl = kl_estimate(log_probs, reference, settings.kl_estimator)
        figures["reference_kl"] = kl.detach()
        gain = gain - settings.kl_weight * (ratio * kl if settings.kl_by_ratio else kl)
    if settings.entropy_weight > 0:
        gain = gain + settings.entropy_weight * _needed(entropies, "entropy_weight", "entropies")
    with torch.no_grad():
        out_of_range = (ratio < 1 - settings.clip_low) | (ratio > 1 + settings.clip_high)
        figures["clip_share"] = out_of_range.float()
        figures["kl"] = ratio - 1 - difference
    means = {name: float(each.mean()) if len(each) else 0.0 for name, each in figures.items()}
    return PolicyLoss(-(tokens.weights * gain).sum(), means)


def clipped_surrogate(
    ratio: Tensor,
    advantages: Tensor,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> Tensor:
    """min(ρA, clip(ρ, 1 − ε_low, 1 + ε_high) A) of each token; not below dA where A < 0.

    PPO (arXiv 1707.06347, eq. 7); two clips as in DAPO (arXiv 2503.14476, "clip-higher"); the
    bound d below as in dual-clip PPO (arXiv 1912.09729, eq. 8), None for none.
    """
    clipped = ratio.clamp(1 - clip_low, 1 + clip_high)
    gain = torch.minimum(ratio * advantages, clipped * advantages)
    if dual_clip is None:
        return gain
    return torch.where(advantages < 0, torch.maximum(gain, dual_clip * advantages), gain)


def truncated_importance(old: Tensor, rollout: Tensor, cap: float) -> Tensor:
    """min(π_old/π_rollout, C) of each token, from log-probs, without gradient.

    Truncated importance weights (V-trace, arXiv 1802.01561, ρ̄), here between the policy
    that the ratio starts from and the one that sampled, as in decoupled PPO (arXiv
    2110.00641); on tokens of another engine: Yao et al., "Your efficient RL framework
    secretly brings you off-policy RL training" (2025).
    """
    return (old - rollout).detach().exp().clamp(max=cap)


def token_weights(tokens: Sequence[int], settings: LossSettings) -> Tensor:
    """The weight in an update's loss of every token of each rollout.

    ``rollout_mean``: 1 / (G n_i), the objective of IGPO (arXiv 2510.14967) and GRPO (arXiv
    2402.03300, eq. 3).  ``token_mean``: 1 / Σ n_i (DAPO, arXiv 2503.14476, "token-level
    policy gradient loss").  ``constant``: 1 / (G N) with a constant N, so that a long
    rollout's token counts as much as a short one's (Dr. GRPO, arXiv 2503.20783).

    Args:
        tokens: agent tokens n_i of each of the update's G rollouts, all micro-batches'.
        settings: the aggregation.

    Returns:
        float32 ``(rollouts,)``.
    """
    counts = torch.tensor(list(tokens), dtype=torch.float32)
    if settings.aggregation == "token_mean":
        return torch.ones_like(counts) / counts.sum().clamp(min=1)
    mean = torch.ones_like(counts) / max(len(counts), 1)
    if settings.aggregation == "constant":
        return mean / float(settings.constant_tokens or 1)
    return mean / counts.clamp(min=1)


def _needed(found: Tensor | None, setting: str, name: str) -> Tensor:
    if found is None:
        raise ValueError(f"{setting} needs {name}")
    return found
