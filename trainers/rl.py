"""Reinforcement learning: one loop, of which GRPO and IGPO are two settings.

    tasks → rollouts → reward records → advantages → update → metrics

Read :func:`train_rl` from top to bottom; everything it leans on is a function of another
module.  What the agent sampled is trained on as it is: ids and log-probs come from the
rollouts' transcripts, nothing is tokenised again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from torch import nn

from agents.engines.base import Engine
from agents.meter import Meter
from agents.rollout_folder import fingerprint
from agents.vector_rollout import unwrapped
from drv_env import background
from drv_env.errors import SettingError
from drv_env.task_order import TaskOrder
from drv_env.tasks import Task, TaskLike, each_task
from replay.template import ChatTemplate
from replay.trajectory import Trajectory
from trainers.causal_model import CausalModel
from trainers.information_gain import ModelScores, gains_by_scorer, score_with_model, with_gains
from trainers.learnt import learnt_rollouts
from trainers.model_setup import computing, engine_weights
from trainers.optimiser import make_optimiser, set_rate
from trainers.other_log_probs import frozen_copy
from trainers.packed_attention import refuse_unpackable
from trainers.plugins import scorer_of
from trainers.registry import ADVANTAGES
from trainers.rl_config import RLConfig, usual_sampling
from trainers.rl_metrics import (
    Phases,
    rollout_metrics,
    sampled_tokens,
    staleness,
    transcript_tokens,
)
from trainers.rollouts import rollouts_of
from trainers.step_advantages import step_advantages
from trainers.training_state import Keeper
from trainers.trajectory_scores import score_trajectories
from trainers.update import update_policy

__all__ = ["RLConfig", "RLStep", "train_rl"]


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
    tasks: Sequence[TaskLike],
    config: RLConfig,
    on_step: Callable[[RLStep], None] = lambda step: None,
    reference: nn.Module | None = None,
    state: str | Path | None = None,
    meter: Meter | None = None,
) -> list[RLStep]:
    """Train ``model`` in place.

    Args:
        model: the policy, a Transformers causal language model, or peft's around one; see
            :func:`trainers.model_setup.prepare_model`.
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
        meter: counts the rollouts as they go.

    Returns:
        The steps that this call took, without their trajectories.

    Raises:
        SettingError: when model, env, engine or state don't fit the settings.
    """
    ADVANTAGES[config.advantages]  # known, or refused
    tasks = each_task(tasks)
    own = config.credit.information_gain and config.gain_by not in ("model", "engine")
    scorer = scorer_of(config.gain_by) if own else None
    sampling = config.sampling or usual_sampling(unwrapped(env).game.rules, template)
    rng = np.random.default_rng(config.seed)
    optimiser = make_optimiser(model, config)
    if config.loss.kl_weight > 0 and reference is None:
        reference = frozen_copy(model)  # before the state of an earlier life is taken up
    if state is not None and config.rollout.seed is None:
        raise SettingError(
            "a run that keeps its state needs rollout.seed, or what it samples would depend on how "
            "often it was taken up; set RLConfig(rollout=RolloutSettings(seed=0))"
        )
    device = next(model.parameters()).device
    with computing(device, config.precision):
        _refuse_unfit(model, config)
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
        sampling,
        replace(config.rollout, group_size=config.group_size),
        config.max_staleness,
        meter or Meter(),
    )
    background.run(engine.update_weights(engine_weights(model)))
    done: list[RLStep] = []
    with played as rollouts, keeper.guard() as interrupt:
        phases = Phases()
        for (step, _), trajectories in rollouts:
            # ---- rollouts: a group is one task, group_size times ----------------------
            groups = [index // config.group_size for index in range(len(trajectories))]
            phases.end("rollout", sampled_tokens(trajectories))

            # ---- rewards: information gain of every visit -----------------------------
            scores: ModelScores | None = None
            if config.credit.information_gain and config.gain_by == "model":
                with computing(device, config.precision):
                    scores = score_with_model(
                        trajectories,
                        model,
                        template,
                        config.gain,
                        chunk_tokens=config.microbatch_tokens,
                        method=config.scoring,
                    )
                trajectories = scores.trajectories
            elif config.credit.information_gain and scorer is None:
                trajectories = with_gains(trajectories, engine, template, config.gain)
            elif scorer is not None:
                trajectories = gains_by_scorer(trajectories, scorer, config.gain)
            if config.credit.information_gain:
                phases.end("information_gain", transcript_tokens(trajectories))

            # ---- advantages: one a turn, broken episodes left out ---------------------
            advantages = step_advantages(trajectories, groups, config, step)

            # ---- update: clipped surrogate on the agent's tokens ----------------------
            with computing(device, config.precision):
                batch = learnt_rollouts(
                    [trajectories[index] for index in advantages.learnt],
                    advantages.per_turn,
                    model,
                    reference,
                    config.loss,
                    config.microbatch_tokens,
                    None if scores is None else scores.of(advantages.learnt),
                    config.scoring,
                )
            rate = set_rate(optimiser, config, step, config.steps)
            update = update_policy(model, optimiser, batch, config, rng)
            phases.end("update", sum(len(item.row) for item in batch) or None)
            background.run(engine.update_weights(engine_weights(model)))
            rollouts.updated()
            phases.end("sync")

            metrics = {
                **rollout_metrics(trajectories),
                **update,
                "learning_rate": rate,
                **advantages.metrics,
                "staleness": staleness(
                    [trajectories[index] for index in advantages.whole],
                    engine.weight_version - 1,
                ),
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


def _refuse_unfit(model: nn.Module, config: RLConfig) -> None:
    """What of the settings this model can't do, before anything is rolled out."""
    CausalModel(model)  # its log-probs can be computed, or it is refused
    if config.packed:
        refuse_unpackable(model)
    if config.scored_for:
        score_trajectories(model, [], method=config.scoring)


def _settings(config: RLConfig, tasks: Sequence[Task]) -> dict[str, Any]:
    """What must be the same when a run is taken up."""
    told = asdict(config)
    for name in ("save_every",) if config.follows_steps else ("steps", "save_every"):
        del told[name]  # these may change between two lives of a run
    return {"trainer": "rl", **told, "tasks": fingerprint(tasks)}
