"""Closing tools, in bounded time and without hiding what was found with them."""

from __future__ import annotations

import asyncio
from functools import partial

from drv_env import background
from drv_env.deadline import bounded
from drv_env.errors import DrvError, ToolError, boundary, said_by
from drv_env.tools.base import Tools
from drv_env.tools.told import warn_once

CLOSE_SECONDS = 10.0
"""That tools may take to close."""

_NAME = "close() of the tools"


async def close_tools(tools: Tools, seconds: float | None = None) -> None:
    """Close tools; whatever goes wrong, time-outs among it, is a warning.

    What was done with the tools is done: a connection that can't be closed must not cost it.
    Only cancellation from outside, Ctrl-C and the interpreter's exit are raised.

    Args:
        tools: whose ``close`` is awaited.
        seconds: after which they are left as they are; :data:`CLOSE_SECONDS` by default.
    """
    limit = CLOSE_SECONDS if seconds is None else seconds
    offence = partial(warn_once, tools, _NAME)
    try:
        with boundary(ToolError, "close"):
            await bounded(tools.close(), limit, ToolError, "end", offence, tools)
    except DrvError as error:
        warn_once(tools, _NAME, f"failed: {said_by(error)}", "close")


_closing: set[asyncio.Task[None]] = set()
"""Begun on the loop's own thread; the loop itself holds tasks weakly."""


def close_tools_now(tools: Tools, seconds: float | None = None) -> None:
    """:func:`close_tools` from synchronous code, on the background loop.

    On the loop's own thread, where the garbage collector may close a forgotten env, nobody can
    wait for it: it is begun, and ends by itself.
    """
    if background.is_here():
        task = asyncio.get_running_loop().create_task(close_tools(tools, seconds))
        _closing.add(task)
        task.add_done_callback(_closing.discard)
        return
    try:
        background.run(close_tools(tools, seconds), leave=True)
    except background.LoopHeld as held:
        warn_once(tools, _NAME, f"is left: {held}", "close")
