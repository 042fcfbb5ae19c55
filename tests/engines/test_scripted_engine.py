"""The scripted engine: turns from a function, failures and waits on demand."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from agents.engines import Engine, Sampling
from agents.engines.scripted import ScriptedEngine
from drv_env.errors import EngineError
from replay.chat_templates import QWEN3_THINKING
from replay.template import ChatTemplate
from replay.transcript import Transcript

TURN = "<think>\nEasy.\n</think>\n<answer>\nEnki\n</answer>"
ASK = Sampling(1000)


@pytest.fixture(scope="module")
def template():
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens(["<think>", "</think>", "<tool_response>", "</tool_response>"])
    return ChatTemplate(tokenizer, QWEN3_THINKING)


def test_a_policy_speaks_text_and_sees_text(template):
    seen = []
    engine = ScriptedEngine(lambda text: seen.append(text) or TURN, template)
    assert isinstance(engine, Engine)
    transcript = Transcript(template)
    transcript.prompt([{"role": "user", "content": "Who?"}])
    done = asyncio.run(engine.generate(transcript.ids, ASK))
    assert seen == ["<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n<think>\n"]
    assert template.completion_text(done.ids) == TURN
    assert done.finish == "stop"
    assert done.log_probs.tolist() == [-1.0] * len(done.ids)
    assert engine.calls[0].ids.tolist() == transcript.ids.tolist()


def test_ids_and_cuts(template):
    engine = ScriptedEngine(lambda text: [1, 2, 3], template, log_prob=-2.0)
    done = asyncio.run(engine.generate([5], Sampling(2)))
    assert done.ids.tolist() == [1, 2]
    assert done.finish == "length"
    scores = asyncio.run(engine.score([1, 2, 3], [(1, 3), (2, 2)]))
    assert [score.tolist() for score in scores] == [[-2.0, -2.0], []]
    assert scores[0].dtype == np.float32


def test_a_turn_is_cut_behind_a_stop_text(template):
    turn = f"{TURN}<tool_response>\nInvented.\n</tool_response>"
    engine = ScriptedEngine(lambda text: turn, template)
    done = asyncio.run(engine.generate([5], Sampling(1000, stop=("<tool_response>",))))
    assert template.completion_text(done.ids) == f"{TURN}<tool_response>"
    assert done.finish == "stop"
    # a plain text over several ids, which max_tokens leaves room for, and doesn't
    for room, finish in ((1000, "stop"), (4, "length")):
        sampling = Sampling(room, stop=("\n</tool_c", "sy.\n"))
        done = asyncio.run(engine.generate([5], sampling))
        written = template.pieces.decode(done.ids)
        assert written.endswith("sy.\n") == (finish == "stop")
        assert done.finish == finish


def test_failures_on_demand(template):
    def policy(text):
        raise LookupError("no path")

    engine = ScriptedEngine(policy, template)
    with pytest.raises(EngineError, match="no path"):
        asyncio.run(engine.generate([5], ASK))
    engine.fail_with = TimeoutError("gone")
    with pytest.raises(EngineError, match="gone"):
        asyncio.run(engine.score([5], []))


def test_waits_on_demand_and_weights(template):
    async def scenario():
        gate = asyncio.Event()
        engine = ScriptedEngine(lambda text: TURN, template, gate=gate)
        task = asyncio.create_task(engine.generate([5], ASK))
        await asyncio.sleep(0)
        assert engine.calls
        assert not task.done()
        gate.set()
        assert (await task).weight_version == 0
        assert await engine.update_weights({}) == 1
        await engine.pause()
        held = asyncio.create_task(engine.generate([5], ASK))
        await asyncio.sleep(0)
        assert not held.done()
        await engine.resume()
        assert (await held).weight_version == 1
        await engine.close()
        with pytest.raises(EngineError, match="closed"):
            await engine.generate([5], ASK)

    asyncio.run(scenario())


def test_no_torch_is_needed():
    code = "import sys, agents.engines.scripted, replay.probe; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
