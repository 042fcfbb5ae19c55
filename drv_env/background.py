"""One event loop per process, on a thread of its own, for every synchronous face.

A synchronous caller hands a coroutine over and waits for its result.  The loop starts
at first use; a forked child starts one of its own.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import wait
from contextlib import suppress
from typing import Any, TypeVar

from drv_env.deadline import Blocker, blocker

T = TypeVar("T")

_LOOKS = 0.1
"""Seconds between two looks at whether the loop is held up."""

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


class LoopHeld(Exception):
    """Work with a time-out holds the loop and may never let go.

    Attributes:
        by: whose work it is.
    """

    def __init__(self, by: Blocker) -> None:
        super().__init__(f"the event loop has been held up for {by.seconds:.3g} seconds")
        self.by = by


def is_here() -> bool:
    """Whether the caller runs on the background loop."""
    try:
        return asyncio.get_running_loop() is loop()
    except RuntimeError:
        return False


def run(work: Coroutine[Any, Any, T], leave: bool = False) -> T:
    """Run ``work`` on the background loop and wait for its result.

    Ctrl-C while waiting cancels the work and is raised here.

    Args:
        work: what to run.
        leave: True gives up where anybody's work holds the loop well past its time-out
            (:func:`drv_env.deadline.blocker`).  ``work`` is then cancelled, as far as the
            loop ever gets to it; whoever comes next has a new loop.

    Raises:
        LoopHeld: as ``leave`` says.
        RuntimeError: when called from the background loop itself, where waiting would
            never end.
    """
    target = loop()
    if is_here():
        work.close()
        raise RuntimeError("a synchronous call was made from the background event loop")
    future = asyncio.run_coroutine_threadsafe(work, target)
    try:
        while leave and not wait([future], _LOOKS).done:
            held = blocker(target)
            if held is not None:
                _leave(target)
                raise LoopHeld(held)
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _leave(target: asyncio.AbstractEventLoop) -> None:
    """The next caller has a loop of its own; what runs on this one goes on, if it ever can."""
    global _loop
    with _lock:
        if _loop is target:
            _loop = None
