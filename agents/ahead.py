"""Rollouts that run ahead of training, within a bound on staleness.

Batch b (from 0) begins as soon as at least b − ``max_staleness`` updates are done, so that
what is trained on was sampled by weights at most ``max_staleness`` updates old.  With 0
nothing runs ahead: batch b waits for update b.  An update takes effect within a batch too:
its later turns come from newer weights, and every turn's weight version is on record.

Knows no tasks and no models; for synchronous callers, whose work runs on the process's
background loop meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar

from drv_env import background
from drv_env.settings import at_least, checked_whole

Batch = TypeVar("Batch")
Result = TypeVar("Result")


class Ahead(Generic[Batch, Result]):
    """Plays batches in order, some of them before they are asked for.

    Args:
        batches: what to play; drawn from only as far as the bound allows.
        play: plays one batch, on the background loop.
        max_staleness: updates that may lie between sampling and training, 0 or more.

    Raises:
        SettingError: for a bound below 0.

    Example::

        with Ahead(batches, play, max_staleness=1) as ahead:
            for batch, trajectories in ahead:
                train(trajectories)
                ahead.updated()
    """

    def __init__(
        self,
        batches: Iterable[Batch],
        play: Callable[[Batch], Coroutine[Any, Any, Result]],
        max_staleness: int = 0,
    ) -> None:
        checked_whole("max_staleness", max_staleness, at_least(0))
        self._batches = iter(batches)
        self._play = play
        self._max_staleness = max_staleness
        self._running: deque[tuple[Batch, asyncio.Task[Result]]] = deque()
        self._begun = 0
        self._closed = False
        self._updates = 0

    def __iter__(self) -> Iterator[tuple[Batch, Result]]:
        return self

    def __next__(self) -> tuple[Batch, Result]:
        """The next batch and what came of it; waits for it, and raises what it raised, once.

        Raises:
            RuntimeError: when the bound forbids it to begin: :meth:`updated` was not called;
                or after :meth:`close`.
        """
        if self._closed:
            raise RuntimeError("these rollouts are closed")
        if not self._running:
            self._begin()
        if not self._running:
            if self._begun > self._updates + self._max_staleness:
                raise RuntimeError("the next batch begins after an update; call updated() first")
            raise StopIteration
        batch, task = self._running[0]
        try:
            result = background.run(_wait(task))
        finally:
            if task.done():  # else the waiting was interrupted, and may go on
                self._running.popleft()
        return batch, result

    def updated(self) -> None:
        """An update is done, and the engine has its weights; begins what may begin now."""
        self._updates += 1
        self._begin()

    def close(self) -> None:
        """Cancel what runs ahead, and wait until it has ended; may be called twice."""
        self._closed = True
        tasks = [task for _, task in self._running]
        self._running.clear()
        if tasks:
            background.run(_end(tasks))

    def __enter__(self) -> Ahead[Batch, Result]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _begin(self) -> None:
        while not self._closed and self._begun <= self._updates + self._max_staleness:
            try:
                batch = next(self._batches)
            except StopIteration:
                return
            self._begun += 1
            self._running.append((batch, background.run(_spawn(self._play(batch)))))


async def _spawn(work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
    return asyncio.create_task(work)


async def _wait(task: asyncio.Task[Result]) -> Result:
    return await asyncio.shield(task)  # who stops waiting does not stop the work; close() does


async def _end(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
