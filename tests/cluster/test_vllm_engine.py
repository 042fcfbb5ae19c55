"""vLLM's engine against plain forward passes of the same model, in float32.

Ids are the same; log-probs are the same to 2e-5, which is what another order of adding
comes to.
"""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from tokenizers import Tokenizer

from agents.engines import Engine, Sampling
from agents.engines.vllm import VllmEngine
from drv_env import background
from drv_env.errors import EngineError, SettingError

CLOSE = {"atol": 2e-5, "rtol": 0}
GREEDY = Sampling(12, temperature=0)


def together(engine, asks, sampling=GREEDY):
    async def scenario():
        return await asyncio.gather(*(engine.generate(ids, sampling) for ids in asks))

    return asyncio.run(scenario())


def one(engine, ids, sampling):
    return together(engine, [ids], sampling)[0]


def scored(engine, ids, spans):
    return asyncio.run(engine.score(ids, spans))


def test_it_is_an_engine(untied):
    assert isinstance(untied.engine, Engine)
    assert untied.engine.max_context == 256


@pytest.mark.parametrize("kind", ["untied", "tied"])
def test_greedy_ids_and_log_probs_are_those_of_plain_forward_passes(kind, request, plain):
    started = request.getfixturevalue(kind)
    asks = plain.prompts(9)
    for ids, done in zip(asks, together(started.engine, asks), strict=True):
        assert done.ids.tolist() == plain.greedy(started.model, ids, 12)
        assert done.ids.dtype == np.int32
        assert done.log_probs.dtype == np.float32
        expected = plain.log_probs(started.model, [*ids, *done.ids])[-12:]
        np.testing.assert_allclose(done.log_probs, expected, **CLOSE)
        assert (done.finish, done.weight_version) == ("length", started.engine.weight_version)


def test_log_probs_are_raw_whatever_the_sampling(untied, plain):
    asks = plain.prompts(6, seed=1)
    for sampling in (
        Sampling(10, temperature=0.3),
        Sampling(10, temperature=2.0, top_k=5),
        Sampling(10, top_p=0.6, presence_penalty=1.5),
    ):
        for ids, done in zip(asks, together(untied.engine, asks, sampling), strict=True):
            expected = plain.log_probs(untied.model, [*ids, *done.ids])[-10:]
            np.testing.assert_allclose(done.log_probs, expected, **CLOSE)


def test_a_longer_history_is_found_in_the_cache_and_gives_the_same(untied, plain):
    (ids,) = plain.prompts(1, seed=2, low=90)
    first = one(untied.engine, ids, GREEDY)
    before = untied.engine.cached
    longer = [*ids, *first.ids.tolist(), 7, 8]
    done = one(untied.engine, longer, GREEDY)
    assert untied.engine.cached - before >= 64
    assert done.ids.tolist() == plain.greedy(untied.model, longer, 12)
    expected = plain.log_probs(untied.model, [*longer, *done.ids])[-12:]
    np.testing.assert_allclose(done.log_probs, expected, **CLOSE)


def test_only_the_given_stop_ids_end_a_completion(untied, plain):
    (ids,) = plain.prompts(1, seed=3)
    whole = plain.greedy(untied.model, ids, 40)
    stop = whole[5]
    done = one(untied.engine, ids, Sampling(40, temperature=0, stop_ids=(stop,)))
    assert done.ids.tolist() == whole[: whole.index(stop) + 1]
    assert done.finish == "stop"
    assert len(done.log_probs) == len(done.ids)


def test_the_models_own_end_of_sequence_is_an_id_like_others(untied, plain):
    eos = untied.model.generation_config.eos_token_id
    weights = plain.chain(untied.model, [5, eos, 9])

    async def scenario():
        await untied.engine.update_weights(weights)
        free = await untied.engine.generate([5], Sampling(5, temperature=0))
        held = await untied.engine.generate([5], Sampling(5, temperature=0, stop_ids=(eos,)))
        await untied.engine.update_weights(untied.model)
        return free, held

    free, held = asyncio.run(scenario())
    assert free.ids.tolist() == [eos, 9, 5, eos, 9]
    assert held.ids.tolist() == [eos]


def test_a_full_context_ends_a_completion(untied, plain):
    ids = (plain.prompts(1, seed=4)[0] * 60)[:250]
    done = one(untied.engine, ids, Sampling(100, temperature=0))
    assert done.ids.tolist() == plain.greedy(untied.model, ids, 6)
    assert done.finish == "length"


# ---- stop texts -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "stop", "kept"),
    [
        # an added token of one id, and special tokens too
        (["I", "\n", "<tool_response>", " ", "please"], ("<tool_response>",), 3),
        (["I", "<|im_end|>", " ", "please"], ("<|im_end|>",), 2),
        # over several ids, and inside an id that goes on after it
        (["I", "search", ",", " ", "then", " ", "open"], ("h, the",), 5),
        (["I", "search", ",", " ", "then", " ", "open"], ("h, then",), 5),
        # the earliest of several
        (["I", "search", ",", " ", "then"], ("then", ","), 3),
        # completed by the last id that fits
        (["I", "search", ",", " ", "then"], ("search, then",), 5),
        # never completed
        (["I", "search", ",", " ", "then"], ("research",), 12),
    ],
)
def test_a_stop_text_never_costs_or_adds_an_id(untied, plain, written, stop, kept):
    tokenizer = Tokenizer.from_file(str(untied.folder / "tokenizer.json"))
    ids = spelled(tokenizer, written)
    weights = plain.chain(untied.model, ids)

    async def scenario():
        await untied.engine.update_weights(weights)
        free = await untied.engine.generate(ids[-1:], Sampling(12, temperature=0))
        held = await untied.engine.generate(ids[-1:], Sampling(12, temperature=0, stop=stop))
        await untied.engine.update_weights(untied.model)
        return free, held

    free, held = asyncio.run(scenario())
    assert free.ids.tolist() == (ids * 12)[:12]
    assert held.ids.tolist() == free.ids.tolist()[:kept]
    assert held.log_probs.tolist() == pytest.approx(free.log_probs[:kept].tolist(), abs=2e-5)
    assert held.finish == ("stop" if kept < 12 else "length")


def spelled(tokenizer, written):
    """Different ids that spell these pieces; a piece that comes again is spelled anew."""
    ids = []
    for piece in written:
        (id_,) = tokenizer.encode(piece).ids
        ids.append(id_)
    # a chain needs different ids: leave out what stands there already
    return list(dict.fromkeys(ids))


def test_stop_texts_of_the_prompt_do_not_count(untied, plain):
    tokenizer = Tokenizer.from_file(str(untied.folder / "tokenizer.json"))
    ids = tokenizer.encode("Stop here<tool_response>").ids
    done = one(untied.engine, ids, Sampling(6, temperature=0, stop=("<tool_response>",)))
    assert done.ids.tolist() == plain.greedy(untied.model, ids, 6)


# ---- sampling ---------------------------------------------------------------------------


def test_a_requests_own_seed_fixes_it(untied, plain):
    (ids,) = plain.prompts(1, seed=5)
    first = one(untied.engine, ids, Sampling(12, seed=5)).ids.tolist()
    beside = together(untied.engine, [ids] * 4, Sampling(12, seed=5))
    assert [done.ids.tolist() for done in beside] == [first] * 4
    assert one(untied.engine, ids, Sampling(12, seed=6)).ids.tolist() != first


def test_requests_without_a_seed_differ(untied, plain):
    (ids,) = plain.prompts(1, seed=6)
    done = together(untied.engine, [ids] * 4, Sampling(12, temperature=2.0))
    assert len({tuple(d.ids.tolist()) for d in done}) == 4


def test_sampling_follows_the_distribution(untied, plain):
    (ids,) = plain.prompts(1, seed=7)
    row = plain.logits(untied.model, ids)[-1]
    for temperature, top_k, top_p in ((2.0, 0, 1.0), (2.0, 3, 1.0), (2.0, 0, 0.5)):
        scaled = (row / temperature).softmax(-1).numpy()
        order = np.argsort(-scaled)
        kept = np.ones(len(order), bool)
        if top_k:
            kept[order[top_k:]] = False
        if top_p < 1:
            before = np.cumsum(scaled[order]) - scaled[order]
            kept[order[before >= top_p]] = False
        expected = np.where(kept, scaled, 0) / scaled[kept].sum()
        sampling = Sampling(1, temperature=temperature, top_k=top_k, top_p=top_p)
        drawn = [int(d.ids[0]) for d in together(untied.engine, [ids] * 400, sampling)]
        counts = np.bincount(drawn, minlength=len(order)) / len(drawn)
        assert not counts[~kept].any()
        # five standard deviations of the likeliest id's frequency
        top = int(order[0])
        assert abs(counts[top] - expected[top]) < 5 * np.sqrt(0.25 / len(drawn))


@pytest.mark.parametrize("penalty", [1.5, -1.5])
def test_the_presence_penalty_is_taken_off_what_was_sampled(untied, plain, penalty):
    asks = plain.prompts(5, seed=8)
    sampling = Sampling(25, temperature=0, presence_penalty=penalty)
    changed = 0
    for ids, done in zip(asks, together(untied.engine, asks, sampling), strict=True):
        expected = plain.greedy(untied.model, ids, 25, penalty)
        assert done.ids.tolist() == expected
        changed += expected != plain.greedy(untied.model, ids, 25)
    assert changed


# ---- scores -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["untied", "tied"])
def test_scores_are_those_of_a_plain_forward_pass(kind, request, plain):
    started = request.getfixturevalue(kind)
    asks = plain.prompts(5, seed=9, low=30)
    spans = [(1, 4), (10, 10), (8, 15), (12, 20), (29, 30)]

    async def scenario():
        return await asyncio.gather(*(started.engine.score(ids, spans) for ids in asks))

    for ids, found in zip(asks, asyncio.run(scenario()), strict=True):
        expected = plain.log_probs(started.model, ids)
        for (start, stop), own in zip(spans, found, strict=True):
            assert own.dtype == np.float32
            np.testing.assert_allclose(own, expected[start - 1 : stop - 1], **CLOSE)


def test_a_score_reads_its_history_from_the_cache(untied, plain):
    (ids,) = plain.prompts(1, seed=10, low=99)
    one(untied.engine, ids, Sampling(1))
    probe = [3, 1, 4, 1, 5]
    span = [(len(ids) + 2, len(ids) + 5)]
    for _ in range(2):  # the second time the probe is there too, up to a block's end
        before = untied.engine.cached
        (own,) = scored(untied.engine, ids + probe, span)
        assert untied.engine.cached - before == 96
        np.testing.assert_allclose(own, plain.log_probs(untied.model, ids + probe)[-3:], **CLOSE)


def test_what_is_cached_already_is_scored_all_the_same(untied, plain):
    (ids,) = plain.prompts(1, seed=11, low=99)
    expected = plain.log_probs(untied.model, ids)
    for _ in range(3):
        (own,) = scored(untied.engine, ids, [(1, len(ids))])
        np.testing.assert_allclose(own, expected, **CLOSE)


def test_scores_of_one_id_a_full_context_and_nothing(untied, plain):
    ids = (plain.prompts(1, seed=12)[0] * 60)[:256]
    expected = plain.log_probs(untied.model, ids)
    (last,) = scored(untied.engine, ids, [(255, 256)])
    np.testing.assert_allclose(last, expected[-1:], **CLOSE)
    (first,) = scored(untied.engine, ids, [(1, 2)])
    np.testing.assert_allclose(first, expected[:1], **CLOSE)
    assert scored(untied.engine, ids, []) == []
    assert [len(own) for own in scored(untied.engine, ids, [(3, 3)])] == [0]


def test_generated_log_probs_are_the_scored_ones(untied, plain):
    for ids in plain.prompts(3, seed=13):
        done = one(untied.engine, ids, Sampling(12))
        whole = [*ids, *done.ids.tolist()]
        (own,) = scored(untied.engine, whole, [(len(ids), len(whole))])
        np.testing.assert_allclose(done.log_probs, own, **CLOSE)


# ---- refusals, and where it may be called -----------------------------------------------


@pytest.mark.parametrize(
    ("ids", "sampling", "said"),
    [
        ([], GREEDY, "at least one"),
        ([100_000], GREEDY, "ids go from"),
        ([-1], GREEDY, "ids go from"),
        ([1] * 256, GREEDY, "room"),
        ([1], Sampling(5, temperature=2.5), "temperatures up to 2"),
        ([1], Sampling(5, stop=("\ufffd",)), "stop text"),
    ],
)
def test_requests_that_make_no_sense_are_refused_alone(untied, ids, sampling, said):
    with pytest.raises(EngineError, match=said):
        one(untied.engine, ids, sampling)
    assert len(one(untied.engine, [1], GREEDY).ids) == 12


@pytest.mark.parametrize("span", [(0, 2), (2, 1), (1, 9), (-1, 2)])
def test_spans_outside_the_ids_are_refused(untied, span):
    with pytest.raises(EngineError, match="span"):
        scored(untied.engine, [1, 2, 3], [span])


def test_any_event_loop_may_call_it(untied, plain):
    expected = plain.greedy(untied.model, [1, 2], 12)
    assert background.run(untied.engine.generate([1, 2], GREEDY)).ids.tolist() == expected
    assert one(untied.engine, [1, 2], GREEDY).ids.tolist() == expected


@pytest.mark.parametrize(
    ("missing", "said"), [("config.json", "no config"), ("tokenizer.json", "no tokenizer")]
)
def test_folders_without_a_model_are_refused(tmp_path, untied, missing, said):
    for file in untied.folder.iterdir():
        if file.name != missing:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(SettingError, match=said):
        VllmEngine(tmp_path)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_context": 1}, "at least 2"),
        ({"seed": -1}, "at least 0"),
        ({"logprobs_mode": "processed_logprobs"}, "log-probs are raw"),
        ({"max_model_len": 5}, "max_context"),
        ({"no_such_argument": 5}, "no_such_argument"),
        ({"max_context": 100_000}, "vLLM's arguments"),
    ],
)
def test_settings_that_make_no_sense_are_refused(untied, settings, said):
    with pytest.raises(SettingError, match=said):
        VllmEngine(untied.folder, **settings)
