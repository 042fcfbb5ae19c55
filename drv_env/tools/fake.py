"""Scripted tools: replies, delays and failures as a test wants them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from drv_env.errors import SettingError, ToolError
from drv_env.protocol import PAGE_SEPARATOR, Search, Visit, render_search, render_visit
from drv_env.settings import at_least, checked_number
from drv_env.tools.base import (
    SEARCH_SCHEMA,
    VISIT_SCHEMA,
    Call,
    Clock,
    Status,
    ToolResult,
    ToolSchema,
    still_clock,
)
from drv_env.urls import canonical_url

Reply = str | ToolResult | Exception
Script = Mapping[str, Reply | Sequence[Reply]] | Callable[[Call], Reply]


class ManualClock:
    """A clock that moves only when told to.

    Example:
        >>> clock = ManualClock()
        >>> clock.advance(1.5)
        >>> clock()
        1.5
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        """Seconds."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Move on by ``seconds``."""
        self.now += seconds


class FakeTools:
    """Tools that answer from a script, at once, and remember what was asked.

    Args:
        script: what to reply.  A mapping from a tool's name, or from a query or url, to a
            reply or to a sequence of replies given in turn (the last one repeats), the query
            or url, in any spelling, before the tool's name; or a function of the call.  A
            reply is a text, a whole :class:`~drv_env.tools.base.ToolResult`, or an exception
            to raise.  What is not in the script gets a plausible page: one hit a query, one
            sentence a url.
        schemas: tools on offer; search and visit by default.
        latency: seconds that each call takes on ``clock``, which it moves if it is a
            :class:`ManualClock`.  No real time passes.
        clock: measures latency; stands still by default.
        hold: an event that every call waits for, to test what happens meanwhile.
        strict: True fails a call that is not in the script, in place of a plausible page.

    Attributes:
        calls: every call so far, in order.
        closed: how often ``close`` was called.

    Example:
        >>> tools = FakeTools({"visit": ["The founder is Ada.", OSError("reset")]})
        >>> import asyncio
        >>> from drv_env.tasks import Task
        >>> call = Call(Visit(("https://a",), "founder"), Task("Q?", ("A",)))
        >>> asyncio.run(tools.call(call)).text
        'The founder is Ada.'
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        schemas: Sequence[ToolSchema] = (SEARCH_SCHEMA, VISIT_SCHEMA),
        latency: float = 0.0,
        clock: Clock = still_clock,
        hold: asyncio.Event | None = None,
        strict: bool = False,
    ) -> None:
        checked_number("latency", latency, at_least(0, "seconds"))
        self._script = script if callable(script) else _spelt(script or {})
        self._schemas = tuple(schemas)
        self._latency = latency
        self._clock = clock
        self._hold = hold
        self._strict = strict
        self._given: dict[str, int] = {}
        self.calls: list[Call] = []
        self.closed = 0

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """The tools on offer."""
        return self._schemas

    @property
    def instant(self) -> bool:
        """True where no call waits."""
        return self._hold is None

    @property
    def clock(self) -> Clock:
        """Measures latency."""
        return self._clock

    async def call(self, call: Call) -> ToolResult:
        """Give the scripted reply, or raise the scripted exception."""
        self.calls.append(call)
        if self._hold is not None:
            await self._hold.wait()
        if self._latency and isinstance(self._clock, ManualClock):
            self._clock.advance(self._latency)
        reply = self._reply(call)
        if isinstance(reply, Exception):
            raise reply
        return reply if isinstance(reply, ToolResult) else ToolResult(reply)

    async def close(self) -> None:
        """Count the closing."""
        self.closed += 1

    def _reply(self, call: Call) -> Reply:
        if callable(self._script):
            return self._script(call)
        for key in (*_keys(call), call.name):
            if key in self._script:
                return self._next(key, self._script[key])
        if self._strict:
            raise ToolError(f"the script has nothing for {call.action!r}")
        return _plausible(call)

    def _next(self, key: str, replies: Reply | Sequence[Reply]) -> Reply:
        if isinstance(replies, str | ToolResult | Exception):
            return replies
        index = self._given.get(key, 0)
        self._given[key] = index + 1
        return replies[min(index, len(replies) - 1)]


def failing(reason: str = "connection reset") -> ToolResult:
    """A failed result, for a script that fails without raising."""
    return ToolResult(f"The call failed: {reason}.", Status.FAILED)


def _spelt(
    script: Mapping[str, Reply | Sequence[Reply]],
) -> dict[str, Reply | Sequence[Reply]]:
    """The script by queries, urls and names in the one spelling of each.

    Raises:
        SettingError: for a key without a reply.
    """
    for key, replies in script.items():
        if isinstance(replies, list | tuple) and not replies:
            raise SettingError(f"the script has no reply for {key!r}; give one or more")
    # What is no url, a query or a name, is spelt as text by the same rule.
    return {canonical_url(key): replies for key, replies in script.items()}


def _keys(call: Call) -> tuple[str, ...]:
    match call.action:
        case Search(queries):
            return tuple(map(canonical_url, queries))
        case Visit(urls, _):
            return tuple(map(canonical_url, urls))
    return ()


def _plausible(call: Call) -> str:
    match call.action:
        case Search(queries):
            return render_search((query, [_hit(query)]) for query in queries)
        case Visit(urls, goal):
            pages = (render_visit(url, goal, f"A page about {goal}.") for url in urls)
            return PAGE_SEPARATOR.join(pages)
    return f"{call.name} is done."


def _hit(query: str) -> dict[str, Any]:
    slug = "-".join(query.lower().split())
    return {"title": query, "url": f"https://example.org/{slug}", "snippet": f"About {query}."}
