"""The env for callers with an event loop of their own, and for people who watch."""

from __future__ import annotations

import asyncio
import threading

import gymnasium
import pytest
from gymnasium.wrappers import (
    OrderEnforcing,
    RecordEpisodeStatistics,
    TimeLimit,
    TransformReward,
)
from gymnasium.wrappers.vector import RecordEpisodeStatistics as StatisticsOfVector

import drv_env
from drv_env.env import DeepResearchEnv
from drv_env.printable import printable
from drv_env.protocol import Answer, Search, Visit, render_turn
from drv_env.testing import FakeScorer, FakeTools
from drv_env.tools import ToolResult

TASKS = [("Who?", "Ada")]
SEARCH = render_turn("t", Search(("x",)))
VISIT = render_turn("t", Visit(("https://e.org/a",), "who"))
ANSWER = render_turn("t", Answer("Ada"))


class OnLoop(FakeTools):
    """Says on which loop it was called, and answers when a barrier of calls is there."""

    instant = False

    def __init__(self, barrier: asyncio.Barrier | None = None) -> None:
        super().__init__()
        self.loops: list[asyncio.AbstractEventLoop] = []
        self.barrier = barrier

    async def call(self, call) -> ToolResult:
        self.loops.append(asyncio.get_running_loop())
        if self.barrier is not None:
            await self.barrier.wait()
        return await super().call(call)


class Asked(FakeTools):
    """Says when it has been asked for the first time."""

    def __init__(self, **arguments) -> None:
        super().__init__(**arguments)
        self.asked = asyncio.Event()

    async def call(self, call) -> ToolResult:
        self.asked.set()
        return await super().call(call)


def test_an_episode_is_played_on_the_callers_loop():
    async def play():
        tools = OnLoop()
        env = DeepResearchEnv(TASKS, tools)
        question, _ = await env.areset(seed=0)
        assert question == "Who?"
        observation, reward, *_ = await env.astep(SEARCH)
        assert observation.startswith("<tool_response>")
        assert tools.loops == [asyncio.get_running_loop()]
        _, reward, terminated, _, info = await env.astep(ANSWER)
        assert (reward, terminated, info["ending"]) == (1.0, True, "answered")
        await env.aclose()
        assert tools.closed == 1

    asyncio.run(play())


def test_many_envs_wait_for_their_tools_together():
    async def play():
        barrier = asyncio.Barrier(5)  # lets nobody through before all five are there
        envs = [DeepResearchEnv(TASKS, OnLoop(barrier)) for _ in range(5)]
        for env in envs:
            await env.areset(seed=0)
        async with asyncio.timeout(30):
            steps = await asyncio.gather(*(env.astep(SEARCH) for env in envs))
        assert all(step[4]["tool_status"] == "ok" for step in steps)

    asyncio.run(play())


def test_both_faces_give_the_same():
    async def play():
        env = DeepResearchEnv(TASKS, FakeTools())
        opening = await env.areset(seed=0)
        return [opening, *[await env.astep(turn) for turn in (SEARCH, "bad", ANSWER)]]

    env = DeepResearchEnv(TASKS, FakeTools())
    assert [env.reset(seed=0), *map(env.step, (SEARCH, "bad", ANSWER))] == asyncio.run(play())


def test_cancelling_a_step_leaves_an_env_that_can_be_reset():
    async def play():
        tools = Asked(hold=asyncio.Event())
        env = DeepResearchEnv(TASKS, tools)
        await env.areset(seed=0)
        step = asyncio.create_task(env.astep(SEARCH))
        await tools.asked.wait()
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        await env.areset(seed=0)
        assert (await env.astep(ANSWER))[1] == 1.0

    asyncio.run(play())


def made(**arguments):
    tools = arguments.pop("tools", None) or FakeTools()
    return gymnasium.make(drv_env.ENV_ID, tasks=TASKS, tools=tools, **arguments)


def rewarded(env):
    scorer = FakeScorer([-3.0, -1.0])
    return drv_env.FormatPenalty(drv_env.InformationGainReward(env, scorer), penalty=0.5)


STACKS = {
    "made": made,
    "rewarded": lambda: rewarded(made()),
    "time limit of make": lambda: drv_env.AsyncFace(made(max_episode_steps=3)),
    "checked": lambda: drv_env.AsyncFace(made(disable_env_checker=False)),
    "rewarded around others": lambda: rewarded(TimeLimit(OrderEnforcing(made()), 3)),
    "others around rewarded": lambda: drv_env.AsyncFace(
        RecordEpisodeStatistics(TimeLimit(rewarded(made()), 3))
    ),
    "changed rewards": lambda: drv_env.AsyncFace(TransformReward(made(), lambda paid: 2 * paid)),
}
TURNS = (VISIT, "bad", ANSWER)


@pytest.mark.parametrize("stack", STACKS.values(), ids=STACKS)
def test_both_faces_give_the_same_through_wrappers(stack):
    async def play():
        env = stack()
        found = [await env.areset(seed=0), *[await env.astep(turn) for turn in TURNS]]
        await env.aclose()
        return found

    env = stack()
    plain = [env.reset(seed=0), *map(env.step, TURNS)]
    awaited = asyncio.run(play())
    for one in (plain, awaited):  # the clock's, of RecordEpisodeStatistics
        one[-1][-1].get("episode", {}).pop("t", None)
    assert str(plain) == str(awaited)


def test_the_wrappers_pay_by_hand_what_they_pay_awaited():
    async def play():
        env = rewarded(made(max_episode_steps=9, tools=OnLoop()))
        await env.areset(seed=0)
        return [(await env.astep(turn))[1] for turn in TURNS]

    # from -3 to -1 nats is a gain of 2; a malformed turn costs 0.5; the answer is right
    assert asyncio.run(play()) == [2.0, -0.5, 1.0]


def test_our_wrappers_keep_to_the_callers_loop_and_let_others_play():
    async def play():
        barrier = asyncio.Barrier(5)
        tools = [OnLoop(barrier) for _ in range(5)]
        envs = [rewarded(made(tools=each)) for each in tools]
        for env in envs:
            await env.areset(seed=0)
        async with asyncio.timeout(30):
            await asyncio.gather(*(env.astep(SEARCH) for env in envs))
        assert {loop for each in tools for loop in each.loops} == {asyncio.get_running_loop()}
        for env in envs:
            await env.aclose()
        assert [each.closed for each in tools] == [1] * 5

    asyncio.run(play())


def test_many_foreign_wrappers_wait_for_their_tools_together():
    class Together(FakeTools):
        """Holds every call until all are there, whatever loop or thread they come from."""

        instant = False

        def __init__(self, barrier: threading.Barrier) -> None:
            super().__init__()
            self.barrier = barrier

        async def call(self, call) -> ToolResult:
            await asyncio.to_thread(self.barrier.wait, 30)
            return await super().call(call)

    async def play():
        barrier = threading.Barrier(3)
        envs = [drv_env.AsyncFace(TimeLimit(made(tools=Together(barrier)), 5)) for _ in range(3)]
        for env in envs:
            await env.areset(seed=0)
        steps = await asyncio.gather(*(env.astep(SEARCH) for env in envs))
        assert [step[4]["tool_status"] for step in steps] == ["ok"] * 3

    asyncio.run(play())


def test_a_slow_scorer_leaves_the_loop_free():
    class Waiting(FakeScorer):
        """Answers once the loop has set the event: one that held the loop would never end."""

        def __init__(self, event: threading.Event) -> None:
            super().__init__([-3.0, -1.0])
            self.event = event

        def score(self, messages, answer, transcript=None) -> float:
            assert self.event.wait(30), "the loop was held up"
            return super().score(messages, answer, transcript)

    async def play():
        event = threading.Event()
        env = drv_env.InformationGainReward(made(), Waiting(event))
        reset = asyncio.create_task(env.areset(seed=0))
        await asyncio.sleep(0)
        event.set()
        await reset
        event.clear()
        step = asyncio.create_task(env.astep(VISIT))
        await asyncio.sleep(0)
        event.set()
        assert (await step)[1] == 2.0

    asyncio.run(play())


def vector(**arguments):
    tools = arguments.pop("tools", None) or FakeTools()
    return gymnasium.make_vec(drv_env.ENV_ID, 3, tasks=TASKS, tools=tools, **arguments)


VECTOR_STACKS = {
    "made": vector,
    "same step": lambda: vector(autoreset_mode="same_step"),
    "rewarded": lambda: drv_env.VectorFormatPenalty(
        drv_env.VectorInformationGainReward(vector(), FakeScorer([-3.0] * 3 + [-1.0] * 99)), 0.5
    ),
    "statistics": lambda: drv_env.VectorAsyncFace(StatisticsOfVector(vector())),
    "rewarded around others": lambda: drv_env.VectorFormatPenalty(StatisticsOfVector(vector())),
}


@pytest.mark.parametrize("stack", VECTOR_STACKS.values(), ids=VECTOR_STACKS)
def test_both_faces_of_a_vector_give_the_same(stack):
    steps = [(VISIT, "bad", ANSWER), (ANSWER, VISIT, SEARCH), (SEARCH, ANSWER, "bad")]

    async def play():
        env = stack()
        found = [await env.areset(seed=0), *[await env.astep(turns) for turns in steps]]
        await env.aclose()
        return found

    env = stack()
    plain = [env.reset(seed=0), *map(env.step, steps)]
    awaited = asyncio.run(play())
    for one in (plain, awaited):
        for step in one:
            step[-1].get("episode", {}).pop("t", None)
    assert str(plain) == str(awaited)


def test_a_vector_plays_on_the_callers_loop_together():
    async def play():
        tools = OnLoop(asyncio.Barrier(3))
        env = vector(tools=tools)
        await env.areset(seed=0)
        async with asyncio.timeout(30):
            await env.astep([SEARCH] * 3)
        assert tools.loops == [asyncio.get_running_loop()] * 3
        await env.aclose()
        assert tools.closed == 1

    asyncio.run(play())


def test_human_mode_prints_what_is_new_and_no_control_characters(capsys):
    tools = FakeTools({"search": "found \x1b]0;title\x07 it [bold]as is[/bold]"})
    env = DeepResearchEnv(TASKS, tools, render_mode="human")
    env.reset(seed=0)
    assert "Who?" in capsys.readouterr().out
    env.step(SEARCH)
    shown = capsys.readouterr().out
    assert "Who?" not in shown
    assert "[bold]as is[/bold]" in shown
    assert "\x1b]0" not in shown
    assert "\\x1b]0;title\\x07" in shown
    env.step(ANSWER)
    shown = capsys.readouterr().out
    assert "[answered] outcome 1.00" in shown
    assert env.render() is None


def test_tabs_and_newlines_stay_and_everything_else_is_written_out():
    assert printable("a\tb\nc") == "a\tb\nc"
    assert printable("\x00\u202e\ud800\x9b") == "\\x00\\u202e\\ud800\\x9b"
    assert printable("Łódź 東京 🎉") == "Łódź 東京 🎉"
