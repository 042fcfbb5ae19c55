"""The Gymnasium face of many episodes at once, in lock-step.

The tool calls of one step run together on one event loop; a sub-environment whose tool
fails or hangs until its time-out doesn't touch the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from drv_env.context import ContextCounter
from drv_env.episode import Episode, Rules
from drv_env.errors import SettingError
from drv_env.game import (
    Game,
    Info,
    broken_info,
    checked_options,
    is_terminated,
    is_truncated,
    observation_text,
    opening_info,
    step_reward,
    turn_info,
)
from drv_env.play import Outcome, Played
from drv_env.render import conversation
from drv_env.rewards.outcome import exact_match
from drv_env.settings import at_least, checked_seed, checked_whole, shown
from drv_env.spaces import TextSpace
from drv_env.task_files import TaskSource
from drv_env.tasks import Task, task_from
from drv_env.tools.base import Clock, Tools
from drv_env.tools.closing import close_tools, close_tools_now

_DTYPES: dict[str, type] = {
    "turn": int,
    "verdict": bool,
    "duplicate": bool,
    "latency": float,
    "cost": float,
}
"""Info that is numbers; everything else comes in arrays of objects."""


class DeepResearchVectorEnv(VectorEnv[tuple[str, ...], Sequence[str], np.ndarray]):
    """``num_envs`` episodes side by side, as ``gymnasium.make_vec`` makes them.

    Actions are ``num_envs`` turns; observations a tuple of ``num_envs`` strings; rewards
    float64 ``(num_envs,)``; terminations and truncations bool ``(num_envs,)``; infos as
    Gymnasium's vector envs have them: arrays of length ``num_envs`` by key, each with a
    mask ``_key`` of the sub-environments it speaks of.

    An episode whose question the rules leave no room for is broken from its start: the next
    step ignores its action and tells so, truncated and paid 0.0; the others play on.

    A new episode's task is drawn from ``tasks``.  It begins, by ``autoreset_mode``:

    * ``NEXT_STEP`` (default): with the step after the end, which ignores that
      sub-environment's action and pays 0.0;
    * ``SAME_STEP``: in the very step that ends the old one, whose last observation and info
      are in ``infos["final_obs"]`` and ``infos["final_info"]``;
    * ``DISABLED``: with ``reset(options={"reset_mask": mask})``; until then a step raises.

    Args:
        num_envs: how many, at least 1.
        tasks, tools, outcome, rules, counter, clock, tool_timeout, outcome_timeout: as
            for
            :class:`~drv_env.env.DeepResearchEnv`; all sub-environments share them.
        autoreset_mode: a ``gymnasium.vector.AutoresetMode``, or its name in lower case.
        render_mode: ``"ansi"`` or None.

    Raises:
        SettingError: for a setting that can't work.
        TaskDataError: for a task that is none.
    """

    metadata = {  # noqa: RUF012 - as Gymnasium has it
        "render_modes": ["ansi"],
        "render_fps": 1,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        num_envs: int,
        tasks: TaskSource | None = None,
        tools: Tools | None = None,
        *,
        outcome: Outcome = exact_match,
        rules: Rules | None = None,
        counter: ContextCounter | None = None,
        clock: Clock | None = None,
        tool_timeout: float = 60.0,
        outcome_timeout: float = 300.0,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
    ) -> None:
        num_envs = checked_whole("num_envs", num_envs, at_least(1))
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise SettingError(f"render_mode must be 'ansi' or None, got {render_mode!r}")
        self.autoreset_mode = _mode(autoreset_mode)
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.game = Game(
            tasks,
            tools,
            outcome=outcome,
            rules=rules,
            counter=counter,
            clock=clock,
            tool_timeout=tool_timeout,
            outcome_timeout=outcome_timeout,
        )
        self.single_action_space = TextSpace()
        self.single_observation_space = TextSpace()
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._rngs = [np.random.default_rng() for _ in range(num_envs)]
        self._episodes: list[Episode] = []
        self._untold: set[int] = set()
        """Where an episode was broken from its start, and no step has said so yet."""

    @property
    def episodes(self) -> tuple[Episode, ...]:
        """The episodes being played, one a sub-environment.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
        """
        if not self._episodes:
            raise gymnasium.error.ResetNeeded("call reset() first")
        return tuple(self._episodes)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[tuple[str, ...], Info]:
        """Begin an episode in every sub-environment.

        Args:
            seed: sub-environment i draws its tasks with ``seed + i``, or with ``seed[i]``.
            options: ``{"tasks": [...]}`` sets the task of each sub-environment for the
                episodes that begin now, so that a group is N copies of one task.
                ``{"counters": [...]}`` gives each of these episodes a
                :class:`~drv_env.context.ContextCounter` of its own, or None, and
                ``{"max_turns": [...]}`` a limit of turns of its own, or None.
                ``{"reset_mask": mask}``, bool ``(num_envs,)``, resets only those where
                it is True; the others show what they showed last.

        Raises:
            SettingError: when seeds, tasks or the mask don't fit ``num_envs``, or for an option
                of another name.
        """
        given = checked_options(options, ("tasks", "counters", "max_turns", "reset_mask"))
        chosen = _mask(given.get("reset_mask"), self.num_envs)
        seeds = _seeds(seed, self.num_envs)
        counters = self._counters(given)
        limits = self._limits(given)
        tasks = self._given(given)
        super().reset(seed=next((s for s in seeds if s is not None), None))
        infos: list[Info] = [{} for _ in range(self.num_envs)]
        begun = []
        for index, task in enumerate(tasks):
            if not chosen[index]:
                begun.append(self.episodes[index])
                continue
            if seeds[index] is not None:
                self._rngs[index] = np.random.default_rng(seeds[index])
            drawn = task or self._draw(index)
            begun.append(self.game.begin(drawn, counters[index], limits[index]))
            infos[index] = self._opened(index, begun[index])
        self._episodes = begun
        return tuple(_shown(episode) for episode in begun), _gather(infos)

    def step(
        self, actions: Sequence[str]
    ) -> tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray, Info]:
        """Take one turn in every sub-environment.

        Raises:
            TypeError: when actions are not ``num_envs`` strings.
            gymnasium.error.ResetNeeded: before the first reset, and, with autoreset
                disabled, while an episode is over.
        """
        turns, infos, observations = self._taken(actions)
        return self._stepped(turns, infos, observations, self.game.play(list(turns.values())))

    async def areset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[tuple[str, ...], Info]:
        """:meth:`reset` for callers with an event loop of their own."""
        return self.reset(seed=seed, options=options)

    async def astep(
        self, actions: Sequence[str]
    ) -> tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray, Info]:
        """:meth:`step` on the caller's event loop, which stays free meanwhile.

        Cancelling it cancels the tool calls; their episodes must then be reset.
        """
        turns, infos, observations = self._taken(actions)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.game.play_one(*turn)) for turn in turns.values()]
        return self._stepped(turns, infos, observations, [task.result() for task in tasks])

    async def aclose(self) -> None:
        """``close`` on the caller's event loop; for whoever used :meth:`astep`."""
        await close_tools(self.game.tools, self.game.outcome)

    def _taken(
        self, actions: Sequence[str]
    ) -> tuple[dict[int, tuple[Episode, str]], list[Info], list[str]]:
        """The turns to play, by sub-environment; infos and observations of all the others."""
        episodes = self.episodes
        actions = [] if isinstance(actions, str) else list(actions)
        if len(actions) != self.num_envs or not all(isinstance(a, str) for a in actions):
            raise TypeError(f"actions must be {self.num_envs} strings, got {actions!r:.200}")
        observations = [""] * self.num_envs
        infos: list[Info] = [{} for _ in range(self.num_envs)]
        playing = {}
        for index, episode in enumerate(episodes):
            if index in self._untold:
                self._untold.discard(index)
                infos[index] = broken_info(episode)
            elif episode.ending is None:
                playing[index] = episode, actions[index]
            elif self.autoreset_mode is AutoresetMode.DISABLED:
                raise gymnasium.error.ResetNeeded(
                    f"the episode of sub-environment {index} is over ({episode.ending}); reset it "
                    "with options={'reset_mask': …}"
                )
            else:
                observations[index], infos[index] = self._begin(index)
        return playing, infos, observations

    def _stepped(
        self,
        turns: Mapping[int, tuple[Episode, str]],
        infos: list[Info],
        observations: list[str],
        results: Sequence[Played],
    ) -> tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray, Info]:
        rewards = np.zeros(self.num_envs, dtype=np.float64)
        for (index, (episode, _)), played in zip(turns.items(), results, strict=True):
            observations[index] = observation_text(played)
            rewards[index] = step_reward(played)
            infos[index] = turn_info(episode, played)
        terminated = np.array([is_terminated(episode) for episode in self._episodes], dtype=bool)
        truncated = np.array([is_truncated(episode) for episode in self._episodes], dtype=bool)
        if self.autoreset_mode is not AutoresetMode.SAME_STEP:
            return tuple(observations), rewards, terminated, truncated, _gather(infos)
        finals: list[Info] = [{} for _ in range(self.num_envs)]
        last: list[Info] = [{} for _ in range(self.num_envs)]
        for index in np.flatnonzero(terminated | truncated).tolist():
            if index in self._untold:  # begun in this very step
                continue
            finals[index], last[index] = infos[index], {"final_obs": observations[index]}
            observations[index], infos[index] = self._begin(index)
        gathered = _gather(infos)
        if any(last):
            over = np.array([bool(item) for item in last], dtype=bool)
            gathered |= _gather(last) | {"final_info": _gather(finals), "_final_info": over}
        return tuple(observations), rewards, terminated, truncated, gathered

    def render(self) -> tuple[str, ...] | None:  # type: ignore[override]
        """The conversations so far, in render mode ``"ansi"``."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() needs render_mode='ansi', given to make_vec()")
            return None
        return tuple(conversation(episode) for episode in self.episodes)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the tools."""
        close_tools_now(self.game.tools, self.game.outcome)

    def __del__(self) -> None:
        """Leave closing to :meth:`close`: the collector runs on any thread, also at exit."""

    def _begin(self, index: int) -> tuple[str, Info]:
        """A new episode in one sub-environment: its question and info."""
        fresh = self.game.begin(self._draw(index))
        self._episodes[index] = fresh
        return fresh.task.question, self._opened(index, fresh)

    def _opened(self, index: int, episode: Episode) -> Info:
        """The info of an episode that begins; one that is broken already is told next step."""
        (self._untold.discard if episode.ending is None else self._untold.add)(index)
        return opening_info(episode)

    def _draw(self, index: int) -> Task:
        return self.game.tasks[int(self._rngs[index].integers(len(self.game.tasks)))]

    def _counters(self, options: Mapping[str, Any]) -> list[ContextCounter | None]:
        chosen = options.get("counters")
        if chosen is None:
            return [None] * self.num_envs
        counters = _one_each("counters", chosen, self.num_envs)
        for counter in counters:
            if not isinstance(counter, ContextCounter | None):
                raise SettingError(
                    "options['counters'] must be context counters or None, "
                    f"got {type(counter).__name__}"
                )
        return counters

    def _limits(self, options: Mapping[str, Any]) -> list[int | None]:
        chosen = options.get("max_turns")
        if chosen is None:
            return [None] * self.num_envs
        limits = _one_each("max_turns", chosen, self.num_envs)
        for limit in limits:
            if limit is not None:
                replace(self.game.rules, max_turns=limit)  # which refuses what can't work
        return limits

    def _given(self, options: Mapping[str, Any]) -> list[Task | None]:
        """The tasks that options set, or None where one is to be drawn."""
        chosen = options.get("tasks")
        if chosen is None:
            return [None] * self.num_envs
        return [task_from(task) for task in _one_each("tasks", chosen, self.num_envs)]


def _shown(episode: Episode) -> str:
    """What an episode shows at the moment: the question, the last observation, or ""."""
    if not episode.turns:
        return episode.task.question
    last = episode.turns[-1].observation
    return "" if last is None or episode.ending is not None else last.message


def _one_each(name: str, values: Any, count: int) -> list[Any]:
    """The values of an option that has one a sub-environment."""
    wanted = f"options[{name!r}] must have one a sub-environment ({count})"
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise SettingError(f"{wanted}, got {shown(values)}")
    found = list(values)
    if len(found) != count:
        raise SettingError(f"{wanted}, got {len(found)}")
    return found


def _mode(mode: AutoresetMode | str) -> AutoresetMode:
    if isinstance(mode, AutoresetMode):
        return mode
    known = {item.name.lower(): item for item in AutoresetMode}
    if mode not in known:
        raise SettingError(f"autoreset_mode must be one of {', '.join(known)}, got {mode!r}")
    return known[mode]


def _mask(mask: Any, count: int) -> np.ndarray:
    if mask is None:
        return np.ones(count, dtype=bool)
    if not isinstance(mask, np.ndarray) or mask.dtype != bool or mask.shape != (count,):
        raise SettingError(
            f"options['reset_mask'] must be a bool array of shape ({count},), got {mask!r:.100}"
        )
    if not mask.any():
        raise SettingError("options['reset_mask'] is False everywhere; reset at least one")
    return mask


def _seeds(seed: Any, count: int) -> list[int | None]:
    if seed is None:
        return [None] * count
    if isinstance(seed, str | bytes) or not isinstance(seed, Iterable):
        first = checked_seed(seed)
        return [first + index for index in range(count)]
    seeds = list(seed)
    if len(seeds) != count:
        raise SettingError(f"seed must be one number or {count} of them, got {len(seeds)}")
    return [None if each is None else checked_seed(each) for each in seeds]


def _gather(infos: list[Info]) -> Info:
    """Infos of sub-environments as arrays with masks."""
    gathered: Info = {}
    keys = dict.fromkeys(key for info in infos for key in info)
    for key in keys:
        mask = np.array([key in info for info in infos], dtype=bool)
        dtype = _DTYPES.get(key, object)
        blank = None if dtype is object else dtype()
        values: np.ndarray = np.full(len(infos), blank, dtype=dtype)
        for index, info in enumerate(infos):
            if key in info:
                values[index] = info[key]
        gathered[key] = values
        gathered[f"_{key}"] = mask
    return gathered
