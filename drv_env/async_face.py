"""The env for callers with an event loop of their own, whatever is wrapped around it.

The envs and the reward wrappers of this package play on the caller's loop.  What knows nothing of
that, Gymnasium's own wrappers and those of other people, is stepped on a thread, so that the loop
stays free: :class:`AsyncFace` and :class:`VectorAsyncFace` put such a face around anything.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

import gymnasium
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorWrapper

Given = ParamSpec("Given")
T = TypeVar("T")

_MOST_STEPS = 1024
"""Steps on threads at a time; each is mostly waiting for its tools."""

_steps = ThreadPoolExecutor(_MOST_STEPS, "drv-env-step")
_scores = ThreadPoolExecutor(1, "drv-env-score")


async def areset(env: Any, **given: Any) -> Any:
    """What ``env.reset(**given)`` gives, with the caller's loop free meanwhile."""
    if hasattr(env, "areset"):
        return await env.areset(**given)
    return await _on(_steps, env.reset, **given)


async def astep(env: Any, action: Any) -> Any:
    """What ``env.step(action)`` gives, with the caller's loop free meanwhile."""
    if hasattr(env, "astep"):
        return await env.astep(action)
    return await _on(_steps, env.step, action)


async def aclose(env: Any) -> None:
    """What ``env.close()`` does, with the caller's loop free meanwhile."""
    if hasattr(env, "aclose"):
        await env.aclose()
    else:
        await _on(_steps, env.close)


async def on_scorers_thread(
    work: Callable[Given, T], *args: Given.args, **given: Given.kwargs
) -> T:
    """Work that asks a scorer, which holds its caller up: one at a time, in the order asked."""
    return await _on(_scores, work, *args, **given)


async def _on(
    pool: ThreadPoolExecutor, work: Callable[Given, T], *args: Given.args, **given: Given.kwargs
) -> T:
    call = partial(contextvars.copy_context().run, partial(work, *args, **given))
    return await asyncio.get_running_loop().run_in_executor(pool, call)


class AsyncFace(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """``areset``, ``astep`` and ``aclose`` around whatever wraps the env.

    Cancelling a step that runs on a thread leaves the tool call to end by itself, at the latest
    with its time-out; the env must not be used before.

    Args:
        env: any env.

    Example:
        >>> import asyncio, gymnasium, drv_env
        >>> from drv_env.testing import FakeTools
        >>> env = gymnasium.make(drv_env.ENV_ID, tasks=[("Who?", "Ada")], tools=FakeTools())
        >>> env = drv_env.AsyncFace(gymnasium.wrappers.TimeLimit(env, max_episode_steps=3))
        >>> asyncio.run(env.areset(seed=0))[0]
        'Who?'
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        RecordConstructorArgs.__init__(self)
        super().__init__(env)

    async def areset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """``reset``, awaited."""
        result: tuple[Any, dict[str, Any]] = await areset(self.env, seed=seed, options=options)
        return result

    async def astep(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """``step``, awaited."""
        result: tuple[Any, float, bool, bool, dict[str, Any]] = await astep(self.env, action)
        return result

    async def aclose(self) -> None:
        """``close``, awaited."""
        await aclose(self.env)


class VectorAsyncFace(VectorWrapper):
    """:class:`AsyncFace` for a vector env."""

    async def areset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """``reset``, awaited."""
        result: tuple[Any, dict[str, Any]] = await areset(self.env, seed=seed, options=options)
        return result

    async def astep(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """``step``, awaited."""
        result: tuple[Any, Any, Any, Any, dict[str, Any]] = await astep(self.env, actions)
        return result

    async def aclose(self) -> None:
        """``close``, awaited."""
        await aclose(self.env)
