"""Limits: on a call's time, on calls per second, on calls at once."""

from __future__ import annotations

import asyncio
from functools import partial

from aiolimiter import AsyncLimiter

from drv_env.deadline import allowed
from drv_env.errors import ToolError
from drv_env.protocol import Search, Visit
from drv_env.settings import above, at_least, checked_number, checked_whole
from drv_env.tools.base import Call, ToolResult, Tools
from drv_env.tools.layers.base import Layer, PerLoop


class TimeOut(Layer):
    """A call that takes longer has failed: kind ``timeout``, retryable.

    The work is cancelled, down to the connection.

    Args:
        tools: what is wrapped.
        seconds: above 0.
    """

    def __init__(self, tools: Tools, seconds: float) -> None:
        super().__init__(tools)
        checked_number("seconds", seconds, above(0))
        self._seconds = seconds

    async def call(self, call: Call) -> ToolResult:
        """Carry out one call, in time."""
        try:
            async with asyncio.timeout(self._seconds) as limit:
                with allowed(self._seconds):
                    return await self.tools.call(call)
        except TimeoutError:
            if not limit.expired():
                raise
        raise ToolError(
            f"no reply within {self._seconds:g} seconds", kind="timeout", retryable=True
        )


class RateLimit(Layer):
    """Lets ``rate`` queries and urls through in ``per`` seconds; further calls wait.

    A call counts as often as it has queries or urls.  After a pause, ``rate`` of them may
    go at once.  The limit holds within one event loop.

    Args:
        tools: what is wrapped.
        rate: at least 1.
        per: seconds, above 0.
    """

    def __init__(self, tools: Tools, rate: int, per: float = 1.0) -> None:
        super().__init__(tools)
        checked_whole("rate", rate, at_least(1))
        checked_number("per", per, above(0, "seconds"))
        self._limiters: PerLoop[AsyncLimiter] = PerLoop(partial(AsyncLimiter, rate, per))

    async def call(self, call: Call) -> ToolResult:
        """Carry out one call when its turn has come."""
        limiter = self._limiters.get()
        for _ in range(parts(call)):
            await limiter.acquire()
        return await self.tools.call(call)


class InFlight(Layer):
    """Carries out at most ``limit`` calls at a time; further ones wait their turn.

    The limit holds within one event loop.

    Args:
        tools: what is wrapped.
        limit: at least 1.
    """

    def __init__(self, tools: Tools, limit: int) -> None:
        super().__init__(tools)
        checked_whole("limit", limit, at_least(1))
        self._slots: PerLoop[asyncio.Semaphore] = PerLoop(partial(asyncio.Semaphore, limit))

    async def call(self, call: Call) -> ToolResult:
        """Carry out one call when a slot is free."""
        async with self._slots.get():
            return await self.tools.call(call)


def parts(call: Call) -> int:
    """How many queries or urls a call has; 1 for any other tool."""
    match call.action:
        case Search(queries):
            return len(queries)
        case Visit(urls, _):
            return len(urls)
    return 1
