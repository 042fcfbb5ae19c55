"""The env for callers with an event loop of their own, and for people who watch."""

from __future__ import annotations

import asyncio

import pytest

from drv_env.env import DeepResearchEnv
from drv_env.printable import printable
from drv_env.protocol import Answer, Search, render_turn
from drv_env.testing import FakeTools
from drv_env.tools import ToolResult

TASKS = [("Who?", "Ada")]
SEARCH = render_turn("t", Search(("x",)))
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
