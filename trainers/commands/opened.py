"""Engines, tools and judges that are closed at the end, after an error and after Ctrl-C."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from drv_env.tools.base import Tools
from drv_env.tools.closing import close_tools

T = TypeVar("T")


class Opened:
    """Keeps what is open; works on one event loop of its own.

    Things are made before the loop runs, where Ctrl-C stops at once even a model that is
    being loaded.  They are closed on the loop that used them, the newest first.

    Example::

        with Opened() as opened:
            engine = opened.keep(TransformersEngine(model))
            completion = opened.run(engine.generate(ids, sampling))
    """

    def __init__(self) -> None:
        self._closers: list[Callable[[], Awaitable[None]]] = []

    def keep(self, thing: T) -> T:
        """Close this at the end, where it has something to close."""
        close = getattr(thing, "close", None)
        if close is not None:
            self._closers.append(partial(close_tools, thing) if isinstance(thing, Tools) else close)
        return thing

    def keep_plugged(self, thing: T) -> T:
        """As :meth:`keep`, for what users plug in, which may close badly, slowly or not at all."""
        self._closers.append(partial(close_tools, thing))
        return thing

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work, then close everything.

        Raises:
            KeyboardInterrupt: on Ctrl-C, once everything is closed.
        """

        async def whole() -> T:
            try:
                return await work
            finally:
                await self._close()

        return asyncio.run(whole())

    def __enter__(self) -> Opened:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._closers:
            asyncio.run(self._close())

    async def _close(self) -> None:
        async with AsyncExitStack() as stack:
            while self._closers:
                stack.push_async_callback(self._closers.pop(0))
