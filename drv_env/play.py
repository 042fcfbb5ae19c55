"""One turn of an episode played through: take, tool, give, outcome.

Everything that drives episodes (the Gymnasium faces, rollouts, a web page) plays them
through :func:`play_turn`, so that a failing tool or judge means the same everywhere.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from numbers import Real
from typing import Any, TypeVar

from drv_env import prompts
from drv_env.episode import Closed, Ending, Episode, Observation
from drv_env.errors import DrvError, JudgeError, ToolError, boundary
from drv_env.protocol import render_observation
from drv_env.rewards.records import TurnReward
from drv_env.secrets import mask, mask_data
from drv_env.tasks import Task
from drv_env.tools.base import Call, Status, ToolResult, Tools

T = TypeVar("T")

Outcome = Callable[[str, Task], float | Awaitable[float]]
"""Scores a final answer in [0, 1]; may be async.  What it raises breaks the episode."""

MAX_OBSERVATION_CHARS = 4_000_000
"""A tool that returns more than this has failed; nothing is cut silently."""

MAX_REASON_CHARS = 1_000
"""Of an error's text, what the agent is shown; ``data["reason"]`` of the result has all."""


@dataclass(frozen=True, slots=True)
class Played:
    """What a turn came to.

    Attributes:
        observation: what the agent sees next, or None when the episode is over.
        closed: how it ended, or None.
        reward: the turn's reward record, its information gain not computed.
    """

    observation: Observation | None
    closed: Closed | None
    reward: TurnReward


async def play_turn(
    episode: Episode,
    text: str,
    tools: Tools,
    outcome: Outcome,
    *,
    tokens: int | None = None,
    tool_timeout: float = 60.0,
    outcome_timeout: float = 300.0,
    limit: AbstractAsyncContextManager[Any] | None = None,
    prepare: Callable[[str], Awaitable[None]] | None = None,
) -> Played:
    """Play one assistant turn: read it, run its tool, score its answer.

    Never raises because of a tool or a judge; see :class:`drv_env.episode.Ending`.

    Args:
        episode: the episode, not over.
        text: the turn, whole.
        tools: carries out calls.
        outcome: scores the final answer.
        tokens: how many tokens were sampled, where known.
        tool_timeout: seconds after which a call has failed.
        outcome_timeout: seconds after which an async outcome is lost.
        limit: entered for the time of a tool's call, a semaphore for instance; waiting for
            it is not part of ``tool_timeout``.
        prepare: awaited with the message that a result would become, before the episode
            takes it: the place to encode it elsewhere than on the event loop.
    """
    step = episode.take(text, tokens)
    if isinstance(step, Call):
        async with nullcontext() if limit is None else limit:
            result = await run_call(tools, step, tool_timeout)
        if prepare is not None:
            await prepare(render_observation(result.text))
        step = episode.give(result)
    return await settle(episode, step, outcome, outcome_timeout)


def advance_at_once(
    episode: Episode, text: str, tools: Tools, tokens: int | None = None
) -> Observation | Closed:
    """The first half of :func:`play_turn` without a loop, for tools that are ``instant``.

    :func:`settle` is the other half, and may wait: for a judge.
    """
    step = episode.take(text, tokens)
    if isinstance(step, Call):
        step = episode.give(_at_once(run_call(tools, step, None)))
    return step


def seen(episode: Episode, observation: Observation) -> Played:
    """What a turn came to that did not close the episode."""
    return Played(observation, None, TurnReward(None, episode.turns[-1].well_formed, None))


async def settle(
    episode: Episode,
    step: Observation | Closed,
    outcome: Outcome,
    outcome_timeout: float | None = None,
) -> Played:
    """What a turn came to; an answer is scored here."""
    if isinstance(step, Observation):
        return seen(episode, step)
    score = None
    if step.ending is not Ending.BROKEN:
        try:
            score = await score_answer(outcome, step.answer, episode.task, outcome_timeout)
        except DrvError as error:
            step = episode.break_off(error)
    return Played(None, step, TurnReward(None, episode.turns[-1].well_formed, score))


def _at_once(work: Coroutine[Any, Any, ToolResult]) -> ToolResult:
    try:
        work.send(None)
    except StopIteration as done:
        result: ToolResult = done.value
        return result
    work.close()
    raise RuntimeError("tools that say they are instant waited for something")


async def run_call(tools: Tools, call: Call, tool_timeout: float | None) -> ToolResult:
    """Run one call; whatever goes wrong becomes a failed result that says so.

    The result's latency is measured here, by the tools' clock, and known keys are masked.
    Only cancellation from outside is raised.

    Args:
        tools: carries out the call.
        call: the call.
        tool_timeout: seconds after which it has failed, or None for tools that never wait.
    """
    started = tools.clock()
    try:
        with boundary(ToolError, call.name):
            result = await bounded(tools.call(call), tool_timeout, ToolError)
        if not isinstance(result, ToolResult):
            raise ToolError(f"it returned {type(result).__name__} in place of a ToolResult")
        if not isinstance(result.text, str) or not isinstance(result.status, Status):
            kinds = f"{type(result.text).__name__}, {type(result.status).__name__}"
            raise ToolError(f"its result has, in place of a text and a Status: {kinds}")
        if len(result.text) > MAX_OBSERVATION_CHARS:
            size = len(result.text)
            raise ToolError(f"its output of {size} characters is over {MAX_OBSERVATION_CHARS}")
    except DrvError as error:
        result = _failure(call, error)
    return dataclasses.replace(
        result,
        text=mask(result.text),
        data=mask_data(result.data),
        latency=tools.clock() - started,
    )


async def bounded(
    work: Awaitable[T], seconds: float | None, kind: type[DrvError], what: str = "reply"
) -> T:
    """What a far side gives, in time.

    Args:
        work: awaits it.
        seconds: after which it has failed; None waits for ever.
        kind: the error that a failure is.
        what: is awaited, for the message.

    Raises:
        kind: when it takes too long, or cancels its own work.
    """
    if seconds is None:
        return await work
    try:
        with _own_cancellation(kind):
            async with asyncio.timeout(seconds) as limit:
                return await work
    except TimeoutError:
        if limit.expired():
            raise kind(f"no {what} within {seconds:g} seconds") from None
        raise


@contextmanager
def _own_cancellation(kind: type[DrvError]) -> Iterator[None]:
    """A far side that cancels its own work has failed; nobody has cancelled ours.

    Raises:
        kind: in place of a cancellation that nobody asked of the current task.
    """
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise kind("it cancelled its own work") from None


async def score_answer(
    outcome: Outcome, answer: str | None, task: Task, outcome_timeout: float | None = None
) -> float:
    """The outcome of an answer; 0.0 where none was given.

    Args:
        outcome: scores it.
        answer: the answer, or None.
        task: with the gold answers.
        outcome_timeout: seconds that an async scorer may take, or None for no bound.

    Raises:
        JudgeError: when the scorer raises, takes too long, or gives anything but a number
            in [0, 1].
    """
    if answer is None:
        return 0.0
    with boundary(JudgeError, "outcome"):
        score: Any = outcome(answer, task)
        if inspect.isawaitable(score):
            score = await bounded(score, outcome_timeout, JudgeError)
    if not isinstance(score, Real) or not 0.0 <= float(score) <= 1.0:
        raise JudgeError(f"the outcome must be a number in [0, 1], got {score!r:.100}")
    return float(score)


def _failure(call: Call, error: DrvError) -> ToolResult:
    reason = str(error).removeprefix(f"{call.name}: ")
    shown = reason if len(reason) <= MAX_REASON_CHARS else reason[:MAX_REASON_CHARS] + " …"
    text = prompts.failed_call(call.name, shown)
    kind = error.kind if isinstance(error, ToolError) else "failed"
    return ToolResult(text, Status.FAILED, data={"reason": reason, "kind": kind})
