"""Reinforcement learning: one loop, of which GRPO and IGPO are two settings.

    tasks → rollouts → reward records → advantages → update → metrics

Read :func:`train_rl` from top to bottom; everything it leans on is a function of another
module.  What the agent sampled is trained on as it is: ids and log-probs come from the
rollouts' transcripts, nothing is tokenised again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from agents.engines.base import Engine, Sampling
from agents.evaluate import evaluate
from agents.rollout import RolloutSettings
from drv_env import background
from drv_env.errors import DrvError, SettingError
from drv_env.task_order import TaskOrder
from drv_env.tasks import Task
from replay.template import ChatTemplate
from replay.trajectory import Trajectory
from trainers.advantages import IGPO, Credit, turn_advantages, turn_values
from trainers.information_gain import GainSettings, with_gains
from trainers.log_probs import token_log_probs
from trainers.losses import PolicyLoss, clipped_surrogate
from trainers.rollouts import RolloutWay, check_way, rollouts_of
from trainers.rows import Row, by_tokens, pad_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class RLConfig:
    """Settings of one run.

    Attributes:
        credit: how rewards become advantages; :data:`~trainers.advantages.IGPO` or
            :data:`~trainers.advantages.GRPO`, or a setting between them.
        gain: how information gain is scored, where ``credit`` uses it.
        steps: rollout batches.
        tasks_per_step: questions a step.
        group_size: rollouts a question, at least 2: statistics are within the group.
        minibatches: updates a step, each on an equal share of the rollouts.
        microbatch_tokens: padded tokens of one forward pass; an update sums over as many
            passes as it takes, and its result does not depend on it.
        learning_rate: AdamW's, constant.
        clip_low: lower clip of the ratio.
        clip_high: upper clip of the ratio.
        max_grad_norm: gradients are clipped to this norm.
        sampling: how turns are sampled; temperature 1, for log-probs are compared raw.
        rollouts: ``vector`` (lock-step) or ``async`` (each episode at its own pace); both
            give the same episodes.
        rollout: limits, deadlines and retries of the rollouts; its ``group_size`` is this
            one's, its ``seed`` None leaves the sampling to the engine.
        max_staleness: updates that may lie between sampling and training: 1 plays the next
            step's rollouts while this step is trained on.  Needs ``async``.
        seed: decides the order of tasks and of minibatches.

    Raises:
        SettingError: naming a value that can't work.
    """

    credit: Credit = IGPO
    gain: GainSettings = field(default_factory=GainSettings)
    steps: int = 40
    tasks_per_step: int = 8
    group_size: int = 8
    minibatches: int = 2
    microbatch_tokens: int = 8192
    learning_rate: float = 5e-4
    clip_low: float = 0.2
    clip_high: float = 0.2
    max_grad_norm: float = 1.0
    sampling: Sampling
    rollouts: RolloutWay = "vector"
    rollout: RolloutSettings = field(default_factory=lambda: RolloutSettings(seed=None))
    max_staleness: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "tasks_per_step", "minibatches", "microbatch_tokens"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.group_size < 2:
            raise SettingError(
                f"group_size must be at least 2 (rewards are compared within a group), "
                f"got {self.group_size}"
            )
        plain = Sampling(self.sampling.max_tokens)
        for name in ("temperature", "top_p", "top_k", "presence_penalty"):
            if getattr(self.sampling, name) != getattr(plain, name):
                raise SettingError(
                    "rollouts to train on are sampled at temperature 1 without top_p, top_k and "
                    f"penalties ({name} is {getattr(self.sampling, name)}): their raw log-probs "
                    "are compared with the trainer's"
                )
        check_way(self.rollouts, self.rollout, self.max_staleness)


@dataclass(frozen=True, slots=True)
class RLStep:
    """What one step left: its number from 1, its trajectories, its metrics by name."""

    step: int
    trajectories: list[Trajectory]
    metrics: dict[str, float]


def train_rl(
    model: nn.Module,
    engine: Engine,
    env: gymnasium.vector.VectorEnv[Any, Any, Any],
    template: ChatTemplate,
    tasks: Sequence[Task],
    config: RLConfig,
    on_step: Callable[[RLStep], None] = lambda step: None,
) -> list[RLStep]:
    """Train ``model`` in place.

    Args:
        model: the policy, a Transformers causal language model.
        engine: generates and scores; takes the model's weights before the first step and
            after every update.
        env: made by ``gymnasium.make_vec("drv_env/DeepResearch-v0", …)``.
        template: how messages become ids.
        tasks: questions to draw from.
        config: the settings.
        on_step: told of every step.

    Returns:
        Every step, without its trajectories.
    """
    rng = np.random.default_rng(config.seed)
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, weight_decay=0.0, fused=True
    )
    order = TaskOrder(tasks, config.seed)
    steps = (
        (step, [next(order) for _ in range(config.tasks_per_step)])
        for step in range(1, config.steps + 1)
    )
    played = rollouts_of(
        config.rollouts,
        env,
        engine,
        template,
        steps,
        config.sampling,
        replace(config.rollout, group_size=config.group_size),
        config.max_staleness,
    )
    background.run(engine.update_weights(model))
    done: list[RLStep] = []
    with played as rollouts:
        clock = _Stopwatch()
        for (step, chosen), trajectories in rollouts:
            # ---- rollouts: a group is one task, group_size times ----------------------
            groups = [index // config.group_size for index in range(len(trajectories))]
            clock.lap("rollout")

            # ---- rewards: information gain of every visit -----------------------------
            if config.credit.information_gain:
                trajectories = with_gains(trajectories, engine, template, config.gain)
            clock.lap("information_gain")

            # ---- advantages: one a turn, broken episodes left out ---------------------
            whole = [index for index, item in enumerate(trajectories) if not item.broken]
            if not whole:
                raise DrvError(
                    f"step {step}: all {len(trajectories)} episodes broke; the last: "
                    f"{trajectories[-1].error}"
                )
            kept = [trajectories[index] for index in whole]
            values = [turn_values(item.rewards, config.credit) for item in kept]
            advantages = turn_advantages(values, [groups[index] for index in whole], config.credit)

            # ---- update: clipped surrogate on the agent's tokens ----------------------
            update = _update(model, optimiser, kept, advantages.per_turn, config, rng)
            clock.lap("update")
            background.run(engine.update_weights(model))
            rollouts.updated()
            clock.lap("sync")

            metrics = {
                **_metrics(trajectories),
                **update,
                "ig_scale": advantages.ig_scale,
                "silent_groups": len(advantages.silent_groups) / len(chosen),
                "staleness": _staleness(kept, engine.weight_version - 1),
                **{f"seconds_{name}": seconds for name, seconds in clock.laps.items()},
            }
            on_step(RLStep(step, trajectories, metrics))
            done.append(RLStep(step, [], metrics))
            clock = _Stopwatch()
    return done


def _update(
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    trajectories: Sequence[Trajectory],
    advantages: Sequence[np.ndarray],
    config: RLConfig,
    rng: np.random.Generator,
) -> dict[str, float]:
    """One pass over the rollouts in minibatches; rollouts without signal are left out."""
    rollouts = [
        _Rollout.of(trajectory, per_turn)
        for trajectory, per_turn in zip(trajectories, advantages, strict=True)
        if np.any(np.abs(per_turn) > 1e-12)
    ]
    if not rollouts:
        return {"loss": 0.0, "kl": 0.0, "clip_share": 0.0, "entropy": 0.0, "grad_norm": 0.0}
    device = next(model.parameters()).device
    sums: dict[str, float] = {}
    parts = np.array_split(rng.permutation(len(rollouts)), min(config.minibatches, len(rollouts)))
    model.train()
    for part in parts:
        batch = [rollouts[index] for index in part]
        tokens = sum(len(item.old_log_probs) for item in batch)
        optimiser.zero_grad(set_to_none=True)
        for micro in by_tokens([len(item.row) for item in batch], config.microbatch_tokens):
            chosen = [batch[index] for index in micro]
            loss, entropies = _loss(model, chosen, len(batch), config, device)
            loss.loss.backward()  # type: ignore[no-untyped-call]
            share = len(entropies) / tokens / len(parts)
            measured = {
                "loss": float(loss.loss.detach()) / len(parts),
                "kl": loss.kl * share,
                "clip_share": loss.clip_share * share,
                "entropy": float(entropies.mean()) * share,
            }
            for name, value in measured.items():
                sums[name] = sums.get(name, 0.0) + value
        norm = nn.utils.clip_grad_norm_(model.parameters(), config.max_grad_norm)
        optimiser.step()
        sums["grad_norm"] = sums.get("grad_norm", 0.0) + float(norm) / len(parts)
    model.eval()
    return sums


def _loss(
    model: nn.Module,
    chosen: Sequence[_Rollout],
    rollouts: int,
    config: RLConfig,
    device: torch.device,
) -> tuple[PolicyLoss, torch.Tensor]:
    """The share of ``chosen`` in the loss of a minibatch of so many ``rollouts``."""
    ids, mask = pad_rows([item.row for item in chosen], device)
    log_probs, entropies = token_log_probs(model, ids, mask)
    counts = torch.tensor([len(item.old_log_probs) for item in chosen], device=device)
    loss = clipped_surrogate(
        log_probs,
        torch.from_numpy(np.concatenate([item.old_log_probs for item in chosen])).to(device),
        torch.from_numpy(np.concatenate([item.advantages for item in chosen])).to(device),
        torch.repeat_interleave(torch.arange(len(chosen), device=device), counts),
        rollouts,
        config.clip_low,
        config.clip_high,
    )
    return loss, entropies


@dataclass(frozen=True, slots=True)
class _Rollout:
    """A trajectory's tokens, with an old log-prob and an advantage for each of the agent's."""

    row: Row
    old_log_probs: np.ndarray
    advantages: np.ndarray

    @classmethod
    def of(cls, trajectory: Trajectory, per_turn: np.ndarray) -> _Rollout:
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
        spread = [
            np.full(len(sampled), advantage, dtype=np.float32)
            for sampled, advantage in zip(log_probs, per_turn, strict=True)
        ]
        row = Row(transcript.ids, transcript.mask())
        return cls(row, np.concatenate(log_probs), np.concatenate(spread))


def _metrics(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Figures by name; what there is none of (a mean over nothing) is left out."""
    figures = evaluate(trajectories)
    gains = [
        reward.information_gain
        for trajectory in trajectories
        if not trajectory.broken
        for reward in trajectory.rewards
        if reward.information_gain is not None
    ]
    tokens = [len(item.transcript) for item in trajectories if item.transcript is not None]
    found: Mapping[str, float] = {
        "success": figures.success,
        "well_formed": figures.well_formed,
        "turns": figures.turns,
        "visit_ratio": figures.visit_ratio,
        "broken": figures.broken,
        "scored_turns": len(gains),
        "information_gain": float(np.mean(gains)) if gains else math.nan,
        "tokens": float(np.mean(tokens)) if tokens else math.nan,
    }
    return {name: float(value) for name, value in found.items() if math.isfinite(value)}


def _staleness(trajectories: Sequence[Trajectory], trained: int) -> float:
    """The most updates between the weights that sampled a turn and those being trained."""
    versions = [
        sampled.weight_version
        for item in trajectories
        if item.transcript is not None
        for sampled in item.transcript.sampled
        if sampled.weight_version is not None
    ]
    return float(trained - min(versions, default=trained))


class _Stopwatch:
    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps[name] = now - self._last
        self._last = now
