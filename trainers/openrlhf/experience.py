"""From a step's trajectories to what OpenRLHF's experiences learn from: numbers per token.

The same functions as on one device make them; this module knows trajectories and arrays,
and neither Ray nor OpenRLHF.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from replay.trajectory import Trajectory
from trainers.advantages import token_advantages
from trainers.openrlhf.scoring import Gains
from trainers.rl_config import RLConfig
from trainers.rl_metrics import rollout_metrics, staleness
from trainers.step_advantages import step_advantages

PerToken = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Learnt:
    """What a step learns.

    Attributes:
        advantages: for each rollout float32 ``(length − 1,)``, entry i for id i + 1 as in
            OpenRLHF's action mask; None for one that is left out: broken, or silent where
            the settings drop it.
        metrics: of the rollouts and their advantages, by the names of :mod:`trainers.rl_metrics`.
    """

    advantages: list[PerToken | None]
    metrics: dict[str, float]


def with_rank_gains(
    trajectories: Sequence[Trajectory],
    shared: Sequence[Sequence[int]],
    found: Sequence[Sequence[Gains]],
) -> list[Trajectory]:
    """The trajectories with the gains that each rank found for its share.

    Args:
        trajectories: of a step.
        shared: indices, by ranks (:func:`trainers.openrlhf.scoring.shares`).
        found: gains, by ranks, in the same order.
    """
    scored = list(trajectories)
    for indices, gains in zip(shared, found, strict=True):
        for index, of_turns in zip(indices, gains, strict=True):
            rewards = tuple(
                dataclasses.replace(reward, information_gain=gain)
                for reward, gain in zip(scored[index].rewards, of_turns, strict=True)
            )
            scored[index] = dataclasses.replace(scored[index], rewards=rewards)
    return scored


def learn(
    trajectories: Sequence[Trajectory],
    groups: Sequence[int],
    config: RLConfig,
    version: int,
    step: int = 1,
) -> Learnt:
    """Advantages of a step's rollouts, and its metrics.

    Args:
        trajectories: with gains where the settings use them.
        groups: the group of each.
        config: the settings.
        version: of the weights that are trained, in weight transfers.
        step: its number from 1.

    Raises:
        DrvError: when every episode broke.
    """
    advantages = step_advantages(trajectories, groups, config, step)
    found: list[PerToken | None] = [None] * len(trajectories)
    for index, per_turn in zip(advantages.learnt, advantages.per_turn, strict=True):
        found[index] = _per_token(trajectories[index], per_turn)
    metrics = {
        **rollout_metrics(trajectories),
        **advantages.metrics,
        "staleness": staleness([trajectories[index] for index in advantages.whole], version),
    }
    return Learnt(found, metrics)


def _per_token(trajectory: Trajectory, per_turn: NDArray[np.float64]) -> PerToken:
    transcript = trajectory.transcript
    if transcript is None or transcript.turns != len(per_turn):
        raise ValueError("a rollout to train on needs the transcript of all its turns")
    spans = [(span.start, span.stop) for span in transcript.spans if span.kind == "completion"]
    return token_advantages(per_turn, spans, len(transcript))[1:]
