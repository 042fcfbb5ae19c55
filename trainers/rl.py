"""Reinforcement learning: one loop, of which GRPO and IGPO are two settings.

    tasks → rollouts → reward records → advantages → update → metrics

Read :func:`train_rl` from top to bottom; everything it leans on is a function of another
module.  What the agent sampled is trained on as it is: ids and log-probs come from the
rollouts' transcripts, nothing is tokenised again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from torch import nn

from agents.engines.base import Engine, Sampling
from agents.rollout import RolloutSettings
from agents.rollout_folder import fingerprint
from drv_env import background
from drv_env.errors import DrvError, SettingError
from drv_env.task_order import TaskOrder
from drv_env.tasks import Task
from replay.template import ChatTemplate
from replay.trajectory import Trajectory
from trainers.advantages import IGPO, Advantages, Credit, advantages_of
from trainers.information_gain import GainSettings, ModelScores, score_with_model, with_gains
from trainers.learnt import LearntRollout, agent_tokens, learnt_rollouts
from trainers.log_probs import token_log_probs
from trainers.loss_settings import LossSettings
from trainers.losses import PolicyLoss, policy_loss, token_weights
from trainers.other_log_probs import frozen_copy
from trainers.rl_metrics import (
    Phases,
    rollout_metrics,
    sampled_tokens,
    staleness,
    transcript_tokens,
)
from trainers.rollouts import RolloutWay, check_way, rollouts_of
from trainers.rows import by_tokens, pad_rows
from trainers.training_state import Keeper


@dataclass(frozen=True, slots=True, kw_only=True)
class RLConfig:
    """Settings of one run.

    Attributes:
        credit: how rewards become advantages; :data:`~trainers.advantages.IGPO` or
            :data:`~trainers.advantages.GRPO`, or a setting between them.
        gain: how information gain is scored, where ``credit`` uses it.
        gain_by: who scores it: the ``model`` being trained, in one pass a trajectory that
            also gives the log-probs before the update, or the ``engine``, probe by probe.
        steps: rollout batches.
        tasks_per_step: questions a step.
        group_size: rollouts a question, at least 2: statistics are within the group.
        minibatches: updates a step, each on an equal share of the rollouts.
        microbatch_tokens: padded tokens of one forward pass; an update sums over as many
            passes as it takes, and its result does not depend on it.
        learning_rate: AdamW's, constant.
        loss: clips, averages, the KL penalty and importance correction.
        drop_silent: what is left out of the updates for having no advantage on any turn:
            ``rollouts``, only whole ``groups``, or ``none``.  What is left out is in no
            average, and has no KL penalty.
        max_grad_norm: gradients are clipped to this norm.
        sampling: how turns are sampled; temperature 1, for log-probs are compared raw.
        rollouts: ``vector`` (lock-step) or ``async`` (each episode at its own pace); both
            give the same episodes.
        rollout: limits, deadlines and retries of the rollouts; its ``group_size`` is this
            one's, its ``seed`` None leaves the sampling to the engine.
        max_staleness: updates that may lie between sampling and training: 1 plays the next
            step's rollouts while this step is trained on.  Needs ``async``;
            ``loss.importance_cap`` corrects for it.
        save_every: steps between two states, at least 1, where the run has a folder for them.
        seed: decides the order of tasks and of minibatches.

    Raises:
        SettingError: naming a value that can't work.
    """

    credit: Credit = IGPO
    gain: GainSettings = field(default_factory=GainSettings)
    gain_by: Literal["model", "engine"] = "model"
    steps: int = 40
    tasks_per_step: int = 8
    group_size: int = 8
    minibatches: int = 2
    microbatch_tokens: int = 8192
    learning_rate: float = 5e-4
    loss: LossSettings = field(default_factory=LossSettings)
    drop_silent: Literal["rollouts", "groups", "none"] = "rollouts"
    max_grad_norm: float = 1.0
    sampling: Sampling
    rollouts: RolloutWay = "vector"
    rollout: RolloutSettings = field(default_factory=lambda: RolloutSettings(seed=None))
    max_staleness: int = 0
    save_every: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "tasks_per_step", "minibatches", "microbatch_tokens", "save_every"):
            if getattr(self, name) < 1:
                raise SettingError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.group_size < 2:
            raise SettingError(
                f"group_size must be at least 2 (rewards are compared within a group), "
                f"got {self.group_size}"
            )
        if self.gain_by not in ("model", "engine"):
            raise SettingError(f"gain_by may be model or engine, got {self.gain_by!r}")
        if self.drop_silent not in ("rollouts", "groups", "none"):
            raise SettingError(
                f"drop_silent may be rollouts, groups or none, got {self.drop_silent!r}"
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
    reference: nn.Module | None = None,
    state: str | Path | None = None,
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
        reference: what the KL penalty holds the policy to; None is the model as it comes.
        state: a folder for the run's whole state, from which the same call goes on after
            the process was killed, or after Ctrl-C, which then lets a step finish, saves and
            raises KeyboardInterrupt.  With rollouts in lock-step on the Transformers engine
            and ``config.rollout.seed`` set, the model ends as if nothing had happened.

    Returns:
        The steps that this call took, without their trajectories.

    Raises:
        SettingError: when env, engine or state don't fit the settings.
    """
    rng = np.random.default_rng(config.seed)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=config.learning_rate, weight_decay=0.0, fused=True)
    if config.loss.kl_weight > 0 and reference is None:
        reference = frozen_copy(model)  # before the state of an earlier life is taken up
    if state is not None and config.rollout.seed is None:
        raise SettingError(
            "a run that keeps its state needs rollout.seed, or what it samples would depend on how "
            "often it was taken up; set RLConfig(rollout=RolloutSettings(seed=0))"
        )
    keeper = Keeper(state, model, optimiser, _settings(config, tasks), {"minibatches": rng})
    begun = keeper.start()
    order = TaskOrder(tasks, config.seed)
    steps = (
        (step, [next(order) for _ in range(config.tasks_per_step)])
        for step in range(1, config.steps + 1)
    )
    for _ in islice(steps, begun):
        pass  # an earlier life's
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
    with played as rollouts, keeper.guard() as interrupt:
        phases = Phases()
        for (step, chosen), trajectories in rollouts:
            # ---- rollouts: a group is one task, group_size times ----------------------
            groups = [index // config.group_size for index in range(len(trajectories))]
            phases.end("rollout", sampled_tokens(trajectories))

            # ---- rewards: information gain of every visit -----------------------------
            scores: ModelScores | None = None
            if config.credit.information_gain and config.gain_by == "model":
                scores = score_with_model(trajectories, model, template, config.gain)
                trajectories = scores.trajectories
            elif config.credit.information_gain:
                trajectories = with_gains(trajectories, engine, template, config.gain)
            phases.end("information_gain", transcript_tokens(trajectories))

            # ---- advantages: one a turn, broken episodes left out ---------------------
            whole = [index for index, item in enumerate(trajectories) if not item.broken]
            if not whole:
                raise DrvError(
                    f"step {step}: all {len(trajectories)} episodes broke; the last: "
                    f"{trajectories[-1].error}"
                )
            kept = [trajectories[index] for index in whole]
            own = [groups[index] for index in whole]
            advantages = advantages_of(
                [item.rewards for item in kept],
                own,
                config.credit,
                [[turn.tool for turn in item.turns] for item in kept],
                config.gain.tools,
            )

            # ---- update: clipped surrogate on the agent's tokens ----------------------
            learnt = _learnt(advantages, own, config)
            batch = learnt_rollouts(
                [kept[index] for index in learnt],
                [advantages.per_turn[index] for index in learnt],
                model,
                reference,
                config.loss,
                config.microbatch_tokens,
                None if scores is None else scores.of([whole[index] for index in learnt]),
            )
            update = _update(model, optimiser, batch, config, rng)
            phases.end("update", sum(len(item.row) for item in batch))
            background.run(engine.update_weights(model))
            rollouts.updated()
            phases.end("sync")

            metrics = {
                **rollout_metrics(trajectories),
                **update,
                "ig_scale": advantages.ig_scale,
                "silent_groups": len(advantages.silent_groups) / len(chosen),
                "dropped_rollouts": float(len(kept) - len(learnt)),
                "staleness": staleness(kept, engine.weight_version - 1),
                **phases.figures,
            }
            try:
                on_step(RLStep(step, trajectories, metrics))
            except KeyboardInterrupt:
                interrupt.asked = True
            done.append(RLStep(step, [], metrics))
            if interrupt.asked or step == config.steps or step % config.save_every == 0:
                keeper.save(step)
            if interrupt.asked:
                raise KeyboardInterrupt
            phases = Phases()
    return done


def _settings(config: RLConfig, tasks: Sequence[Task]) -> dict[str, Any]:
    """What must be the same when a run is taken up."""
    told = asdict(config)
    for name in ("steps", "save_every"):
        del told[name]  # these may change between two lives of a run
    return {"trainer": "rl", **told, "tasks": fingerprint(tasks)}


def _learnt(advantages: Advantages, groups: Sequence[int], config: RLConfig) -> list[int]:
    """The rollouts to update on, less those without a signal as far as they are dropped."""
    dropped = {
        "rollouts": advantages.silent.tolist(),
        "groups": [group in advantages.silent_groups for group in groups],
        "none": [False] * len(groups),
    }[config.drop_silent]
    return [index for index, drop in enumerate(dropped) if not drop]


def _update(
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    rollouts: Sequence[LearntRollout],
    config: RLConfig,
    rng: np.random.Generator,
) -> dict[str, float]:
    """One pass over the rollouts in minibatches; figures are means over their tokens."""
    if not rollouts:
        return {"loss": 0.0, "kl": 0.0, "clip_share": 0.0, "entropy": 0.0, "grad_norm": 0.0}
    device = next(model.parameters()).device
    sums: dict[str, float] = {}
    parts = np.array_split(rng.permutation(len(rollouts)), min(config.minibatches, len(rollouts)))
    model.train()
    for part in parts:
        batch = [rollouts[index] for index in part]
        counts = [item.tokens for item in batch]
        weights = token_weights(counts, config.loss)
        optimiser.zero_grad(set_to_none=True)
        for micro in by_tokens([len(item.row) for item in batch], config.microbatch_tokens):
            chosen = [batch[index] for index in micro]
            loss, entropies = _loss(model, chosen, weights[micro], config.loss, device)
            loss.loss.backward()  # type: ignore[no-untyped-call]
            share = len(entropies) / sum(counts) / len(parts)
            measured = {"loss": float(loss.loss.detach()) / len(parts)}
            for name, value in {**loss.figures, "entropy": float(entropies.mean())}.items():
                measured[name] = value * share
            for name, value in measured.items():
                sums[name] = sums.get(name, 0.0) + value
        norm = nn.utils.clip_grad_norm_(
            [each for each in model.parameters() if each.requires_grad], config.max_grad_norm
        )
        optimiser.step()
        sums["grad_norm"] = sums.get("grad_norm", 0.0) + float(norm) / len(parts)
    model.eval()
    return sums


def _loss(
    model: nn.Module,
    chosen: Sequence[LearntRollout],
    weights: torch.Tensor,
    settings: LossSettings,
    device: torch.device,
) -> tuple[PolicyLoss, torch.Tensor]:
    """The share of ``chosen`` in the loss of an update; ``weights`` are theirs."""
    ids, mask = pad_rows([item.row for item in chosen], device)
    log_probs, entropies = token_log_probs(model, ids, mask)
    return policy_loss(log_probs, agent_tokens(chosen, weights, device), settings), entropies
