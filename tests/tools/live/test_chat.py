"""The chat client against a real endpoint."""

import asyncio
import pickle

import pytest

from drv_env.chat import ChatClient
from drv_env.errors import SettingError, ToolError

KEY = "chat-key-for-tests"
MESSAGES = [{"role": "user", "content": "hi"}]
FORMAT = {"type": "json_object"}


def said(text, **more):
    return {"choices": [{"message": {"content": text}, "finish_reason": "stop"}], **more}


def chatting(new_site, replies, body, **settings):
    """Run ``body(client)`` against an endpoint that gives these replies: (its value, site)."""

    async def main():
        async with new_site() as site:
            site.replies = list(replies)
            client = ChatClient(f"{site.base}/v1/", "small", KEY, timeout=5, **settings)
            try:
                return await body(client), site
            finally:
                await client.close()
                await client.close()

    return asyncio.run(main())


def test_a_reply_is_read_with_its_price(new_site):
    usage = {"prompt_tokens": 1000, "completion_tokens": 200}
    reply, site = chatting(
        new_site,
        [(200, said("hello", usage=usage))],
        lambda client: client.complete(MESSAGES, max_tokens=5, extra={"top_k": 20}),
        temperature=0.5,
        prices=(1.0, 10.0),
        extra={"seed": 1},
    )
    assert (reply.text, reply.finish_reason) == ("hello", "stop")
    assert (reply.prompt_tokens, reply.completion_tokens) == (1000, 200)
    assert reply.cost == pytest.approx(0.003)
    sent = site.seen[0]
    assert sent.pop("headers")["Authorization"] == f"Bearer {KEY}"
    assert sent == {
        "model": "small",
        "messages": MESSAGES,
        "temperature": 0.5,
        "max_tokens": 5,
        "seed": 1,
        "top_k": 20,
    }


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": None, "reasoning_content": "thought"}, ""),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "ab"),
        ({}, ""),
    ],
)
def test_unusual_contents_are_read(new_site, message, text):
    reply, _ = chatting(
        new_site,
        [(200, {"choices": [{"message": message}], "usage": None})],
        lambda client: client.complete(MESSAGES),
    )
    assert reply.text == text


@pytest.mark.parametrize(
    ("status", "body", "kind", "retryable"),
    [
        (401, {"error": {"message": "bad key"}}, "unauthorised", False),
        (404, {"error": {"message": "no such model"}}, "not_found", False),
        (429, {"error": {"message": "slow down"}}, "rate_limited", True),
        (429, {"error": {"message": "You exceeded your quota"}}, "no_credit", False),
        (500, "oops", "server_error", True),
        (400, {"error": {"message": "maximum context length is 4096"}}, "too_long", False),
        (400, {"message": "what?"}, "rejected", False),
        (200, {"error": {"message": "overloaded"}}, "server_error", True),
        (200, {"error": "overloaded"}, "server_error", True),
        (200, "<html>", "bad_reply", True),
        (200, {"choices": []}, "bad_reply", True),
        (200, {"choices": [None]}, "bad_reply", True),
        (200, [], "bad_reply", True),
    ],
)
def test_failures_have_kinds(new_site, status, body, kind, retryable):
    async def ask(client):
        with pytest.raises(ToolError) as caught:
            await client.complete(MESSAGES)
        return caught.value

    error, _ = chatting(new_site, [(status, body)], ask)
    assert (error.kind, error.retryable) == (kind, retryable)


def test_a_refused_format_is_left_out_from_then_on(new_site):
    async def ask(client):
        return [await client.complete(MESSAGES, response_format=FORMAT) for _ in range(2)]

    refusal = {"error": {"message": "response_format is not supported"}}
    _, site = chatting(new_site, [(400, refusal), (200, said("a"))], ask)
    assert ["response_format" in sent for sent in site.seen] == [True, False, False]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, {"error": {"message": "grammar compilation failed"}}),
        (501, {"error": "json_schema is not implemented"}),
        (200, {"error": {"message": "structured outputs are not supported"}}),
        (200, {"choices": []}),
        (200, {"choices": [{"message": None}]}),
    ],
)
def test_a_server_that_breaks_over_a_format_is_asked_without_from_then_on(
    new_site, status, body, caplog
):
    async def ask(client):
        return [await client.complete(MESSAGES, response_format=FORMAT) for _ in range(2)]

    replies, site = chatting(new_site, [(status, body), (200, said("a"))], ask)
    assert [reply.text for reply in replies] == ["a", "a"]
    assert ["response_format" in sent for sent in site.seen] == [True, False, False]
    assert len(caplog.records) == 1


def test_a_servers_other_failure_says_nothing_about_the_format(new_site):
    async def ask(client):
        with pytest.raises(ToolError) as caught:
            await client.complete(MESSAGES, response_format=FORMAT)
        return caught.value.kind, (
            await client.complete(MESSAGES, response_format=FORMAT)
        ).formatted

    found, site = chatting(new_site, [(500, {"message": "out of memory"}), (200, said("a"))], ask)
    assert found == ("server_error", True)
    assert ["response_format" in sent for sent in site.seen] == [True, True]


def test_another_refusal_says_nothing_about_the_format(new_site):
    async def ask(client):
        with pytest.raises(ToolError):
            await client.complete(MESSAGES, response_format=FORMAT)
        return await client.complete(MESSAGES, response_format=FORMAT)

    bad = (400, {"message": "no such field"})
    _, site = chatting(new_site, [bad, bad, (200, said("a"))], ask)
    assert ["response_format" in sent for sent in site.seen] == [True, False, True]


def test_the_key_is_shown_nowhere(new_site):
    async def ask(client):
        with pytest.raises(ToolError) as caught:
            await client.complete(MESSAGES)
        return f"{caught.value} {caught.value!r} {client!r} {caught.value.__cause__!r}"

    shown, _ = chatting(new_site, [(401, {"message": f"the key {KEY} is unknown"})], ask)
    assert "the key *** is unknown" in shown
    assert KEY not in shown

    copy = pickle.loads(pickle.dumps(ChatClient("http://a/v1", "m", KEY)))
    assert KEY not in repr(copy) + repr(vars(copy))
    assert copy._key.reveal() == KEY


def test_settings_that_can_not_work_are_refused():
    with pytest.raises(SettingError, match="base_url must be an http"):
        ChatClient("localhost:8000", "m")
    with pytest.raises(SettingError, match="model is blank"):
        ChatClient("http://localhost:8000/v1", " ")
    assert ChatClient("http://a/v1/chat/completions", "m").base_url == "http://a/v1"
