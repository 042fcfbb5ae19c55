"""One process's connection to a cassette: one at a time, off the event loop, over forks.

Knows nothing of what is read and written.
"""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from drv_env.cassette.file import explain, is_busy, open_file

T = TypeVar("T")
Job = Callable[[sqlite3.Connection], T]


class Connection:
    """A connection that opens at its first use, and again after :meth:`close`.

    Args:
        path: the file.
        read_only: never write, nor make the file.
        busy_seconds: how long to wait for other processes that hold the file.
    """

    def __init__(self, path: Path, read_only: bool, busy_seconds: float) -> None:
        self._path = path
        self._read_only = read_only
        self._busy_seconds = busy_seconds
        self._reset()
        _connections.add(self)

    def _reset(self) -> None:
        self._open: sqlite3.Connection | None = None
        self._executor: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._executor_lock = threading.Lock()

    def work(self, job: Job[T]) -> T:
        """Run a job on this thread, again as long as other processes are in the way.

        Raises:
            CassetteError: when the file can't be used.
        """
        deadline = time.monotonic() + self._busy_seconds
        with self._lock:
            while True:
                try:
                    if self._open is None:
                        self._open = open_file(self._path, self._read_only, self._busy_seconds)
                    return job(self._open)
                except sqlite3.Error as error:
                    if not is_busy(error) or time.monotonic() >= deadline:
                        raise explain(self._path, error) from error
                time.sleep(random.uniform(0.005, 0.05))

    def away(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run a function on the connection's own thread, after those that came before."""
        with self._executor_lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(1, thread_name_prefix="drv-env-cassette")
            future = self._executor.submit(call)
        return asyncio.wrap_future(future)

    def close(self) -> None:
        """Give the file and the thread back, once what was begun is done."""
        with self._executor_lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=True)
        with self._lock:
            self._disconnect()

    def _disconnect(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


# SQLite's locks don't pass through a fork, nor does a thread: connections are closed
# before one, and parent and child open their own when they next need them.
_connections: weakref.WeakSet[Connection] = weakref.WeakSet()
_held: list[Connection] = []


def _before_fork() -> None:
    for connection in list(_connections):
        connection._lock.acquire()
        _held.append(connection)
        connection._disconnect()


def _after_fork_in_parent() -> None:
    while _held:
        _held.pop()._lock.release()


def _after_fork_in_child() -> None:
    _held.clear()
    for connection in list(_connections):
        connection._reset()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)
