"""Our settings in OpenRLHF's words, and the run in its file; OpenRLHF itself is not needed."""

import math
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from safetensors.torch import load_file, save_file

from agents.engines.base import Sampling
from agents.rollout import RolloutSettings
from drv_env.errors import SettingError
from drv_env.tasks import Task
from tests.small_agent import save_small_agent
from trainers.advantages import GRPO
from trainers.credit import Credit
from trainers.information_gain import GainSettings
from trainers.loss_settings import LossSettings
from trainers.openrlhf.flags import arguments_of, given_flags, optimiser_flags
from trainers.openrlhf.lacking import lacking, lacking_keys, refuse_lacking_keys
from trainers.openrlhf.launch import check_folder
from trainers.openrlhf.run import (
    Cluster,
    FineTuning,
    GameSpec,
    OpenRLHFRun,
    Reinforcement,
    label_of,
    read_run,
    read_tasks,
    task_of,
    write_run,
    write_tasks,
)
from trainers.openrlhf.sft_flags import sft_arguments_of
from trainers.rl_config import RLConfig
from trainers.sft import SFTConfig

RULES = {"system_prompt": "", "max_turns": 5, "max_context": 512, "max_turn_tokens": 24}


def run_of(tmp_path: Path, cluster: Cluster | None = None, **config) -> OpenRLHFRun:
    settings = {"steps": 2, "tasks_per_step": 4, "group_size": 4, "precision": "bfloat16"}
    return OpenRLHFRun(
        model=tmp_path / "model",
        out=tmp_path / "run",
        reinforcement=Reinforcement(
            config=RLConfig(**{**settings, **config}), game=GameSpec(worlds=(3,), rules=RULES)
        ),
        cluster=cluster or Cluster(),
    )


def flags_of(run: OpenRLHFRun) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for word in arguments_of(run):
        if word.startswith("--"):
            values = found.setdefault(word[2:], [])
            assert not values, f"{word} is there twice"
        else:
            values.append(word)
    return found


def test_settings_become_flags(tmp_path):
    loss = LossSettings(
        clip_low=0.1, clip_high=0.3, kl_weight=0.001, kl_by_ratio=True, importance_cap=2.0
    )
    flags = flags_of(run_of(tmp_path, loss=loss, minibatches=4, learning_rate=1e-6))
    assert flags["train.batch_size"] == ["4"]
    assert flags["rollout.batch_size"] == ["4"]
    assert flags["rollout.n_samples_per_prompt"] == ["4"]
    assert flags["data.max_len"] == ["512"]
    assert flags["rollout.max_new_tokens"] == ["24"]
    assert flags["actor.eps_clip_low_high"] == ["0.1", "0.3"]
    assert flags["actor.loss_agg_mode"] == ["seq-mean-token-mean"]
    assert flags["actor.adam.lr"] == ["1e-06"]
    assert flags["algo.kl.init_coef"] == ["0.001"]
    assert flags["algo.kl.estimator"] == ["k3"]
    assert {"algo.kl.use_loss", "algo.kl.unbiased_gradient"} <= set(flags)
    assert flags["algo.advantage.is_correction_threshold"] == ["0.0", "2.0"]
    assert "train.async_enable" not in flags


def test_optimiser_and_schedule_become_flags(tmp_path):
    plain = flags_of(run_of(tmp_path))
    assert plain["actor.adam.betas"] == ["0.9", "0.999"]
    assert plain["actor.adam.weight_decay"] == ["0.0"]
    assert plain["actor.lr_scheduler"] == ["constant_with_warmup"]
    assert plain["actor.lr_warmup_ratio"] == ["0.0"]
    assert not {"actor.dual_clip", "actor.entropy_coef"} & set(plain)
    changed = flags_of(
        run_of(
            tmp_path,
            steps=40,
            schedule="cosine",
            warmup_share=0.11,
            betas=(0.9, 0.95),
            weight_decay=0.01,
            max_grad_norm=0.5,
            loss=LossSettings(dual_clip=3.0, entropy_weight=0.002),
        )
    )
    assert changed["actor.adam.betas"] == ["0.9", "0.95"]
    assert changed["actor.adam.weight_decay"] == ["0.01"]
    assert changed["actor.lr_scheduler"] == ["cosine"]
    assert float(changed["actor.lr_warmup_ratio"][0]) == pytest.approx(0.1)  # four of forty
    assert changed["actor.max_norm"] == ["0.5"]
    assert changed["actor.dual_clip"] == ["3.0"]
    assert changed["actor.entropy_coef"] == ["0.002"]


def test_fine_tunings_optimiser_has_the_same_flags_without_a_prefix():
    settings = SFTConfig(
        learning_rate=1e-5,
        schedule="cosine",
        warmup_share=0.1,
        betas=(0.9, 0.95),
        weight_decay=0.01,
    )
    assert optimiser_flags(settings, 580) == {
        "adam.lr": 1e-5,
        "adam.betas": [0.9, 0.95],
        "adam.weight_decay": 0.01,
        "lr_scheduler": "cosine",
        "lr_warmup_ratio": pytest.approx(0.1),
        "max_norm": 1.0,
    }
    assert optimiser_flags(SFTConfig(), 10)["lr_warmup_ratio"] == pytest.approx(1)  # 20 of 10
    for warmup, steps in ((7, 25), (14, 25), (15, 29), (0, 3), (3, 3)):
        share = optimiser_flags(SFTConfig(warmup_steps=warmup), steps)["lr_warmup_ratio"]
        for updates in (1, 2, 8):  # a step; OpenRLHF rounds up, and 25 × (7 / 25) is above 7
            assert math.ceil(steps * updates * share) == warmup * updates


def test_a_mean_over_rows_is_not_on_the_cluster(tmp_path):
    config = SFTConfig(aggregation="row_mean", precision="bfloat16")
    tuning = FineTuning(config=config, rows=tmp_path)
    run = OpenRLHFRun(model=tmp_path, out=tmp_path / "sft", fine_tuning=tuning)
    with pytest.raises(SettingError, match=r"sft\.aggregation row_mean .* set it to token_mean"):
        sft_arguments_of(run)


def test_the_entropy_may_be_measured_by_a_flag_and_not_weighted(tmp_path):
    measured = Cluster(flags=("--actor.entropy_coef", "0"))
    assert flags_of(run_of(tmp_path, measured))["actor.entropy_coef"] == ["0"]
    with pytest.raises(SettingError, match=r"loss\.entropy_weight"):
        arguments_of(run_of(tmp_path, measured, loss=LossSettings(entropy_weight=0.1)))


def test_parallelism_becomes_flags(tmp_path):
    cluster = Cluster(nodes=2, gpus=8, engines=16, colocate=True, flags=("--ds.adam_offload",))
    flags = flags_of(
        run_of(
            tmp_path,
            cluster,
            packed=True,
            microbatch_tokens=4096,
            tasks_per_step=16,
            group_size=8,
            minibatches=1,
        )
    )
    assert flags["actor.num_nodes"] == ["2"]
    assert flags["vllm.num_engines"] == ["16"]
    assert {"train.colocate_all", "vllm.enable_sleep", "ds.enable_sleep"} <= set(flags)
    assert {"ds.packing_samples", "train.dynamic_batch_enable", "ds.adam_offload"} <= set(flags)
    assert flags["train.max_tokens_per_gpu"] == ["4096"]
    in_rings = replace(cluster, flags=("--ds.ring_attn_size", "8"))
    flags = flags_of(run_of(tmp_path, in_rings, packed=True, microbatch_tokens=4096))
    assert flags["train.max_tokens_per_gpu"] == ["512"]
    stale = run_of(
        tmp_path, rollouts="async", max_staleness=2, loss=LossSettings(importance_cap=2.0)
    )
    assert flags_of(stale)["train.async_queue_size"] == ["2"]


@pytest.mark.parametrize(
    ("config", "cluster", "words"),
    [
        ({"precision": "float32"}, {}, "bfloat16"),
        ({"loss": LossSettings(aggregation="constant", constant_tokens=9)}, {}, "constant"),
        (
            {"loss": LossSettings(kl_weight=0.1, kl_estimator="k1", kl_by_ratio=True)},
            {},
            "kl_by_ratio",
        ),
        ({"rollouts": "async", "rollout": RolloutSettings(stragglers="ask")}, {}, "set it to wait"),
        ({"rollouts": "async", "rollout": RolloutSettings(max_requests=4)}, {}, "max_num_seqs"),
        ({"sampling": Sampling(25)}, {}, "max_turn_tokens"),
        ({"minibatches": 3}, {}, "minibatches"),
        ({}, {"gpus": 3}, "shared by 3 ranks"),
        ({}, {"colocate": True, "engines": 2}, "colocate"),
        (
            {"rollouts": "async", "max_staleness": 1, "loss": LossSettings(importance_cap=2.0)},
            {"colocate": True},
            "max_staleness",
        ),
        ({}, {"flags": ("--rollout.temperature", "0.7")}, "temperature"),
        ({}, {"flags": ("--rollout.temp", "0.7")}, "temperature"),
        ({}, {"flags": ("--actor.entropy_coef", "0.1")}, "entropy_weight"),
        ({}, {"flags": ("--actor.entropy", "x")}, "entropy_weight"),
        ({}, {"flags": ("--actor.dual_clip", "3")}, "dual_clip"),
        ({}, {"flags": ("--actor.adam.weight_decay=0.1",)}, "weight_decay"),
        ({}, {"flags": ("--actor.adam.betas", "0.9", "0.95")}, "betas"),
        ({}, {"flags": ("--actor.lr_warmup_ratio", "0.1")}, "warmup_share"),
        ({}, {"flags": ("--algo.advantage.estimator=rloo",)}, "credit"),
        ({}, {"flags": ("--reward.overlong_buffer_len", "9")}, "episodes alone"),
        ({}, {"flags": ("--ds.lora.rank", "8")}, "adapters"),
        ({}, {"gpus": 2, "flags": ("--ds.ring_attn_size", "2")}, "packed"),
        ({}, {"gpus": 2, "flags": ("--ds.tensor_parallel_size", "2")}, "gain_by"),
        ({}, {"gpus": 2, "flags": ("--ds.ring_attn_size", "4")}, "groups"),
        ({"packed": True}, {"flags": ("--train.micro_batch_size", "2")}, "microbatch_tokens"),
        ({}, {"flags": ("--ds.ring_attn_size", "two")}, "ring_attn_size must be a whole number"),
        ({}, {"flags": ("--ds.tensor_parallel_size=0",)}, "tensor_parallel_size must be a whole"),
        ({}, {"flags": ("--train.micro_batch_size", "--x")}, "micro_batch_size must be a whole"),
        ({}, {"gpus": 2, "flags": ("--ds.ring_attn_s", "2")}, "packed"),
    ],
)
def test_what_does_not_go_together_is_refused_before_the_start(tmp_path, config, cluster, words):
    with pytest.raises(SettingError, match=words):
        arguments_of(run_of(tmp_path, Cluster(**cluster), **config))


def test_what_a_machine_lacks_is_a_line_each(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where no .env is
    monkeypatch.setitem(sys.modules, "flash_attn", ModuleType("flash_attn"))
    run = run_of(tmp_path, Cluster(flags=("--ds.ring_attn_size", "2")))
    assert any(line.startswith("ring_flash_attn isn't installed: pip") for line in lacking(run))
    assert not any(line.startswith("flash_attn ") for line in lacking(run))
    assert lacking_keys(run.rl.game) == []
    live = replace(run, reinforcement=replace(run.rl, game=GameSpec(tools="live", outcome="judge")))
    search, judge = lacking_keys(live.rl.game)
    assert search.startswith("SERPER_KEY_ID is not set")
    assert judge.startswith("the judge has no endpoint")
    assert lacking(live)[-2:] == [search, judge]
    assert not any("\n" in line for line in lacking(live))
    monkeypatch.setenv("SERPER_KEY_ID", "a-key-of-some-length")
    assert lacking_keys(live.rl.game) == [judge]


def test_a_run_without_its_keys_is_refused_but_where_a_cluster_has_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    run = run_of(tmp_path)
    live = replace(run, reinforcement=replace(run.rl, game=GameSpec(tools="live", outcome="judge")))
    refuse_lacking_keys(run)
    with pytest.raises(SettingError, match=r"SERPER_KEY_ID.*; the judge has no endpoint"):
        refuse_lacking_keys(live)
    refuse_lacking_keys(replace(live, cluster=Cluster(ray={"address": "auto"})))
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    refuse_lacking_keys(live)


def test_a_context_without_bound_is_refused(tmp_path):
    run = run_of(tmp_path)
    game = GameSpec(rules={**RULES, "max_context": None})
    with pytest.raises(SettingError, match="max_context"):
        arguments_of(replace(run, reinforcement=replace(run.rl, game=game)))


def test_tensor_parallel_goes_with_gains_by_the_engine_and_without_gains(tmp_path):
    cluster = Cluster(gpus=2, flags=("--ds.tensor_parallel_size", "2"))
    arguments_of(run_of(tmp_path, cluster, gain_by="engine"))
    arguments_of(run_of(tmp_path, cluster, credit=GRPO))


def test_a_run_goes_through_its_file(tmp_path):
    run = run_of(
        tmp_path,
        Cluster(flags=("--vllm.enforce_eager",), ray={"num_cpus": 8}, engine_arguments={"a": 1}),
        credit=Credit(gamma=0.9, search_tools=("look",)),
        gain=GainSettings(tools=("visit", "open"), kind="prob_diff"),
        sampling=Sampling(24, stop_ids=(5, 6), stop=("x",)),
        rollouts="async",
        rollout=RolloutSettings(retries=2, episode_timeout=60.0),
        loss=LossSettings(kl_weight=0.5),
    )
    assert read_run(write_run(run)) == run
    tuning = OpenRLHFRun(
        model=tmp_path,
        out=tmp_path / "sft",
        fine_tuning=FineTuning(config=SFTConfig(), rows=tmp_path),
    )
    assert read_run(write_run(tuning)) == tuning


def test_a_run_that_can_not_be_read_is_said(tmp_path, monkeypatch):
    monkeypatch.delenv("DRV_OPENRLHF_RUN", raising=False)
    with pytest.raises(SettingError, match="DRV_OPENRLHF_RUN"):
        read_run()
    with pytest.raises(SettingError, match="every node"):
        read_run(tmp_path / "nowhere.json")


def test_tasks_go_through_labels(tmp_path):
    task = Task("Who?\n", ("Ada", "A. L."), "t1", "w3", {"hops": 2})
    assert task_of(label_of(task)) == task
    write_tasks(tmp_path / "tasks.jsonl", [task, task])
    assert read_tasks(tmp_path / "tasks.jsonl") == [task, task]


def test_another_runs_folder_is_refused(tmp_path):
    run = run_of(tmp_path)
    with pytest.raises(SettingError, match="no model"):
        check_folder(run)
    save_small_agent(run.model)
    check_folder(run)
    run.out.mkdir()
    (run.out / "metrics.jsonl").write_text("")
    with pytest.raises(SettingError, match="holds a run already"):
        check_folder(run)
    check_folder(replace(run, resume=True))
    weights = load_file(run.model / "model.safetensors")
    weights["model.norm.weight"][0] = float("nan")
    save_file(weights, run.model / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(SettingError, match=r"model\.norm\.weight"):
        check_folder(replace(run, resume=True))


def test_flags_are_read_as_the_command_line_reads_them():
    assert given_flags(["--a.b", "1", "2", "--c", "--d=3"]) == {"a.b": "1", "c": "", "d": "3"}
