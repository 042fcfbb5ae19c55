"""Every architecture that ``drv doctor`` names, against Transformers' own loss and log-probs.

Tiny models with random weights, large enough for logits to reach a scale or a cap.
"""

from functools import cache

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from agents.engines._forward import Forward
from agents.engines.final_logits import final_logits
from drv_env import SettingError
from trainers import output_head
from trainers.architectures import FULL_ATTENTION, NOT_PACKED, OTHER_ATTENTION
from trainers.log_probs import token_log_probs, token_nll
from trainers.packed_attention import attending, pack_rows
from trainers.rows import Row, pad_rows
from trainers.score_items import Branch, ScoreItem
from trainers.trajectory_scores import score_trajectories

EVERY = (*FULL_ATTENTION, *NOT_PACKED, *OTHER_ATTENTION)
VOCABULARY = 60
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "ffn_dim": 48,
    "word_embed_proj_dim": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GPT = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
CHANGED = {
    "cohere": 0.0625,
    "cohere2": 0.0625,
    "granite": 1 / 8,
    "granitemoe": 1 / 8,
    "granitemoeshared": 1 / 8,
    "granite_swa": 1 / 8,
}
"""What these multiply their logits by."""
CAPPED = {"gemma2": 30.0, "vaultgemma": 30.0, "recurrent_gemma": 30.0, "nanochat": 15.0}


@cache
def shared(kind):
    """One model for several tests, which change nothing of it but gradients."""
    return made(kind)


def made(kind, **more):
    """A model of this architecture, in evaluation mode, without dropout."""
    usual = AutoConfig.for_model(kind)
    if kind in ("gpt2", "gpt_bigcode", "gptj"):
        sizes = {**GPT, **({"rotary_dim": 8} if kind == "gptj" else {})}
    else:
        sizes = {name: value for name, value in SIZES.items() if hasattr(usual, name)}
    if kind in OTHER_ATTENTION and getattr(usual, "sliding_window", None):
        sizes["sliding_window"] = 4
    if kind in ("mistral", "mixtral", "phi3", "phimoe", "starcoder2"):
        sizes["sliding_window"] = None
    if "granite" in kind:
        sizes["logits_scaling"] = 8.0
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes, **more))
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 2.0 if "head" in name or "embed" in name else 0.2)
    return model.eval()


def ragged(seed=0):
    rng = np.random.default_rng(seed)
    rows = []
    for length in (9, 14, 5):
        mask = rng.random(length) < 0.6
        mask[0], mask[-1] = False, True
        rows.append(Row(rng.integers(3, VOCABULARY, length).astype(np.int32), mask))
    return rows


def own_loss(model, rows):
    """Transformers' own: rows padded on the right, what isn't learnt left out of its labels."""
    ids, mask = pad_rows(rows)
    model.zero_grad()
    loss = model(input_ids=ids, labels=ids.masked_fill(~mask, -100), use_cache=False).loss
    loss.backward()
    return loss.detach(), gradients(model)


def gradients(model):
    found = {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    model.zero_grad()
    return found


def check_gradients(found, expected):
    assert found.keys() == expected.keys()
    for name, wanted in expected.items():
        most = float(wanted.abs().max())
        torch.testing.assert_close(found[name], wanted, atol=2e-4 * most + 1e-7, rtol=0, msg=name)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("kind", EVERY)
def test_loss_and_gradients_are_transformers_own(kind, monkeypatch):
    model, rows = shared(kind), ragged()
    expected, wanted = own_loss(model, rows)
    ids, mask = pad_rows(rows)
    total = int(mask.sum())
    monkeypatch.setattr(output_head, "CHUNK", 5)  # more than one chunk
    loss = token_nll(model, ids, mask, total)
    loss.backward()
    torch.testing.assert_close(loss.detach(), expected, atol=2e-5, rtol=1e-5)
    check_gradients(gradients(model), wanted)
    log_probs, _ = token_log_probs(model, ids, mask)
    (-log_probs.sum() / total).backward()
    check_gradients(gradients(model), wanted)
    if kind in NOT_PACKED:
        ids, mask, documents = pack_rows(rows)
        with attending(model), pytest.raises(SettingError, match=r"set packed to False"):
            token_nll(model, ids, mask, total, documents)
    if kind in FULL_ATTENTION:
        with attending(model):
            ids, mask, documents = pack_rows(rows)
            loss = token_nll(model, ids, mask, total, documents)
            loss.backward()
        torch.testing.assert_close(loss.detach(), expected, atol=2e-5, rtol=1e-5)
        check_gradients(gradients(model), wanted)


@pytest.mark.parametrize("kind", EVERY)
def test_scored_log_probs_are_transformers_own(kind):
    model, rows = shared(kind), ragged(1)
    history, probe = rows[1].ids, rows[2].ids
    item = ScoreItem(history, [(2, 5), (7, 14)], [Branch(9, probe, np.arange(5) >= 2)])

    def own(ids, places):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor(ids)[None].long(), use_cache=False).logits[0]
        scores = logits.double().log_softmax(-1)
        return [float(scores[at - 1, int(ids[at])]) for at in places]

    expected = own(history, [2, 3, 4, *range(7, 14)])
    value = np.mean(own(np.concatenate([history[:9], probe]), [11, 12, 13]))
    full = kind not in OTHER_ATTENTION
    methods = ("plain", "packed", "sequential") if full else ("plain",)
    for method in methods:
        (scores,) = score_trajectories(model, [item], method=method)
        np.testing.assert_allclose(np.concatenate(scores.log_probs), expected, atol=2e-4)
        np.testing.assert_allclose(scores.values, [value], atol=2e-4)
    if full:  # as the engine that plays them computes it
        forward = Forward(model)
        counts = np.array([len(history)])
        with torch.inference_mode():
            hidden = forward(
                forward.store(1, 64), np.array([0]), np.array([0]), counts, history[None]
            )[0]
            found = forward.log_probs(hidden[:-1], history[1:])
        np.testing.assert_allclose(found[1:4], expected[:3], atol=2e-4)


@pytest.mark.parametrize("kind", EVERY)
def test_scales_and_caps_are_found(kind):
    found = final_logits(shared(kind))
    assert found.scale == pytest.approx(CHANGED.get(kind, 1.0))
    assert found.cap == CAPPED.get(kind)


def test_a_name_that_divides_in_one_model_multiplies_in_another():
    assert final_logits(made("hyperclovax", logits_scaling=0.25)).scale == 0.25
    assert final_logits(made("granite")).scale == 0.125


def test_log_probs_by_hand_of_a_scale_and_a_cap():
    """log softmax of cap · tanh(scale · logits / cap), of logits 2, 0 and −2."""
    scaled = torch.nn.Linear(1, 3, bias=False)
    with torch.no_grad():
        scaled.weight.copy_(torch.tensor([[2.0], [0.0], [-2.0]]))
    final = output_head.FinalLogits(scale=0.5, cap=2.0)
    states, targets = torch.ones(1, 1), torch.tensor([0])
    found, _ = output_head.head_log_probs(scaled, states, targets, final=final)
    # tanh(½) = 0.4621172; logits ±0.9242343 and 0; Σ exp = 2.5199358 + 1 + 0.3968355
    assert float(found.detach()) == pytest.approx(0.9242343 - np.log(3.9167713), abs=1e-6)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("final", [(0.25, None), (1.0, 3.0), (4.0, 5.0)])
@pytest.mark.parametrize("chunk", [1, 10, None])
def test_gradients_go_through_scale_and_cap(bias, final, chunk):
    torch.manual_seed(0)
    head = torch.nn.Linear(12, 40, bias=bias)
    states = (3 * torch.randn(33, 12)).requires_grad_()
    targets, upstream = torch.randint(0, 40, (33,)), torch.randn(33)
    how = output_head.FinalLogits(*final)
    logits = head(states) * how.scale
    logits = logits if how.cap is None else how.cap * torch.tanh(logits / how.cap)
    picked = logits.log_softmax(-1).gather(-1, targets[:, None])[:, 0]
    inputs = [states, *head.parameters()]
    found, entropies = output_head.head_log_probs(head, states, targets, chunk, how)
    torch.testing.assert_close(found, picked)
    spread = logits.log_softmax(-1)
    torch.testing.assert_close(entropies, -(spread.exp() * spread).sum(-1))
    wanted = torch.autograd.grad((picked * upstream).sum(), inputs, retain_graph=True)
    for one, other in zip(
        torch.autograd.grad((found * upstream).sum(), inputs), wanted, strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    found, entropies = output_head.head_log_probs(
        head, states, targets, chunk, how, entropies_too=True
    )
    wanted = torch.autograd.grad(
        (-(spread.exp() * spread).sum(-1) * upstream).sum(), inputs, retain_graph=True
    )
    for one, other in zip(
        torch.autograd.grad((entropies * upstream).sum(), inputs), wanted, strict=True
    ):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    loss = output_head.head_nll(head, states, targets, 50, chunk, how)
    wanted = torch.autograd.grad(-picked.sum() / 50, inputs)
    for one, other in zip(torch.autograd.grad(loss, inputs), wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)


def test_mixed_precision_keeps_scale_and_cap():
    model, rows = made("gemma2"), ragged()
    ids, mask = pad_rows(rows)
    exact = token_nll(model, ids, mask, int(mask.sum())).detach()
    with torch.autocast("cpu", torch.bfloat16):
        rounded = token_nll(model, ids, mask, int(mask.sum())).detach()
    assert rounded.dtype == torch.float32
    assert abs(float(exact) - float(rounded)) < 0.05 * float(exact)


@pytest.mark.parametrize("after", ["a hidden cap", "a square", "fewer ids", "a shift"])
def test_what_is_done_to_logits_otherwise_is_refused_by_name(after, monkeypatch):
    model, rows = made("llama"), ragged()
    whole = type(model).forward

    def changed(self, *given, **named):
        found = whole(self, *given, **named)
        logits = found.logits
        found.logits = {
            "a hidden cap": lambda: 50 * (logits / 50).tanh(),
            "a square": lambda: logits.square(),
            "fewer ids": lambda: logits[..., :-1],
            "a shift": lambda: logits + torch.arange(float(logits.shape[-1])),
        }[after]()
        return found

    monkeypatch.setattr(type(model), "forward", changed)
    with torch.no_grad():  # logits far below the cap, as of a model that is hardly trained
        model.lm_head.weight.mul_(1e-3)
    ids, mask = pad_rows(rows)
    for use in (
        lambda: token_nll(model, ids, mask, 1),
        lambda: token_log_probs(model, ids, mask),
        lambda: score_trajectories(model, [], method="plain"),
        lambda: Forward(model),
    ):
        with pytest.raises(SettingError, match=r"LlamaForCausalLM does more with its head's"):
            use()


def test_hidden_states_of_another_kind_are_refused_by_name(monkeypatch):
    model = made("llama")
    whole = type(model).forward

    def shifted(self, input_ids=None, **named):
        positions = torch.arange(input_ids.shape[1])[None] * 2
        return whole(self, input_ids=input_ids, position_ids=positions, **named)

    monkeypatch.setattr(type(model), "forward", shifted)
    with pytest.raises(SettingError, match="hidden states otherwise"):
        final_logits(model)


def test_trying_a_model_leaves_it_as_it_was():
    model = made("gemma2").train()
    model.model.layers[0].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    hooks = dict(model.model._forward_hooks)
    state = torch.get_rng_state()
    final_logits(model)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert not model.model.layers[0].training
    assert dict(model.model._forward_hooks) == hooks
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
