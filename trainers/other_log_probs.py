"""Log-probs of sampled tokens under a model that is not being asked for a gradient.

The policy as it was before the updates, for importance correction; a reference model, for
the KL penalty.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import nn

from replay.transcript import Transcript
from trainers.information_gain import score_item
from trainers.trajectory_scores import Method, score_trajectories

Model = TypeVar("Model", bound=nn.Module)


def frozen_copy(model: Model) -> Model:
    """The model as it is now, which no update will change."""
    return copy.deepcopy(model).eval().requires_grad_(False)


def sampled_log_probs(
    model: nn.Module,
    transcripts: Sequence[Transcript],
    chunk_tokens: int,
    method: Method = "auto",
) -> list[NDArray[np.float32]]:
    """For each transcript the raw log-probs of all ids the agent sampled, in order.

    Args:
        model: a Transformers causal language model; its mode and gradients stay as they are.
        transcripts: whatever sampled them.
        chunk_tokens: tokens of one forward pass.
        method: as of :func:`trainers.trajectory_scores.score_trajectories`.

    Raises:
        SettingError: as :func:`trainers.trajectory_scores.score_trajectories`.
    """
    items = [score_item(transcript) for transcript in transcripts]
    scores = score_trajectories(model, items, chunk_tokens=chunk_tokens, method=method)
    empty = np.zeros(0, np.float32)
    return [np.concatenate([empty, *score.log_probs]) for score in scores]
