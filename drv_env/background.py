"""One event loop per process, on a thread of its own, for every synchronous face.

A synchronous caller hands a coroutine over and waits for its result.  The loop starts
at first use; a forked child starts one of its own.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_owner = 0


def loop() -> asyncio.AbstractEventLoop:
    """The process's background loop, started when there is none."""
    global _loop, _owner
    with _lock:
        if _loop is None or _loop.is_closed() or _owner != os.getpid():
            _loop = asyncio.new_event_loop()
            _owner = os.getpid()
            threading.Thread(target=_serve, args=(_loop,), name="drv-env-loop", daemon=True).start()
        return _loop


def _serve(target: asyncio.AbstractEventLoop) -> None:
    """Run the loop for good: work that exits ends its own caller, not everybody's loop."""
    while True:
        with suppress(KeyboardInterrupt, SystemExit):  # raised at the caller of run()
            target.run_forever()
            return


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run ``work`` on the background loop and wait for its result.

    Ctrl-C while waiting cancels the work and is raised here.

    Raises:
        RuntimeError: when called from the background loop itself, where waiting would
            never end.
    """
    target = loop()
    try:
        running: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is target:
        work.close()
        raise RuntimeError("a synchronous call was made from the background event loop")
    future = asyncio.run_coroutine_threadsafe(work, target)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise
