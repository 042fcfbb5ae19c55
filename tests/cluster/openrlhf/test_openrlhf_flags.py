"""The flags that our settings become, read and checked by OpenRLHF's own command lines."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from transformers import SchedulerType

from replay.documents import RowSettings
from replay.token_writer import write_documents
from tests.cluster.openrlhf.cloned_agent import GAME, ClonedAgent
from trainers.loss_settings import LossSettings
from trainers.openrlhf.flags import arguments_of
from trainers.openrlhf.launch import _command_line
from trainers.openrlhf.run import Cluster, FineTuning, OpenRLHFRun, Reinforcement
from trainers.openrlhf.sft_flags import sft_arguments_of
from trainers.rl_config import RLConfig
from trainers.runs.config_files import from_settings
from trainers.runs.presets import PRESETS
from trainers.sft import SFTConfig


class Accepted(Exception):
    """Raised where a command line, its flags accepted, would begin."""


@pytest.fixture
def read(importable: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """OpenRLHF's settings for arguments: as parsed and checked, right before it begins."""
    import openrlhf.utils
    import ray

    def begin(settings: Any) -> None:
        raise Accepted(settings)

    monkeypatch.setattr(openrlhf.utils, "get_strategy", begin)
    monkeypatch.setattr(ray, "is_initialized", lambda: True)

    def settings_of(module: str, arguments: Sequence[str]) -> Any:
        monkeypatch.delitem(sys.modules, module, raising=False)
        with pytest.raises(Accepted) as reached:
            _command_line(module, arguments)
        return reached.value.args[0]

    return settings_of


def reinforcement(agent: ClonedAgent, out: Path, cluster: Cluster, **config: Any) -> list[str]:
    settings = {"precision": "bfloat16", **config}
    rl = Reinforcement(config=from_settings(RLConfig, settings, "rl"), game=GAME)
    return arguments_of(OpenRLHFRun(model=agent.folder, out=out, reinforcement=rl, cluster=cluster))


def preset(name: str, part: str) -> dict[str, Any]:
    found = dict(PRESETS[name][part])
    if "rollout" in found:  # which OpenRLHF spreads over engines
        found["rollout"] = {**found["rollout"], "stragglers": "wait"}
    return found


@pytest.mark.parametrize("name", [name for name in PRESETS if "rl" in PRESETS[name]])
def test_reinforcement_by_a_preset(name, agent, read, tmp_path):
    wanted = {"steps": 3, **preset(name, "rl")}
    found = read(
        "openrlhf.cli.train_ppo_ray",
        reinforcement(agent, tmp_path, Cluster(check_syncs=0), **wanted),
    )
    assert found.actor.model_name_or_path == str(agent.folder.resolve())
    assert found.rollout.batch_size == wanted["tasks_per_step"]
    assert found.rollout.n_samples_per_prompt == wanted["group_size"]
    assert found.actor.adam.lr == wanted["learning_rate"]
    assert found.ds.packing_samples is wanted.get("packed", False)
    loss = wanted.get("loss", {})
    assert found.algo.kl.init_coef == loss.get("kl_weight", 0)
    assert found.actor.dual_clip == loss.get("dual_clip")
    assert found.reward.remote_url == ["agent"]  # episodes score themselves


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant"])
def test_reinforcement_with_everything_on(schedule, agent, read, tmp_path):
    arguments = reinforcement(
        agent,
        tmp_path,
        Cluster(nodes=2, gpus=2, engines=2, engine_gpus=2, zero_stage=3),
        steps=10,
        tasks_per_step=8,
        group_size=4,
        minibatches=2,
        packed=True,
        microbatch_tokens=600,
        schedule=schedule,
        warmup_share=0.2,
        betas=(0.8, 0.9),
        weight_decay=0.1,
        max_grad_norm=math.inf,
        rollouts="async",
        max_staleness=2,
        loss=LossSettings(
            aggregation="token_mean",
            clip_low=0.1,
            clip_high=0.3,
            dual_clip=4.0,
            entropy_weight=0.01,
            kl_weight=0.02,
            kl_estimator="k3",
            kl_by_ratio=True,
            importance_cap=2.0,
        ),
    )
    found = read("openrlhf.cli.train_ppo_ray", arguments)
    assert SchedulerType(found.actor.lr_scheduler)  # Transformers makes it of this name
    assert math.ceil(20 * found.actor.lr_warmup_ratio) == 4  # as OpenRLHF counts its updates
    assert found.actor.max_norm == math.inf
    assert (found.actor.adam.betas, found.actor.adam.weight_decay) == ([0.8, 0.9], 0.1)
    assert found.train.batch_size == 16
    assert (found.train.async_enable, found.train.async_queue_size) == (True, 2)
    assert (found.train.max_tokens_per_gpu, found.rollout.max_tokens_per_gpu) == (600, 600)
    assert (found.actor.eps_clip_low_high, found.actor.dual_clip) == ([0.1, 0.3], 4.0)
    assert (found.actor.entropy_coef, found.actor.loss_agg_mode) == (0.01, "token-mean")
    assert (found.algo.kl.use_loss, found.algo.kl.unbiased_gradient) == (True, True)
    assert found.algo.advantage.is_correction_threshold == [0.0, 2.0]
    assert (found.vllm.num_engines, found.vllm.tensor_parallel_size) == (2, 2)
    assert (found.actor.num_nodes, found.actor.num_gpus_per_node, found.ds.zero_stage) == (2, 2, 3)


def test_fine_tuning_by_a_preset_and_by_default(agent, read, tmp_path):
    rows = tmp_path / "rows"
    write_documents(agent.expert, rows, lambda: agent.template, RowSettings())
    published = {**preset("paper-sft", "sft"), "aggregation": "token_mean", "batch_size": 1}
    for wanted in (published, {"batch_size": 2, "save_every": 5}):
        config = from_settings(SFTConfig, {"precision": "bfloat16", **wanted}, "sft")
        run = OpenRLHFRun(
            model=agent.folder,
            out=tmp_path / "run",
            fine_tuning=FineTuning(config=config, rows=rows),
        )
        found = read("openrlhf.cli.train_sft", sft_arguments_of(run))
        assert found.data.dataset == str(rows.resolve())
        assert found.train.batch_size == wanted["batch_size"]
        assert found.adam.lr == config.learning_rate
        assert found.adam.betas == list(config.betas)
        assert found.ds.packing_samples is config.packed
        assert found.ckpt.save_steps == wanted.get("save_every", -1)
        assert SchedulerType(found.lr_scheduler)
