"""Who may work with an engine now: requests together, an update of its weights alone.

One event loop; knows nothing of engines.  First come, first served: an update waits for
the requests before it, and the requests after it wait for the update.  During a pause no
request begins, and updates pass the requests that wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(eq=False)
class Ticket:
    """A place in the queue.

    Attributes:
        alone: of an update.
        granted: done once its owner may work.
    """

    alone: bool
    granted: asyncio.Future[None]


class Turns:
    """See the module's text."""

    def __init__(self) -> None:
        self._queue: deque[Ticket] = deque()
        self._working: set[Ticket] = set()
        self._paused = False
        self._pausing: list[asyncio.Future[None]] = []

    @asynccontextmanager
    async def request(self) -> AsyncIterator[None]:
        """Around one request; waits until it may begin."""
        ticket = self.enter(alone=False)
        try:
            await ticket.granted
            yield
        finally:
            self.leave(ticket)

    def enter(self, *, alone: bool) -> Ticket:
        """Take a place; wait for ``granted``, and leave in every case."""
        ticket = Ticket(alone, asyncio.get_running_loop().create_future())
        self._queue.append(ticket)
        self._admit()
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Give the place back, granted or not."""
        if ticket in self._working:
            self._working.discard(ticket)
        else:
            self._queue.remove(ticket)
        self._admit()
        if not self._working:
            for nothing_left in self._pausing:
                if not nothing_left.done():
                    nothing_left.set_result(None)
            self._pausing.clear()

    async def pause(self) -> None:
        """Begin no more requests; return when nobody works."""
        self._paused = True
        if self._working:
            nothing_left = asyncio.get_running_loop().create_future()
            self._pausing.append(nothing_left)
            await nothing_left

    def resume(self) -> None:
        """Undo :meth:`pause`."""
        self._paused = False
        self._admit()

    def _admit(self) -> None:
        held: list[Ticket] = []
        while self._queue and not any(ticket.alone for ticket in self._working):
            ticket = self._queue[0]
            if ticket.alone and self._working:
                break
            self._queue.popleft()
            if self._paused and not ticket.alone:
                held.append(ticket)
                continue
            self._working.add(ticket)
            if not ticket.granted.done():  # a cancelled owner is about to leave
                ticket.granted.set_result(None)
        self._queue.extendleft(reversed(held))
