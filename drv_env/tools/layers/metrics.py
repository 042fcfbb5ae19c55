"""Counting calls: how each went, why, and how long it took."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from drv_env.errors import ToolError
from drv_env.tools.base import Call, Clock, Status, ToolResult, Tools
from drv_env.tools.layers.base import Layer

CANCELLED = "cancelled"
"""In place of a status, for calls that were broken off from outside."""


@dataclass(slots=True)
class Seconds:
    """Latencies of one tool."""

    calls: int = 0
    total: float = 0.0
    longest: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one call."""
        self.calls += 1
        self.total += seconds
        self.longest = max(self.longest, seconds)


class Metrics(Layer):
    """Counts every call that passes.

    What raises is counted as failed and passed on.  Records of a call's parts (see
    :mod:`drv_env.tools.parts`) are counted too.

    Args:
        tools: what is wrapped.
        now: seconds, for latencies; the wrapped tools' clock by default.

    Attributes:
        calls: by (tool, status, kind); kind is empty where nothing is wrong.
        parts: queries and urls, likewise.
        retries: failures that were tried again inside, by (tool, kind).
        seconds: latencies by tool.
        cost: US dollars.
        in_flight: calls that are under way.
    """

    def __init__(self, tools: Tools, now: Clock | None = None) -> None:
        super().__init__(tools)
        self._now = tools.clock if now is None else now
        self.calls: Counter[tuple[str, str, str]] = Counter()
        self.parts: Counter[tuple[str, str, str]] = Counter()
        self.retries: Counter[tuple[str, str]] = Counter()
        self.seconds: defaultdict[str, Seconds] = defaultdict(Seconds)
        self.cost = 0.0
        self.in_flight = 0

    async def call(self, call: Call) -> ToolResult:
        """Carry out one call and count it."""
        started = self._now()
        self.in_flight += 1
        status, kind = str(Status.FAILED), "failed"
        try:
            result = await self.checked(call)
            status, kind = result.status.value, self._read(call.name, result)
            return result
        except ToolError as error:
            kind = error.kind
            raise
        except asyncio.CancelledError:
            status, kind = CANCELLED, ""
            raise
        finally:
            self.in_flight -= 1
            self.calls[call.name, status, kind] += 1
            self.seconds[call.name].add(self._now() - started)

    def snapshot(self) -> dict[str, float]:
        """Everything as numbers by name, such as ``tools/search/failed/timeout``."""
        found: dict[str, float] = {"tools/cost": self.cost, "tools/in_flight": self.in_flight}
        for prefix, counts in (("tools", self.calls), ("tool_parts", self.parts)):
            for key, count in counts.items():
                found["/".join((prefix, *filter(None, key)))] = count
        for (tool, kind), count in self.retries.items():
            found[f"tools/{tool}/retried/{kind}"] = count
        for tool, seconds in self.seconds.items():
            found[f"tools/{tool}/seconds_mean"] = seconds.total / seconds.calls
            found[f"tools/{tool}/seconds_max"] = seconds.longest
        return found

    def _read(self, tool: str, result: ToolResult) -> str:
        """Count the parts; the kind of the call is that of the first part with its status."""
        self.cost += result.cost
        kind = ""
        for record in _records(result.data):
            status = str(record["status"])
            why = str(record.get("kind", ""))
            self.parts[tool, status, why] += 1
            retries = record.get("retries")
            for retried in retries if isinstance(retries, list) else ():
                self.retries[tool, str(retried)] += 1
            if "summariser" in record:
                self.parts["summariser", Status.FAILED.value, str(record["summariser"])] += 1
            if not kind and status == result.status.value:
                kind = why
        if result.status is Status.FAILED and not kind:
            kind = "failed"
        return kind


def _records(data: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(data, list | tuple):
        for part in data:
            if isinstance(part, Mapping) and "status" in part:
                yield part
