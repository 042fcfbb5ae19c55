"""The rollouts of a step as an update learns from them: tokens, advantages, log-probs.

Everything here is made before the first update; what the agent sampled stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from drv_env.errors import SettingError
from replay.trajectory import Trajectory
from replay.transcript import Transcript
from trainers.advantages import token_advantages
from trainers.loss_settings import LossSettings
from trainers.losses import AgentTokens
from trainers.other_log_probs import sampled_log_probs
from trainers.rows import Row
from trainers.trajectory_scores import Method

PerToken = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class LearntRollout:
    """A rollout to learn from; float32 arrays have an entry for each id the agent sampled.

    Attributes:
        transcript: of the rollout.
        row: its ids, the agent's marked.
        advantages: of each id's turn.
        sampled: raw log-probs at sampling time.
        old: those of the model before the updates; None takes the sampled ones.
        reference: those of the reference model; None without one.
    """

    transcript: Transcript
    row: Row
    advantages: PerToken
    sampled: PerToken
    old: PerToken | None = None
    reference: PerToken | None = None

    @property
    def tokens(self) -> int:
        """Ids that the agent sampled."""
        return len(self.sampled)

    @classmethod
    def of(cls, trajectory: Trajectory, per_turn: NDArray[np.float64]) -> LearntRollout:
        """From a trajectory and the advantage of each of its turns.

        Raises:
            ValueError: when it has no transcript of all its turns, or no log-probs.
            SettingError: when its ids are not what was sampled.
        """
        transcript = trajectory.transcript
        if transcript is None or transcript.turns != len(per_turn):
            raise ValueError("a rollout to train on needs the transcript of all its turns")
        if transcript.reencoded:
            raise SettingError(
                "this transcript was encoded again from text, so its ids are not what was sampled; "
                "roll out with an engine that gives token ids"
            )
        log_probs = []
        for turn, sampled in enumerate(transcript.log_probs, start=1):
            if sampled is None:
                raise ValueError(f"turn {turn} has no log-probs; only sampled turns can be trained")
            log_probs.append(sampled)
        spans = [(span.start, span.stop) for span in transcript.spans if span.kind == "completion"]
        advantages = token_advantages(per_turn, spans, len(transcript))
        row = Row(transcript.ids, transcript.mask())
        return cls(transcript, row, advantages[row.mask], np.concatenate(log_probs))


def learnt_rollouts(
    trajectories: Sequence[Trajectory],
    advantages: Sequence[NDArray[np.float64]],
    model: nn.Module,
    reference: nn.Module | None,
    settings: LossSettings,
    chunk_tokens: int,
    policy: Sequence[PerToken] | None = None,
    scoring: Method = "auto",
) -> list[LearntRollout]:
    """Rollouts with the log-probs that the loss needs besides those of the sampling.

    Args:
        trajectories: to learn from.
        advantages: of each one's turns.
        model: the policy before the updates; asked only for importance correction.
        reference: asked only for the KL penalty.
        settings: of the loss.
        chunk_tokens: tokens of one forward pass.
        policy: the model's log-probs of each trajectory's sampled ids, where a pass has
            given them already.
        scoring: how log-probs are computed.
    """
    found = [
        LearntRollout.of(trajectory, per_turn)
        for trajectory, per_turn in zip(trajectories, advantages, strict=True)
    ]
    transcripts = [item.transcript for item in found]
    if settings.importance_cap is not None:
        old = policy or sampled_log_probs(model, transcripts, chunk_tokens, scoring)
        found = [replace(item, old=values) for item, values in zip(found, old, strict=True)]
    if settings.kl_weight > 0:
        if reference is None:
            raise ValueError("kl_weight needs a reference model")
        held = sampled_log_probs(reference, transcripts, chunk_tokens, scoring)
        found = [replace(item, reference=values) for item, values in zip(found, held, strict=True)]
    return found


def agent_tokens(
    rollouts: Sequence[LearntRollout], weights: Tensor, device: torch.device
) -> AgentTokens:
    """The rollouts' agent tokens behind one another, for :func:`trainers.losses.policy_loss`.

    Args:
        rollouts: of one micro-batch, at least one.
        weights: of each one's tokens, float32 ``(rollouts,)``.
        device: where the tensors go.
    """

    def flat(arrays: Sequence[PerToken]) -> Tensor:
        return torch.from_numpy(np.concatenate(arrays)).to(device)

    sampled = flat([item.sampled for item in rollouts])
    old = [item.old for item in rollouts if item.old is not None]
    reference = [item.reference for item in rollouts if item.reference is not None]
    counts = torch.tensor([item.tokens for item in rollouts])
    return AgentTokens(
        advantages=flat([item.advantages for item in rollouts]),
        weights=torch.repeat_interleave(weights, counts).to(device),
        old_log_probs=flat(old) if old else sampled,
        rollout_log_probs=sampled,
        reference_log_probs=flat(reference) if reference else None,
    )
