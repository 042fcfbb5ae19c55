"""An engine on two ranks: takes new weights, each rank its part, and computes with them."""

from __future__ import annotations

import asyncio
import copy

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from agents.engines import Sampling
from agents.engines.vllm import VllmEngine
from trainers.tiny import TinySize, build_model, build_tokenizer

GREEDY = Sampling(8, temperature=0)


@pytest.mark.slow
def test_new_weights_reach_both_ranks_bit_for_bit(plain, tmp_path):
    tokenizer = build_tokenizer(["Who owns the mill? I search, then I open the page."] * 3, ["a"])
    model = build_model(tokenizer, 0, TinySize(context=128)).eval()
    plain.randomise(model, 0)
    model.save_pretrained(tmp_path / "model")
    tokenizer.save(str(tmp_path / "model" / "tokenizer.json"))
    newer = copy.deepcopy(model)
    plain.randomise(newer, 1)
    engine = VllmEngine(tmp_path / "model", dtype="float32", tensor_parallel_size=2)
    ids = [1, 2, 3, 4]

    async def scenario():
        try:
            before = await engine.generate(ids, GREEDY)
            assert await engine.update_weights(newer) == 1
            await engine.save_weights(tmp_path / "own.safetensors")
            return before, await engine.generate(ids, GREEDY)
        finally:
            await engine.close()

    before, after = asyncio.run(scenario())
    assert before.ids.tolist() == plain.greedy(model, ids, len(before.ids))
    assert after.ids.tolist() == plain.greedy(newer, ids, len(after.ids))
    expected = plain.log_probs(newer, [*ids, *after.ids])[-len(after.ids) :]
    np.testing.assert_allclose(after.log_probs, expected, atol=5e-5, rtol=0)
    own, sent = load_file(tmp_path / "own.safetensors"), newer.state_dict()
    assert own.keys() == sent.keys() - {"lm_head.weight"}
    assert all(torch.equal(own[name], sent[name]) for name in own)
