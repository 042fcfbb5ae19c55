"""vLLM's life in this process: a thread with an event loop of its own, and its end.

Starts vLLM's processes, hands coroutines to the loop, and ends all of it: at
:meth:`Host.stop`, when its owner is gone, or when the interpreter exits.  Knows nothing
of requests.

vLLM starts its processes by ``spawn``, which imports the main script again: a script
that makes an engine needs ``if __name__ == "__main__":``.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from drv_env.errors import EngineError

T = TypeVar("T")

_GRACE = 60.0
"""Seconds for vLLM's processes to end by themselves; killed, they leave shared memory."""

_START_GRACE = 5.0

_environment = threading.Lock()


class Host:
    """One AsyncLLM on one thread.

    Attributes:
        llm: vLLM's engine; only for coroutines on the loop.
        ended: done once the thread has nothing left to do.

    Args:
        make: builds the AsyncLLM, on the loop; may take minutes.  The environment variables
            that it sets reach vLLM's processes, and are as before afterwards.

    Raises:
        BaseException: what ``make`` raises, or Ctrl-C; nothing is left running then.
    """

    llm: Any

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._refusal: str | None = None
        self._over = asyncio.Event()
        self._others = set(multiprocessing.active_children())
        ready: Future[None] = Future()
        self.ended: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._main, args=(ready,), name="vllm-engine", daemon=True
        )
        self._thread.start()
        try:
            ready.result()
        except BaseException:
            self.begin_stop()
            self._end_start()
            self.stop()
            raise

    def submit(self, work: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> Future[T]:
        """Begin a coroutine on the loop; cancelling the future cancels it.

        Raises:
            EngineError: after :meth:`stop`.
        """
        with self._lock:
            if self._refusal is not None:
                raise EngineError(self._refusal)
            assert self._loop is not None
            return asyncio.run_coroutine_threadsafe(self._tracked(work(*args)), self._loop)

    def refuse(self, reason: str) -> None:
        """Have :meth:`submit` raise from now on; the first reason is kept."""
        with self._lock:
            self._refusal = self._refusal or reason

    def begin_stop(self) -> None:
        """Fail what is pending and end everything, without waiting for it."""
        self.refuse("the engine is closed")
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed already
                self._loop.call_soon_threadsafe(self._over.set)

    def stop(self) -> None:
        """End everything and wait for it; may be called twice."""
        self.begin_stop()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _end_start(self) -> None:
        """End the processes of a start that was interrupted: vLLM might wait for them for ever."""
        for process in set(multiprocessing.active_children()) - self._others:
            if process.name.startswith("EngineCore"):
                process.terminate()
                process.join(_START_GRACE)
                process.kill()

    # ---- the thread -----------------------------------------------------------------

    def _main(self, ready: Future[None]) -> None:
        try:
            asyncio.run(self._serve(ready))
        except BaseException as error:  # noqa: BLE001 (whoever waits is told)
            if not ready.done():
                ready.set_exception(error)
        finally:
            self.ended.set_result(None)

    async def _serve(self, ready: Future[None]) -> None:
        with self._lock:
            self._loop = asyncio.get_running_loop()
        with _own_environment():
            self._others = set(multiprocessing.active_children())
            if self._refusal is not None:  # interrupted while another engine was starting
                raise EngineError(self._refusal)
            self.llm = self._make()
        try:
            ready.set_result(None)
            await self._over.wait()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            self.llm.shutdown(timeout=_GRACE)
            multiprocessing.active_children()  # takes note of those that have ended

    async def _tracked(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            return await work
        except asyncio.CancelledError:
            if self._over.is_set():
                message = "the engine was closed while this request was pending"
                raise EngineError(message) from None
            raise
        finally:
            self._tasks.discard(task)


@contextmanager
def _own_environment() -> Iterator[None]:
    """Undo what is done to the environment variables; vLLM itself sets some."""
    with _environment:
        before = dict(os.environ)
        try:
            yield
        finally:
            for name in set(os.environ) - set(before):
                del os.environ[name]
            os.environ.update(before)
