"""A real server on this machine that answers like an OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiohttp import web

from drv_env import background
from drv_env.chat import ChatClient
from drv_env.retry import RetryPolicy
from drv_env.rewards.judge import Judge

Script = str | int | Callable[[dict[str, Any]], str | int | dict[str, Any]]
"""What is answered: a reply's text, a status of an error, or a function of the request, which
may also give a whole message, with a ``finish_reason`` of its own."""

KEY = "sk-secret-of-the-judge"


async def no_wait(seconds: float) -> None:
    """Waits for nothing."""


AT_ONCE = RetryPolicy(attempts=3, sleep=no_wait)


class Endpoint:
    """The server, and what it was asked.

    Attributes:
        script: answers in turn; the last one repeats.
        bodies: every request's body, in order.
        keys: every request's Authorization header.
        under_way: requests being answered now.
        peak: the most of them at a time.
        cancelled: requests whose client went away.
        arrived: let go once for every request.
        opened: requests wait for it; set unless a test clears it.
        finish_reason: of every reply.
    """

    def __init__(self) -> None:
        self.script: list[Script] = ["correct: yes"]
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.under_way = self.peak = self.cancelled = 0
        self.arrived = asyncio.Semaphore(0)
        self.opened = asyncio.Event()
        self.opened.set()
        self.finish_reason = "stop"
        self.url = ""

    async def start(self) -> None:
        app = web.Application(client_max_size=50_000_000)
        app.router.add_post("/v1/chat/completions", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"

    async def stop(self) -> None:
        self.opened.set()
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bodies.append(body)
        self.keys.append(request.headers.get("Authorization"))
        self.under_way += 1
        self.peak = max(self.peak, self.under_way)
        self.arrived.release()
        try:
            await self.opened.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.under_way -= 1
        answer = self.script[min(len(self.bodies), len(self.script)) - 1]
        if callable(answer):
            answer = answer(body)
        if isinstance(answer, int):
            said = {"error": {"message": f"no, with {KEY}"}}
            return web.json_response(said, status=answer)
        message = {"role": "assistant"} | (
            answer if isinstance(answer, dict) else {"content": answer}
        )
        reason = message.pop("finish_reason", self.finish_reason)
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return web.json_response({"id": "1", "choices": [choice]})

    def sent(self, request: int = -1) -> dict[str, Any]:
        """The data that a request asked about."""
        text = self.bodies[request]["messages"][1]["content"]
        return json.loads(text.split("\n", 1)[0])


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    background.run(server.start())
    yield server
    background.run(server.stop())


@pytest.fixture
def judge_of(endpoint: Endpoint) -> Iterator[Callable[..., Judge]]:
    """Makes judges at the endpoint, which wait for nothing between tries."""
    made: list[Judge] = []

    def make(*arguments: Any, timeout: float = 30.0, **settings: Any) -> Judge:
        settings.setdefault("retry", AT_ONCE)
        model = settings.pop("model", "m")
        client = ChatClient(endpoint.url, model, KEY, timeout=timeout)
        made.append(Judge(client, *arguments, **settings))
        return made[-1]

    yield make
    for judge in made:
        background.run(judge.close())
