"""New weights in vLLM's engine: bit for bit, all or nothing, nothing old left in the cache."""

from __future__ import annotations

import asyncio
import copy

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from agents.engines import Sampling
from drv_env.errors import EngineError

GREEDY = Sampling(12, temperature=0)


@pytest.fixture(params=["untied", "tied"])
def started(request):
    return request.getfixturevalue(request.param)


def newer(plain, model, seed=1):
    other = copy.deepcopy(model)
    plain.randomise(other, seed)
    return other


def play(started, scenario):
    """Run ``scenario(engine)``, then put the engine's first weights back."""

    async def run():
        try:
            return await scenario(started.engine)
        finally:
            await started.engine.update_weights(started.model)

    return asyncio.run(run())


def check_equal(file, model):
    """A file of the engine's weights against a Transformers model, bit for bit."""
    own = load_file(file)
    expected = model.state_dict()
    if model.config.tie_word_embeddings:
        expected = {k: v for k, v in expected.items() if k != "lm_head.weight"}
    assert set(own) == set(expected)
    for name, value in expected.items():
        assert own[name].dtype == value.dtype
        assert torch.equal(own[name].view(torch.int32), value.view(torch.int32)), name


def test_the_engine_begins_with_the_folders_weights(started, tmp_path):
    asyncio.run(started.engine.save_weights(tmp_path / "own.safetensors"))
    check_equal(tmp_path / "own.safetensors", started.model)


def test_new_weights_are_the_trainers_bit_for_bit_and_are_used(started, plain, tmp_path):
    model = newer(plain, started.model)
    (ids,) = plain.prompts(1, seed=20, low=90)
    version = started.engine.weight_version

    async def scenario(engine):
        before = await engine.generate(ids, GREEDY)
        assert await engine.update_weights(model) == version + 1 == engine.weight_version
        found = engine.cached
        after = await engine.generate(ids, GREEDY)
        assert engine.cached == found  # nothing of the old weights' cache
        await engine.save_weights(tmp_path / "own.safetensors")
        return before, after

    before, after = play(started, scenario)
    check_equal(tmp_path / "own.safetensors", model)
    assert before.ids.tolist() == plain.greedy(started.model, ids, 12)
    assert after.ids.tolist() == plain.greedy(model, ids, 12) != before.ids.tolist()
    expected = plain.log_probs(model, [*ids, *after.ids])[-12:]
    np.testing.assert_allclose(after.log_probs, expected, atol=2e-5, rtol=0)
    assert (before.weight_version, after.weight_version) == (version, version + 1)


def test_a_small_step_is_noticed(started, plain, tmp_path):
    """Weights that differ in their last bit alone, in one tensor at a time."""
    state = started.model.state_dict()

    async def scenario(engine):
        for name in ("model.layers.1.self_attn.v_proj.weight", "model.norm.weight"):
            step = {key: value.clone() for key, value in state.items()}
            step[name] = torch.nextafter(step[name], torch.tensor(9.0))
            await engine.update_weights(step)
            await engine.save_weights(tmp_path / "own.safetensors")
            own = load_file(tmp_path / "own.safetensors")[name]
            assert torch.equal(own, step[name])
            assert not torch.equal(own, state[name])

    play(started, scenario)


@pytest.mark.parametrize("form", ["state", "one name of tied", "file", "folder", "bfloat16"])
def test_new_weights_from_every_source(started, plain, tmp_path, form):
    model = newer(plain, started.model, seed=2)
    source = dict(model.state_dict())
    if form == "one name of tied" and model.config.tie_word_embeddings:
        del source["model.embed_tokens.weight"]
    elif form in ("file", "folder"):
        model.save_pretrained(tmp_path)
        source = tmp_path if form == "folder" else str(tmp_path / "model.safetensors")
    elif form == "bfloat16":
        source = {name: value.bfloat16() for name, value in source.items()}
        model.load_state_dict(source)

    async def scenario(engine):
        await engine.update_weights(source)
        await engine.save_weights(tmp_path / "own.safetensors")

    play(started, scenario)
    check_equal(tmp_path / "own.safetensors", model)


def test_weights_that_do_not_fit_are_refused_whole(started, plain, tmp_path):
    good = newer(plain, started.model).state_dict()
    name = "model.layers.0.self_attn.q_proj.weight"
    bad = [
        ({k: v for k, v in good.items() if k != name}, "missing"),
        ({**good, "extra": torch.zeros(1)}, "unknown"),
        ({**good, name: torch.zeros(3)}, "shape"),
        ("/no/such/file", "no weights"),
        (42, "state dict"),
    ]
    if started.model.config.tie_word_embeddings:
        bad.append(({**good, "lm_head.weight": good["lm_head.weight"] + 1}, "tied"))
    version = started.engine.weight_version
    (ids,) = plain.prompts(1, seed=21)

    async def scenario():
        for source, said in bad:
            with pytest.raises(EngineError, match=said):
                await started.engine.update_weights(source)
            assert started.engine.weight_version == version
        await started.engine.save_weights(tmp_path / "own.safetensors")
        return await started.engine.generate(ids, GREEDY)

    done = asyncio.run(scenario())
    check_equal(tmp_path / "own.safetensors", started.model)
    assert done.ids.tolist() == plain.greedy(started.model, ids, 12)


def test_an_update_waits_for_what_was_asked_before_it(untied, plain):
    model = newer(plain, untied.model, seed=3)
    asks = plain.prompts(6, seed=22)
    version = untied.engine.weight_version

    async def scenario(engine):
        return await asyncio.gather(
            *(engine.generate(ids, GREEDY) for ids in asks),
            engine.score(asks[0], [(1, len(asks[0]))]),
            engine.update_weights(model),
            *(engine.generate(ids, GREEDY) for ids in asks),
            engine.update_weights(untied.model),
            engine.generate(asks[0], GREEDY),
        )

    results = play(untied, scenario)
    for ids, done in zip(asks, results[:6], strict=True):
        assert done.ids.tolist() == plain.greedy(untied.model, ids, 12)
        assert done.weight_version == version
    np.testing.assert_allclose(results[6][0], plain.log_probs(untied.model, asks[0]), atol=2e-5)
    for ids, done in zip(asks, results[8:14], strict=True):
        assert done.ids.tolist() == plain.greedy(model, ids, 12)
        assert done.weight_version == version + 1
    assert results[15].ids.tolist() == plain.greedy(untied.model, asks[0], 12)
    assert results[15].weight_version == version + 2


def test_a_cancelled_update_is_carried_out_all_the_same(untied, plain, tmp_path):
    model = newer(plain, untied.model, seed=4)
    version = untied.engine.weight_version

    async def scenario(engine):
        update = asyncio.create_task(engine.update_weights(model))
        await asyncio.sleep(0)
        update.cancel()
        with pytest.raises(asyncio.CancelledError):
            await update
        done = await engine.generate([1, 2], GREEDY)  # after it in the queue
        await engine.save_weights(tmp_path / "own.safetensors")
        return done

    done = play(untied, scenario)
    assert done.weight_version == version + 1
    check_equal(tmp_path / "own.safetensors", model)
