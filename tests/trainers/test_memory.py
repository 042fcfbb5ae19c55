"""The estimate of memory beside what is really held."""

import json

import numpy as np
import pytest
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from agents.engines.transformers import TransformersEngine
from drv_env import SettingError, background
from trainers.log_probs import token_log_probs
from trainers.model_setup import LoRASettings, ModelSettings, computing, prepare_model
from trainers.runs.memory import (
    ModelShape,
    activation_bytes,
    engine_memory,
    training_memory,
    weight_bytes,
)

CONFIG = Qwen3Config(
    vocab_size=300,
    hidden_size=64,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    intermediate_size=192,
    max_position_embeddings=2048,
    tie_word_embeddings=True,
    attn_implementation="sdpa",
)
LORA = LoRASettings(rank=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    CONFIG.save_pretrained(path)  # no weights
    return path


def prepared(settings):
    return prepare_model(Qwen3ForCausalLM(CONFIG), settings).train()


@pytest.mark.parametrize("lora", [None, LORA, LoRASettings(rank=2, targets=("q_proj", "v_proj"))])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_weights_gradients_and_moments_are_exact(folder, lora, precision):
    settings = ModelSettings(precision=precision, lora=lora)
    shape = ModelShape.of(folder, lora)
    model = prepared(settings)
    trained = [each for each in model.parameters() if each.requires_grad]
    optimiser = torch.optim.AdamW(trained)
    for each in trained:
        each.grad = torch.ones_like(each)
    optimiser.step()
    parts = {part.name: part.bytes for part in training_memory(shape, settings, 1)}
    held = sum(each.numel() * each.element_size() for each in model.parameters())
    assert parts["weights"] == weight_bytes(shape, settings) == held
    assert parts["gradients"] == sum(each.grad.numel() * 4 for each in trained)
    moments = sum(
        value.numel() * value.element_size()
        for state in optimiser.state.values()
        for name, value in state.items()
        if name != "step"
    )
    assert parts["AdamW's moments"] == moments


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_activations_are_what_autograd_keeps(folder, precision, checkpointing):
    settings = ModelSettings(precision=precision, gradient_checkpointing=checkpointing)
    model = prepared(settings)
    own = {each.untyped_storage().data_ptr() for each in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor):
        if tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    tokens = 1024
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, 300, (1, tokens)))
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[:, 0] = False
    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with hooks, computing(torch.device("cpu"), precision):
        token_log_probs(model, ids, mask)
    measured = sum(each.untyped_storage().nbytes() for each in kept.values())
    shape = ModelShape.of(folder)
    estimate = tokens * activation_bytes(shape, precision, checkpointing)
    if checkpointing:  # one layer is made again in the backward pass alone
        whole = activation_bytes(shape, precision, False)
        estimate -= tokens * (whole - 16 * shape.hidden) // shape.layers
    assert measured == pytest.approx(estimate, rel=0.12)


def test_the_engines_cache_is_exact(folder):
    shape = ModelShape.of(folder)
    engine = TransformersEngine(Qwen3ForCausalLM(CONFIG).eval(), slots=3, max_context=64)
    try:
        store = engine._store
        held = sum(each.nbytes for each in (*store.keys, *store.values))
    finally:
        background.run(engine.close())
    weights, cache = engine_memory(shape, 4, 3, 64)
    assert cache.bytes == held
    assert weights.bytes == 4 * shape.parameters


def test_a_configuration_that_is_none_is_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no-such-model"}))
    with pytest.raises(SettingError, match=str(tmp_path)):
        ModelShape.of(tmp_path)
