"""What a step of reinforcement is measured by; the names are the same for every trainer.

Figures of nothing (a mean over no values) are left out, never 0.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

import numpy as np

from agents.evaluate import evaluate
from drv_env.episode import Ending
from replay.trajectory import Trajectory


def rollout_metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Of a step's rollouts, with their gains before any normalisation.

    Returns:
        ``success`` (mean outcome), ``well_formed`` (share of turns), ``turns``, ``visit_ratio``
        and the same of ``correct`` and ``wrong`` episodes, ``failed_calls`` (share),
        ``broken`` (episodes), ``ending_…`` (share of all episodes, by ending),
        ``scored_turns``, ``information_gain`` and ``information_gain_std`` (nats a token),
        ``tokens`` and ``sampled_tokens`` (means an episode).

    Raises:
        ValueError: when every trajectory is broken.
    """
    figures = evaluate(trajectories)
    gains = [
        reward.information_gain
        for trajectory in trajectories
        if not trajectory.broken
        for reward in trajectory.rewards
        if reward.information_gain is not None
    ]
    found: Mapping[str, float] = {
        "success": figures.success,
        "well_formed": figures.well_formed,
        "turns": figures.turns,
        "visit_ratio": figures.visit_ratio,
        "visit_ratio_correct": figures.visit_ratio_correct,
        "visit_ratio_wrong": figures.visit_ratio_wrong,
        "failed_calls": figures.failed_calls,
        "broken": figures.broken,
        **{
            f"ending_{ending}": figures.endings.get(str(ending), 0) / len(trajectories)
            for ending in Ending
        },
        "scored_turns": len(gains),
        "information_gain": float(np.mean(gains)) if gains else math.nan,
        "information_gain_std": float(np.std(gains)) if gains else math.nan,
        "tokens": figures.context_tokens,
        "sampled_tokens": figures.turn_tokens,
    }
    return {name: float(value) for name, value in found.items() if math.isfinite(value)}


def staleness(trajectories: Sequence[Trajectory], trained: int) -> float:
    """The most updates between the weights that sampled a turn and those being trained."""
    versions = [
        sampled.weight_version
        for item in trajectories
        if item.transcript is not None
        for sampled in item.transcript.sampled
        if sampled.weight_version is not None
    ]
    return float(trained - min(versions, default=trained))


class Phases:
    """Seconds, and tokens a second, of the phases of a step."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}
        self._last = time.perf_counter()

    def end(self, name: str, tokens: int | None = None) -> None:
        """A phase ends here, which went through so many tokens, where that makes sense."""
        now = time.perf_counter()
        seconds = now - self._last
        self._last = now
        self.figures[f"seconds_{name}"] = seconds
        if tokens is not None and seconds > 0:
            self.figures[f"tokens_per_s_{name}"] = tokens / seconds


def sampled_tokens(trajectories: Sequence[Trajectory]) -> int:
    """Tokens that were sampled for them."""
    return sum(turn.tokens or 0 for item in trajectories for turn in item.turns)


def transcript_tokens(trajectories: Sequence[Trajectory]) -> int:
    """Tokens of their transcripts."""
    return sum(len(item.transcript) for item in trajectories if item.transcript is not None)
