"""How a rollout is going, on standard error: a living line on a terminal, else a line a while."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from rich.console import Console
from rich.live import Live
from rich.text import Text

from agents.meter import Meter, Progress

LIVE_SECONDS = 0.5
LINE_SECONDS = 10.0


@asynccontextmanager
async def shown(meter: Meter, console: Console) -> AsyncIterator[None]:
    """Show the meter's figures while the block runs, and once more at its end."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:

            def show() -> None:
                live.update(Text(line(meter.progress())), refresh=True)

            async with _every(LIVE_SECONDS, show):
                yield
        return

    def say() -> None:
        console.print(Text(line(meter.progress())), soft_wrap=True)

    async with _every(LINE_SECONDS, say):
        yield


def line(now: Progress) -> str:
    """The figures as one line."""
    parts = [f"{now.over:,}/{now.episodes:,} episodes over, {now.playing:,} playing"]
    if now.broken or now.retried:
        parts[0] += f", {now.broken:,} broken, {now.retried:,} tried again"
    if now.hurried:
        parts[0] += f", {now.hurried:,} hurried"
    if now.over < now.episodes:
        left = now.seconds_left
        parts.append("time left not known yet" if left is None else f"about {duration(left)} left")
    parts.append(f"{now.turns:,} turns, {now.turns_per_s:.1f}/s")
    if now.tokens:
        parts.append(f"{now.tokens:,} tokens, {now.tokens_per_s:,.0f}/s")
    if now.resampled:
        parts.append(f"{now.resampled:,} turns sampled again")
    if now.tool_calls:
        parts.append(", ".join(f"{name} {now.tool_seconds[name]:.2f} s" for name in now.tool_calls))
    if now.failures:
        told = sorted(now.failures.items(), key=lambda item: -item[1])
        parts.append("failures: " + ", ".join(f"{kind} {count:,}" for kind, count in told))
    return " · ".join(parts)


def duration(seconds: float) -> str:
    """A time in words, no finer than anybody needs.

    Example:
        >>> duration(7.2), duration(754), duration(12_000)
        ('8 s', '13 min', '3 h 20 min')
    """
    if seconds < 60:
        return f"{math.ceil(seconds)} s"
    minutes = math.ceil(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


@asynccontextmanager
async def _every(seconds: float, work: Callable[[], None]) -> AsyncIterator[None]:
    async def repeat() -> None:
        while True:
            await asyncio.sleep(seconds)
            work()

    task = asyncio.create_task(repeat())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        work()
