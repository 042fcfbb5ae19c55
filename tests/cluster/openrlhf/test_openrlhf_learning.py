"""The same episodes through OpenRLHF's classes and through the one-device trainer, without Ray."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from agents.engines.base import Sampling
from agents.engines.transformers import TransformersEngine
from agents.rollout import RolloutSettings, rollout
from drv_env import background
from drv_env.episode import Ending
from drv_env.errors import SettingError
from replay.counter import TemplateCounter
from replay.trajectory import Trajectory
from tests.cluster.openrlhf.cloned_agent import GAME, ClonedAgent
from trainers.advantages import advantages_of
from trainers.checkpoint import load_model
from trainers.information_gain import score_with_model
from trainers.learnt import LearntRollout, agent_tokens
from trainers.log_probs import token_log_probs
from trainers.loss_settings import LossSettings
from trainers.losses import policy_loss, token_weights
from trainers.openrlhf.episodes import EpisodePlayer
from trainers.openrlhf.points import Point, check_points
from trainers.openrlhf.records import KEY, unpack
from trainers.openrlhf.run import (
    TASKS,
    VARIABLE,
    OpenRLHFRun,
    Reinforcement,
    label_of,
    write_run,
    write_tasks,
)
from trainers.openrlhf.scoring import gains_on_rank
from trainers.rl_config import RLConfig
from trainers.rows import pad_rows

GROUP, GROUPS = 4, 3


@dataclass
class Played:
    """A step's episodes, the run, and the model that played, in float32."""

    run: OpenRLHFRun
    trajectories: list[Trajectory]
    model: Any

    @property
    def groups(self) -> list[int]:
        return [index // GROUP for index in range(len(self.trajectories))]


@pytest.fixture(scope="module")
def played(agent: ClonedAgent, tmp_path_factory: pytest.TempPathFactory) -> Played:
    config = RLConfig(group_size=GROUP, tasks_per_step=GROUPS, precision="bfloat16")
    run = OpenRLHFRun(
        model=agent.folder,
        out=tmp_path_factory.mktemp("run"),
        reinforcement=Reinforcement(config=config, game=GAME),
    )
    tasks = agent.tasks[:GROUPS]
    write_tasks(run.out / TASKS, tasks)
    model = load_model(agent.folder, "float32")
    engine = TransformersEngine(model, slots=GROUP * GROUPS, max_context=512)
    try:
        trajectories = background.run(
            rollout(
                GAME.make(tasks, TemplateCounter(agent.template)),
                engine,
                agent.template,
                tasks,
                Sampling(24, stop_ids=agent.template.stop_ids),
                RolloutSettings(group_size=GROUP, seed=1),
            )
        )
    finally:
        background.run(engine.close())
    whole = trajectories[-1]
    rewards = (*whole.rewards[:-1], replace(whole.rewards[-1], outcome=None))
    trajectories[-1] = replace(whole, ending=Ending.BROKEN, error="cut off", rewards=rewards)
    return Played(run, trajectories, model)


def one_device(played: Played) -> tuple[list[Trajectory], list[int], Any]:
    """Scored trajectories, the indices that are learnt, and their advantages."""
    config = played.run.rl.config
    whole = [index for index, item in enumerate(played.trajectories) if not item.broken]
    scored = score_with_model(
        played.trajectories, played.model, played.run.template(), config.gain
    ).trajectories
    found = advantages_of(
        [scored[index].rewards for index in whole],
        [played.groups[index] for index in whole],
        config.credit,
        [[turn.tool for turn in scored[index].turns] for index in whole],
    )
    learnt = [at for at, silent in enumerate(found.silent) if not silent]
    return (
        [scored[whole[at]] for at in learnt],
        [whole[at] for at in learnt],
        [found.per_turn[at] for at in learnt],
    )


def experiences_of(played: Played, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], Any]:
    """What OpenRLHF's trainer would put into its buffer, with its own code but for Ray."""
    import ray
    from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator

    from trainers.openrlhf.inside.replacements import EpisodeExperienceMaker

    monkeypatch.setenv(VARIABLE, str(write_run(played.run)))
    monkeypatch.setattr(ray, "get", lambda refs: refs)
    monkeypatch.setattr(ray, "put", lambda value: value)
    player = EpisodePlayer(played.run)
    samples = []
    for item in played.trajectories:
        response = player.answer(item, item.task.question, label_of(item.task))
        samples.append(
            SamplesGenerator._process_response_into_experience(None, response, max_len=512)
        )

    def drv_gains(trajectories: list[Trajectory]) -> Any:
        engine = SimpleNamespace(module=played.model)
        settings = played.run.rl.config.gain
        return gains_on_rank(engine, 2, trajectories, played.run.template(), settings, 256)

    rank = SimpleNamespace(drv_gains=SimpleNamespace(remote=drv_gains))
    args = SimpleNamespace(
        algo=SimpleNamespace(
            advantage=SimpleNamespace(estimator="group_norm"),
            kl=SimpleNamespace(use_loss=False),
        ),
        train=SimpleNamespace(
            dynamic_batch_enable=False, colocate_all=False, colocate_actor_ref=False
        ),
        rollout=SimpleNamespace(micro_batch_size=5),
        ds=SimpleNamespace(ring_attn_size=1, tensor_parallel_size=1),
    )
    maker = EpisodeExperienceMaker(
        SimpleNamespace(_actor_handlers=[rank]),
        None,
        None,
        None,
        None,
        SimpleNamespace(args=args),
        SimpleNamespace(pad_token_id=0),
    )
    return maker.make_experience_batch(samples), maker


def test_an_engine_that_is_lost_breaks_its_episode_and_nothing_else(played, agent):
    class Lost:
        async def generate(self, prompt_token_ids, sampling_params):
            raise RuntimeError("vLLM is gone")

    player = EpisodePlayer(played.run)
    task = agent.tasks[0]
    trajectory = asyncio.run(player.play(task, Lost()))
    assert trajectory.broken
    assert "vLLM is gone" in trajectory.error
    answer = player.answer(trajectory, task.question, label_of(task))
    assert answer["action_ranges"] == []
    assert len(answer["observation_tokens"]) == len(answer["rollout_log_probs"]) >= 2
    assert unpack(answer["extra_logs"][KEY]).broken


def test_each_place_that_is_relied_on_is_there_and_one_that_moved_is_named(importable):
    check_points()
    moved = Point("openrlhf.trainer.ppo_trainer", "PPOTrainer.train_step", ("batch_of_samples",))
    gone = Point("openrlhf.trainer.ppo_trainer", "PPOTrainer.train_one")
    with pytest.raises(ValueError, match=r"takes no batch_of_samples.*train_one \(not there\)"):
        check_points([moved, gone])
    lost = [Point("no_such_module", name) for name in ("one", "two")]
    with pytest.raises(SettingError, match="can't be imported: No module named") as told:
        check_points([*lost, gone])
    assert str(told.value).count("no_such_module'") == 1


def test_advantages_are_the_one_device_trainers(played, importable, monkeypatch):
    experiences, maker = experiences_of(played, monkeypatch)
    trajectories, learnt, per_turn = one_device(played)
    assert 2 <= len(learnt) < len(played.trajectories)
    assert any(r.information_gain is not None for t in trajectories for r in t.rewards)
    rows = {
        index: (experience, row)
        for experience in experiences
        for row, index in enumerate(experience.index)
    }
    for trajectory, index, own in zip(trajectories, learnt, per_turn, strict=True):
        experience, row = rows.pop(index)
        expected = LearntRollout.of(trajectory, own)
        mask = experience.action_mask[row].bool().numpy()
        assert mask.sum() == expected.tokens
        given = experience.advantages[row].numpy()
        np.testing.assert_allclose(given[mask], expected.advantages, rtol=1e-4, atol=1e-5)
        assert not given[~mask].any()
        sampled = experience.rollout_log_probs[row].numpy()[mask]
        assert np.array_equal(sampled, expected.sampled)
        old = experience.action_log_probs[row].numpy()[mask]
        assert np.array_equal(old, expected.sampled)  # no importance correction
    for experience, row in rows.values():  # broken, or without a signal
        assert not experience.action_mask[row].any()
        assert not experience.advantages[row].any()
    assert maker.metrics["broken"] == 1
    assert {"success", "information_gain", "ig_scale", "seconds_information_gain"} <= set(
        maker.metrics
    )


@pytest.mark.parametrize("aggregation", ["rollout_mean", "token_mean"])
def test_the_gradient_points_where_the_one_device_trainers_does(
    played, importable, monkeypatch, aggregation
):
    settings = LossSettings(aggregation=aggregation)
    ours = one_device_gradient(played, settings)
    theirs = openrlhf_gradient(played, settings, monkeypatch)
    cosine = float(torch.nn.functional.cosine_similarity(ours, theirs, dim=0))
    assert cosine > 0.99
    assert float(theirs.norm() / ours.norm()) == pytest.approx(1.0, abs=0.05)


def one_device_gradient(played: Played, settings: LossSettings) -> torch.Tensor:
    trajectories, _, per_turn = one_device(played)
    rollouts = [LearntRollout.of(*pair) for pair in zip(trajectories, per_turn, strict=True)]
    weights = token_weights([item.tokens for item in rollouts], settings)
    model = load_model(played.run.model, "float32")
    ids, mask = pad_rows([item.row for item in rollouts], torch.device("cpu"))
    log_probs, _ = token_log_probs(model, ids, mask)
    tokens = agent_tokens(rollouts, weights, torch.device("cpu"))
    policy_loss(log_probs, tokens, settings).loss.backward()
    return flat(model)


def openrlhf_gradient(
    played: Played, settings: LossSettings, monkeypatch: pytest.MonkeyPatch
) -> torch.Tensor:
    from openrlhf.models import Actor, PolicyLoss

    from trainers.openrlhf.inside.guards import guard_means

    token_mean = settings.aggregation == "token_mean"
    guard_means(token_mean)
    experiences, _ = experiences_of(played, monkeypatch)
    actor = Actor(str(played.run.model), attn_implementation="eager", param_dtype="bf16")
    loss_of = PolicyLoss(settings.clip_low, settings.clip_high, token_level_loss=token_mean)
    masks = [experience.action_mask for experience in experiences]
    for experience in experiences:
        log_probs = actor(experience.sequences, experience.action_mask, experience.attention_mask)
        loss, clip_ratio, _, _, _ = loss_of(
            log_probs,
            experience.action_log_probs,
            experience.advantages,
            action_mask=experience.action_mask,
            batch_num_tokens=torch.tensor(float(sum(mask.sum() for mask in masks))),
            global_batch_size=torch.tensor(float(sum(mask.any(-1).sum() for mask in masks))),
        )
        loss.backward()
        assert torch.isfinite(clip_ratio)  # also of a micro-batch without a token to learn
    return flat(actor.model)


def flat(model: Any) -> torch.Tensor:
    return torch.cat([p.grad.float().flatten() for _, p in sorted(model.named_parameters())])
