"""A far side's work within a time: what the event loop lost to whom, and what ends for good.

``asyncio.timeout`` trusts the work: one that swallows its cancellation goes on for ever, one
that blocks the loop is late together with everybody else.  :func:`bounded` drives the work
step by step, so it knows how long each of its steps held the loop.  Work that held it
longer than its time-out has failed, whatever it gave; work that waited is given back the
time that others held the loop; work that goes on after its cancellation is closed.
"""

from __future__ import annotations

import asyncio
import inspect
import time
import weakref
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from drv_env.errors import DrvError

T = TypeVar("T")

GRACE = 1.0
"""Seconds that cancelled work may take to clean up; no more than its time-out, though."""

AWAIT = "it must await, or do its work in asyncio.to_thread"
"""What work has to do that holds up an event loop."""

BLOCKS, GOES_ON = "blocks", "goes on"
"""The two rules that work can break."""

_NOTICED = 0.05
"""Seconds for which a step may hold the loop without anybody being given them back."""

_end: ContextVar[float | None] = ContextVar("drv_env_end", default=None)
"""When the work under way has to be done, by the monotonic clock."""

_lost: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, float] = weakref.WeakKeyDictionary()
"""Seconds that steps have held each loop."""

_working: dict[asyncio.AbstractEventLoop, _Steps[Any]] = {}
"""The work in whose step each loop is at the moment."""

Offence = Callable[[str, str], None]
"""Told how work broke the rules of an event loop: in words that follow a name, and which rule."""


@dataclass(frozen=True, slots=True)
class Blocker:
    """Work that holds an event loop and should have ended: whose, and since how many seconds."""

    owner: object
    seconds: float


def blocker(loop: asyncio.AbstractEventLoop) -> Blocker | None:
    """The work that holds ``loop`` well past its time-out at this moment, if any does.

    For other threads, which can't wait for what may never end.
    """
    steps = _working.get(loop)
    if steps is None or steps.seconds is None:
        return None
    held = time.monotonic() - steps.since
    if held <= steps.seconds + min(GRACE, steps.seconds):
        return None
    return Blocker(steps.owner, held)


@contextmanager
def allowed(seconds: float | None) -> Iterator[None]:
    """Work inside can ask by :func:`time_left` how long it may take; None sets no bound."""
    before = _end.get()
    if seconds is not None:
        end = time.monotonic() + seconds
        _end.set(end if before is None else min(before, end))
    try:
        yield
    finally:
        _end.set(before)


def time_left() -> float | None:
    """Seconds until whoever waits for the work under way gives it up; None where nobody does.

    For work that has something to say of what isn't done by then.
    """
    end = _end.get()
    return None if end is None else end - time.monotonic()


@contextmanager
def holding_the_loop() -> Iterator[None]:
    """Time spent inside, without waiting, is given back to work with a time-out."""
    started = time.monotonic()
    try:
        yield
    finally:
        _count(time.monotonic() - started)


async def bounded(
    work: Awaitable[T],
    seconds: float | None,
    kind: type[DrvError],
    what: str = "reply",
    offence: Offence | None = None,
    owner: object = None,
) -> T:
    """What a far side gives, in time.

    Args:
        work: awaits it.
        seconds: after which it has failed; None waits for ever.
        kind: the error that a failure is.
        what: is awaited, for the message.
        offence: told of work that blocks the loop, or doesn't end when it is cancelled.
        owner: whose work it is, for :func:`blocker`.

    Raises:
        kind: when it takes too long, holds the event loop for longer than that, or cancels
            its own work.
        TypeError: when it is nothing to await.
    """
    if not inspect.isawaitable(work):
        raise TypeError(f"{type(work).__name__} is nothing to await: it must be async")
    if seconds is None:
        return await _unlimited(_Steps(work, None, owner), kind)
    steps = _Steps(work, seconds, owner)
    limit = _Limit(steps, seconds)
    try:
        try:
            result = await steps
        finally:
            limit.stop()
        if limit.from_outside():  # the work has swallowed what was meant for its caller too
            raise asyncio.CancelledError
        await limit.settle()
        if not limit.expired and steps.longest <= seconds:
            return result
    except (KeyboardInterrupt, SystemExit):
        raise
    except asyncio.CancelledError:
        if limit.from_outside():
            raise
        await limit.settle()
        if not limit.expired and steps.longest <= seconds:
            raise kind("it cancelled its own work") from None
    except BaseException:
        if limit.from_outside():
            raise asyncio.CancelledError from None
        await limit.settle()
        if not limit.expired and steps.longest <= seconds:
            raise
    if steps.longest > seconds:
        if offence is not None:
            offence(f"held up the event loop for {steps.longest:.3g} seconds; {AWAIT}", BLOCKS)
        raise kind(
            f"no {what} within {seconds:g} seconds: it held up everything for "
            f"{steps.longest:.3g} seconds"
        )
    if limit.closed and offence is not None:
        offence(
            "went on after it was cancelled, and was closed; it must let CancelledError pass",
            GOES_ON,
        )
    raise kind(f"no {what} within {seconds:g} seconds")


async def _unlimited(steps: _Steps[T], kind: type[DrvError]) -> T:
    try:
        return await steps
    except asyncio.CancelledError:
        task = _current_task()
        if task is not None and task.cancelling():
            raise
        raise kind("it cancelled its own work") from None


class _Steps(Awaitable[T]):
    """Work, driven step by step.

    Attributes:
        seconds: its time-out, or None.
        owner: whose work it is.
        since: when its last step began.
        longest: seconds that its longest step took.
        held: seconds that its steps held the loop noticeably.
        own_cancels: how often it cancelled the task that it runs in, from a step.
        close_next: the next time that it is resumed, it is closed.
        on_cancel: called when it is cancelled, by whomever.
    """

    def __init__(self, work: Awaitable[T], seconds: float | None, owner: object) -> None:
        self._work = work
        self.seconds = seconds
        self.owner = owner
        self.since = 0.0
        self.longest = 0.0
        self.held = 0.0
        self.own_cancels = 0
        self.close_next = False
        self.on_cancel: Callable[[], None] | None = None

    def __await__(self) -> Generator[Any, Any, T]:
        inner: Any = self._work.__await__()
        step, given = inner.send, None
        while True:
            try:
                waits_for = self._timed(step, given)
            except StopIteration as done:
                result: T = done.value
                return result
            except GeneratorExit as error:  # of its own: nobody closes it here
                raise RuntimeError("it raised GeneratorExit") from error
            try:
                given = yield waits_for
                step = inner.send
            except GeneratorExit:
                inner.close()
                raise
            except BaseException as error:
                if self.close_next:
                    self._end(inner)
                    raise
                if isinstance(error, asyncio.CancelledError) and self.on_cancel is not None:
                    self.on_cancel()
                step, given = _thrower(inner), error

    def _timed(self, step: Callable[[Any], Any], given: Any) -> Any:
        task = _current_task()
        before = 0 if task is None else task.cancelling()
        loop = None if task is None else task.get_loop()
        outer = None if loop is None else _working.get(loop)
        self.since = started = time.monotonic()
        if loop is not None:
            _working[loop] = self
        try:
            return step(given)
        finally:
            if outer is not None and loop is not None:
                _working[loop] = outer
            elif loop is not None:
                _working.pop(loop, None)
            seconds = time.monotonic() - started
            self.longest = max(self.longest, seconds)
            if seconds >= _NOTICED:
                self.held += seconds
            _count(seconds)
            if task is not None:
                for _ in range(task.cancelling() - before):  # nobody else runs during a step
                    task.uncancel()
                    self.own_cancels += 1

    def _end(self, inner: Any) -> None:
        with suppress(Exception):  # it has failed already, and nobody resumes it again
            inner.close()


def _thrower(inner: Any) -> Callable[[Any], Any]:
    if hasattr(inner, "throw"):
        return inner.throw  # type: ignore[no-any-return]

    def raised(error: BaseException) -> Any:
        raise error

    return raised


class _Limit:
    """Cancels the current task when its work's time is over, and closes what goes on."""

    def __init__(self, steps: _Steps[Any], seconds: float) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task, self._steps = task, steps
        self._loop = asyncio.get_running_loop()
        self._before = task.cancelling()
        self._cancels = 0
        self._granted = 0.0
        self._lost_before = _lost.get(self._loop, 0.0)
        self._due_at = self._loop.time() + seconds
        self._grace = min(GRACE, seconds)
        self._timer = self._loop.call_at(self._due_at, self._due)
        self.expired = False
        self.closed = False
        steps.on_cancel = self._hurry

    def _due(self) -> None:
        lost = _lost.get(self._loop, 0.0) - self._lost_before - self._steps.held
        if lost > self._granted:
            self._granted = lost
            self._timer = self._loop.call_at(self._due_at + lost, self._due)
            return
        self.expired = True
        self._cancel()

    def _cancel(self) -> None:
        self._cancels += 1
        self._task.cancel()

    def _hurry(self) -> None:
        """The work is told to stop, by us or from outside, and has a little time for that."""
        self._timer.cancel()
        self._timer = self._loop.call_later(self._grace, self._close)

    def _close(self) -> None:
        if self.expired or self.from_outside():
            self.closed = self._steps.close_next = True
            self._cancel()
        else:  # it has cancelled a part of itself, and goes on
            self._timer = self._loop.call_at(self._due_at + self._granted, self._due)

    def stop(self) -> None:
        """No more is cancelled; what was, is taken back."""
        self._timer.cancel()
        for _ in range(self._cancels):
            self._task.uncancel()
        self._cancels = 0

    def from_outside(self) -> bool:
        """Whether somebody else has cancelled the task meanwhile."""
        return self._task.cancelling() - self._cancels > self._before

    async def settle(self) -> None:
        """A cancellation that the work asked of its own task, and did not wait for, ends here."""
        if not self._steps.own_cancels or self.from_outside():
            return
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            if self.from_outside():
                raise


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs in this thread
        return None


def _count(seconds: float) -> None:
    if seconds < _NOTICED:
        return
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # a thread without a loop holds none up
        return
    _lost[loop] = _lost.get(loop, 0.0) + seconds
