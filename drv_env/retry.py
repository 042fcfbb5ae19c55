"""Trying again: which failures, how often, and how long to wait in between.

One policy for everything that asks a server: the tools' :class:`~drv_env.tools.layers.Retry`
layer, the parts of one live call, a judge.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import tenacity

from drv_env.errors import SettingError, ToolError
from drv_env.settings import above, at_least, check_fields

T = TypeVar("T")


def ignore_retry(error: ToolError) -> None:
    """Told of every failure that is tried again; does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Exponential back-off with full jitter.

    Before try n + 1 it waits between half and all of ``first_wait`` · 2^(n−1) seconds, at
    most ``longest_wait``.  Where the far side asked for a time (Retry-After), it waits
    that long plus the jitter instead; a time over ``longest_retry_after`` ends the tries
    at once, for coming back sooner would be refused again.

    Attributes:
        attempts: tries in all, at least 1.
        first_wait: seconds, above 0.
        longest_wait: seconds, at least ``first_wait``.
        longest_retry_after: seconds, at least 0.
        sleep: waits so many seconds; tests pass one that doesn't.
        random: between 0 and 1; the jitter.

    Raises:
        SettingError: naming a value that can't work.
    """

    attempts: int = 3
    first_wait: float = 0.5
    longest_wait: float = 8.0
    longest_retry_after: float = 20.0
    sleep: Callable[[float], Awaitable[None]] = field(default=asyncio.sleep, repr=False)
    random: Callable[[], float] = field(default=random.random, repr=False)

    def __post_init__(self) -> None:
        check_fields(
            self,
            attempts=at_least(1),
            first_wait=above(0, "seconds"),
            longest_wait=above(0, "seconds"),
            longest_retry_after=at_least(0, "seconds"),
        )
        if not self.first_wait <= self.longest_wait:
            raise SettingError(
                f"first_wait must be above 0 and at most longest_wait={self.longest_wait}, "
                f"got {self.first_wait}"
            )

    async def run(
        self,
        work: Callable[[], Awaitable[T]],
        on_retry: Callable[[ToolError], None] = ignore_retry,
    ) -> T:
        """Do the work, again where it fails with a retryable ToolError.

        Args:
            work: makes one try.
            on_retry: told of each failure that will be tried again.

        Raises:
            ToolError: the last failure.
        """

        def before_sleep(state: tenacity.RetryCallState) -> None:
            error = _failure(state)
            if error is not None:
                on_retry(error)

        async def once() -> T:
            return await work()

        tries = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(self.attempts),
            wait=self._wait,
            retry=tenacity.retry_if_exception(self._may_help),
            sleep=self.sleep,
            before_sleep=before_sleep,
            reraise=True,
        )
        return await tries(once)

    def _may_help(self, error: BaseException) -> bool:
        if not isinstance(error, ToolError) or not error.retryable:
            return False
        return error.retry_after is None or error.retry_after <= self.longest_retry_after

    def _wait(self, state: tenacity.RetryCallState) -> float:
        # 2.0 ** 60 is more than any bound; the exponent itself must not overflow.
        wait = min(self.first_wait * 2.0 ** min(state.attempt_number - 1, 60), self.longest_wait)
        wait *= 0.5 + 0.5 * self.random()
        error = _failure(state)
        asked = error.retry_after if error is not None else None
        return wait if asked is None else asked + wait


ONCE = RetryPolicy(attempts=1)
"""No second try."""


def _failure(state: tenacity.RetryCallState) -> ToolError | None:
    error = state.outcome.exception() if state.outcome is not None else None
    return error if isinstance(error, ToolError) else None
