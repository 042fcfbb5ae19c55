"""OpenRLHF's engine as one of ours, on the real vLLM: what its actor would be given and give."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from agents.engines import Engine, Sampling
from agents.engines.vllm import VllmEngine
from drv_env.errors import EngineError
from trainers.openrlhf.engine import RayEngine

CLOSE = {"atol": 2e-5, "rtol": 0}


class Actor:
    """OpenRLHF's actor around vLLM, without Ray: ids and vLLM's parameters to vLLM's output."""

    weight_version = 3

    def __init__(self, engine: VllmEngine) -> None:
        self._engine = engine

    async def generate(self, prompt_token_ids, sampling_params, multi_modal_data=None):
        work = self._engine._host.submit(self._engine._ask, prompt_token_ids, sampling_params)
        return await asyncio.wrap_future(work)


@pytest.fixture
def engine(untied) -> RayEngine:
    return RayEngine(Actor(untied.engine), untied.engine._pieces, 256)


def test_it_samples_and_scores_what_plain_forward_passes_do(untied, engine, plain):
    assert isinstance(engine, Engine)
    (ids,) = plain.prompts(1, seed=21)

    async def scenario():
        done = await engine.generate(ids, Sampling(12, temperature=0))
        whole = [*ids, *done.ids.tolist()]
        spans = [(2, 5), (len(ids), len(ids)), (len(ids), len(whole))]
        return done, whole, spans, await engine.score(whole, spans)

    done, whole, spans, found = asyncio.run(scenario())
    assert done.ids.tolist() == plain.greedy(untied.model, ids, 12)
    assert (done.finish, done.weight_version) == ("length", 3)
    expected = plain.log_probs(untied.model, whole)
    np.testing.assert_allclose(done.log_probs, expected[-12:], **CLOSE)
    for (start, stop), own in zip(spans, found, strict=True):
        np.testing.assert_allclose(own, expected[start - 1 : stop - 1], **CLOSE)


def test_what_does_not_fit_or_is_not_ours_to_do_is_refused(engine):
    async def scenario():
        for work in (
            engine.generate([5] * 256, Sampling(1)),
            engine.score([5] * 257, [(1, 2)]),
            engine.score([5] * 9, [(0, 2)]),
            engine.update_weights({}),
            engine.pause(),
            engine.resume(),
        ):
            with pytest.raises(EngineError):
                await work

    asyncio.run(scenario())
