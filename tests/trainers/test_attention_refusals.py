"""Models whose attention is not the plain kind: what they rule out, said before anything runs.

Every message names settings that exist, and following it leads to a plan.
"""

import json
import re
import shutil

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from agents.engines.attention_kinds import capped_attention, changing_rotary, other_layers
from drv_env import SettingError
from tests.trainers.train_runs import SMALL, save_untrained, train
from trainers.model_setup import ModelSettings
from trainers.packed_attention import packing_problem, refuse_unpackable
from trainers.rl_config import RLConfig
from trainers.runs import refusals
from trainers.runs.memory import ModelShape, training_memory
from trainers.runs.run_config import RLRun

WINDOW = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0}
CHANGED = {
    "window": {**WINDOW, "layer_types": ["sliding_attention", "full_attention"]},
    "dynamic": {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
}


@pytest.fixture(scope="module")
def folder(tiny_game, tmp_path_factory):
    """The tiny model as it is and with other attention; no weights, for none is to be loaded."""
    path = tmp_path_factory.mktemp("attention")
    save_untrained(tiny_game, path)
    (path / "untrained" / "model.safetensors").unlink()
    config = json.loads((path / "untrained" / "config.json").read_text())
    layers = config["num_hidden_layers"]
    for name, more in CHANGED.items():
        shutil.copytree(path / "untrained", path / name)
        if "layer_types" in more:
            kinds = ["sliding_attention"] + ["full_attention"] * (layers - 1)
            more = {**more, "layer_types": kinds}
        (path / name / "config.json").write_text(json.dumps({**config, **more}))
    return path


@pytest.fixture
def plan(folder, tmp_path, capsys, monkeypatch):
    """``plan(trainer, model, words)``: what stands on both streams, and the exit code."""
    monkeypatch.setattr(refusals, "_installed", lambda package: True)

    def run(trainer, model, words):
        small = [] if trainer == "sft" else SMALL
        code = train(trainer, folder / model, tmp_path / "out", *small, "--plan", *words.split())
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return code, " ".join((captured.err + captured.out).split())

    return run


@pytest.mark.parametrize("model", list(CHANGED))
@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--rl.loss.kl-weight 0.1", ["--rl.loss.kl-weight"]),
        ("--rl.loss.importance-cap 2", ["--rl.loss.importance-cap"]),
        (
            "--rl.loss.kl-weight 0.1 --rl.loss.importance-cap 2",
            ["--rl.loss.importance-cap", "--rl.loss.kl-weight"],
        ),
    ],
)
def test_kl_and_importance_caps_name_a_setting_that_works(plan, model, words, named):
    code, said = plan("grpo", model, f"--engine.kind vllm {words}")
    assert code == 1
    assert all(name in said for name in named)
    assert "set --rl.scoring to plain" in said
    assert "engine.kind" not in said
    assert plan("grpo", model, f"--engine.kind vllm {words} --rl.scoring plain")[0] == 0


def test_gains_are_refused_too_and_the_engine_in_the_same_line(plan):
    code, said = plan("igpo", "window", "")
    assert code == 1
    for part in (
        "has layers of sliding_attention (a sliding window of 8 tokens)",
        "--rl.gain-by model",
        "set --rl.scoring to plain",
        "set --engine.kind to vllm",
    ):
        assert part in said
    assert plan("igpo", "window", "--rl.scoring plain --engine.kind vllm")[0] == 0
    assert plan("igpo", "window", "--rl.gain-by engine --engine.kind vllm")[0] == 0
    code, said = plan("grpo", "window", "")
    assert code == 1
    assert "set --engine.kind to vllm" in said
    assert "rl.scoring" not in said


def test_packing_is_refused_by_the_plan(plan):
    code, said = plan("grpo", "window", "--engine.kind vllm --rl.packed")
    assert code == 1
    assert "set --rl.packed to false" in said
    code, said = plan("sft", "window", "--sft.packed --data.rows nowhere")
    assert code == 1
    assert "set --sft.packed to false" in said
    _, said = plan("sft", "window", "--data.rows nowhere")
    assert "packed" not in said


def test_a_plain_model_is_refused_nothing(plan):
    words = "--rl.packed --rl.loss.kl-weight 0.1 --rl.loss.importance-cap 2"
    assert plan("igpo", "untrained", words)[0] == 0
    with pytest.raises(SystemExit):
        plan("igpo", "untrained", "--rl.scoring fast")


def test_every_setting_that_is_named_exists():
    shape = ModelShape(1, 0, 1, 1, 1, 1, 1, 1, 1, 0.0, past="it slides", packing="it slides")
    loss = {"kl_weight": 0.1, "importance_cap": 2.0}
    for more in ({}, {"scoring": "plain"}, {"scoring": "plain", "packed": True}):
        for kind in ("transformers", "vllm"):
            base = RLRun()
            rl = RLConfig(loss=type(base.rl.loss)(**loss), rollout=base.rl.rollout, **more)
            run = RLRun(rl=rl, engine=type(base.engine)(kind=kind))
            try:
                refusals.refuse_attention(run, shape)
            except SettingError as error:
                named = set(re.findall(r"\b(?:rl|engine)\.[a-z_.]*[a-z]", str(error)))
                assert named
                for name in named:
                    at = run
                    for part in name.split("."):
                        at = getattr(at, part)
            else:
                assert kind == "vllm"
                assert more == {"scoring": "plain"}


def test_on_openrlhf_only_gains_are_scored_here():
    shape = ModelShape(1, 0, 1, 1, 1, 1, 1, 1, 1, 0.0, past="it slides", packing="it slides")
    base = RLRun()
    run = RLRun(backend="openrlhf", rl=base.rl)
    with pytest.raises(SettingError, match=r"^it slides, so that rl\.gain_by model can't"):
        refusals.refuse_attention(run, shape)
    refusals.refuse_attention(
        RLRun(backend="openrlhf", rl=RLConfig(scoring="plain", packed=True)), shape
    )


def configured(kind, **more):
    sizes = {
        "vocab_size": 40,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "pad_token_id": 0,
    }
    return AutoConfig.for_model(kind, **{**sizes, **more})


@pytest.mark.parametrize(
    ("config", "found"),
    [
        (("llama", {}), ""),
        (("qwen3", {}), ""),
        (("qwen3", {"use_sliding_window": False, "sliding_window": 8}), ""),
        (("mistral", {"sliding_window": None}), ""),
        (("mistral", {"sliding_window": 8}), "mistral has a sliding window of 8 tokens"),
        (("gemma2", {"sliding_window": 8}), "gemma2 has layers of sliding_attention (a sliding"),
        (("gemma3_text", {"sliding_window": 8}), "gemma3_text has layers of sliding_attention"),
        (("jamba", {}), "jamba has layers of linear_attention"),
    ],
)
def test_layers_are_named_from_the_configuration(config, found):
    kind, more = config
    said = other_layers(configured(kind, **more))
    assert said.startswith(found)
    assert bool(said) == bool(found)


def test_rotary_embeddings_are_named_whatever_layers_have_them():
    flat = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    assert "llama is dynamic" in changing_rotary(configured("llama", rope_parameters=flat))
    assert changing_rotary(configured("llama")) == ""
    nested = {
        "full_attention": flat,
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }
    found = changing_rotary(configured("gemma3_text", sliding_window=4, rope_parameters=nested))
    assert "is dynamic" in found


def test_capped_attention_is_named():
    assert "at 50" in capped_attention(configured("gemma2", sliding_window=8))
    assert capped_attention(configured("gemma3_text", sliding_window=8)) == ""


def unloaded(kind, **more):
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(configured(kind, **more))


@pytest.mark.parametrize(
    ("kind", "more", "said"),
    [
        ("llama", {}, ""),
        ("gpt_neox", {}, ""),
        ("mistral", {"sliding_window": 8}, "sliding window of 8"),
        ("stablelm", {}, "don't hand them to their attention"),
        ("nemotron", {}, "don't hand them to their attention"),
        (
            "diffllama",
            {"num_attention_heads": 4, "num_key_value_heads": 2},
            "not all layers of DiffLlamaForCausalLM take",
        ),
    ],
)
def test_what_packing_needs_is_found_without_weights(kind, more, said):
    model = unloaded(kind, **more)
    before = model.config._attn_implementation
    found = packing_problem(model)
    assert said in found
    assert bool(found) == bool(said)
    assert model.config._attn_implementation == before


def test_packing_is_tried_when_a_model_is_loaded():
    refuse_unpackable(AutoModelForCausalLM.from_config(configured("llama")))
    with pytest.raises(SettingError, match="set packed to False"):
        refuse_unpackable(AutoModelForCausalLM.from_config(configured("stablelm")))


def test_a_loss_that_balances_experts_is_told_and_a_cap_is_counted(tmp_path):
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
    for name, config in {
        "plain": configured("qwen3_moe", **experts),
        "balanced": configured("qwen3_moe", **experts, output_router_logits=True),
        "capped": configured("gemma2", sliding_window=8),
    }.items():
        config.save_pretrained(tmp_path / name)
    shapes = {name: ModelShape.of(tmp_path / name) for name in ("plain", "balanced", "capped")}
    assert not list(refusals.balancing_warning(shapes["plain"]))
    (warning,) = refusals.balancing_warning(shapes["balanced"])
    assert "output_router_logits" in warning
    assert (shapes["plain"].capped, shapes["capped"].capped) == (False, True)
    sizes = {
        name: next(
            part.bytes
            for part in training_memory(shape, ModelSettings(), 100)
            if part.name == "logits"
        )
        for name, shape in shapes.items()
    }
    assert sizes["capped"] * 2 == sizes["plain"] * 3
