"""Stop texts and the presence penalty in the Transformers engine."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import torch

from agents.engines import Sampling
from agents.engines.transformers import TransformersEngine
from drv_env.errors import EngineError, SettingError

pytestmark = pytest.mark.usefixtures("one_thread")
PROMPT = np.arange(5, 25)


def run(engine, scenario):
    async def main():
        try:
            return await scenario(engine)
        finally:
            await engine.close()

    return asyncio.run(main())


def together(engine, asks):
    """Completions of ``(ids, sampling)`` pairs, asked for at once."""

    async def scenario(engine):
        return await asyncio.gather(*(engine.generate(ids, how) for ids, how in asks))

    return run(engine, scenario)


def logits_after(model, ids):
    with torch.no_grad():
        return model(input_ids=torch.tensor([[int(i) for i in ids]])).logits[0, -1]


def is_greedy(model, ids, found, penalty=0.0):
    """The definition: the penalty comes off once for each id of the output.

    Two ids may tie but for last digits, and then either is the likeliest.
    """
    for count, taken in enumerate(found):
        logits = logits_after(model, [*ids, *found[:count]])
        logits[sorted({int(id_) for id_ in found[:count]})] -= penalty
        if logits[int(taken)] < logits.max() - 1e-4:
            return False
    return True


def greedy_ids(model, template, prompt, count):
    """What an engine on this model writes at temperature 0."""
    engine = TransformersEngine(model, 2, pieces=template.pieces)
    (done,) = together(engine, [(prompt, Sampling(count, temperature=0))])
    return done.ids.tolist()


# ---- stop texts -----------------------------------------------------------------------


def test_a_completion_ends_with_the_id_that_completes_a_stop_text(model, template):
    (free,) = together(TransformersEngine(model, 2), [(PROMPT, Sampling(60, seed=3))])
    decode = template.pieces.decode
    texts = [decode(free.ids[end - 3 : end]) for end in range(3, 61)]
    texts = [text for text in texts if text and "\ufffd" not in text]
    assert len(texts) > 5
    asks = [(PROMPT, Sampling(60, seed=3, stop=("never to be seen", text))) for text in texts]
    found = together(TransformersEngine(model, 4, pieces=template.pieces), asks)
    for text, done in zip(texts, found, strict=True):
        count = next(n for n in range(1, 61) if text in decode(free.ids[:n]))
        assert done.ids.tolist() == free.ids[:count].tolist()
        np.testing.assert_allclose(done.log_probs, free.log_probs[:count], atol=1e-5)
        assert done.finish == "stop"


def test_requests_beside_one_that_stops_go_on(model, template):
    greedy = Sampling(12, temperature=0)
    free = greedy_ids(model, template, PROMPT, 12)
    texts = [template.pieces.decode([id_]) for id_ in free]
    stop = next(text for text in texts if text.strip("\ufffd"))
    asks = [(PROMPT, Sampling(12, temperature=0, stop=(stop,))), (PROMPT[:7], greedy)]
    first, second = together(TransformersEngine(model, 2, pieces=template.pieces), asks)
    assert first.ids.tolist() == free[: texts.index(stop) + 1]
    assert len(second.ids) == 12
    assert is_greedy(model, PROMPT[:7], second.ids)
    assert (first.finish, second.finish) == ("stop", "length")


def test_a_stop_at_the_last_id_that_fits_is_a_stop(model, template):
    free = greedy_ids(model, template, PROMPT, 12)
    texts = [template.pieces.decode([id_]) for id_ in free]
    stop = next(text for text in texts if text.strip("\ufffd"))
    count = texts.index(stop) + 1
    sampling = Sampling(count, temperature=0, stop=(stop,))
    engine = TransformersEngine(model, 1, pieces=template.pieces)
    (done,) = together(engine, [(PROMPT, sampling)])
    assert (done.finish, len(done.ids)) == ("stop", count)


def test_the_turn_after_a_stop_computes_only_what_is_new(model, template):
    async def scenario(engine):
        free = await engine.generate(PROMPT, Sampling(20, seed=1))
        texts = [template.pieces.decode([id_]) for id_ in free.ids]
        stop = next(text for text in texts[3:] if text.strip("\ufffd"))
        done = await engine.generate(PROMPT, Sampling(20, seed=1, stop=(stop,)))
        before = engine.computed
        longer = np.concatenate([PROMPT, done.ids, [1, 2, 3]])
        await engine.generate(longer, Sampling(4))
        assert engine.computed - before == 3  # the stop's id, and two of the three

    run(TransformersEngine(model, 1, pieces=template.pieces), scenario)


def test_stop_texts_without_a_tokenizer_are_refused_alone(model):
    async def scenario(engine):
        with pytest.raises(EngineError, match="pieces="):
            await engine.generate(PROMPT, Sampling(4, stop=("x",)))
        assert len((await engine.generate(PROMPT, Sampling(4))).ids) == 4

    run(TransformersEngine(model, 1), scenario)


# ---- presence penalty -----------------------------------------------------------------


@pytest.mark.parametrize("penalty", [0.7, 2.0, -1.5])
def test_greedy_with_a_penalty_equals_plain_forward_passes(model, penalty):
    sampling = Sampling(25, temperature=0, presence_penalty=penalty)
    (done,) = together(TransformersEngine(model, 2), [(PROMPT, sampling)])
    assert len(done.ids) == 25
    assert is_greedy(model, PROMPT, done.ids, penalty)
    assert not is_greedy(model, PROMPT, done.ids)


def test_sampling_with_a_penalty_follows_the_distribution(model):
    first = int(logits_after(model, PROMPT).argmax())
    ids = [*PROMPT, first]
    sampling = Sampling(2, presence_penalty=2.0, top_k=3, temperature=1.3)
    done = together(TransformersEngine(model, 64), [(PROMPT, sampling)] * 3000)
    second = [int(d.ids[1]) for d in done if int(d.ids[0]) == first]
    logits = logits_after(model, ids)
    logits[first] -= 2.0
    values, kept = (logits / 1.3).topk(3)
    shares = np.array([second.count(int(id_)) for id_ in kept]) / len(second)
    np.testing.assert_allclose(shares, values.softmax(-1), atol=4 * 0.5 / len(second) ** 0.5)
    assert len(second) > 500


def test_log_probs_stay_raw_under_a_penalty(model):
    async def scenario(engine):
        for temperature in (0.0, 1.0, 0.6):
            sampling = Sampling(15, temperature=temperature, presence_penalty=1.1)
            done = await engine.generate(PROMPT, sampling)
            whole = np.concatenate([PROMPT, done.ids])
            (scored,) = await engine.score(whole, [(len(PROMPT), len(whole))])
            np.testing.assert_allclose(done.log_probs, scored, atol=1e-5)

    run(TransformersEngine(model, 2), scenario)


def test_a_penalty_is_one_requests_own_and_ends_with_it(model):
    """Mixed batches over slots that others used before: each request as if alone."""
    styles = [
        Sampling(10, seed=1),
        Sampling(14, temperature=0, presence_penalty=2.0),
        Sampling(12, seed=2, presence_penalty=-2.0, top_p=0.9),
        Sampling(9, temperature=0),
    ]
    asks = [(PROMPT[: 3 + i], styles[i % 4]) for i in range(16)]
    alone = [together(TransformersEngine(model, 1), [ask])[0].ids.tolist() for ask in asks]
    mixed = together(TransformersEngine(model, 3), asks)
    assert [done.ids.tolist() for done in mixed] == alone


@pytest.mark.parametrize(
    "settings",
    [{"presence_penalty": 2.1}, {"presence_penalty": float("nan")}, {"stop": ("",)}, {"stop": "x"}],
)
def test_values_that_make_no_sense_are_refused(settings):
    with pytest.raises(SettingError, match="must be"):
        Sampling(**({"max_tokens": 1} | settings))
