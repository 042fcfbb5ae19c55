"""One turn of an episode played through: take, tool, give, outcome.

Everything that drives episodes (the Gymnasium faces, rollouts, a web page) plays them
through :func:`play_turn`, so that a failing tool or judge means the same everywhere.
"""

from __future__ import annotations

import dataclasses
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any

from drv_env import prompts
from drv_env.deadline import allowed, bounded, holding_the_loop
from drv_env.episode import Closed, Ending, Episode, Observation
from drv_env.errors import DrvError, JudgeError, ToolError, boundary, said_by
from drv_env.protocol import render_observation
from drv_env.rewards.records import TurnReward
from drv_env.secrets import mask, mask_data
from drv_env.tasks import Task
from drv_env.tools.base import Call, Status, ToolResult, Tools
from drv_env.tools.results import MAX_OBSERVATION_CHARS, checked_clock, checked_result
from drv_env.tools.told import warn_once

__all__ = [
    "MAX_OBSERVATION_CHARS",
    "MAX_REASON_CHARS",
    "Outcome",
    "Played",
    "advance_at_once",
    "ended",
    "failed_call",
    "play_turn",
    "run_call",
    "score_answer",
    "seen",
    "settle",
]

Outcome = Callable[[str, Task], float | Awaitable[float]]
"""Scores a final answer in [0, 1]; may be async.  What it raises breaks the episode."""

MAX_REASON_CHARS = 1_000
"""Of an error's text, what the agent is shown; ``data["reason"]`` of the result has more."""

NOT_INSTANT = "not instant"
"""The rule that tools broke which said ``instant`` and weren't; later calls have a loop."""

MAX_KEPT_REASON_CHARS = 8_000_000
"""Of an error's text, what ``data["reason"]`` of the result has."""


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
    episode: Episode,
    text: str,
    tools: Tools,
    tokens: int | None = None,
    tool_timeout: float = 60.0,
) -> Observation | Closed:
    """The first half of :func:`play_turn` without a loop, for tools that are ``instant``.

    :func:`settle` is the other half, and may wait: for a judge.  A call that took longer
    than ``tool_timeout`` seconds, or that waited, has failed: such tools aren't instant.
    """
    step = episode.take(text, tokens)
    if isinstance(step, Call):
        step = episode.give(_at_once(tools, step, tool_timeout))
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
    if step.ending is Ending.BROKEN:
        return ended(episode, step, None)
    try:
        score = await score_answer(outcome, step.answer, episode.task, outcome_timeout)
    except DrvError as error:
        return ended(episode, episode.break_off(error), None)
    return ended(episode, step, score)


def ended(episode: Episode, closed: Closed, score: float | None) -> Played:
    """What the turn came to that closed the episode; ``score`` is the answer's outcome."""
    return Played(None, closed, TurnReward(None, episode.turns[-1].well_formed, score))


def _at_once(tools: Tools, call: Call, tool_timeout: float) -> ToolResult:
    work: Coroutine[Any, Any, ToolResult] = run_call(tools, call, None)
    started = time.monotonic()
    try:
        work.send(None)
    except StopIteration as done:
        result: ToolResult = done.value
    else:
        work.close()
        return _not_instant(tools, call, "waited for something")
    seconds = time.monotonic() - started
    if seconds <= tool_timeout:
        return result
    return _not_instant(
        tools, call, f"took {seconds:.3g} seconds, over its time-out of {tool_timeout:g}"
    )


def _not_instant(tools: Tools, call: Call, what: str) -> ToolResult:
    message = f"says that it is instant, and {what}"
    warn_once(tools, f"the tool {call.name!r}", f"{message}; leave instant out", NOT_INSTANT)
    return failed_call(call, ToolError(f"it {message}"))


async def run_call(tools: Tools, call: Call, tool_timeout: float | None) -> ToolResult:
    """Run one call; whatever goes wrong becomes a failed result that says so.

    What comes back is checked whole (:func:`drv_env.tools.results.checked_result`), its
    latency is measured here, by the tools' clock, and known keys are masked.  Only
    cancellation from outside, Ctrl-C and the interpreter's exit are raised.

    Args:
        tools: carries out the call.
        call: the call.
        tool_timeout: seconds after which it has failed, or None for tools that never wait.
    """
    offence = partial(warn_once, tools, f"the tool {call.name!r}")
    started = None
    try:
        with boundary(ToolError, call.name, MAX_KEPT_REASON_CHARS):
            started = checked_clock(tools.clock)
            with allowed(tool_timeout):
                work = bounded(
                    tools.call(call), tool_timeout, ToolError, offence=offence, owner=call
                )
                result = checked_result(await work)
    except DrvError as error:
        result = failed_call(call, error)
    latency = 0.0
    if started is not None:
        try:
            with boundary(ToolError, call.name):
                latency = max(0.0, checked_clock(tools.clock) - started)
        except DrvError as error:
            result = failed_call(call, error)
    return dataclasses.replace(
        result, text=mask(result.text), data=mask_data(result.data), latency=latency
    )


async def score_answer(
    outcome: Outcome,
    answer: str | None,
    task: Task,
    outcome_timeout: float | None = None,
    owner: object = None,
) -> float:
    """The outcome of an answer; 0.0 where none was given.

    Args:
        outcome: scores it.
        answer: the answer, or None.
        task: with the gold answers.
        outcome_timeout: seconds that an async scorer may take, or None for no bound.
        owner: whose work it is, for :func:`drv_env.deadline.blocker`.

    Raises:
        JudgeError: when the scorer raises, takes too long, or gives anything but a number
            in [0, 1].
    """
    if answer is None:
        return 0.0
    with boundary(JudgeError, "outcome"):
        with holding_the_loop():
            score: Any = outcome(answer, task)
        if inspect.isawaitable(score):
            offence = partial(warn_once, outcome, "the outcome")
            score = await bounded(score, outcome_timeout, JudgeError, offence=offence, owner=owner)
        if not isinstance(score, Real) or not 0.0 <= float(score) <= 1.0:
            raise JudgeError(f"the outcome must be a number in [0, 1], got {score!r:.100}")
        return float(score) + 0.0


def failed_call(call: Call, error: DrvError) -> ToolResult:
    """The result of a call that failed, as the agent is told of it."""
    reason = said_by(error, MAX_KEPT_REASON_CHARS).removeprefix(f"{call.name}: ")
    shown = reason if len(reason) <= MAX_REASON_CHARS else reason[:MAX_REASON_CHARS] + " …"
    text = prompts.failed_call(call.name, shown)
    kind = error.kind if isinstance(error, ToolError) else "failed"
    kind = mask(kind)[:MAX_REASON_CHARS] if type(kind) is str else "failed"
    return ToolResult(text, Status.FAILED, data={"reason": reason, "kind": kind})
