"""Closing tools, outcomes and scorers, in bounded time and without hiding what they found."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import Any

from drv_env import background
from drv_env.deadline import bounded
from drv_env.errors import DrvError, ToolError, boundary, said_by
from drv_env.tools.base import Tools
from drv_env.tools.told import warn_once

CLOSE_SECONDS = 10.0
"""That tools, or an outcome, may take to close."""


async def close_tools(*owners: object, seconds: float | None = None) -> None:
    """Close tools and outcomes; whatever goes wrong, time-outs among it, is a warning.

    What was done with them is done: a connection that can't be closed must not cost it.
    Only cancellation from outside, Ctrl-C and the interpreter's exit are raised.

    Args:
        owners: whose ``close`` is awaited, in order; one that has none is left alone.
        seconds: for each, after which it is left as it is; :data:`CLOSE_SECONDS` by default.
    """
    limit = CLOSE_SECONDS if seconds is None else seconds
    for owner in owners:
        offence = partial(warn_once, owner, _name(owner))
        try:
            with boundary(ToolError, "close"):
                closing: Any = owner.close() if callable(getattr(owner, "close", None)) else None  # type: ignore[attr-defined]
                if inspect.isawaitable(closing):
                    await bounded(closing, limit, ToolError, "end", offence, owner)
        except DrvError as error:
            warn_once(owner, _name(owner), f"failed: {said_by(error)}", "close")


_closing: set[asyncio.Task[None]] = set()
"""Begun on the loop's own thread; the loop itself holds tasks weakly."""


def close_tools_now(*owners: object, seconds: float | None = None) -> None:
    """:func:`close_tools` from synchronous code, on the background loop.

    On the loop's own thread, where the garbage collector may close a forgotten env, nobody can
    wait for it: it is begun, and ends by itself.
    """
    if background.is_here():
        task = asyncio.get_running_loop().create_task(close_tools(*owners, seconds=seconds))
        _closing.add(task)
        task.add_done_callback(_closing.discard)
        return
    try:
        background.run(close_tools(*owners, seconds=seconds), leave=True)
    except background.LoopHeld as held:
        warn_once(owners[0], _name(owners[0]), f"is left: {held}", "close")


def _name(owner: object) -> str:
    kind = "scorer" if hasattr(owner, "score") else "outcome"
    return f"close() of the {'tools' if isinstance(owner, Tools) else kind}"
