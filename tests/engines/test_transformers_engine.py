"""The Transformers engine against plain forward passes of the same model."""

from __future__ import annotations

import asyncio
import threading

import numpy as np
import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from agents.engines import Engine, Sampling
from agents.engines.transformers import TransformersEngine
from drv_env.errors import EngineError, SettingError

VOCABULARY = 97
GREEDY = Sampling(8, temperature=0)


def make_model(seed=0, **changes):
    settings = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "intermediate_size": 48,
        "max_position_embeddings": 256,
        "tie_word_embeddings": True,
        "initializer_range": 0.3,
    } | changes
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(Qwen3Config(**settings)).eval()


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Small models are quickest on one thread, and then don't wait for a shared core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=[1, 2, 4], ids=lambda heads: f"kv{heads}")
def model(request):
    return make_model(num_key_value_heads=request.param)


def prompts(count, seed=0, low=1, high=40):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, VOCABULARY, rng.integers(low, high)) for _ in range(count)]


def plain_log_probs(model, ids):
    """(length - 1,) log-prob of each id but the first."""
    ids = torch.as_tensor(np.asarray(ids, np.int64))
    with torch.no_grad():
        logits = model(input_ids=ids[None]).logits[0, :-1]
    return logits.log_softmax(-1).gather(-1, ids[1:, None])[:, 0].numpy()


def is_greedy(model, ids, found, count=8):
    """Whether ``found`` are ``count`` ids, each the likeliest in a plain pass.

    Two ids may tie but for last digits, and then either is the likeliest.
    """
    whole = torch.tensor([[*map(int, ids), *map(int, found)]])
    with torch.no_grad():
        logits = model(input_ids=whole).logits[0, len(ids) - 1 : -1]
    taken = logits.gather(-1, whole[0, len(ids) :, None])[:, 0]
    return len(found) == count and bool((logits.max(-1).values - taken < 1e-4).all())


def play(engine, scenario):
    """Run ``scenario(engine)`` and close the engine, in a loop of its own."""

    async def run():
        try:
            return await scenario(engine)
        finally:
            await engine.close()

    return asyncio.run(run())


def together(engine, asks, sampling=GREEDY):
    async def scenario(engine):
        return await asyncio.gather(*(engine.generate(ids, sampling) for ids in asks))

    return play(engine, scenario)


def test_it_is_an_engine(model):
    engine = TransformersEngine(model, slots=2)
    assert isinstance(engine, Engine)
    play(engine, lambda engine: engine.pause())


@pytest.mark.parametrize("slots", [1, 3, 16])
def test_greedy_ragged_requests_equal_plain_forward_passes(model, slots):
    asks = prompts(9)
    for ids, done in zip(asks, together(TransformersEngine(model, slots), asks), strict=True):
        assert is_greedy(model, ids, done.ids)
        expected = plain_log_probs(model, [*ids, *done.ids])[-8:]
        np.testing.assert_allclose(done.log_probs, expected, atol=1e-5)
        assert done.finish == "length"
        assert done.weight_version == 0


def test_greedy_equals_the_models_own_generate(model):
    (ids,) = prompts(1, low=10)
    given = torch.tensor(ids[None])
    own = model.generate(
        given, attention_mask=torch.ones_like(given), max_new_tokens=8, do_sample=False
    )[0, len(ids) :]
    assert is_greedy(model, ids, own)
    assert is_greedy(model, ids, together(TransformersEngine(model, 2), [ids])[0].ids)


def test_log_probs_are_raw_whatever_the_sampling(model):
    asks = prompts(12)
    styles = [
        Sampling(10),
        Sampling(10, temperature=0.5, top_k=5),
        Sampling(10, temperature=2.0, top_p=0.7),
        Sampling(10, temperature=0),
    ]

    async def scenario(engine):
        return await asyncio.gather(
            *(engine.generate(ids, styles[i % 4]) for i, ids in enumerate(asks))
        )

    for ids, done in zip(asks, play(TransformersEngine(model, 5), scenario), strict=True):
        expected = plain_log_probs(model, [*ids, *done.ids])[-len(done.ids) :]
        np.testing.assert_allclose(done.log_probs, expected, atol=1e-5)


def test_sampling_follows_the_distribution():
    model = make_model(vocab_size=5)
    (ids,) = [np.array([1, 2, 3])]
    done = together(TransformersEngine(model, 64), [ids] * 4000, Sampling(1))
    with torch.no_grad():
        probs = model(input_ids=torch.tensor(ids[None])).logits[0, -1].softmax(-1).numpy()
    share = np.bincount([int(d.ids[0]) for d in done], minlength=5) / 4000
    np.testing.assert_allclose(share, probs, atol=4 * 0.5 / 4000**0.5)


@pytest.mark.parametrize(
    ("sampling", "allowed"),
    [
        (Sampling(1, top_k=2), 2),
        (Sampling(1, temperature=3.0, top_k=1), 1),
        (Sampling(1, top_p=1e-6), 1),
    ],
)
def test_filters_keep_only_the_likeliest(model, sampling, allowed):
    ids = np.array([5, 6, 7])
    with torch.no_grad():
        order = model(input_ids=torch.tensor(ids[None])).logits[0, -1].argsort(descending=True)
    done = together(TransformersEngine(model, 8), [ids] * 40, sampling)
    assert {int(d.ids[0]) for d in done} == set(order[:allowed].tolist())


def test_stop_ids_end_a_completion_and_stay_in_it(model):
    (ids,) = prompts(1)
    expected = together(TransformersEngine(model, 2), [ids])[0].ids.tolist()
    sampling = Sampling(8, temperature=0, stop_ids=(expected[3],))
    (done,) = together(TransformersEngine(model, 2), [ids], sampling)
    first = expected.index(expected[3])
    assert done.ids.tolist() == expected[: first + 1]
    assert done.finish == "stop"


def test_a_full_context_ends_a_completion(model):
    engine = TransformersEngine(model, 2, max_context=12)
    ids = np.arange(9)
    (done,) = together(engine, [ids])
    assert is_greedy(model, ids, done.ids, 3)
    assert done.finish == "length"


def test_later_turns_compute_only_what_is_new(model):
    openings, additions = prompts(6, low=20), prompts(6, seed=1, low=3, high=6)

    async def scenario(engine):
        async def episode(ids, new):
            for _ in range(4):
                done = await engine.generate(ids, GREEDY)
                assert is_greedy(model, ids, done.ids)
                ids = np.concatenate([ids, done.ids, new])

        await asyncio.gather(*(episode(*pair) for pair in zip(openings, additions, strict=True)))
        return engine.computed

    computed = play(TransformersEngine(model, 6), scenario)
    # at each later turn: the last id of the completion, and the addition but its last id
    expected = sum(len(o) - 1 + 3 * len(a) for o, a in zip(openings, additions, strict=True))
    assert computed == expected


def test_a_group_reads_its_prompt_once(model):
    (ids,) = prompts(1, low=30)
    engine = TransformersEngine(model, 8)
    done = together(engine, [ids] * 8)
    assert engine.computed == len(ids) - 1
    assert all(is_greedy(model, ids, one.ids) for one in done)


def test_prefixes_of_each_other_and_slots_taken_over(model):
    base = np.arange(60) % VOCABULARY
    asks = [base[:n] for n in (60, 20, 40, 1, 2, 59)]
    asks += [np.concatenate([base[:n], [90, 91]]) for n in (30, 10, 50)]

    async def scenario(engine):
        rng = np.random.default_rng(0)
        for _ in range(6):
            chosen = [asks[i] for i in rng.integers(0, len(asks), 7)]
            done = await asyncio.gather(*(engine.generate(ids, GREEDY) for ids in chosen))
            for ids, one in zip(chosen, done, strict=True):
                assert is_greedy(model, ids, one.ids)

    play(TransformersEngine(model, 3, chunk_tokens=16), scenario)


def test_long_prompts_are_read_in_chunks(model):
    asks = prompts(5, low=100, high=200)
    done = together(TransformersEngine(model, 4, chunk_tokens=32), asks)
    for ids, one in zip(asks, done, strict=True):
        assert is_greedy(model, ids, one.ids)


# ---- scores ---------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [7, 2048])
def test_scores_equal_a_plain_forward_pass(model, chunk):
    asks = prompts(7, low=20, high=60)
    spans = [(1, 4), (10, 10), (8, 15), (12, 20)]

    async def scenario(engine):
        return await asyncio.gather(*(engine.score(ids, spans) for ids in asks))

    scores = play(TransformersEngine(model, 3, chunk_tokens=chunk), scenario)
    for ids, found in zip(asks, scores, strict=True):
        expected = plain_log_probs(model, ids)
        for (start, stop), own in zip(spans, found, strict=True):
            assert own.dtype == np.float32
            np.testing.assert_allclose(own, expected[start - 1 : stop - 1], atol=1e-5)


def test_scores_leave_the_cache_as_it_was(model):
    histories = prompts(4, low=20)
    probe = np.array([3, 1, 4, 1, 5])

    async def scenario(engine):
        first = await asyncio.gather(*(engine.generate(ids, GREEDY) for ids in histories))
        longer = [np.concatenate([i, d.ids]) for i, d in zip(histories, first, strict=True)]
        # scores beside generation, on the same histories
        results = await asyncio.gather(
            *(engine.generate(ids, GREEDY) for ids in longer),
            *(
                engine.score(np.concatenate([ids, probe]), [(len(ids) + 2, len(ids) + 5)])
                for ids in longer
            ),
        )
        computed = engine.computed
        for ids, done, score in zip(longer, results[:4], results[4:], strict=True):
            assert is_greedy(model, ids, done.ids)
            expected = plain_log_probs(model, np.concatenate([ids, probe]))[-3:]
            np.testing.assert_allclose(score[0], expected, atol=1e-5)
        return computed

    computed = play(TransformersEngine(model, 4), scenario)
    assert computed == sum(len(ids) - 1 for ids in histories)


def test_generated_log_probs_are_the_scored_ones(model):
    async def scenario(engine):
        for ids in prompts(5):
            done = await engine.generate(ids, Sampling(12))
            whole = np.concatenate([ids, done.ids])
            (scored,) = await engine.score(whole, [(len(ids), len(whole))])
            np.testing.assert_allclose(done.log_probs, scored, atol=1e-5)
            assert await engine.score(whole, []) == []

    play(TransformersEngine(model, 2), scenario)


# ---- randomness -----------------------------------------------------------------------


def test_same_seed_same_result_whatever_runs_beside(model):
    asks = prompts(10)
    sampling = Sampling(12)

    def ids_of(slots, seed):
        engine = TransformersEngine(model, slots, seed=seed)
        return [done.ids.tolist() for done in together(engine, asks, sampling)]

    alone = ids_of(1, 3)
    assert ids_of(4, 3) == alone
    assert ids_of(10, 3) == alone
    assert ids_of(10, 4) != alone


def test_a_requests_own_seed_fixes_it(model):
    (ids,) = prompts(1)

    async def scenario(engine):
        first = await engine.generate(ids, Sampling(12, seed=5))
        await engine.generate(ids, Sampling(3))
        again = await engine.generate(ids, Sampling(12, seed=5))
        other = await engine.generate(ids, Sampling(12, seed=6))
        assert first.ids.tolist() == again.ids.tolist() != other.ids.tolist()

    play(TransformersEngine(model, 2), scenario)


# ---- weights, pause, close ------------------------------------------------------------


@pytest.mark.parametrize("form", ["module", "state", "untied state", "file", "folder"])
@pytest.mark.parametrize("tied", [True, False])
def test_new_weights_from_every_source(tmp_path, form, tied):
    model = make_model(0, tie_word_embeddings=tied)
    newer = make_model(1, tie_word_embeddings=tied)
    source = {"module": newer, "state": newer.state_dict()}.get(form)
    if form == "untied state":
        source = dict(newer.state_dict())
        if tied:
            del source["lm_head.weight"]
    elif source is None:
        newer.save_pretrained(tmp_path)
        source = tmp_path if form == "folder" else str(tmp_path / "model.safetensors")
    (ids,) = prompts(1, low=20)

    async def scenario(engine):
        before = await engine.generate(ids, GREEDY)
        assert await engine.update_weights(source) == 1 == engine.weight_version
        after = await engine.generate(ids, GREEDY)
        assert is_greedy(newer, ids, after.ids)
        assert not is_greedy(newer, ids, before.ids)
        assert (before.weight_version, after.weight_version) == (0, 1)
        assert engine.computed == 2 * (len(ids) - 1)

    play(TransformersEngine(model, 2), scenario)


def test_weights_that_do_not_fit_are_refused_whole():
    model = make_model()
    good = make_model(1).state_dict()
    name = "model.norm.weight"
    changed = {**good, "lm_head.weight": good["lm_head.weight"] + 1}
    bad = [
        ({k: v for k, v in good.items() if k != name}, "missing"),
        ({**good, "extra": torch.zeros(1)}, "unknown"),
        ({**good, name: torch.zeros(3)}, "shape"),
        (changed, "tied"),
        ("/no/such/file", "no weights"),
        (42, "state dict"),
    ]
    (ids,) = prompts(1)

    async def scenario(engine):
        for source, said in bad:
            with pytest.raises(EngineError, match=said):
                await engine.update_weights(source)
            assert engine.weight_version == 0
        assert is_greedy(make_model(), ids, (await engine.generate(ids, GREEDY)).ids)

    play(TransformersEngine(model, 2), scenario)


def test_an_update_waits_for_what_was_asked_before_it():
    model, newer = make_model(0), make_model(1)
    old = {name: value.clone() for name, value in model.state_dict().items()}
    asks = prompts(6)

    async def scenario(engine):
        return await asyncio.gather(
            *(engine.generate(ids, GREEDY) for ids in asks),
            engine.score(asks[0], [(1, 2)]) if len(asks[0]) > 1 else engine.score([1, 2], [(1, 2)]),
            engine.update_weights(newer),
            *(engine.generate(ids, GREEDY) for ids in asks),
        )

    results = play(TransformersEngine(model, 2), scenario)
    assert [d.weight_version for d in results[:6]] == [0] * 6
    assert [d.weight_version for d in results[8:]] == [1] * 6
    model.load_state_dict(old)
    for ids, before, after in zip(asks, results[:6], results[8:], strict=True):
        assert is_greedy(model, ids, before.ids)
        assert is_greedy(newer, ids, after.ids)


def test_pause_keeps_requests_until_resume(model):
    async def scenario(engine):
        reached = watch(engine)
        running = asyncio.create_task(engine.generate([1, 2], GREEDY))
        await asyncio.to_thread(reached.wait)
        await engine.pause()
        held = asyncio.create_task(engine.generate([3, 4], GREEDY))
        assert await engine.update_weights(model.state_dict()) == 1
        assert not held.done()
        assert running.done()
        await engine.resume()
        assert (await held).weight_version == 1
        assert (await running).weight_version == 0

    play(TransformersEngine(model, 2), scenario)


def watch(engine):
    """A sign that the engine has begun with a request."""
    reached = threading.Event()
    forward = engine._forward

    def watched(*args):
        reached.set()
        return forward(*args)

    watched_forward = type("Watched", (), {"__call__": staticmethod(watched)})()
    for name in ("head", "device", "model", "log_probs", "vocabulary", "positions", "store"):
        setattr(watched_forward, name, getattr(forward, name))
    engine._forward = watched_forward
    return reached


def test_cancelling_frees_the_slot(model):
    async def scenario(engine):
        reached = watch(engine)
        task = asyncio.create_task(engine.generate([1, 2, 3], Sampling(200)))
        await asyncio.to_thread(reached.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        done = await engine.generate([4, 5], GREEDY)  # the only slot
        assert is_greedy(model, [4, 5], done.ids)
        assert not engine._table.busy.any()

    play(TransformersEngine(model, 1), scenario)


def test_cancelled_requests_that_wait_are_never_begun(model):
    async def scenario(engine):
        await engine.pause()
        tasks = [asyncio.create_task(engine.generate([1, i], GREEDY)) for i in range(5)]
        await asyncio.sleep(0)
        for task in tasks[1:]:
            task.cancel()
        await asyncio.gather(*tasks[1:], return_exceptions=True)
        await engine.resume()
        await tasks[0]
        assert engine.computed == 1

    play(TransformersEngine(model, 4), scenario)


def test_close_fails_what_is_pending_and_leaves_no_thread(model):
    async def scenario(engine):
        reached = watch(engine)
        tasks = [asyncio.create_task(engine.generate([1, 2], Sampling(200))) for _ in range(4)]
        await asyncio.to_thread(reached.wait)
        waiting = asyncio.create_task(engine.update_weights({}))
        await asyncio.sleep(0)
        thread = engine._thread
        await engine.close()
        assert not thread.is_alive()
        results = await asyncio.gather(*tasks, waiting, return_exceptions=True)
        assert all(isinstance(result, EngineError) for result in results[1:])
        with pytest.raises(EngineError, match="closed"):
            await engine.generate([1], GREEDY)
        await engine.close()

    play(TransformersEngine(model, 1), scenario)


def test_close_while_paused_or_idle(model):
    async def scenario(engine):
        await engine.pause()
        held = asyncio.create_task(engine.generate([1], GREEDY))
        await asyncio.sleep(0)
        await engine.close()
        with pytest.raises(EngineError, match="closed"):
            await held

    play(TransformersEngine(model, 1), scenario)


def test_a_failure_of_the_model_reaches_every_caller():
    model = make_model()

    async def scenario(engine):
        def broken(*args, **kwargs):
            raise RuntimeError("out of memory")

        engine._forward.decoder.norm.forward = broken
        results = await asyncio.gather(
            *(engine.generate(ids, GREEDY) for ids in prompts(5)),
            engine.score([1, 2], [(1, 2)]),
            return_exceptions=True,
        )
        assert all(isinstance(result, EngineError) for result in results)
        assert all("out of memory" in str(result) for result in results)
        with pytest.raises(EngineError, match="make a new one"):
            await engine.generate([1], GREEDY)

    play(TransformersEngine(model, 2), scenario)


# ---- refusals -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([], "at least one"),
        ([VOCABULARY], "ids go from"),
        ([-1], "ids go from"),
        ([1] * 20, "room"),
    ],
)
def test_requests_that_make_no_sense_are_refused_alone(model, ids, said):
    async def scenario(engine):
        with pytest.raises(EngineError, match=said):
            await engine.generate(ids, GREEDY)
        assert len((await engine.generate([1], GREEDY)).ids) == 8

    play(TransformersEngine(model, 2, max_context=20), scenario)


@pytest.mark.parametrize("span", [(0, 2), (2, 1), (1, 9), (-1, 2)])
def test_spans_outside_the_ids_are_refused(model, span):
    async def scenario(engine):
        with pytest.raises(EngineError, match="span"):
            await engine.score([1, 2, 3], [span])

    play(TransformersEngine(model, 2), scenario)


SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 128,
    "initializer_range": 0.3,
    "pad_token_id": 0,
}


@pytest.mark.parametrize("kind", ["llama", "qwen2", "olmo2"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_other_models_of_plain_attention(kind, attention):
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **SMALL)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)  # biases and norms too
    asks = prompts(5)
    for ids, done in zip(asks, together(TransformersEngine(model, 3), asks), strict=True):
        assert is_greedy(model, ids, done.ids)


def test_a_model_that_scales_its_logits_samples_and_scores_by_them():
    torch.manual_seed(0)
    config = AutoConfig.for_model("granite", **SMALL, logits_scaling=8.0)
    model = AutoModelForCausalLM.from_config(config).eval()
    ids = prompts(1)[0]

    async def scenario(engine):
        done = await engine.generate(ids, Sampling(6, seed=3))
        whole = [*ids, *done.ids]
        (scored,) = await engine.score(whole, [(len(ids), len(whole))])
        return done, scored, whole

    done, scored, whole = play(TransformersEngine(model, 2), scenario)
    with torch.no_grad():
        rows = model(input_ids=torch.tensor([whole])).logits[0, :-1].log_softmax(-1)
    own = rows.gather(-1, torch.tensor(whole[1:])[:, None])[len(ids) - 1 :, 0].numpy()
    np.testing.assert_allclose(done.log_probs, own, atol=1e-4, rtol=0)
    np.testing.assert_allclose(scored, own, atol=1e-4, rtol=0)


def test_models_that_change_their_logits_otherwise_are_refused(monkeypatch):
    model = make_model()
    whole = type(model).forward

    def changed(self, *given, **named):
        found = whole(self, *given, **named)
        found.logits = found.logits.square()
        return found

    monkeypatch.setattr(type(model), "forward", changed)
    with pytest.raises(SettingError, match="does more with its head's logits"):
        TransformersEngine(model)


def test_models_with_windows_or_other_attention_are_refused():
    window = MistralConfig(
        vocab_size=20,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=16,
        sliding_window=4,
    )
    with pytest.raises(SettingError, match="full attention"):
        TransformersEngine(MistralForCausalLM(window))
    sliding = make_model(use_sliding_window=True, sliding_window=4, max_window_layers=1)
    with pytest.raises(SettingError, match="full attention"):
        TransformersEngine(sliding)


@pytest.mark.parametrize(
    "settings",
    [{"slots": 0}, {"max_context": 1}, {"max_context": 257}, {"seed": -1}, {"chunk_tokens": 0}],
)
def test_settings_that_make_no_sense_are_refused(model, settings):
    with pytest.raises(SettingError, match="must be"):
        TransformersEngine(model, **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_tokens": 0},
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"top_p": 0.0},
        {"top_p": 1.5},
        {"top_k": -1},
        {"seed": -1},
    ],
)
def test_sampling_is_checked_when_it_is_made(settings):
    with pytest.raises(SettingError, match="must be"):
        Sampling(**({"max_tokens": 1} | settings))
