"""Fields that a server doesn't take: left out when asked, and once it has refused them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from agents.engines import Sampling
from agents.engines.openai_chat import OpenAIChatEngine
from agents.engines.openai_ids import OpenAIServerEngine
from agents.engines.transformers import TransformersEngine
from drv_env.chat import ChatClient
from drv_env.errors import EngineError, SettingError, ToolError
from drv_env.request_fields import RequestFields
from drv_env.retry import RetryPolicy
from drv_env.rewards.judge import Judge
from drv_env.secrets import Keys
from drv_env.tools.live import ReadPage, Summariser
from tests.engines.servers import ChatServer, CompletionServer, Waits

TURN = "<think>\nx\n</think>\n<answer>\ny\n</answer>"
FULL = Sampling(99, temperature=0.5, top_p=0.9, top_k=20, presence_penalty=1.1, seed=3)
HELLO = [{"role": "user", "content": "Q?"}]


def openai(name: str) -> dict[str, Any]:
    hint = " Use 'max_completion_tokens' instead." if name == "max_tokens" else ""
    said = f"Unsupported parameter: '{name}' is not supported with this model.{hint}"
    return {"error": {"message": said, "type": "invalid_request_error", "param": name}}


WORDINGS: dict[str, Callable[[str], Any]] = {
    "as OpenAI": openai,
    "a value": lambda name: {
        "error": {
            "message": f"Unsupported value: '{name}' does not support 0.5 with this model. Only "
            "the default (1) value is supported.",
            "param": name,
        }
    },
    "unrecognised": lambda name: {
        "error": {"message": f"Unrecognized request argument supplied: {name}"}
    },
    "the field apart": lambda name: {
        "error": {"message": "Unknown parameter.", "param": name, "code": "unknown_parameter"}
    },
    "as pydantic": lambda name: {
        "detail": [
            {"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs are refused"}
        ]
    },
    "in plain text": lambda name: f'json: unknown field "{name}"',
}


class StrictServer(ChatServer):
    """Refuses some fields, one a request, in some wording."""

    def __init__(self, *refuses: str, wording: str = "as OpenAI", status: int = 400) -> None:
        super().__init__(TURN)
        self.refuses, self.wording, self.status = refuses, WORDINGS[wording], status

    async def _chat(self, body: dict[str, Any]) -> Any:
        for name in self.refuses:
            if name in body:
                said = self.wording(name)
                kind = "text/plain" if isinstance(said, str) else "application/json"
                text = said if isinstance(said, str) else json.dumps(said)
                reply: Any = type("Refusal", (web.HTTPException,), {"status_code": self.status})
                raise reply(text=text, content_type=kind)
        return await super()._chat(body)

    def fields(self) -> list[set[str]]:
        """What was sent beside model and messages, request by request."""
        plain = {"model", "messages", "path", "headers"}
        return [set(body) - plain for body in self.seen]


async def replied(server: StrictServer, times: int = 2, **settings: Any) -> None:
    async with server:
        retry = RetryPolicy(attempts=2, sleep=Waits())
        engine = OpenAIChatEngine(server.url, "m", retry=retry, **settings)
        try:
            for _ in range(times):
                assert (await engine.reply(HELLO, FULL)).text == TURN
        finally:
            await engine.close()


ALL = {"max_tokens", "temperature", "top_p", "top_k", "presence_penalty", "seed"}


@pytest.mark.parametrize("wording", WORDINGS)
@pytest.mark.parametrize("status", [400, 422])
def test_a_refused_field_is_left_out_from_then_on_and_said_once(
    wording: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    server = StrictServer("temperature", wording=wording, status=status)
    asyncio.run(replied(server))
    assert server.fields() == [ALL, ALL - {"temperature"}, ALL - {"temperature"}]
    told = [record.getMessage() for record in caplog.records if "refuses" in record.getMessage()]
    assert len(told) == 1
    assert "temperature" in told[0]
    assert "left out" in told[0]


def test_several_are_found_one_after_another(caplog: pytest.LogCaptureFixture) -> None:
    server = StrictServer("top_k", "presence_penalty", "seed")
    asyncio.run(replied(server))
    told = [record.getMessage() for record in caplog.records if "refuses" in record.getMessage()]
    for name in server.refuses:  # each with what the server said of it
        (line,) = (each for each in told if f"refuses {name}:" in each)
        assert f"'{name}'" in line.partition("(")[2]
    assert server.fields()[-1] == {"max_tokens", "temperature", "top_p"}
    assert len(server.seen) == 5  # three refusals, then one request a reply


@pytest.mark.parametrize(
    ("given", "wanted"),
    [("max_tokens", "max_completion_tokens"), ("max_completion_tokens", "max_tokens")],
)
@pytest.mark.parametrize("wording", WORDINGS)
def test_the_limit_is_sent_by_its_other_name(given: str, wanted: str, wording: str) -> None:
    server = StrictServer(given, wording=wording)
    asyncio.run(replied(server, max_tokens_field=given))
    assert [body.get(wanted) for body in server.seen] == [None, 99, 99]
    assert [given in body for body in server.seen] == [True, False, False]


def test_a_limit_that_is_refused_by_either_name_is_left_out() -> None:
    server = StrictServer("max_tokens", "max_completion_tokens")
    asyncio.run(replied(server))
    assert server.fields()[-1] == ALL - {"max_tokens"}
    assert len(server.seen) == 4


def test_what_is_left_out_beforehand_costs_no_request() -> None:
    server = StrictServer("temperature", "max_tokens")
    asyncio.run(
        replied(server, leave_out=("temperature",), max_tokens_field="max_completion_tokens")
    )
    assert server.fields() == [ALL - {"temperature", "max_tokens"} | {"max_completion_tokens"}] * 2


@pytest.mark.parametrize(
    "said",
    [
        "max_tokens is too large: 99. This model supports at most 16 completion tokens.",
        "temperature must be between 0 and 0.4",
        "The model m does not exist",
        "messages: at least one is needed",
    ],
)
def test_what_is_no_refusal_of_a_field_is_told(said: str) -> None:
    server = StrictServer("top_p")
    server.wording = lambda name: {"error": {"message": said}}
    with pytest.raises(EngineError, match=said[:30]):
        asyncio.run(replied(server))
    assert len(server.seen) == 1


def test_what_was_not_to_blame_is_sent_again() -> None:
    """The complaint names a field, and stays when that is gone: nothing is learnt from it."""
    fields = RequestFields()
    seen: list[dict[str, Any]] = []

    async def refuses(sent: dict[str, Any]) -> Any:
        seen.append(sent)
        raise ToolError("the server answered 400: seed is not supported", kind="rejected")

    for _ in range(2):
        with pytest.raises(ToolError, match="seed"):
            asyncio.run(fields.send({"seed": 1, "top_k": 2}, refuses, "the server"))
    assert seen == [{"seed": 1, "top_k": 2}, {"top_k": 2}] * 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((["temprature"],), "leave_out must be names among max_tokens"),
        (("seed",), "leave_out must be names"),
        (([], "max tokens"), "max_tokens_field is the name"),
        (([], ""), "max_tokens_field is the name"),
    ],
)
def test_names_that_can_not_work_are_refused(arguments: Any, says: str) -> None:
    with pytest.raises(SettingError, match=says):
        RequestFields(*arguments)


# ---- every client ---------------------------------------------------------------------------


def test_the_judge_and_its_structured_output() -> None:
    server = StrictServer("temperature")
    server.replies = ['{"reason": "same", "correct": true}']

    async def judged() -> list[float]:
        async with server:
            judge = Judge(ChatClient(server.url, "m", temperature=0.0))
            try:
                return [await judge("Lutetia", ("Capital?", "Paris")) for _ in range(2)]
            finally:
                await judge.close()

    assert asyncio.run(judged()) == [1.0, 1.0]
    assert ["temperature" in body for body in server.seen] == [True, False, False]
    assert all("response_format" in body for body in server.seen)


def test_the_summariser() -> None:
    server = StrictServer("max_tokens")
    server.replies = ['{"evidence": "Salen owns it.", "summary": "Known."}']

    async def digested() -> Any:
        async with server:
            reader = Summariser(ChatClient(server.url, "m"))
            try:
                return await reader.digest(ReadPage("https://a.org", "", "Salen owns it."), "owner")
            finally:
                await reader.close()

    found = asyncio.run(digested())
    assert found.failure is None
    assert [body.get("max_completion_tokens") for body in server.seen] == [None, 4096]


class StrictCompletions(CompletionServer):
    """Refuses ``min_p``, and is asked under another name for the limit."""

    async def _complete(self, body: dict[str, Any]) -> Any:
        if "min_p" in body:
            text = json.dumps(openai("min_p"))
            raise web.HTTPBadRequest(text=text, content_type="application/json")
        body = {**body, "max_tokens": body["limit"]}
        return await super()._complete(body)


def test_the_engine_on_ids(model: Any, template: Any) -> None:
    async def scenario() -> tuple[Any, Any, list[dict[str, Any]]]:
        own = TransformersEngine(model, 4, max_context=64, pieces=template.pieces)
        async with StrictCompletions(own, model) as server:
            engine = OpenAIServerEngine(
                server.url, "tiny", max_tokens_field="limit", leave_out=["frequency_penalty"]
            )
            found = await engine.generate(np.arange(5, 25), Sampling(9, temperature=0))
            expected = await own.generate(np.arange(5, 25), Sampling(9, temperature=0))
            await engine.close()
        await own.close()
        return found, expected, server.seen

    found, expected, seen = asyncio.run(scenario())
    assert list(found.ids) == list(expected.ids)
    asked = [body for body in seen if body["path"] == "/v1/completions"]
    assert ["min_p" in body for body in asked] == [True, False, False]
    assert not any("frequency_penalty" in body for body in asked)
    assert [body["limit"] for body in asked] == [1, 1, 9]


# ---- the environment's variables ------------------------------------------------------------

BASE = {"API_BASE": "http://a/v1", "API_OMIT_FIELDS": "top_k, temperature"}


def test_variables_name_the_fields_of_summariser_and_judge() -> None:
    keys = Keys.from_env({**BASE, "API_MAX_TOKENS_FIELD": "max_completion_tokens"}, None)
    assert keys.api_omit == keys.judge_omit == ("top_k", "temperature")
    assert keys.api_limit == keys.judge_limit == "max_completion_tokens"
    own = Keys.from_env({**BASE, "JUDGE_API_BASE": "http://b/v1"}, None)
    assert (own.judge_omit, own.judge_limit) == ((), "max_tokens")
    asked = {**BASE, "JUDGE_OMIT_FIELDS": "seed", "JUDGE_MODEL_NAME": "j"}
    assert Keys.from_env(asked, None).judge_omit == ("seed",)
    assert Judge.from_env(asked, None).client.fields.left_out == {"seed"}
    assert Judge.from_env(asked, None, leave_out=["stop"]).client.fields.left_out == {"stop"}


def test_a_variable_that_can_not_work_is_named() -> None:
    with pytest.raises(SettingError, match="API_OMIT_FIELDS must be names among"):
        Keys.from_env({"API_OMIT_FIELDS": "temprature"}, None)
