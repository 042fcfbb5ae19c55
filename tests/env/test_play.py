"""One turn played through, and what crosses the boundaries to tools and judges."""

from __future__ import annotations

import asyncio
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from drv_env.episode import Ending, Episode, ObservationKind, Rules
from drv_env.errors import DrvError, JudgeError, SettingError, ToolError, boundary
from drv_env.play import (
    MAX_OBSERVATION_CHARS,
    MAX_REASON_CHARS,
    Played,
    advance_at_once,
    play_turn,
    run_call,
    score_answer,
    settle,
)
from drv_env.protocol import Answer, Search, render_turn
from drv_env.rewards.outcome import exact_match
from drv_env.rewards.records import TurnReward
from drv_env.tasks import Task
from drv_env.testing import FakeTools, ManualClock, failing
from drv_env.tools import Call, Status, ToolResult, Tools

TASK = Task("Q?", ("A",))
CALL = Call(Search(("x",)), TASK)
SEARCH = render_turn("t", Search(("x",)))
ANSWER = render_turn("t", Answer("A"))


def ran(tools: Tools, timeout: float | None = None) -> ToolResult:
    return asyncio.run(run_call(tools, CALL, timeout))


# ---- calls ----------------------------------------------------------------------------


def test_a_result_comes_back_as_it_is_with_its_latency() -> None:
    clock = ManualClock(5.0)
    given = ToolResult("t", Status.EMPTY, data={"a": 1}, latency=99.0, cost=0.5)
    result = ran(FakeTools({"search": given}, latency=0.5, clock=clock))
    assert result == ToolResult("t", Status.EMPTY, latency=0.5, cost=0.5)
    assert result.data == {"a": 1}


def test_an_exception_becomes_a_failed_result_with_its_reason() -> None:
    result = ran(FakeTools({"search": OSError("reset")}, latency=2.0, clock=ManualClock()))
    assert (result.status, result.latency) == (Status.FAILED, 2.0)
    assert result.data == {"reason": "OSError: reset", "kind": "failed"}
    assert "The search call failed: OSError: reset." in result.text
    assert "says nothing about what exists" in result.text


def test_a_failed_result_of_the_tools_own_passes() -> None:
    assert ran(FakeTools({"search": failing("quota")})).text == "The call failed: quota."


def test_a_long_reason_is_shortened_for_the_agent_only() -> None:
    result = ran(FakeTools({"search": ToolError("y" * 5_000)}))
    assert len(result.text) < MAX_REASON_CHARS + 300
    assert result.data == {"reason": "y" * 5_000, "kind": "failed"}


def test_a_reason_that_just_fits_is_shown_whole() -> None:
    assert MAX_REASON_CHARS == 1_000
    fits = ran(FakeTools({"search": ToolError("y" * 1_000)})).text
    cut = ran(FakeTools({"search": ToolError("y" * 1_001)})).text
    assert (fits.count("y" * 1_000), fits.count("…")) == (1, 0)
    assert (cut.count("y" * 1_000 + " …"), cut.count("y" * 1_001)) == (1, 0)


def test_the_longest_output_passes_and_a_longer_one_fails() -> None:
    assert ran(FakeTools({"search": "x" * MAX_OBSERVATION_CHARS})).status is Status.OK
    longer = ran(FakeTools({"search": "x" * (MAX_OBSERVATION_CHARS + 1)}))
    assert longer.status is Status.FAILED
    assert len(longer.text) < 1_000


def test_a_call_past_its_time_fails_and_is_cancelled() -> None:
    cancelled = []

    class Slow(FakeTools):
        async def call(self, call: Call) -> ToolResult:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(call)
                raise
            return ToolResult("never")

    result = ran(Slow(), 0.02)
    assert result.status is Status.FAILED
    assert "no reply within 0.02 seconds" in result.text
    assert cancelled == [CALL]


def test_a_tools_own_time_out_is_told_as_its_own() -> None:
    result = ran(FakeTools({"search": TimeoutError("upstream")}), 60.0)
    assert result.data == {"reason": "TimeoutError: upstream", "kind": "failed"}


def test_cancellation_from_outside_passes() -> None:
    async def outside() -> str:
        tools = FakeTools(hold=asyncio.Event())
        episode = Episode(TASK, Rules())
        work = asyncio.ensure_future(play_turn(episode, SEARCH, tools, exact_match))
        await asyncio.sleep(0)
        assert len(tools.calls) == 1
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert episode.waiting
        episode.break_off(ToolError("cancelled"))
        return str(episode.ending)

    assert asyncio.run(outside()) == "broken"


def test_an_outer_time_out_is_not_the_tools() -> None:
    async def outside() -> None:
        async with asyncio.timeout(0.02):
            await run_call(FakeTools(hold=asyncio.Event()), CALL, 60.0)

    with pytest.raises(TimeoutError):
        asyncio.run(outside())


# ---- outcomes -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        (0, 0.0),
        (1, 1.0),
        (0.25, 0.25),
        (True, 1.0),
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (Fraction(1, 4), 0.25),
    ],
)
def test_an_outcome_is_a_number(score: Any, expected: float) -> None:
    async def later(answer: str, task: Task) -> Any:
        return score

    for outcome in (lambda answer, task: score, later):
        found = asyncio.run(score_answer(outcome, "A", TASK))
        assert (found, type(found)) == (expected, float)


@pytest.mark.parametrize("score", [None, "1", 1.01, -1, float("nan"), float("inf"), [1.0], 1j])
def test_anything_else_is_a_judge_that_cannot_be_read(score: Any) -> None:
    with pytest.raises(JudgeError, match="number in"):
        asyncio.run(score_answer(lambda answer, task: score, "A", TASK))


def test_a_judge_that_raises_is_named_with_its_error() -> None:
    async def later(answer: str, task: Task) -> float:
        raise OSError("unreachable")

    def now(answer: str, task: Task) -> float:
        raise OSError("unreachable")

    for outcome in (now, later):
        with pytest.raises(JudgeError, match="OSError: unreachable"):
            asyncio.run(score_answer(outcome, "A", TASK))


def test_no_answer_scores_nothing_and_asks_nobody() -> None:
    def never(answer: str, task: Task) -> float:
        raise AssertionError("asked")

    assert asyncio.run(score_answer(never, None, TASK)) == 0.0


def test_an_empty_answer_is_judged() -> None:
    assert asyncio.run(score_answer(lambda answer, task: float(answer == ""), "", TASK)) == 1.0


# ---- turns ----------------------------------------------------------------------------


def at_once(episode: Episode, text: str, tools: Tools) -> Played:
    return asyncio.run(settle(episode, advance_at_once(episode, text, tools), exact_match))


def awaited(episode: Episode, text: str, tools: Tools) -> Played:
    return asyncio.run(play_turn(episode, text, tools, exact_match))


@pytest.mark.parametrize("play", [at_once, awaited])
def test_a_turn_is_played_through(play: Any) -> None:
    episode, tools = Episode(TASK, Rules()), FakeTools({"search": "found"})
    seen = play(episode, SEARCH, tools)
    assert seen.observation.text == "found"
    assert seen.closed is None
    assert seen.reward == TurnReward(None, True, None)
    complained = play(episode, "hello", tools)
    assert complained.observation.kind is ObservationKind.MALFORMED
    assert complained.reward == TurnReward(None, False, None)
    ended = play(episode, ANSWER, tools)
    assert ended.observation is None
    assert ended.closed.ending is Ending.ANSWERED
    assert ended.reward == TurnReward(None, True, 1.0)


@pytest.mark.parametrize("play", [at_once, awaited])
def test_a_broken_episode_has_no_outcome(play: Any) -> None:
    episode = Episode(TASK, Rules(max_failures=1))
    ended = play(episode, SEARCH, FakeTools({"search": OSError("x")}))
    assert ended.closed.ending is Ending.BROKEN
    assert ended.reward == TurnReward(None, True, None)


# ---- errors ---------------------------------------------------------------------------


def test_what_crosses_a_boundary_is_attributed() -> None:
    with (
        pytest.raises(JudgeError, match=r"^judge: KeyError: 'x'$") as caught,
        boundary(JudgeError, "judge"),
    ):
        raise KeyError("x")
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("error", [ToolError("x"), KeyboardInterrupt(), asyncio.CancelledError()])
def test_some_pass_a_boundary_as_they_are(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, boundary(JudgeError, "judge"):
        raise error
    assert caught.value is error


def test_a_bad_setting_is_a_value_error_too() -> None:
    assert issubclass(SettingError, ValueError)
    assert issubclass(SettingError, DrvError)
