"""What an engine may give: anything else breaks the episode, which says why."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from agents.engines import Completion, Reply, Sampling
from agents.engines.checks import (
    ROUNDING,
    checked_completion,
    checked_ids,
    checked_reply,
    checked_scores,
)
from agents.engines.scripted import ScriptedEngine
from agents.rollout import RolloutSettings, rollout
from drv_env.errors import EngineError
from drv_env.game import Game
from drv_env.protocol import Answer, render_turn
from drv_env.tasks import Task
from drv_env.testing import FakeTools
from replay.chat_templates import QWEN3_THINKING
from replay.template import ChatTemplate

VOCABULARY = 100
TASKS = [Task(f"Q{number}?", ("A",)) for number in range(3)]
TURN = render_turn("t", Answer("A"))


def completion(**changes: Any) -> Completion:
    fields: dict[str, Any] = {
        "ids": np.array([3, 4], np.int32),
        "log_probs": np.array([-1.0, -0.5], np.float32),
        "finish": "stop",
        "weight_version": 0,
    }
    return Completion(**(fields | changes))


BAD: dict[str, tuple[Any, str]] = {
    "none": (None, "NoneType in place of a Completion"),
    "a mapping": ({"ids": [1]}, "dict in place"),
    "a reply": (Reply("x", "stop"), "Reply in place"),
    **{
        f"ids {name}": (completion(ids=ids), said)
        for name, ids, said in (
            ("none", None, "whole numbers"),
            ("floats", [3.0, 4.0], "whole numbers"),
            ("an array of floats", np.array([3.0, 4.0]), "whole numbers"),
            ("truths", [True, False], "whole numbers"),
            ("an array of truths", np.array([True, False]), "whole numbers"),
            ("texts", ["3", "4"], "whole numbers"),
            ("a text", "34", "whole numbers"),
            ("bytes", b"34", "whole numbers"),
            ("objects", np.array([3, None]), "whole numbers"),
            ("a table", np.array([[3, 4]]), "whole numbers"),
            ("negative", [-1, 4], "from -1 to 4"),
            ("the vocabulary's size", [3, VOCABULARY], "the model's from 0 to 99"),
            ("too large for int32", [3, 2**31], "too large"),
            ("too large for int64", [3, 2**70], "too large"),
            ("unsigned", np.array([3, 2**64 - 1], np.uint64), "too large|from"),
            ("too many", list(range(9)), "for 9 ids|asked for"),
            ("too few", [3], "for 1 ids"),
        )
    },
    "more than asked for": (
        completion(ids=list(range(9)), log_probs=[-1.0] * 9),
        "9 ids where 8 were asked for",
    ),
    "nothing": (completion(ids=[], log_probs=[]), "no ids and says 'stop'"),
    "nothing for lack of room": (
        completion(ids=[], log_probs=[], finish="length"),
        "no ids and says 'length'",
    ),
    **{
        f"log-probs {name}": (completion(log_probs=values), said)
        for name, values, said in (
            ("none", None, "no numbers"),
            ("nan", [-1.0, float("nan")], "NaN or infinite"),
            ("minus infinity", [-1.0, -float("inf")], "NaN or infinite"),
            ("beyond float32", [-1.0, -1e300], "NaN or infinite"),
            ("above 0", [-1.0, 0.5], "log-prob of 0.5"),
            ("just above", [-1.0, ROUNDING * 1.1], "log-prob of 0.0011"),
            ("probabilities", [0.9, 0.8], "log-prob of 0.9"),
            ("truths", [True, False], "no numbers"),
            ("texts", ["-1", "-2"], "no numbers"),
            ("an array of texts", np.array(["-1", "-2"]), "no numbers"),
            ("complex", np.array([-1j, -1]), "no numbers"),
            ("a table", np.zeros((2, 1), np.float32), r"shape \(2, 1\)"),
            ("too few", [-1.0], r"shape \(1,\) for 2"),
            ("too many", [-1.0] * 3, r"shape \(3,\) for 2"),
            ("a number", -1.0, "no numbers"),
        )
    },
    **{
        f"finish {finish!r}": (completion(finish=finish), "finish must be one of")
        for finish in (None, "done", "", 0, ["stop"])
    },
    **{
        f"version {number}": (completion(weight_version=version), "weight_version must be")
        for number, version in enumerate((None, 1.0, True, "1", -1, 2**63, 10**5000))
    },
}


@pytest.mark.parametrize("name", BAD)
def test_a_completion_that_is_none_is_refused(name: str) -> None:
    done, said = BAD[name]
    with pytest.raises(EngineError, match=said):
        checked_completion(done, 8, VOCABULARY)


def test_every_kind_of_whole_number_and_rounding_pass_as_plain_arrays() -> None:
    for ids in ([3, np.int64(4)], np.array([3, 4], np.uint8), (3, 4), np.array([3, 4], np.int64)):
        given = completion(ids=ids, log_probs=[ROUNDING / 2, -2], weight_version=np.int64(5))
        done = checked_completion(given, 2, None)
        assert (done.ids.tolist(), done.ids.dtype) == ([3, 4], np.int32)
        assert (done.log_probs.tolist(), done.log_probs.dtype) == ([0.0, -2.0], np.float32)
        assert (done.weight_version, type(done.weight_version)) == (5, int)
    early = checked_completion(completion(ids=[], log_probs=[], finish="aborted"), 2, VOCABULARY)
    assert len(early.ids) == 0


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "of NoneType"),
        ([], "of 0 spans, asked for 2"),
        ([[-1.0]], "of 1 spans"),
        ([[-1.0, -2.0], [-1.0]], r"shape \(2,\) for 1"),
        ([[-1.0], [-1.0, float("nan")]], "NaN or infinite"),
        ([[-1.0], [-1.0, 1.0]], "log-prob of 1"),
        ([[-1.0], ["-1", "-1"]], "no numbers"),
    ],
)
def test_scores_are_one_number_a_position(found: Any, said: str) -> None:
    spans = [(1, 2), (2, 4)]
    with pytest.raises(EngineError, match=said):
        checked_scores(found, spans)
    right = checked_scores([[-1.0], np.array([-2.0, 1e-7])], spans)
    assert [values.tolist() for values in right] == [[-1.0], [-2.0, 0.0]]


@pytest.mark.parametrize("ids", [[1.5], [True], ["1"], "1", [-1], [VOCABULARY], [], [2**80], None])
def test_a_request_that_is_none_is_refused(ids: Any) -> None:
    with pytest.raises(EngineError):
        checked_ids(ids, VOCABULARY)


@pytest.mark.parametrize(
    "reply",
    [
        None,
        "text",
        Reply(None, "stop"),  # type: ignore[arg-type]
        Reply(b"x", "stop"),  # type: ignore[arg-type]
        Reply("x", "done"),  # type: ignore[arg-type]
        Reply("x", None),  # type: ignore[arg-type]
        Reply("x", "aborted"),
        Reply("x", "stop", tokens=-1),
        Reply("x", "stop", tokens=1.5),  # type: ignore[arg-type]
        Reply("x", "stop", prompt_tokens=True),
    ],
)
def test_a_reply_that_is_none_is_refused(reply: Any) -> None:
    with pytest.raises(EngineError):
        checked_reply(reply)


# ---- in rollouts --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens(["<think>", "</think>", "<tool_response>", "</tool_response>"])
    return ChatTemplate(tokenizer, QWEN3_THINKING)


class Odd(ScriptedEngine):
    """A user's engine, which gives something else for ``Q1?``."""

    def __init__(self, template: ChatTemplate, given: Any) -> None:
        super().__init__(lambda text: TURN, template)
        self.template, self.given = template, given

    async def generate(self, ids: Any, sampling: Sampling) -> Any:
        if "Q1?" in self.template.pieces.decode(np.asarray(ids, np.int32)):
            return self.given
        return await super().generate(ids, sampling)


def played(engine: Any, template: ChatTemplate | None) -> list[Any]:
    game = Game(TASKS, FakeTools())
    settings = RolloutSettings(retries=0)
    return asyncio.run(rollout(game, engine, template, TASKS, Sampling(400), settings))


@pytest.mark.parametrize("name", [name for name in BAD if "more than asked" not in name])
def test_it_breaks_its_episode_alone_and_says_why(template: ChatTemplate, name: str) -> None:
    given = BAD[name][0]
    if "vocabulary" in name:
        given = completion(ids=[3, template.pieces.size])
    found = played(Odd(template, given), template)
    assert [item.broken for item in found] == [False, True, False]
    assert "engine" in found[1].error
    assert [item.rewards[-1].outcome for item in (found[0], found[2])] == [1.0, 1.0]


def test_a_scripted_policys_ids_are_checked_too(template: ChatTemplate) -> None:
    for turn in ([1.5], [True], [template.pieces.size], [-1], []):
        engine = ScriptedEngine(lambda text, turn=turn: turn, template)
        with pytest.raises(EngineError):
            asyncio.run(engine.generate([5], Sampling(9)))


class Chats:
    """A user's engine that speaks text, and gives something else for ``Q1?``."""

    def __init__(self, given: Any) -> None:
        self.given = given

    async def reply(self, messages: Any, sampling: Sampling) -> Any:
        return self.given if "Q1?" in messages[1]["content"] else Reply(TURN, "stop")

    async def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize("given", [None, Reply(None, "stop"), Reply("", "nowhere"), TURN])  # type: ignore[arg-type]
def test_a_text_engine_breaks_its_episode_alone_too(given: Any) -> None:
    found = played(Chats(given), None)
    assert [item.broken for item in found] == [False, True, False]
    assert "engine" in found[1].error


def odd(chosen: random.Random) -> Any:
    number: list[Any] = [3, -1, 2**40, 1.5, True, "3", None, float("nan"), np.int64(4), np.nan]
    row = [chosen.choice(number) for _ in range(chosen.randrange(4))]
    return chosen.choice([row, np.array(row, object), tuple(row), chosen.choice(number), [3, 4]])


def test_whatever_an_engine_gives_is_a_completion_or_refused() -> None:
    chosen = random.Random(3)
    right = 0
    for _ in range(5_000):
        given = completion(
            **{
                name: odd(chosen)
                for name in ("ids", "log_probs", "finish", "weight_version")
                if chosen.random() < 0.4
            }
        )
        try:
            done = checked_completion(given, 3, VOCABULARY)
        except EngineError:
            continue
        right += 1
        assert 0 < len(done.ids) == len(done.log_probs) <= 3
        assert ((done.ids >= 0) & (done.ids < VOCABULARY)).all()
        assert (done.log_probs <= 0).all()
        assert np.isfinite(done.log_probs).all()
    assert right > 500
