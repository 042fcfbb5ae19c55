"""Precision, gradient checkpointing and adapters, on both trainers' common ground."""

import importlib.util
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM

from drv_env import SettingError
from replay.chat_templates import QWEN3_THINKING
from tests.trainers.test_sft import rows_of
from trainers.checkpoint import save_model
from trainers.log_probs import token_log_probs, token_nll
from trainers.model_setup import LoRASettings, ModelSettings, merged, prepare_model
from trainers.rows import pad_rows
from trainers.sft import SFTConfig, mean_nll, train_sft

needs_peft = pytest.mark.skipif(
    importlib.util.find_spec("peft") is None, reason="peft is not installed"
)


def gradients(model, rows):
    model.train()
    ids, mask = pad_rows(rows)
    token_nll(model, ids, mask, int(mask.sum())).backward()
    return {name: each.grad for name, each in model.named_parameters()}


def test_gradient_checkpointing_changes_no_gradient(tiny_game):
    rows = rows_of(tiny_game)[:3]
    plain = prepare_model(tiny_game.model(), ModelSettings())
    checked = prepare_model(tiny_game.model(), ModelSettings(gradient_checkpointing=True))
    calls = []
    checked.model.layers[0].input_layernorm.register_forward_hook(lambda *_: calls.append(1))
    found = gradients(checked, rows)
    assert len(calls) == 2  # once more in the backward pass
    for name, each in gradients(plain, rows).items():
        torch.testing.assert_close(found[name], each)


@pytest.mark.parametrize("packed", [False, True])
def test_bfloat16_trains_float32_weights_and_comes_near(tiny_game, packed):
    rows = rows_of(tiny_game)
    losses = {}
    for precision in ("float32", "bfloat16"):
        model = prepare_model(tiny_game.model(), ModelSettings(precision=precision))
        config = SFTConfig(epochs=4, warmup_steps=5, precision=precision, packed=packed)
        steps = train_sft(model, rows, config)
        assert {each.dtype for each in model.parameters()} == {torch.float32}
        losses[precision] = [step.loss for step in steps]
    assert losses["float32"] != losses["bfloat16"]
    assert losses["bfloat16"][0] == pytest.approx(losses["float32"][0], rel=0.01)
    assert losses["bfloat16"][-1] == pytest.approx(losses["float32"][-1], rel=0.1)


@needs_peft
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("packed", [False, True])
def test_adapters_learn_and_the_rest_stays(tiny_game, precision, packed):
    rows = rows_of(tiny_game)
    settings = ModelSettings(
        precision=precision, gradient_checkpointing=True, lora=LoRASettings(rank=8)
    )
    model = prepare_model(tiny_game.model(), settings)
    before = {name: each.clone() for name, each in model.named_parameters()}
    config = SFTConfig(
        epochs=3, learning_rate=0.02, warmup_steps=5, precision=precision, packed=packed
    )
    steps = train_sft(model, rows, config)
    assert steps[-1].loss < steps[0].loss - 0.1  # its head is random and stays
    for name, each in model.named_parameters():
        assert each.requires_grad == ("lora_" in name)
        assert torch.equal(each, before[name]) != each.requires_grad


@needs_peft
@pytest.mark.filterwarnings("error::FutureWarning")
def test_adapters_are_put_in_without_a_warning(tiny_game):
    prepare_model(tiny_game.model(), ModelSettings(lora=LoRASettings(rank=4)))


@needs_peft
def test_a_merged_checkpoint_gives_the_same_log_probs(tiny_game, tmp_path):
    rows = rows_of(tiny_game)
    model = prepare_model(tiny_game.model(), ModelSettings(lora=LoRASettings(rank=4)))
    train_sft(model, rows, SFTConfig(max_steps=3, learning_rate=0.02, warmup_steps=1))
    save_model(
        tmp_path / "model", merged(model), tiny_game.template.pieces.tokenizer, QWEN3_THINKING
    )
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert not any("lora" in name for name, _ in loaded.named_parameters())
    with torch.no_grad():
        expected, _ = token_log_probs(model, *pad_rows(rows[:4]))
        found, _ = token_log_probs(loaded, *pad_rows(rows[:4]))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    assert any("lora_" in name for name, _ in model.named_parameters())  # it can go on


@needs_peft
def test_a_run_with_adapters_is_taken_up_again(tiny_game, tmp_path):
    rows = rows_of(tiny_game)
    config = SFTConfig(max_steps=4, learning_rate=0.02, warmup_steps=1)

    def new():
        torch.manual_seed(0)
        return prepare_model(tiny_game.model(), ModelSettings(lora=LoRASettings(rank=4)))

    def leave(step):
        if step.step == 2:
            raise KeyboardInterrupt

    whole, model = new(), new()
    train_sft(whole, rows, config)
    with pytest.raises(KeyboardInterrupt):
        train_sft(model, rows, config, leave, state=tmp_path / "state")
    model = new()
    train_sft(model, rows, config, state=tmp_path / "state")
    for one, two in zip(model.parameters(), whole.parameters(), strict=True):
        assert torch.equal(one, two)
    assert mean_nll(model, rows, config) == mean_nll(whole, rows, config)


@needs_peft
def test_targets_that_do_not_exist_are_refused(tiny_game):
    with pytest.raises(SettingError, match="nothing_like_it"):
        prepare_model(
            tiny_game.model(), ModelSettings(lora=LoRASettings(targets=("nothing_like_it",)))
        )


def test_without_peft_it_says_what_to_install(tiny_game, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(SettingError, match="needs the package peft"):
        prepare_model(tiny_game.model(), ModelSettings(lora=LoRASettings()))


def test_a_model_without_adapters_is_merged_as_it_is(tiny_game):
    model = tiny_game.model()
    assert merged(model) is model


@pytest.mark.parametrize("wrong", [{"rank": 0}, {"alpha": 0.0}, {"dropout": 1.0}, {"targets": ()}])
def test_adapters_that_cannot_work_are_named(wrong):
    with pytest.raises(SettingError, match=next(iter(wrong))):
        LoRASettings(**wrong)


def test_an_unknown_precision_is_named():
    with pytest.raises(SettingError, match="int8"):
        ModelSettings(precision="int8")
