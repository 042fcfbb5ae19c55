"""Presets have the published numbers, and the examples' configurations load."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from drv_env import SettingError
from drv_env.worlds import WorldRecipe, questions
from replay.chat_templates import QWEN3_THINKING
from trainers.checkpoint import save_model
from trainers.commands.train import make_job, read_layers
from trainers.registry import import_plugins
from trainers.runs.config_files import apply_settings, as_settings
from trainers.runs.presets import PRESETS, preset
from trainers.runs.trainer_registry import TRAINERS
from trainers.tiny import TinySize, build_model, build_tokenizer

CONFIGS = Path(__file__).parents[2] / "examples" / "configs"
TRAINER = {"own_trainer": "own-successes", "own_advantage": "grpo", "openrlhf_cpu": "igpo"}
"""Where the name of a file doesn't say it."""


def run_of(name, trainer):
    return apply_settings(TRAINERS[trainer].defaults, preset(name), name)


def leaves(settings, before=""):
    """Values by dotted name."""
    found = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= leaves(value, f"{before}{name}.")
        else:
            found[f"{before}{name}"] = value
    return found


PUBLISHED = {
    "paper-sft": {
        "model.precision": "bfloat16",
        "model.gradient_checkpointing": True,
        "data.max_tokens": 200_000,
        "data.cut": "right",
        "sft.epochs": 1,
        "sft.batch_size": 32,
        "sft.learning_rate": 1e-5,
        "sft.schedule": "cosine",
        "sft.warmup_share": 0.1,
        "sft.betas": (0.9, 0.95),
        "sft.weight_decay": 0.01,
        "sft.max_grad_norm": 1.0,
        "sft.aggregation": "row_mean",
        "sft.microbatch_tokens": 200_000,
        "sft.packed": True,
    },
    "paper-rl": {
        "model.precision": "bfloat16",
        "model.gradient_checkpointing": True,
        "rules.max_context": 261_000,
        "rules.max_turn_tokens": 8_192,
        "rules.max_turns": 200,
        "rules.count_forced_turn": True,
        "rules.max_unreadable": 0,
        "tools.kind": "live",
        "outcome": "judge",
        "engine.kind": "vllm",
        "engine.parallel": 128,
        "rl.advantages": "credit",
        "rl.credit.assignment": "segment",
        "rl.credit.normalisation": "scaled_separate",
        "rl.credit.baseline": "mean",
        "rl.credit.std_norm": True,
        "rl.credit.gamma": 0.95,
        "rl.credit.ig_weight": 1.0,
        "rl.credit.outcome_weight": 1.0,
        "rl.credit.adaptive_gamma_min_weight": 0.0,
        "rl.credit.format_penalty": 1.0,
        "rl.credit.penalty_alone": False,
        "rl.credit.scale_floor": 0.3,
        "rl.credit.scale_max": 10.0,
        "rl.gain.tools": ("visit",),
        "rl.gain.kind": "log_prob_diff",
        "rl.gain.answers": "first",
        "rl.gain.failed": True,
        "rl.gain.probe": "Now there's enough information to answer\n</think>\n<answer>\n",
        "rl.gain.closed": True,
        "rl.tasks_per_step": 16,
        "rl.group_size": 8,
        "rl.minibatches": 1,
        "rl.learning_rate": 1e-6,
        "rl.schedule": "constant",
        "rl.warmup_steps": 0,
        "rl.betas": (0.9, 0.999),
        "rl.weight_decay": 0.01,
        "rl.max_grad_norm": 1.0,
        "rl.loss.clip_low": 0.2,
        "rl.loss.clip_high": 0.2,
        "rl.loss.dual_clip": 3.0,
        "rl.loss.entropy_weight": 0.0,
        "rl.loss.aggregation": "rollout_mean",
        "rl.loss.kl_weight": 0.001,
        "rl.loss.kl_estimator": "k3",
        "rl.loss.importance_cap": 2.0,
        "rl.drop_silent": "none",
        "rl.rollouts": "async",
        "rl.rollout.stragglers": "ask",
        "rl.rollout.straggler_share": 0.9,
        "rl.rollout.turn_jitter": 5,
        "rl.microbatch_tokens": 261_000,
        "rl.packed": True,
    },
}


@pytest.mark.parametrize(("name", "trainer"), [("paper-sft", "sft"), ("paper-rl", "igpo")])
def test_a_preset_has_the_published_values_and_a_run_takes_them_all(name, trainer):
    assert leaves(preset(name)) == PUBLISHED[name]
    found = leaves(as_settings(run_of(name, trainer)))
    assert {place: found[place] for place in PUBLISHED[name]} == PUBLISHED[name]


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_the_page_about_the_papers_names_every_setting_of_a_preset(name):
    page = (CONFIGS.parents[1] / "docs" / "paper.md").read_text(encoding="utf-8")
    named = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`[^`]+`", page))))
    missing = [place for place in PUBLISHED[name] if place.split(".")[-1] not in named]
    assert not missing


def test_the_papers_reinforcement_can_go_on_and_uses_the_gains():
    run = run_of("paper-rl", "igpo")
    assert run.rl.rollout.seed is not None
    assert run.rl.credit.information_gain


def test_top_p_while_training_is_refused_as_the_preset_says():
    with pytest.raises(SettingError, match=r"rl: rollouts to train on .*top_p is 0\.95"):
        apply_settings(
            run_of("paper-rl", "igpo"),
            {"rl": {"sampling": {"max_tokens": 8192, "top_p": 0.95}}},
            "f.yaml",
        )


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_examples_configurations_load(file, monkeypatch):
    monkeypatch.syspath_prepend(str(CONFIGS.parent))
    layers = read_layers(file)
    import_plugins(layers.plugins)
    known = [name for name in TRAINERS.names() if name in file.stem]
    layers.over(TRAINERS[TRAINER.get(file.stem) or known[0]])


@pytest.fixture(scope="module")
def like_qwen3(tmp_path_factory):
    """Qwen3-4B's configuration with a small tokenizer, and no weights."""
    folder = tmp_path_factory.mktemp("model") / "qwen3"
    tokenizer = build_tokenizer(["What is the owner of a mill?"], WorldRecipe(3).build().kinds)
    save_model(folder, build_model(tokenizer, 0, TinySize()), tokenizer, QWEN3_THINKING)
    (folder / "model.safetensors").unlink()
    file = folder / "config.json"
    sizes = {
        "hidden_size": 2560,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 9728,
        "max_position_embeddings": 262_144,
        "vocab_size": 151_936,
        "layer_types": ["full_attention"] * 36,
        "dtype": "bfloat16",
    }
    file.write_text(json.dumps({**json.loads(file.read_text()), **sizes}))
    return folder


def test_the_papers_configuration_comes_to_its_plan(like_qwen3, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tasks = tmp_path / "tasks.jsonl"
    found = questions(WorldRecipe(3).build())[:1000]
    rows = [{"question": task.question, "answer": task.answers[0]} for task in found]
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    trainer = TRAINERS["igpo"]
    config = apply_settings(
        read_layers(CONFIGS / "paper_igpo.yaml").over(trainer),
        {
            "model": {"folder": str(like_qwen3)},
            "tasks": {"source": str(tasks)},
            "engine": {"kind": "transformers", "gpu_memory": None},
        },
        "the test",
    )
    plan = make_job(trainer, config, lambda line: None).plan
    rows = dict(plan.rows)
    assert "4,022,468,096 parameters" in rows["model"]  # the published model's, embeddings tied
    assert rows["rollouts a step"] == "16 × 8 = 128"
    assert rows["updates"] == "1 a step, 59 in all"
    assert rows["learning rate"] == "1e-06, constant"
    assert rows["tokens a step, at most"] == f"{128 * 261_000:,}"
    assert rows["evaluation"].startswith("every 10 steps on 64 questions")
    memory = {part.name: part.bytes for part in plan.memory}
    assert memory["weights"] == memory["reference"] == 4 * 4_022_468_096
    assert memory["AdamW's moments"] == 2 * memory["gradients"] == 8 * 4_022_468_096
    assert not (tmp_path / "runs").exists()


def test_a_preset_of_another_trainer_is_refused_by_name():
    with pytest.raises(SettingError, match="for it there are paper-sft"):
        read_layers(None, "paper-rl").over(TRAINERS["sft"])
    with pytest.raises(SettingError, match="there is no preset 'paper'"):
        read_layers(None, "paper")
    assert set(PRESETS) == {"paper-rl", "paper-sft", "cpu-small"}
