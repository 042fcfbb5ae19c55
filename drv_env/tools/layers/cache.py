"""Keeping results for a while."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import replace

from drv_env.call_keys import call_arguments
from drv_env.settings import above, at_least, checked_number, checked_whole
from drv_env.tools.base import Call, Clock, Status, ToolResult, Tools
from drv_env.tools.layers.base import Layer
from drv_env.tools.parts import is_whole


class Cache(Layer):
    """Answers a call from memory when the same one was answered a short while ago.

    The same call: same tool, same arguments in the same order, in whatever spelling
    (:func:`~drv_env.call_keys.call_arguments`), same world.  Failed,
    refused and partly failed results are never kept.  A kept result costs 0.0.

    Args:
        tools: what is wrapped.
        ttl: seconds that a result is kept, above 0.
        size: results kept; the one unused for longest makes way.  At least 1.
        now: the seconds that ``ttl`` is measured in.

    Attributes:
        hits: calls answered from memory.
        misses: calls passed on.
    """

    def __init__(
        self, tools: Tools, ttl: float = 3600.0, size: int = 10_000, now: Clock = time.monotonic
    ) -> None:
        super().__init__(tools)
        checked_number("ttl", ttl, above(0, "seconds", infinite=True))
        checked_whole("size", size, at_least(1))
        self._ttl = ttl
        self._size = size
        self._now = now
        self._kept: OrderedDict[Hashable, tuple[float, ToolResult]] = OrderedDict()
        self.hits = 0
        self.misses = 0

    async def call(self, call: Call) -> ToolResult:
        """Answer from memory, or carry out the call."""
        key = _key(call)
        kept = self._kept.get(key)
        if kept is not None and self._now() - kept[0] < self._ttl:
            self._kept.move_to_end(key)
            self.hits += 1
            return replace(kept[1], cost=0.0, latency=0.0)
        self.misses += 1
        result = await self.checked(call)
        if result.status in (Status.OK, Status.EMPTY) and is_whole(result.data):
            self._kept[key] = (self._now(), result)
            self._kept.move_to_end(key)
            if len(self._kept) > self._size:
                self._kept.popitem(last=False)
        return result


def _key(call: Call) -> Hashable:
    written = json.dumps(call_arguments(call.action), sort_keys=True, default=repr)
    return (call.task.world, call.name, written)
