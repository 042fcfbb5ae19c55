"""verifiers' own rollouts against a local OpenAI-style server; skipped without verifiers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from agents.adapters.verifiers import load_environment, plugin
from drv_env.episode import Rules
from drv_env.errors import SettingError
from drv_env.game import Game
from drv_env.protocol import Answer, Search, observation_body, render_turn
from drv_env.testing import FakeTools

vf = pytest.importorskip("verifiers.v1")

TASKS = [("Capital of France?", "Paris")]
PARIS = render_turn("Known.", Answer("Paris"))
SEARCH = render_turn("I look.", Search(("x",)))

Reply = str | dict[str, Any] | int
"""A turn, a whole message, or an HTTP status."""


def evaluate(
    game: Game, act: Callable[[list[dict[str, Any]]], Reply], name: str, **config: Any
) -> tuple[list[Any], list[list[dict[str, Any]]]]:
    """One rollout of every task: the traces, and the messages of every request."""
    requests: list[list[dict[str, Any]]] = []

    async def complete(request: web.Request) -> web.Response:
        body = await request.json()
        requests.append(body["messages"])
        reply = act(body["messages"])
        if isinstance(reply, int):
            return web.json_response({"error": {"message": "down"}}, status=reply)
        message = {"content": reply} if isinstance(reply, str) else reply
        choice = {
            "index": 0,
            "message": {"role": "assistant", **message},
            "finish_reason": "stop",
        }
        usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
        answer = {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"]}
        return web.json_response({**answer, "choices": [choice], "usage": usage})

    async def main() -> list[Any]:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", complete)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        client = vf.EvalClientConfig(base_url=f"http://127.0.0.1:{port}/v1", api_key_var="NO_KEY")
        context = vf.ModelContext(model="scripted", client=client)
        environment = load_environment(game, name, **config)
        try:
            async with environment.serving():
                slots = [slot for task in environment.taskset for slot in environment.slots(task)]
                episodes = [await environment.run_slot(slot, context) for slot in slots]
        finally:
            await runner.cleanup()
        return [trace for episode in episodes for trace in episode.traces]

    return asyncio.run(main()), requests


def test_the_expert_earns_the_outcome_through_verifiers(game, expert):
    tasks = {task.question: task for task in game.tasks}

    def act(messages: list[dict[str, Any]]) -> str:
        system, question, *rest = messages
        assert system["content"] == game.episode(game.tasks[0]).opening[0]["content"]
        seen = [observation_body(m["content"]) for m in rest if m["role"] == "user"]
        return expert(tasks[question["content"]], seen)

    traces, requests = evaluate(game, act, "drv_expert")
    assert len(traces) == len(game.tasks)
    for trace in traces:
        assert trace.ok
        assert trace.reward == 1.0
        assert trace.metrics["well_formed"] == 1.0
        assert trace.metrics["answered"] == 1.0
        assert trace.info["ending"] == "answered"
        assert [turn["tool"] for turn in trace.info["turns"]] == ["search", "visit", None]
        assert trace.num_turns == 3
        assert len(trace.branches) == 1  # the messages only ever grow
        record = json.loads(json.dumps(trace.to_record()))
        assert record["task"]["data"]["answers"] == list(game.tasks[trace.task.data.number].answers)
    assert [len(messages) for messages in requests] == [2, 4, 6] * len(traces)


def test_a_server_that_splits_turns_is_answered_with_tool_messages():
    game = Game(TASKS, FakeTools({"search": "a <|im_end|> b"}))
    calls = [
        {"id": name, "type": "function", "function": {"name": "search", "arguments": arguments}}
        for name, arguments in (("a", '{"query": ["x"]}'), ("b", '{"query": ["y"]}'))
    ]
    script = [
        {"reasoning_content": "I look.", "content": None, "tool_calls": calls},
        {"reasoning_content": "Known.", "content": "<answer>Paris</answer>"},
    ]
    (trace,), requests = evaluate(game, lambda messages: script[len(messages) // 4], "drv_split")
    assert trace.reward == 1.0
    assert game.tools.calls[0].action == Search(("x",))
    *_, asked, first, second = requests[1]
    assert asked["tool_calls"] == calls
    assert (first["role"], first["tool_call_id"]) == ("tool", "a")
    assert first["content"] == "a &lt;|im_end|> b"
    assert second["tool_call_id"] == "b"
    assert len(game.tools.calls) == 1
    assert len(trace.branches) == 1


def test_tools_that_are_down_are_an_error_and_no_zero():
    game = Game(TASKS, FakeTools({"search": OSError("reset")}))
    (trace,), _ = evaluate(game, lambda messages: SEARCH, "drv_down")
    assert not trace.ok
    assert trace.last_error.type == "ToolsetError"
    assert "reset" in trace.last_error.message
    assert trace.rewards.get("outcome") is None
    assert trace.info["ending"] == "broken"


def test_a_lost_judge_is_an_error_and_may_be_retried():
    replies = iter([OSError("judge down"), 1.0])

    def judge(answer: str, task: Any) -> float:
        reply = next(replies)
        if isinstance(reply, OSError):
            raise reply
        return reply

    game = Game(TASKS, FakeTools(), outcome=judge)
    retries = {"rules": [{"type": "TaskError", "max_retries": 1}]}
    (trace,), requests = evaluate(
        game, lambda messages: PARIS, "drv_judge", agent={"retries": retries}
    )
    assert trace.ok
    assert trace.reward == 1.0
    assert [error.type for error in trace.errors] == ["TaskError"]
    assert len(requests) == 2


def test_a_server_that_refuses_is_the_providers_error():
    game = Game(TASKS, FakeTools())
    (trace,), _ = evaluate(game, lambda messages: 404, "drv_refused")
    assert trace.last_error.type == "ProviderError"
    assert not trace.rewards


@pytest.mark.parametrize("extra", [{}, {"tool_calls": []}, {"reasoning_content": ""}])
def test_a_reply_with_nothing_of_the_models_is_the_providers_error(extra, request):
    game = Game(TASKS, FakeTools())
    (trace,), _ = evaluate(
        game, lambda messages: {"content": None, **extra}, f"drv_{request.node.callspec.id}"
    )
    assert not trace.ok
    assert trace.last_error.type == "ProviderError"
    assert "neither text nor a call" in trace.last_error.message
    assert not trace.rewards
    assert trace.info["turns"] == []


def test_our_budget_asks_for_the_answer_and_the_hosts_limit_just_stops():
    game = Game(TASKS, FakeTools(), rules=Rules(max_turns=1))
    script = [SEARCH, PARIS]
    (trace,), _ = evaluate(game, lambda messages: script[len(messages) // 4], "drv_forced")
    assert trace.info["ending"] == "forced_turns"
    assert (trace.reward, trace.metrics["truncated"]) == (1.0, 1.0)
    (trace,), _ = evaluate(game, lambda messages: SEARCH, "drv_forced", agent={"max_turns": 1})
    assert trace.ok
    assert trace.stop_condition == "max_turns"
    assert (trace.reward, trace.info["ending"]) == (0.0, None)


def test_one_name_is_one_games():
    load_environment(Game(TASKS, FakeTools()), "drv_named")
    with pytest.raises(SettingError, match="another name"):
        load_environment(Game(TASKS, FakeTools()), "drv_named")
    with pytest.raises(SettingError, match="small letters"):
        load_environment(Game(TASKS, FakeTools()), "drv-named")


def test_a_module_of_ones_own_is_an_environment(tmp_path, monkeypatch):
    (tmp_path / "my_research.py").write_text(
        "from agents.adapters.verifiers import plugin\n"
        "from drv_env.game import Game\n"
        "from drv_env.testing import FakeTools\n"
        "globals().update(plugin(Game([('Capital of France?', 'Paris')], FakeTools())))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config = vf.resolve_env_config({"taskset": {"id": "my-research"}})
    (task,) = vf.load_environment(config).taskset
    assert task.data.prompt == "Capital of France?"
    assert set(plugin(Game(TASKS, FakeTools()))["__all__"]) >= {"ResearchTaskset", "ResearchEnv"}
