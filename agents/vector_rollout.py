"""Rollouts in lock-step: every step of a vectorised env waits for all its episodes.

Played by an engine (tokens: what was sampled is what the transcript holds, to the id;
text is decoded once, for the env to read) or by agents that speak text.  The same episodes
without the waiting: :mod:`agents.rollout`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

import gymnasium

from agents.engines.base import Engine, Sampling
from agents.players import TURN_TIMEOUT, Player, TokenPlayer, TurnSettings
from agents.robust import RobustSampling
from agents.turn_limits import turn_limit
from drv_env import background
from drv_env.context import ContextCounter
from drv_env.episode import Episode
from drv_env.errors import DrvError, EngineError, SettingError
from drv_env.rewards.records import TurnReward
from drv_env.settings import above, at_least, checked_number, checked_seed, checked_whole
from drv_env.tasks import Task, TaskLike, each_task
from drv_env.vector import DeepResearchVectorEnv
from replay.template import ChatTemplate
from replay.trajectory import Trajectory

VectorEnv = gymnasium.vector.VectorEnv[Any, Any, Any]
OnTurns = Callable[[int, int], None]
"""Told of the episodes that are over, and of those still playing."""


class TextAgent(Protocol):
    """Plays one episode in text."""

    def act(self, observation: str) -> str:
        """The next turn, from the question or the last observation message."""
        ...


def rollout_vector(
    env: VectorEnv,
    engine: Engine,
    template: ChatTemplate,
    tasks: Sequence[TaskLike],
    sampling: Sampling,
    provenance: Mapping[str, Any] | None = None,
    on_turns: OnTurns = lambda over, playing: None,
    *,
    seed: int | None = None,
    group_size: int = 1,
    robust: RobustSampling | None = None,
    turn_timeout: float = TURN_TIMEOUT,
    turn_jitter: int = 0,
) -> list[Trajectory]:
    """Let an engine play one episode of every task, ``env.num_envs`` at a time.

    A lost engine breaks the episodes that waited for it; they are returned as broken.

    Args:
        env: made by ``gymnasium.make_vec("drv_env/DeepResearch-v0", …)``.
        engine: generates the turns.
        template: how messages become ids.
        tasks: the questions; a group is one task ``group_size`` times in a row.
        sampling: how turns are sampled.
        provenance: goes with every trajectory.
        on_turns: told of progress after every step.
        seed: fixes the randomness of each episode, turn and attempt, as it does for
            :func:`agents.rollout.rollout`; None leaves it to the engine.
        group_size: only numbers the episodes for their seeds.
        robust: when a turn is sampled again.
        turn_timeout: seconds for one completion; without one by then the episode is broken.
        turn_jitter: as of :class:`agents.rollout.RolloutSettings`.

    Returns:
        One trajectory a task, in order, with transcripts.

    Raises:
        SettingError: when ``env`` is not of this package, or a number can't work.
    """
    seed = None if seed is None else checked_seed(seed)
    group_size = checked_whole("group_size", group_size, at_least(1))
    checked_number("turn_timeout", turn_timeout, above(0, "seconds"))

    rules = unwrapped(env).game.rules

    def play(batch: Sequence[Task], over: int) -> list[Trajectory]:
        words = [
            None if seed is None else (seed, *divmod(over + index, group_size))
            for index in range(len(batch))
        ]
        players = [
            TokenPlayer(
                engine,
                template,
                TurnSettings(sampling, None if own is None else (*own, 1), robust, turn_timeout),
            )
            for own in words
        ]
        limits = [turn_limit(rules, turn_jitter, own) for own in words]

        def act(episodes: Mapping[int, Episode]) -> dict[int, str | DrvError]:
            turns = background.run(
                _act([(players[index], episode) for index, episode in episodes.items()])
            )
            return dict(zip(episodes, turns, strict=True))

        counters = [player.counter for player in players]
        return [
            Trajectory.of(
                episode, rewards, player.transcript if episode.turns else None, provenance
            )
            for (episode, rewards), player in zip(
                _lockstep(env, batch, act, over, on_turns, counters, limits), players, strict=True
            )
        ]

    return _in_batches(env, tasks, play)


def rollout_agents(
    env: VectorEnv,
    agent: Callable[[Task], TextAgent],
    tasks: Sequence[TaskLike],
    provenance: Mapping[str, Any] | None = None,
    on_turns: OnTurns = lambda over, playing: None,
) -> list[Trajectory]:
    """Let agents that speak text play one episode of every task.

    Args:
        env: made by ``gymnasium.make_vec("drv_env/DeepResearch-v0", …)``.
        agent: makes the agent of one episode.
        tasks: the questions.
        provenance: goes with every trajectory.
        on_turns: told of progress after every step.

    Returns:
        One trajectory a task, in order, without transcripts.

    Raises:
        SettingError: when ``env`` is not of this package.
    """

    def play(batch: Sequence[Task], over: int) -> list[Trajectory]:
        players = [agent(task) for task in batch]

        def act(episodes: Mapping[int, Episode]) -> dict[int, str | DrvError]:
            return {
                index: players[index].act(episode.messages[-1]["content"])
                for index, episode in episodes.items()
            }

        return [
            Trajectory.of(episode, rewards, None, provenance)
            for episode, rewards in _lockstep(env, batch, act, over, on_turns)
        ]

    return _in_batches(env, tasks, play)


def _in_batches(
    env: VectorEnv,
    tasks: Sequence[TaskLike],
    play: Callable[[Sequence[Task], int], list[Trajectory]],
) -> list[Trajectory]:
    found: list[Trajectory] = []
    tasks = each_task(tasks)
    for start in range(0, len(tasks), env.num_envs):
        found += play(tasks[start : start + env.num_envs], start)
    return found


def _lockstep(
    env: VectorEnv,
    tasks: Sequence[Task],
    act: Callable[[Mapping[int, Episode]], dict[int, str | DrvError]],
    over: int,
    on_turns: OnTurns,
    counters: Sequence[ContextCounter] = (),
    limits: Sequence[int | None] = (),
) -> list[tuple[Episode, list[TurnReward]]]:
    """Play one episode of each task; ``act`` gives a turn, or why there is none, for each."""
    game = unwrapped(env)
    spare = env.num_envs - len(tasks)
    options: dict[str, Any] = {"tasks": [*tasks, *[tasks[0]] * spare]}
    if counters:
        options["counters"] = [*counters, *[None] * spare]
    if limits:
        options["max_turns"] = [*limits, *[None] * spare]
    env.reset(options=options)
    episodes = game.episodes[: len(tasks)]
    rewards: list[list[TurnReward]] = [[] for _ in tasks]
    playing = {index: item for index, item in enumerate(episodes) if item.ending is None}
    while playing:
        actions = [""] * env.num_envs  # what is over, or spare, may do anything
        taken = dict(playing)
        for index, turn in act(playing).items():
            if isinstance(turn, DrvError):
                episodes[index].break_off(turn)
                del taken[index]
            else:
                actions[index] = turn
        infos = env.step(actions)[4] if taken else {}
        for index in taken:
            rewards[index].append(cast(TurnReward, infos["turn_reward"][index]))
        playing = {index: item for index, item in taken.items() if item.ending is None}
        on_turns(over + len(tasks) - len(playing), len(playing))
    return list(zip(episodes, rewards, strict=True))


def unwrapped(env: VectorEnv) -> DeepResearchVectorEnv:
    """The env of this package behind its wrappers.

    Raises:
        SettingError: when it is another one.
    """
    own = env.unwrapped
    if not isinstance(own, DeepResearchVectorEnv):
        raise SettingError(f"rollouts need a DeepResearchVectorEnv, got {type(own).__name__}")
    return own


async def _act(turns: Sequence[tuple[Player, Episode]]) -> list[str | DrvError]:
    found = await asyncio.gather(
        *(player.act(episode) for player, episode in turns), return_exceptions=True
    )
    kept: list[str | DrvError] = []
    for item in found:
        if isinstance(item, BaseException) and not isinstance(item, EngineError):
            raise item
        kept.append(item)
    return kept
