"""What one env and a vector of envs share: how episodes begin and what info says.

A :class:`Game` is the fixed part (tasks, tools, outcome, rules); it makes episodes and
plays their turns, and knows nothing of Gymnasium.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from drv_env import background
from drv_env.context import ContextCounter
from drv_env.episode import Closed, Ending, Episode, Observation, Rules
from drv_env.errors import SettingError
from drv_env.play import Outcome, Played, advance_at_once, play_turn, seen, settle
from drv_env.rewards.outcome import exact_match
from drv_env.spaces import SampledText
from drv_env.task_files import TaskSource, load_tasks
from drv_env.tasks import Task, task_from
from drv_env.tools.base import Clock, Tools

Info = dict[str, Any]


class Game:
    """Tasks, tools and rules, from which episodes are made and played.

    Args:
        tasks: questions, as :func:`drv_env.task_files.load_tasks` takes them.
        tools: carries out calls; held by reference.
        outcome: scores final answers.
        rules: what an episode allows; by default the tools' schemas and 200 turns.
        counter: counts context tokens, for ``rules.max_context``.
        clock: for ``rules.max_seconds``; the tools' clock by default.
        tool_timeout: seconds after which a call has failed.
        outcome_timeout: seconds after which an async outcome is lost, and the episode broken.

    Raises:
        SettingError: for a setting that can't work.
        TaskDataError: for a task that is none.
    """

    def __init__(
        self,
        tasks: TaskSource,
        tools: Tools,
        *,
        outcome: Outcome = exact_match,
        rules: Rules | None = None,
        counter: ContextCounter | None = None,
        clock: Clock | None = None,
        tool_timeout: float = 60.0,
        outcome_timeout: float = 300.0,
    ) -> None:
        if not isinstance(tools, Tools):
            raise SettingError(
                "tools must have schemas, clock, call() and close(), "
                f"got {type(tools).__name__}; see drv_env.tools"
            )
        for name, seconds in (("tool_timeout", tool_timeout), ("outcome_timeout", outcome_timeout)):
            if not seconds > 0:
                raise SettingError(f"{name} must be above 0 seconds, got {seconds}")
        self.tasks = load_tasks(tasks)
        self.tools = tools
        self.outcome = outcome
        self.rules = Rules(tools=tuple(tools.schemas)) if rules is None else rules
        self.counter = counter
        self.clock = tools.clock if clock is None else clock
        self.tool_timeout = tool_timeout
        self.outcome_timeout = outcome_timeout
        unknown = self.tool_names - {tool.name for tool in tools.schemas}
        if unknown:
            raise SettingError(
                f"rules.tools names {sorted(unknown)}, which the tools given don't have"
            )
        self._check_worlds()
        self.episode(self.tasks[0])

    @property
    def tool_names(self) -> frozenset[str]:
        """Names of the tools that episodes may call."""
        return frozenset(tool.name for tool in self.rules.tools)

    def _check_worlds(self) -> None:
        """Tools that name their worlds must know those of the tasks."""
        known: Sequence[str] = getattr(self.tools, "worlds", ())
        for task in self.tasks if known else ():
            if task.world is None and len(known) > 1:
                raise SettingError(
                    f"the task {task.question!r:.80} names no world, and the tools have several: "
                    f"{', '.join(known[:5])}; give each task its world"
                )
            if task.world is not None and task.world not in known:
                raise SettingError(
                    f"the task {task.question!r:.80} is of the world {task.world!r}, which the "
                    f"tools don't have; they have {', '.join(known[:5])}"
                )

    def task_of(self, options: Mapping[str, Any] | None) -> Task | None:
        """The task that ``options["task"]`` sets, if any."""
        chosen = None if options is None else options.get("task")
        return None if chosen is None else task_from(chosen)

    def episode(self, task: Task, counter: ContextCounter | None = None) -> Episode:
        """A new episode of ``task``, counted by a counter of its own where one is given."""
        return Episode(task, self.rules, counter or self.counter, self.clock)

    def play(self, turns: Sequence[tuple[Episode, str]]) -> list[Played]:
        """Play one turn in each of several episodes, from synchronous code.

        Tool calls, and judges, of all of them run together on the background loop; tools
        that say they are ``instant`` run on the caller's thread.  A turn that is a
        :class:`~drv_env.spaces.SampledText` is counted with its own number of tokens.
        """
        if not getattr(self.tools, "instant", False):
            return background.run(_together(self.play_one(*turn) for turn in turns))
        steps = [
            advance_at_once(episode, text, self.tools, _tokens(text)) for episode, text in turns
        ]
        if not any(isinstance(step, Closed) for step in steps):
            return [
                seen(episode, step)
                for (episode, _), step in zip(turns, steps, strict=True)
                if isinstance(step, Observation)
            ]
        return background.run(
            _together(
                settle(episode, step, self.outcome, self.outcome_timeout)
                for (episode, _), step in zip(turns, steps, strict=True)
            )
        )

    async def play_one(
        self,
        episode: Episode,
        text: str,
        limit: AbstractAsyncContextManager[Any] | None = None,
        prepare: Callable[[str], Awaitable[None]] | None = None,
    ) -> Played:
        """Play one turn, on the caller's event loop; the rest as for :func:`play_turn`."""
        return await play_turn(
            episode,
            text,
            self.tools,
            self.outcome,
            tokens=_tokens(text),
            tool_timeout=self.tool_timeout,
            outcome_timeout=self.outcome_timeout,
            limit=limit,
            prepare=prepare,
        )


async def _together(work: Iterable[Coroutine[Any, Any, Played]]) -> list[Played]:
    return list(await asyncio.gather(*work))


def _tokens(text: str) -> int | None:
    return text.tokens if isinstance(text, SampledText) else None


def check_options(options: Mapping[str, Any] | None, known: Sequence[str]) -> None:
    """Refuse options of ``reset`` that nobody would read.

    Raises:
        SettingError: naming the option and those there are.
    """
    for name in options or {}:
        if name not in known:
            raise SettingError(f"reset has no option {name!r}; there are: {', '.join(known)}")


def opening_info(episode: Episode) -> Info:
    """The info of a reset; docs/environment.md lists the keys."""
    return {
        "task_id": episode.task.id,
        "messages": [dict(message) for message in episode.opening],
    }


def turn_info(episode: Episode, played: Played) -> Info:
    """The info of a step; docs/environment.md lists the keys."""
    turn = episode.turns[-1]
    result = turn.result
    return {
        "turn": turn.number,
        "reading": turn.reading,
        "verdict": turn.well_formed,
        "observation_kind": None if turn.observation is None else str(turn.observation.kind),
        "tool": None if turn.call is None else turn.call.name,
        "tool_status": None if result is None else str(result.status),
        "latency": 0.0 if result is None else result.latency,
        "cost": 0.0 if result is None else result.cost,
        "duplicate": turn.call is not None and turn.call.duplicate,
        "ending": None if episode.ending is None else str(episode.ending),
        "answer": episode.answer,
        "error": None if episode.error is None else str(episode.error),
        "turn_reward": played.reward,
    }


def step_reward(played: Played) -> float:
    """The reward a step pays: the outcome on the last turn, 0.0 elsewhere."""
    return 0.0 if played.reward.outcome is None else played.reward.outcome


def is_terminated(episode: Episode) -> bool:
    """Whether the agent ended the episode by answering."""
    return episode.ending is Ending.ANSWERED


def is_truncated(episode: Episode) -> bool:
    """Whether a budget or a failure ended it."""
    return episode.ending is not None and episode.ending is not Ending.ANSWERED


def observation_text(played: Played) -> str:
    """What a step shows: the observation message, or "" at the end."""
    return "" if played.observation is None else played.observation.message
