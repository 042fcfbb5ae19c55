"""What one env and a vector of envs share: how episodes begin and what info says.

A :class:`Game` is the fixed part (tasks, tools, outcome, rules); it makes episodes and
plays their turns, and knows nothing of Gymnasium.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from typing import Any

from drv_env import background
from drv_env.context import ContextCounter
from drv_env.deadline import AWAIT, BLOCKS
from drv_env.episode import Closed, Ending, Episode, Observation, Rules
from drv_env.errors import DrvError, JudgeError, SettingError, ToolError
from drv_env.play import (
    NOT_INSTANT,
    Outcome,
    Played,
    advance_at_once,
    ended,
    failed_call,
    play_turn,
    run_call,
    score_answer,
    seen,
)
from drv_env.rewards.outcome import exact_match
from drv_env.settings import above, checked_number, shown
from drv_env.spaces import SampledText
from drv_env.task_files import TaskSource, load_tasks
from drv_env.tasks import Task, TaskLike, task_from
from drv_env.tools.base import Call, Clock, ToolResult, Tools
from drv_env.tools.told import warn_once, was_told

Info = dict[str, Any]

EMBEDDED_SEED = 0
"""Of the world that is played where neither tasks nor tools are given."""

_Turn = tuple[Episode, Call | Observation | Closed]
"""An episode, and what its turn asks for."""

_Came = ToolResult | float | DrvError
"""A call's result, an answer's score, or why there is none."""


class Game:
    """Tasks, tools and rules, from which episodes are made and played.

    Args:
        tasks: questions, as :func:`drv_env.task_files.load_tasks` takes them.
        tools: carries out calls; held by reference.  With neither tasks nor tools, the game is
            :func:`embedded_game`.
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
        tasks: TaskSource | None = None,
        tools: Tools | None = None,
        *,
        outcome: Outcome = exact_match,
        rules: Rules | None = None,
        counter: ContextCounter | None = None,
        clock: Clock | None = None,
        tool_timeout: float = 60.0,
        outcome_timeout: float = 300.0,
    ) -> None:
        tasks, tools = _both(tasks, tools)
        if not isinstance(tools, Tools):
            raise SettingError(
                "tools must have schemas, clock, call() and close(), "
                f"got {type(tools).__name__}; see drv_env.tools"
            )
        for name, seconds in (("tool_timeout", tool_timeout), ("outcome_timeout", outcome_timeout)):
            checked_number(name, seconds, above(0, "seconds"))
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
        self._check_rules()

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

    def _check_rules(self) -> None:
        """The rules must leave room for one of the questions at least."""
        first: SettingError | None = None
        for task in self.tasks:
            try:
                self.episode(task)
            except SettingError as error:
                first = first or error
            else:
                return
        if first is not None:
            raise first

    def task_of(self, options: Mapping[str, Any]) -> Task | None:
        """The task that ``options["task"]`` sets, if any."""
        chosen = options.get("task")
        return None if chosen is None else task_from(chosen)

    def episode(
        self, task: TaskLike, counter: ContextCounter | None = None, max_turns: int | None = None
    ) -> Episode:
        """A new episode.

        Args:
            task: the question.
            counter: counts this one's context; the game's if None.
            max_turns: this one's, in place of the rules'; None keeps theirs.

        Raises:
            SettingError: when the rules leave no room for the question, or for a limit that
                can't work.
        """
        return Episode(task, self._rules(max_turns), counter or self.counter, self.clock)

    def begin(
        self, task: TaskLike, counter: ContextCounter | None = None, max_turns: int | None = None
    ) -> Episode:
        """A new episode among others; as :meth:`episode`, but it raises for no question.

        An episode whose question the rules leave no room for is broken from its start.
        """
        rules, counter = self._rules(max_turns), counter or self.counter
        return Episode(task, rules, counter, self.clock, break_without_room=True)

    def _rules(self, max_turns: int | None) -> Rules:
        return self.rules if max_turns is None else replace(self.rules, max_turns=max_turns)

    def play(self, turns: Sequence[tuple[Episode, str]]) -> list[Played]:
        """Play one turn in each of several episodes, from synchronous code.

        Tool calls, and judges, of all of them run together on the background loop; tools
        that say they are ``instant`` run on the caller's thread.  A turn that is a
        :class:`~drv_env.spaces.SampledText` is counted with its own number of tokens.

        A tool that holds the loop up well past its time-out has failed; the calls that it
        kept from ending are made again, on another loop.
        """
        if self._instant():
            steps: list[Call | Observation | Closed] = [
                advance_at_once(episode, text, self.tools, _tokens(text), self.tool_timeout)
                for episode, text in turns
            ]
        else:
            steps = [episode.take(text, _tokens(text)) for episode, text in turns]
        taken = [(episode, step) for (episode, _), step in zip(turns, steps, strict=True)]
        return self._carried_out(taken)

    def _instant(self) -> bool:
        try:
            return bool(getattr(self.tools, "instant", False)) and not was_told(
                self.tools, NOT_INSTANT
            )
        except Exception:  # noqa: BLE001 - a property of a user's tools
            return False

    def _carried_out(self, turns: Sequence[_Turn]) -> list[Played]:
        """Results of calls and scores of answers; episodes change on this thread alone."""
        found: dict[int, _Came] = {}
        works: dict[int, Callable[[], Coroutine[Any, Any, ToolResult | float]]] = {}
        for index, (episode, step) in enumerate(turns):
            if isinstance(step, Call):
                works[index] = partial(run_call, self.tools, step, self.tool_timeout)
            elif isinstance(step, Closed) and step.ending is not Ending.BROKEN:
                works[index] = partial(
                    score_answer,
                    self.outcome,
                    step.answer,
                    episode.task,
                    self.outcome_timeout,
                    owner=step,
                )
        while len(found) < len(works):
            missing = {index: work for index, work in works.items() if index not in found}
            came: dict[int, _Came] = {}
            try:
                background.run(_together(missing, came), leave=True)
            except background.LoopHeld as held:
                for index in missing:
                    if turns[index][1] is held.by.owner:
                        came[index] = self._blamed(turns[index][1], held.by.seconds)
            found |= came
        return [
            _taken(episode, step, found.get(index)) for index, (episode, step) in enumerate(turns)
        ]

    def _blamed(self, step: Call | Observation | Closed, seconds: float) -> DrvError:
        """A call, or a score, that holds the loop has failed."""
        message = f"has held up the event loop for {seconds:.3g} seconds and still does"
        if isinstance(step, Call):
            warn_once(self.tools, f"the tool {step.name!r}", f"{message}; {AWAIT}", BLOCKS)
            return ToolError(f"it {message}")
        warn_once(self.outcome, "the outcome", f"{message}; {AWAIT}", BLOCKS)
        return JudgeError(f"the outcome {message}")

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


def embedded_game() -> tuple[list[Task], Tools]:
    """Questions about an invented web, and tools over its pages: made from a seed, offline."""
    from drv_env.tools.offline import OfflineTools
    from drv_env.worlds.questions import questions
    from drv_env.worlds.recipe import WorldRecipe

    recipe = WorldRecipe(EMBEDDED_SEED)
    return questions(recipe.build()), OfflineTools([recipe])


def _both(tasks: TaskSource | None, tools: Tools | None) -> tuple[TaskSource, Tools]:
    """Tasks and tools: those given, or the embedded ones; one without the other is a slip."""
    if tasks is None and tools is None:
        return embedded_game()
    if tasks is None:
        raise SettingError(
            "tools were given without tasks: pass tasks=[(question, answer), …] or the path of a "
            "file; without both, the embedded world is played"
        )
    if tools is None:
        raise SettingError(
            "tasks were given without tools: pass tools=OfflineTools.from_pages([Page(url, title, "
            "text), …]) for pages of your own, or LiveTools.from_env() for the web; without both, "
            "the embedded world is played"
        )
    return tasks, tools


async def _together(
    works: Mapping[int, Callable[[], Coroutine[Any, Any, ToolResult | float]]],
    came: dict[int, _Came],
) -> None:
    """Fill ``came`` as works end; one that ends badly doesn't touch the others."""

    async def one(index: int) -> None:
        try:
            came[index] = await works[index]()
        except DrvError as error:
            came[index] = error

    ends = await asyncio.gather(*map(one, works), return_exceptions=True)
    for index, end in zip(works, ends, strict=True):
        if isinstance(end, asyncio.CancelledError):  # nobody has cancelled all of them
            came[index] = ToolError("its work was cancelled from inside")
        elif end is not None:
            raise end


def _taken(episode: Episode, step: Call | Observation | Closed, came: _Came | None) -> Played:
    """The end of a turn, once its call was carried out or its answer scored."""
    if isinstance(step, Call):
        result = failed_call(step, came) if isinstance(came, DrvError) else came
        assert isinstance(result, ToolResult)
        step, came = episode.give(result), None
    if isinstance(step, Observation):
        return seen(episode, step)
    if isinstance(came, DrvError):
        return ended(episode, episode.break_off(came), None)
    return ended(episode, step, came if isinstance(came, float) else None)


def _tokens(text: str) -> int | None:
    return text.tokens if isinstance(text, SampledText) else None


def checked_options(options: Any, known: Sequence[str]) -> Mapping[str, Any]:
    """The options of ``reset``, none of which nobody would read.

    Raises:
        SettingError: naming the option and those there are, or when they aren't by name.
    """
    if options is None:
        return {}
    there = f"there are: {', '.join(known)}"
    if not isinstance(options, Mapping):
        raise SettingError(f"the options of reset are by name ({there}), got {shown(options)}")
    for name in options:
        if name not in known:
            raise SettingError(f"reset has no option {shown(name)}; {there}")
    return options


def opening_info(episode: Episode) -> Info:
    """The info of a reset; docs/environment.md lists the keys."""
    return {
        "task_id": episode.task.id,
        "messages": [dict(message) for message in episode.opening],
    }


def broken_info(episode: Episode) -> Info:
    """The info of the step that tells of an episode that was broken from its start."""
    return {"ending": str(episode.ending), "answer": None, "error": str(episode.error)}


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
