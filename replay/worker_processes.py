"""How our worker processes live: Ctrl-C is the parent's business, and none outlives it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import connection, parent_process, resource_tracker
from pathlib import Path
from typing import Any

from drv_env.errors import SettingError, TaskDataError


class ProcessPool(ProcessPoolExecutor):
    """The standard library's pool, which also ends where a worker died.

    Before Python 3.11.5 a pool's thread that hands out work waits for ever for a reader that is
    gone, where the work doesn't fit into the pipe (CPython's issue 94777), and everybody who ends
    the pool waits with it.  Here the pipe is closed once the pool is broken, whatever the version.
    """

    def __init__(self, *args: Any, **arguments: Any) -> None:
        super().__init__(*args, **arguments)
        own: Any = self
        if own._mp_context.get_start_method() != "fork":
            refuse_unguarded_script()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers; see the standard library."""
        own: Any = self
        thread, queue = own._executor_manager_thread, own._call_queue
        super().shutdown(wait=False, cancel_futures=cancel_futures)
        while wait and thread is not None and thread.is_alive():
            thread.join(0.05)
            if own._broken and queue is not None:
                queue._reader.close()


def refuse_unguarded_script() -> None:
    """Refuse to start workers from a script that starts them whenever it is imported.

    Each worker imports the main script, and would itself start workers, which Python ends.

    Raises:
        SettingError: naming the script and what to write.
    """
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    try:
        text = "" if file is None else Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:  # of an archive, say, or of nothing: "<stdin>"
        return
    if text and "__name__" not in text:
        raise SettingError(
            f"worker processes import {file} again, and would begin the same work: put what it "
            'does under if __name__ == "__main__":, or let one process do it (workers=1)'
        )


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Processes that are started inside never see Ctrl-C, not even while Python starts in them;
    for this one it waits until the end."""
    resource_tracker.ensure_running()  # which would let Ctrl-C in when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def follow_parent() -> None:
    """To be called first in a worker: a parent that was killed takes it along."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None

    def follow() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def worker_died(where: str) -> TaskDataError:
    """What to raise when a worker is gone.

    Args:
        where: what it may have been at work on.
    """
    return TaskDataError(
        f"a worker process died (killed, out of memory, or unable to import the main script, as "
        f"one from the standard input), perhaps at {where}; what was finished is kept, and the "
        "same command goes on from there"
    )
