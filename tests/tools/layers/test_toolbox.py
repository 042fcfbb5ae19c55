"""A user's own tools: prompt, reading, verdict and result follow from the schema."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from drv_env.episode import Episode, Observation, ObservationKind, Rules
from drv_env.errors import SettingError, ToolError
from drv_env.play import play_turn, run_call
from drv_env.protocol import Search, ToolCall, Visit, format_verdict, render_turn
from drv_env.rewards.outcome import exact_match
from drv_env.secrets import Secret
from drv_env.tasks import Task
from drv_env.tools.base import Call, Status, ToolResult, ToolSchema
from drv_env.tools.fake import FakeTools
from drv_env.tools.layers import Toolbox, tool
from tests.patience import HANGS

TASK = Task("Q?", ("A",))
SCHEMA = ToolSchema(
    "scholar",
    "Find papers.",
    {
        "type": "object",
        "properties": {"topic": {"type": "string"}, "year": {"type": "integer"}, "any": {}},
        "required": ["topic"],
    },
)


async def scholar(topic, year=0, any=None):
    if topic == "whole":
        return ToolResult("one", Status.OK, cost=0.5)
    if topic == "reset":
        raise ConnectionResetError("by the library")
    if topic == "slow":
        raise TimeoutError("library is slow")
    if topic == "key":
        raise ValueError("the key scholar-key-123 is bad")
    if topic == "own":
        raise ToolError("closed today", kind="closed")
    if topic == "number":
        return 3
    return f"papers on {topic} of {year}"


def box(base=None):
    return Toolbox(FakeTools() if base is None else base, [tool(SCHEMA, scholar)])


def ask(arguments):
    return asyncio.run(run_call(box(), Call(ToolCall("scholar", arguments), TASK), 5))


def test_the_tool_is_called_with_what_its_schema_names():
    result = ask({"topic": "moss", "year": 1921, "self": "x", "__class__": 1})
    assert (result.text, result.status) == ("papers on moss of 1921", Status.OK)
    assert ask({"topic": "whole"}).cost == 0.5


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, 'scholar needs "topic"'),
        ({"topic": ["moss"]}, 'scholar needs "topic" to be of type string'),
        ({"topic": "moss", "year": "1921"}, 'scholar needs "year" to be of type integer'),
        ({"topic": "moss", "year": True}, 'scholar needs "year" to be of type integer'),
        ({"topic": None}, 'scholar needs "topic" to be of type string'),
    ],
)
def test_wrong_arguments_are_refused_in_words(arguments, complaint):
    result = ask(arguments)
    assert result.status is Status.REFUSED
    assert complaint in result.text


@pytest.mark.parametrize(
    ("topic", "kind", "retryable"),
    [
        ("reset", "connection", True),
        ("slow", "timeout", True),
        ("key", "failed", False),
        ("own", "closed", False),
        ("number", "failed", False),
    ],
)
def test_what_the_function_raises_is_a_failure_of_the_tool(topic, kind, retryable):
    Secret("scholar-key-123")
    with pytest.raises(ToolError) as caught:
        asyncio.run(box().call(Call(ToolCall("scholar", {"topic": topic}), TASK)))
    assert (caught.value.kind, caught.value.retryable) == (kind, retryable)
    assert "scholar-key-123" not in str(caught.value)
    assert ask({"topic": topic}).status is Status.FAILED


def test_prompt_reading_and_verdict_follow():
    tools = box()
    episode = Episode(TASK, Rules(tools=tools.schemas))
    prompt = episode.messages[0]["content"]
    assert all(f'"name": "{name}"' in prompt for name in ("search", "visit", "scholar"))
    turn = render_turn("I look.", ToolCall("scholar", {"topic": "moss"}))
    assert format_verdict(turn, final=False)
    played = asyncio.run(play_turn(episode, turn, tools, exact_match))
    assert played.observation == Observation("papers on moss of 0", ObservationKind.RESULT)
    assert played.reward.well_formed
    unknown = render_turn("I look.", ToolCall("library", {}))
    played = asyncio.run(play_turn(episode, unknown, tools, exact_match))
    assert "there is no tool named 'library'" in played.observation.text


def test_a_tool_may_take_the_place_of_one_of_the_base():
    async def search(query):
        return f"mine: {query}"

    async def visit(url, goal):
        return f"mine: {url} {goal}"

    base = FakeTools()
    own = [tool(schema, {"search": search, "visit": visit}[schema.name]) for schema in base.schemas]
    both = Toolbox(base, own)
    assert [schema.name for schema in both.schemas] == ["search", "visit"]
    found = asyncio.run(both.call(Call(Search(("x",)), TASK)))
    assert found.text == "mine: ['x']"
    assert asyncio.run(both.call(Call(Visit(("u",), "g"), TASK))).text == "mine: ['u'] g"
    assert base.calls == []


def test_the_base_answers_for_its_own_and_is_closed():
    base = FakeTools({"search": "found"})
    both = box(base)
    assert asyncio.run(both.call(Call(Search(("x",)), TASK))).text == "found"
    asyncio.run(both.close())
    assert base.closed == 1
    assert both.clock is base.clock


def test_own_tools_alone_are_tools():
    alone = Toolbox(None, [tool(SCHEMA, scholar)])
    assert [schema.name for schema in alone.schemas] == ["scholar"]
    with pytest.raises(ToolError, match="there is no tool 'search'"):
        asyncio.run(alone.call(Call(Search(("x",)), TASK)))
    asyncio.run(alone.close())


def test_tools_that_can_not_work_are_refused():
    with pytest.raises(SettingError, match="must be async"):
        tool(SCHEMA, lambda topic: topic)
    with pytest.raises(SettingError, match="with properties"):
        tool(ToolSchema("a", "b", {}), scholar)
    with pytest.raises(SettingError, match="needs a name"):
        tool(ToolSchema(" ", "b", SCHEMA.parameters), scholar)
    with pytest.raises(SettingError, match="same name"):
        Toolbox(None, [tool(SCHEMA, scholar), tool(SCHEMA, scholar)])
    with pytest.raises(SettingError, match="there is no tool"):
        Toolbox(None, [])


def test_the_example_runs():
    example = Path(__file__).parents[3] / "examples" / "own_tool.py"
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, timeout=HANGS)
    assert done.returncode == 0, done.stderr
    assert "in the prompt: True" in done.stdout
    assert "verdict: True  status: ok" in done.stdout
    assert "verdict: True  status: refused" in done.stdout
    assert "answer '609', reward 1.0" in done.stdout
