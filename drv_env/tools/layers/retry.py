"""Trying failed calls again."""

from __future__ import annotations

from collections import Counter

from drv_env.errors import ToolError
from drv_env.retry import RetryPolicy
from drv_env.tools.base import Call, ToolResult, Tools
from drv_env.tools.layers.base import Layer


class Retry(Layer):
    """Tries a call again when it raised a retryable :class:`~drv_env.errors.ToolError`.

    Results are never tried again, whatever their status.  :class:`~drv_env.tools.live.
    LiveTools` tries each of its queries and pages again by itself and needs no such layer.

    Args:
        tools: what is wrapped.
        policy: how often, and how long to wait.

    Attributes:
        retried: how often which tool was tried again because of what kind of failure.
    """

    def __init__(self, tools: Tools, policy: RetryPolicy | None = None) -> None:
        super().__init__(tools)
        self._policy = RetryPolicy() if policy is None else policy
        self.retried: Counter[tuple[str, str]] = Counter()

    async def call(self, call: Call) -> ToolResult:
        """Carry out one call, again where that may help."""

        def count(error: ToolError) -> None:
            self.retried[call.name, error.kind] += 1

        return await self._policy.run(lambda: self.tools.call(call), count)
