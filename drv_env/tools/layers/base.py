"""What all layers share: a layer wraps tools and has their face."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from drv_env.tools.base import Call, Clock, ToolResult, Tools, ToolSchema
from drv_env.tools.results import checked_result

T = TypeVar("T")


class Layer:
    """Passes everything on.  A layer overrides ``call``.

    Args:
        tools: what is wrapped, a backend or another layer.
    """

    def __init__(self, tools: Tools) -> None:
        self.tools = tools

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """The wrapped tools' schemas."""
        return self.tools.schemas

    @property
    def clock(self) -> Clock:
        """The wrapped tools' clock."""
        return self.tools.clock

    async def call(self, call: Call) -> ToolResult:
        """Carry out one call."""
        return await self.tools.call(call)

    async def checked(self, call: Call) -> ToolResult:
        """What the wrapped tools give, checked whole: for layers that read results.

        Raises:
            ToolError: when it is no proper result; whatever else the tools raise.
        """
        return checked_result(await self.tools.call(call))

    async def close(self) -> None:
        """Close the wrapped tools."""
        await self.tools.close()


class PerLoop(Generic[T]):
    """One value per event loop, for what can't be shared between loops; none is pickled.

    Args:
        make: makes a value, inside its loop; must be picklable where the layer is pickled.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._values: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, T] = (
            weakref.WeakKeyDictionary()
        )

    def get(self) -> T:
        """The running loop's value."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._values:
                self._values[loop] = self._make()
            return self._values[loop]

    def __reduce__(self) -> tuple[Any, ...]:
        return PerLoop, (self._make,)
