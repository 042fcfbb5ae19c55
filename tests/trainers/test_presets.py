"""Presets have the published numbers, and the examples' configurations load."""

import json
from pathlib import Path

import pytest

from drv_env import SettingError
from drv_env.worlds import WorldRecipe, questions
from replay.chat_templates import QWEN3_THINKING
from trainers.checkpoint import save_model
from trainers.commands.train import make_job, read_layers
from trainers.registry import import_plugins
from trainers.runs.config_files import apply_settings
from trainers.runs.presets import PRESETS, preset
from trainers.runs.trainer_registry import TRAINERS
from trainers.tiny import TinySize, build_model, build_tokenizer

CONFIGS = Path(__file__).parents[2] / "examples" / "configs"
TRAINER = {"own_trainer": "own-successes", "own_advantage": "grpo", "openrlhf_cpu": "igpo"}
"""Where the name of a file doesn't say it."""


def run_of(name, trainer):
    return apply_settings(TRAINERS[trainer].defaults, preset(name), name)


def test_paper_rl_has_the_published_settings():
    run = run_of("paper-rl", "igpo")
    rl, credit, loss = run.rl, run.rl.credit, run.rl.loss
    assert (rl.tasks_per_step, rl.group_size, rl.minibatches) == (16, 8, 1)
    assert rl.learning_rate == 1e-6
    assert (credit.gamma, credit.format_penalty) == (0.95, 1.0)
    assert (credit.scale_floor, credit.scale_max) == (0.3, 10.0)
    assert credit.normalisation == "scaled_separate"
    assert credit.information_gain
    assert credit.std_norm
    assert (rl.gain.kind, rl.gain.tools, rl.gain.answers) == ("log_prob_diff", ("visit",), "first")
    assert (loss.clip_low, loss.clip_high) == (0.2, 0.2)
    assert (loss.kl_weight, loss.kl_estimator) == (0.001, "k3")
    assert loss.aggregation == "rollout_mean"
    assert (run.rules.max_context, run.rules.max_turn_tokens) == (261_000, 8_192)
    assert run.rules.max_turns == 200
    assert (rl.rollout.stragglers, rl.rollout.straggler_share) == ("ask", 0.9)
    assert (run.outcome, run.tools.kind) == ("judge", "live")
    assert rl.rollout.seed is not None  # or the run could not go on


def test_paper_sft_has_the_published_settings():
    run = run_of("paper-sft", "sft")
    assert (run.sft.epochs, run.sft.batch_size, run.sft.learning_rate) == (1, 32, 1e-5)
    assert (run.data.max_tokens, run.data.cut) == (200_000, "right")
    assert run.model.gradient_checkpointing
    assert run.model.precision == "bfloat16"


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
