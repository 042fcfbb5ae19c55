"""Who may ask a server now: so many at a time, none during a pause, none after the close.

Knows nothing of servers.  Serves any number of event loops and threads at once; a limit
holds over all of them.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress

from drv_env.errors import EngineError
from drv_env.settings import at_least, checked_whole


class Gate:
    """See the module's text.

    Args:
        limit: turns at a time, at least 1; further ones wait, first come first served.
        name: of the engine, for errors.

    Raises:
        SettingError: for a limit below 1.
    """

    def __init__(self, limit: int, name: str) -> None:
        self._limit = checked_whole("max_in_flight", limit, at_least(1))
        self._name = name
        self._lock = threading.Lock()
        self._running = 0
        self._paused = False
        self._closed = False
        self._waiting: deque[Future[None]] = deque()
        self._pausing: list[Future[None]] = []
        self._open: dict[asyncio.Timeout, asyncio.AbstractEventLoop] = {}

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        """Around a whole request, its waits and tries again included: a close ends it.

        Raises:
            EngineError: after :meth:`close`, or when it comes meanwhile.
        """
        scope = asyncio.timeout(None)
        try:
            async with scope:
                with self._lock:
                    self.check_open()
                    self._open[scope] = asyncio.get_running_loop()
                try:
                    yield
                finally:
                    with self._lock:
                        del self._open[scope]
        except TimeoutError:
            if not scope.expired():
                raise
            message = f"{self._name} was closed while this request was pending"
            raise EngineError(message) from None

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Around one try of a request; waits until it may begin."""
        await self._enter()
        try:
            yield
        finally:
            self._leave()

    async def pause(self) -> None:
        """Begin no more turns; return when none is left."""
        with self._lock:
            self.check_open()
            self._paused = True
            if not self._running:
                return
            none_left: Future[None] = Future()
            self._pausing.append(none_left)
        await asyncio.wrap_future(none_left)

    def resume(self) -> None:
        """Undo :meth:`pause`."""
        with self._lock:
            self.check_open()
            self._paused = False
            self._admit()

    def close(self) -> None:
        """End every request, refuse later ones; may be called twice."""
        with self._lock:
            self._closed = True
            requests = list(self._open.items())
        for scope, loop in requests:
            with suppress(RuntimeError):  # its loop is gone, and it with it
                loop.call_soon_threadsafe(_expire, scope, loop)

    def check_open(self) -> None:
        """Raise EngineError after :meth:`close`."""
        if self._closed:
            raise EngineError(f"{self._name} is closed")

    async def _enter(self) -> None:
        with self._lock:
            if not self._waiting and not self._paused and self._running < self._limit:
                self._running += 1
                return
            ticket: Future[None] = Future()
            self._waiting.append(ticket)
        try:
            await asyncio.wrap_future(ticket)
        except asyncio.CancelledError:
            if not ticket.cancel():  # it was let in at the same moment
                self._leave()
            raise

    def _leave(self) -> None:
        with self._lock:
            self._running -= 1
            self._admit()
            if not self._running:
                for none_left in self._pausing:
                    if none_left.set_running_or_notify_cancel():
                        none_left.set_result(None)
                self._pausing.clear()

    def _admit(self) -> None:
        """Let in whom there is room for.  The lock is held."""
        while self._waiting and not self._paused and self._running < self._limit:
            ticket = self._waiting.popleft()
            if ticket.set_running_or_notify_cancel():
                self._running += 1
                ticket.set_result(None)


def _expire(scope: asyncio.Timeout, loop: asyncio.AbstractEventLoop) -> None:
    with suppress(RuntimeError):  # it has ended by itself meanwhile
        scope.reschedule(loop.time())
