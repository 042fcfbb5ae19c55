"""Packed, branch by branch and plain: the same figures, and those of a forward made by hand."""

import logging

import numpy as np
import pytest
import torch
from transformers import (
    CohereConfig,
    CohereForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)
from transformers.models.qwen3 import modeling_qwen3

from drv_env import SettingError
from trainers import causal_model, packed_scores
from trainers.log_probs import token_log_probs
from trainers.score_items import Branch, ScoreItem, Scores
from trainers.trajectory_scores import score_trajectories

VOCABULARY = 300
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "intermediate_size": 64,
    "max_position_embeddings": 512,
    "attn_implementation": "sdpa",
}
METHODS = ("packed", "sequential", "plain", "auto")


def qwen(**other) -> Qwen3ForCausalLM:
    """Grouped queries: four heads to two of keys."""
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    return telling(Qwen3ForCausalLM(Qwen3Config(**SIZES, **heads, **other)))


def telling(model):
    """Weights large enough for every token to matter to every later one."""
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.12)
    return model.float().eval()


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """The models are too small to be shared out."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model() -> Qwen3ForCausalLM:
    return qwen()


def random_item(rng, length, ends, completions) -> ScoreItem:
    branches = []
    for end in ends:
        ids = rng.integers(0, VOCABULARY, rng.integers(1, 12)).astype(np.int32)
        scored = rng.random(len(ids)) < 0.6
        scored[rng.integers(len(ids))] = True
        branches.append(Branch(end, ids, scored))
    return ScoreItem(rng.integers(0, VOCABULARY, length).astype(np.int32), completions, branches)


@pytest.fixture(scope="module")
def items() -> list[ScoreItem]:
    """Ragged: long and short, one turn, branches alone, nothing at all, answers side by side."""
    rng = np.random.default_rng(0)
    return [
        random_item(rng, 70, [1, 9, 9, 40, 70], [(5, 9), (20, 40), (40, 61)]),
        random_item(rng, 8, [4], [(4, 8)]),
        random_item(rng, 150, [10, 10, 10, 60, 61, 149, 150], [(10, 60), (61, 150)]),
        random_item(rng, 4, [], [(1, 4)]),
        random_item(rng, 5, [2, 5], []),
        random_item(rng, 3, [], []),
    ]


def by_hand(model, item: ScoreItem) -> Scores:
    """Whole logits of history + branch, once a branch, read token by token."""

    def log_probs(ids, places):
        if not places:
            return []
        with torch.no_grad():
            logits = model(input_ids=torch.tensor(np.array(ids))[None].long()).logits[0]
        found = logits.double().log_softmax(-1)
        return [float(found[at - 1, int(ids[at])]) for at in places]

    values = []
    for branch in item.branches:
        ids = [*item.ids[: branch.end], *branch.ids]
        places = [branch.end + index for index, flag in enumerate(branch.scored) if flag]
        values.append(float(np.mean(log_probs(ids, places))))
    spans = item.completions
    return Scores([np.array(log_probs(item.ids, range(*span))) for span in spans], values)


def assert_same(found, expected, atol=1e-5):
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.values, theirs.values, atol=atol, rtol=0)
        assert len(ours.log_probs) == len(theirs.log_probs)
        for one, other in zip(ours.log_probs, theirs.log_probs, strict=True):
            np.testing.assert_allclose(one, other, atol=atol, rtol=0)


@pytest.fixture(scope="module")
def expected(model, items) -> list[Scores]:
    return [by_hand(model, item) for item in items]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_what_a_forward_by_hand_gives(model, items, expected, method):
    assert_same(score_trajectories(model, items, method=method), expected)


@pytest.mark.parametrize("method", ["packed", "sequential"])
@pytest.mark.parametrize(("chunk", "branch"), [(1, 1), (7, 5), (64, 16), (200, 1000)])
def test_the_size_of_passes_changes_nothing(model, items, expected, method, chunk, branch):
    found = score_trajectories(
        model, items, chunk_tokens=chunk, branch_tokens=branch, method=method
    )
    assert_same(found, expected)


@pytest.mark.parametrize("method", METHODS)
def test_a_trajectory_scores_the_same_alone(model, items, expected, method):
    for item, wanted in zip(items, expected, strict=True):
        assert_same(score_trajectories(model, [item], method=method), [wanted])


@pytest.mark.parametrize("family", ["llama", "one key head", "moe", "biased and tied"])
def test_other_decoders_score_the_same(items, family):
    heads = {"num_attention_heads": 4, "head_dim": 12}
    made = {
        "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, **heads)),
        "one key head": lambda: Qwen3ForCausalLM(
            Qwen3Config(**SIZES, **heads, num_key_value_heads=1)
        ),
        "moe": lambda: Qwen3MoeForCausalLM(
            Qwen3MoeConfig(
                **SIZES,
                **heads,
                num_key_value_heads=2,
                num_experts=4,
                num_experts_per_tok=2,
                moe_intermediate_size=32,
            )
        ),
        "biased and tied": lambda: Qwen3ForCausalLM(
            Qwen3Config(
                **SIZES,
                **heads,
                num_key_value_heads=2,
                attention_bias=True,
                tie_word_embeddings=True,
            )
        ),
    }
    model = telling(made[family]())
    plain = score_trajectories(model, items, method="plain")
    assert_same(plain[:2], [by_hand(model, item) for item in items[:2]])
    for method in ("packed", "sequential"):
        assert_same(score_trajectories(model, items, chunk_tokens=64, method=method), plain)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_models_own_attention_setting_is_kept(items, expected, attention):
    model = qwen()
    model.set_attn_implementation(attention)
    assert_same(score_trajectories(model, items, method="packed"), expected)
    assert model.config._attn_implementation == attention


@pytest.mark.parametrize("method", METHODS)
def test_only_the_scored_ids_count(model, method):
    """Moving the flags by one moves the figure; ids after the last scored one don't matter."""
    rng = np.random.default_rng(1)
    ids = rng.integers(0, VOCABULARY, 30).astype(np.int32)
    probe = rng.integers(0, VOCABULARY, 6).astype(np.int32)
    after = np.concatenate([probe[:4], (probe[4:] + 1) % VOCABULARY])

    def value(own, scored):
        branch = Branch(12, own, np.isin(np.arange(6), scored))
        return score_trajectories(model, [ScoreItem(ids, (), [branch])], method=method)[0].values[0]

    each = [value(probe, [at]) for at in range(6)]
    assert len({round(figure, 3) for figure in each}) == 6
    assert value(probe, [2, 3]) == pytest.approx((each[2] + each[3]) / 2, abs=1e-5)
    assert value(after, [2, 3]) == pytest.approx(value(probe, [2, 3]), abs=1e-6)
    assert value(after, [4]) != pytest.approx(each[4], abs=1e-3)


@pytest.mark.parametrize("method", METHODS)
def test_a_branch_sees_its_history_and_no_more(model, method):
    """What comes after the history's end is not seen; its last id is."""
    rng = np.random.default_rng(2)
    ids = rng.integers(0, VOCABULARY, 30).astype(np.int32)
    branch = Branch(12, ids[:3], np.array([True, True, True]))
    beside = Branch(20, ids[5:9], np.ones(4, bool))

    def value(own, branches):
        return score_trajectories(model, [ScoreItem(own, (), branches)], method=method)[0].values[0]

    usual = value(ids, [branch])
    later, last = ids.copy(), ids.copy()
    later[12:] = (later[12:] + 1) % VOCABULARY
    last[11] = (last[11] + 1) % VOCABULARY
    assert value(later, [branch]) == pytest.approx(usual, abs=1e-6)
    assert value(ids, [branch, beside]) == pytest.approx(usual, abs=1e-5)
    assert abs(value(last, [branch]) - usual) > 1e-3


def test_log_probs_of_completions_are_the_trainers(model, items):
    for item, scores in zip(items, score_trajectories(model, items), strict=True):
        if not item.completions:
            continue
        ids = torch.from_numpy(item.ids.astype(np.int64))[None]
        with torch.no_grad():
            wanted, _ = token_log_probs(model, ids, torch.from_numpy(item.wanted())[None])
        np.testing.assert_allclose(np.concatenate(scores.log_probs), wanted.numpy(), atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_logits_are_made_only_where_wanted_and_few_at_once(model, items, method, monkeypatch):
    monkeypatch.setattr(causal_model, "LOGITS_HELD", 20 * VOCABULARY)
    score_trajectories(model, items, method=method)
    seen = []
    hook = model.lm_head.register_forward_hook(lambda head, taken, given: seen.append(given.shape))
    try:
        score_trajectories(model, items, method=method)
    finally:
        hook.remove()
    assert all(shape[-1] == VOCABULARY for shape in seen)
    at_once = [int(np.prod(shape[:-1])) for shape in seen]
    assert max(at_once) <= 20
    assert sum(at_once) == sum(
        int(item.wanted().sum()) + sum(int(branch.scored.sum()) for branch in item.branches)
        for item in items
    )


def test_keys_are_held_of_no_more_than_a_batch(model, items, monkeypatch):
    score_trajectories(model, items)
    held = []

    class Watched(packed_scores.KeptKeys):
        def __init__(self, tokens, scratch=0):
            held.append(tokens)
            super().__init__(tokens, scratch)

    monkeypatch.setattr(packed_scores, "KeptKeys", Watched)
    score_trajectories(model, items, chunk_tokens=80)
    assert max(held) <= max(80, *(len(item.ids) for item in items))
    assert len(held) >= 3


@pytest.mark.parametrize("method", METHODS)
def test_dropout_and_checkpointing_of_a_model_in_training_are_left_out(items, expected, method):
    model = qwen(attention_dropout=0.5)
    getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)()
    model.train()
    model.model.layers[1].eval()
    modes = [module.training for module in model.modules()]
    assert_same(score_trajectories(model, items, method=method), expected)
    assert [module.training for module in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())
    ids = torch.from_numpy(items[0].ids.astype(np.int64))[None]
    model(input_ids=ids, labels=ids).loss.backward()  # and can still be trained


@pytest.mark.parametrize("method", ["packed", "sequential"])
def test_bf16_scores_as_its_own_full_passes_do(items, method):
    model = qwen().bfloat16()
    assert_same(
        score_trajectories(model, items, chunk_tokens=64, method=method),
        score_trajectories(model, items, method="plain"),
        atol=0.2,
    )


def test_adapters_around_the_model_count(model, items, expected):
    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def get_base_model(self):
            return self.inner

    assert_same(score_trajectories(Wrapped(), items), expected)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_the_way_of_a_gpu_gives_the_same(model, items, expected):
    """FlexAttention in PyTorch's own uncompiled form, with nothing kept in the last batch."""
    causal = causal_model.CausalModel(model)
    first = np.array([True])
    alone = ScoreItem(items[0].ids, (), [Branch(1, items[0].ids[1:2], first)])
    with causal_model.evaluating(model):
        found = packed_scores.score_batch(causal, items, 250, 250, flex="eager")
        of_alone = packed_scores.score_batch(causal, [alone], 250, 250, flex="eager")
    assert_same([Scores.of(*one) for one in zip(items, *found, strict=True)], expected)
    assert_same([Scores.of(alone, of_alone[0][0], of_alone[1][0])], [by_hand(model, alone)])


# ---- what can't be scored --------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", "packed", "sequential"])
def test_sliding_windows_are_refused_by_name(items, method):
    model = qwen(use_sliding_window=True, sliding_window=16, max_window_layers=1)
    with pytest.raises(SettingError, match=r"full attention.*sliding_attention.*plain"):
        score_trajectories(model, items, method=method)


def test_sliding_windows_score_plainly(items):
    model = qwen(use_sliding_window=True, sliding_window=16, max_window_layers=1)
    assert_same(
        score_trajectories(model, items[:2], method="plain"),
        [by_hand(model, item) for item in items[:2]],
    )


def test_rotary_embeddings_that_change_with_the_length_are_refused(items):
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    with pytest.raises(SettingError, match="dynamic"):
        score_trajectories(qwen(rope_parameters=rope), items)


@pytest.mark.parametrize("method", METHODS)
def test_logits_that_are_scaled_after_the_head_are_scored_so(items, method):
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    model = telling(CohereForCausalLM(CohereConfig(**SIZES, **heads, logit_scale=0.5)))
    found = score_trajectories(model, items[:2], method=method)
    assert_same(found, [by_hand(model, item) for item in items[:2]])


def test_attention_that_can_not_be_replaced_is_scored_branch_by_branch(
    items, expected, monkeypatch, caplog
):
    class Fixed:
        """Whatever is asked for, the model takes its own."""

        def get_interface(self, name, default):
            return modeling_qwen3.eager_attention_forward

    model = qwen()
    model.set_attn_implementation("eager")
    monkeypatch.setattr(modeling_qwen3, "ALL_ATTENTION_FUNCTIONS", Fixed())
    with caplog.at_level(logging.WARNING, "trainers"):
        for _ in range(2):
            assert_same(score_trajectories(model, items), expected)
    assert caplog.text.count("branch by branch") == 1
    assert "Qwen3ForCausalLM" in caplog.text
    with pytest.raises(SettingError, match=r'method="sequential"'):
        score_trajectories(model, items, method="packed")


def test_attention_with_more_in_it_is_named(items, monkeypatch):
    """As of a model that caps its scores: what is asked of the attention says so."""
    whole = modeling_qwen3.Qwen3Attention.forward

    def capped(self, *given, **named):
        return whole(self, *given, **named, softcap=50.0)

    monkeypatch.setattr(modeling_qwen3.Qwen3Attention, "forward", capped)
    model = qwen()
    model.set_attn_implementation("eager")
    with pytest.raises(SettingError, match=r"softcap.*sequential"):
        score_trajectories(model, items, method="packed")


def test_impossible_settings_are_refused(model, items):
    with pytest.raises(SettingError, match="chunk_tokens"):
        score_trajectories(model, items, chunk_tokens=0)
    with pytest.raises(SettingError, match="branch_tokens"):
        score_trajectories(model, items, branch_tokens=-1)
    with pytest.raises(SettingError, match="method"):
        score_trajectories(model, items, method="fast")
    with pytest.raises(SettingError, match="head"):
        score_trajectories(model.model, items)


def test_impossible_items_are_refused():
    ids = np.arange(10, dtype=np.int32)
    yes = np.ones(2, bool)
    with pytest.raises(ValueError, match="scores at least one"):
        Branch(3, ids[:2], np.zeros(2, bool))
    with pytest.raises(ValueError, match="history ends"):
        ScoreItem(ids, (), [Branch(11, ids[:2], yes)])
    with pytest.raises(ValueError, match="history ends"):
        ScoreItem(ids, (), [Branch(0, ids[:2], yes)])
    for spans in ([(0, 3)], [(4, 6), (5, 8)], [(4, 11)]):
        with pytest.raises(ValueError, match="completions"):
            ScoreItem(ids, spans)


def test_a_value_that_is_not_finite_is_none():
    ids = np.arange(10, dtype=np.int32)
    item = ScoreItem(ids, [(2, 4)], [Branch(5, ids[:2], np.ones(2, bool))] * 3)
    found = [np.array(pair, np.float32) for pair in ((-1, -2), (-1, -np.inf), (np.nan, -1))]
    assert Scores.of(item, np.zeros(2, np.float32), found).values == [-1.5, None, None]


@pytest.mark.parametrize("method", ["packed", "auto"])
def test_packed_scoring_comes_near_in_mixed_precision(model, items, expected, method, caplog):
    with (
        caplog.at_level(logging.WARNING, "trainers"),
        torch.autocast("cpu", torch.bfloat16),
    ):
        assert_same(score_trajectories(model, items, method=method), expected, atol=0.1)
    assert not caplog.text  # packed, not branch by branch


def test_a_cache_that_changes_the_past_is_refused(items, monkeypatch):
    model = qwen()
    whole = type(model.model).forward

    def forgetting(self, input_ids=None, **named):
        found = whole(self, input_ids=input_ids, **named)
        if named.get("use_cache"):
            found.last_hidden_state = found.last_hidden_state.flip(-1)
        return found

    monkeypatch.setattr(type(model.model), "forward", forgetting)
    with pytest.raises(SettingError, match=r"differs from it scored by itself.*plain"):
        score_trajectories(model, items, method="sequential")


@pytest.mark.parametrize(
    ("sizes", "split", "expected"),
    [
        ([4, 4, 3], False, [[4, 4], [3]]),  # full to the last token
        ([5, 4], False, [[5], [4]]),
        ([5, 9, 2], False, [[5], [9], [2]]),  # a longer one is alone
        ([5, 9, 2], True, [[5, 3], [6, 2]]),
        ([8, 0, 17], True, [[8], [8], [8], [1]]),
        ([], True, []),
    ],
)
def test_passes_are_full_by_hand(sizes, split, expected):
    def segment(size):
        ids = np.arange(size, dtype=np.int32)
        return packed_scores._Segment(0, 0, ids, ids, np.zeros(size, bool), kept=split)

    found = packed_scores._passes([segment(size) for size in sizes], 8, split=split)
    assert [[len(part.ids) for part in together] for together in found] == expected
