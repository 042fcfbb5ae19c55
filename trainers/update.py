"""One update of the policy: rollouts in minibatches, minibatches in passes of bounded size."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from torch import Tensor, nn

from trainers.learnt import LearntRollout, agent_tokens
from trainers.log_probs import token_log_probs
from trainers.losses import PolicyLoss, policy_loss, token_weights
from trainers.model_setup import computing
from trainers.optimiser import clipped_step
from trainers.packed_attention import attending, pack_rows
from trainers.rl_config import RLConfig
from trainers.rows import balanced, by_tokens, pad_rows


def update_policy(
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    rollouts: Sequence[LearntRollout],
    config: RLConfig,
    rng: np.random.Generator,
) -> dict[str, float]:
    """One pass over the rollouts in minibatches, an optimiser's step for each.

    Args:
        model: the policy; trained in place, and left in evaluation mode.
        optimiser: over its trained parameters.
        rollouts: to learn from; without any there is no update, and nothing to measure.
        config: minibatches, passes, precision and loss.
        rng: draws the minibatches.

    Returns:
        ``loss``, ``kl``, ``clip_share``, ``entropy`` and what else the loss measures, means
        over the rollouts' tokens; ``grad_norm``, the mean before clipping.

    Raises:
        DrvError: when a gradient is not finite; the weights are as they were before it.
    """
    if not rollouts:
        return {}
    sums: dict[str, float] = {}
    parts = np.array_split(rng.permutation(len(rollouts)), min(config.minibatches, len(rollouts)))
    model.train()
    for part in parts:
        batch = [rollouts[index] for index in part]
        counts = [item.tokens for item in batch]
        weights = token_weights(counts, config.loss)
        optimiser.zero_grad(set_to_none=True)
        cut = balanced if config.packed else by_tokens
        for micro in cut([len(item.row) for item in batch], config.microbatch_tokens):
            chosen = [batch[index] for index in micro]
            with _attention(model, config):
                loss, entropies = _loss(model, chosen, weights[micro], config)
                loss.loss.backward()  # type: ignore[no-untyped-call]
            share = len(entropies) / sum(counts) / len(parts)
            measured = {"loss": float(loss.loss.detach()) / len(parts)}
            for name, value in {**loss.figures, "entropy": float(entropies.mean())}.items():
                measured[name] = value * share
            for name, value in measured.items():
                sums[name] = sums.get(name, 0.0) + value
        norm = clipped_step(optimiser, config, "an update")
        sums["grad_norm"] = sums.get("grad_norm", 0.0) + float(norm) / len(parts)
    model.eval()
    return sums


def _loss(
    model: nn.Module, chosen: Sequence[LearntRollout], weights: Tensor, config: RLConfig
) -> tuple[PolicyLoss, Tensor]:
    """The share of ``chosen`` in the loss of an update; ``weights`` are theirs."""
    device = next(model.parameters()).device
    rows = [item.row for item in chosen]
    bonus = config.loss.entropy_weight > 0
    with computing(device, config.precision):
        if config.packed:
            ids, mask, documents = pack_rows(rows, device)
        else:
            (ids, mask), documents = pad_rows(rows, device), None
        log_probs, entropies = token_log_probs(
            model, ids, mask, documents=documents, entropies_too=bonus
        )
    tokens = agent_tokens(chosen, weights, device)
    return policy_loss(log_probs, tokens, config.loss, entropies), entropies.detach()


def _attention(model: nn.Module, config: RLConfig) -> AbstractContextManager[None]:
    return attending(model) if config.packed else nullcontext()
