"""Ctrl-C that lets a step finish: the first asks, the second stops at once."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Interrupt:
    """Whether Ctrl-C was pressed."""

    asked: bool = False


@contextmanager
def finishing_first(what: str) -> Iterator[Interrupt]:
    """Inside, Ctrl-C is noted and nothing is interrupted; a second Ctrl-C is as always.

    Off the main thread signals can't be taken, and nothing is changed.  Nor is it where
    SIGINT is ignored: whoever started the process (``nohup``, a script with ``&``) has
    decided that Ctrl-C is meant for others.

    Args:
        what: what is finished first, for the message.
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        yield interrupt
        return

    def ask(number: int, frame: FrameType | None) -> None:
        interrupt.asked = True
        signal.signal(signal.SIGINT, before)
        log.warning("Ctrl-C: leaving after %s; press it again to leave at once", what)

    signal.signal(signal.SIGINT, ask)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, before)
