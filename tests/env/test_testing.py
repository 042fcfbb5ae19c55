"""What people test with: scripted tools and scorers, and the pytest fixtures."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
import unicodedata

import pytest

from drv_env import DeepResearchEnv, SettingError
from drv_env.protocol import PAGE_SEPARATOR, Answer, Search, ToolCall, Visit, render_turn
from drv_env.tasks import Task
from drv_env.testing import FakeScorer, FakeTools, ManualClock, failing
from drv_env.tools import Call, Status, ToolResult, Tools
from tests.patience import HANGS

TASK = Task("Q?", ("A",))


def ask(tools: Tools, action: Search | Visit | ToolCall) -> ToolResult:
    return asyncio.run(tools.call(Call(action, TASK)))


def texts(tools: Tools, *actions: Search | Visit | ToolCall) -> list[str]:
    return [ask(tools, action).text for action in actions]


A, B, U = Search(("a",)), Search(("b",)), Visit(("u",), "g")


def test_they_are_tools() -> None:
    tools = FakeTools()
    assert isinstance(tools, Tools)
    assert tools.instant
    assert tools.clock() == 0.0
    assert [schema.name for schema in tools.schemas] == ["search", "visit"]


def test_without_a_script_replies_are_plausible() -> None:
    tools = FakeTools()
    blocks = json.loads(ask(tools, Search(("Big River", "b"))).text)
    assert [block["query"] for block in blocks] == ["Big River", "b"]
    assert blocks[0]["web_page_info_list"][0]["url"] == "https://example.org/big-river"
    pages = ask(tools, Visit(("u", "v"), "g")).text.split(PAGE_SEPARATOR)
    assert [page.split("\n")[0] for page in pages] == ["Page: u", "Page: v"]
    assert ask(tools, ToolCall("calc", {})).text == "calc is done."


def test_a_script_names_a_tool_a_query_or_a_url() -> None:
    assert texts(FakeTools({"search": "s"}), A, B) == ["s", "s"]
    tools = FakeTools({"b": "only b", "u": "only u"})
    assert texts(tools, B, U, Search(("a", "b"))) == ["only b", "only u", "only b"]
    assert "About a." in ask(tools, A).text


def test_replies_come_in_turn_and_the_last_repeats() -> None:
    tools = FakeTools({"search": ["one", "two"], "visit": ("page",)})
    assert texts(tools, A, U, B, A, U) == ["one", "page", "two", "two", "page"]


def test_a_script_answers_in_any_spelling() -> None:
    url = "https://e.org/Łódź"
    tools = FakeTools({url: "the mill", "Gérard": "found"}, strict=True)
    spelt = Visit((unicodedata.normalize("NFD", "HTTPS://E.org:443/Łódź#x"),), "g")
    asked = Search((unicodedata.normalize("NFD", "Gérard"),))
    assert texts(tools, spelt, asked) == ["the mill", "found"]


def test_a_script_can_raise_fail_and_go_on() -> None:
    tools = FakeTools({"search": [OSError("x"), failing("quota"), ToolResult("", Status.EMPTY)]})
    with pytest.raises(OSError, match="x"):
        ask(tools, A)
    assert ask(tools, A) == ToolResult("The call failed: quota.", Status.FAILED)
    assert ask(tools, A).status is Status.EMPTY


def test_a_function_can_be_the_script() -> None:
    tools = FakeTools(lambda call: f"{call.name} of {call.task.question}")
    assert texts(tools, A, U, ToolCall("calc", {})) == [
        "search of Q?",
        "visit of Q?",
        "calc of Q?",
    ]


def test_calls_and_closings_are_remembered() -> None:
    tools = FakeTools({"search": OSError("x")})
    with pytest.raises(OSError, match="x"):
        ask(tools, A)
    ask(tools, U)
    assert [call.action for call in tools.calls] == [A, U]
    asyncio.run(tools.close())
    asyncio.run(tools.close())
    assert tools.closed == 2


def test_latency_passes_on_a_clock_moved_by_hand() -> None:
    clock = ManualClock(10.0)
    tools = FakeTools(latency=2.0, clock=clock)
    ask(tools, A)
    ask(tools, U)
    assert clock() == 14.0
    clock.advance(0.5)
    assert tools.clock() == 14.5


def test_calls_are_held_until_the_event() -> None:
    async def held() -> list[bool]:
        hold = asyncio.Event()
        tools = FakeTools(hold=hold)
        assert not tools.instant
        calls = [asyncio.ensure_future(tools.call(Call(A, TASK))) for _ in range(3)]
        await asyncio.sleep(0)
        assert len(tools.calls) == 3
        before = [call.done() for call in calls]
        hold.set()
        await asyncio.gather(*calls)
        return before

    assert asyncio.run(held()) == [False, False, False]


def test_scripts_that_cannot_work_are_named() -> None:
    with pytest.raises(SettingError, match="latency"):
        FakeTools(latency=-1.0)
    with pytest.raises(SettingError, match="'search'"):
        FakeTools({"search": []})


def test_a_scorer_gives_its_values_in_turn() -> None:
    scorer = FakeScorer([-2.0, -1.0])
    message = {"role": "user", "content": "q"}
    assert [scorer.score([message] * count, "A") for count in (1, 2, 3)] == [-2.0, -1.0, -1.0]
    assert scorer.scored == [(1, "A"), (2, "A"), (3, "A")]
    assert FakeScorer(lambda messages, answer: -len(answer)).score([], "four") == -4


def test_the_fixtures_are_there(fake_tools, research_env) -> None:
    assert isinstance(fake_tools, FakeTools)
    env = research_env(tools=fake_tools)
    assert isinstance(env, DeepResearchEnv)
    assert env.reset(seed=0)[0] == "What is the capital of France?"
    env.step(render_turn("t", A))
    assert [call.action for call in fake_tools.calls] == [A]
    assert env.step(render_turn("t", Answer("Paris")))[1] == 1.0
    other = research_env(tasks=[("Q", "A")])
    assert other.reset()[0] == "Q"


def test_the_plugin_closes_envs_after_their_test(tmp_path) -> None:
    (tmp_path / "test_theirs.py").write_text(
        textwrap.dedent(
            """
            kept = []

            def test_envs_are_made(research_env, fake_tools):
                research_env(tools=fake_tools)
                kept.append(fake_tools)

            def test_and_closed():
                assert kept[0].closed == 1
            """
        )
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANGS,
        check=False,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
