"""The rollout engine: many episodes on one event loop, each at its own pace.

    tasks × group_size → waiting → playing (at most max_episodes) → over, or broken and
    waiting again, or set apart

The rules, all of them:

* Episodes begin in the order of tasks and samples; broken ones are tried again after all
  others have begun, ``retries`` times, and are then set apart: given back as broken.
* An episode waits for its own engine and its own tools only.  ``max_requests`` and
  ``max_calls`` bound what all of them have in flight; waiting for a place is part of the
  episode's time, not of the completion's or the call's.
* Nobody who listens slowly is run away from: at most ``max_episodes`` wait to be taken.
* A question for which the rules leave no room is set apart at once.
* A completion that takes longer than ``turn_timeout``, and an episode that takes longer than
  ``episode_timeout``, break the episode.
* Once no episode waits and ``straggler_share`` of them are over, the rest are stragglers:
  ``ask`` has each asked for its answer at its next observation (ending ``forced_time``),
  ``cancel`` breaks them off at once, for good.  What begins after that, as a retry, is a
  straggler too.
* A seed fixes every request's randomness by task, sample, attempt and turn, whatever the
  order in which things happen.
* Whoever stops listening stops the rollout: everything in flight is cancelled, which frees
  it at the engine and at the tools.

Every turn is played by :func:`drv_env.play.play_turn`, as in the Gymnasium faces; the same
episodes in lock-step: :mod:`agents.vector_rollout`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal

from agents.engines.base import ChatEngine, Engine, Sampling
from agents.meter import Meter
from agents.players import TURN_TIMEOUT, ChatPlayer, Player, TokenPlayer, TurnSettings
from agents.robust import RobustSampling
from agents.turn_limits import turn_limit
from drv_env.episode import Episode
from drv_env.errors import DrvError, EngineError, SettingError
from drv_env.game import Game
from drv_env.play import Played
from drv_env.rewards.records import TurnReward
from drv_env.settings import SEED, above, at_least, between, check_fields
from drv_env.tasks import Task, TaskLike, each_task
from replay.template import ChatTemplate
from replay.trajectory import Trajectory

OnSampled = Callable[["EpisodeId", Episode, str], None]
"""Told of every turn before it is played; must not wait."""

OnTurn = Callable[["EpisodeId", Episode, Played], None]
"""Told of every turn right after it was played; must not wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSettings:
    """How episodes are rolled out.

    Attributes:
        group_size: episodes of each task, at least 1.
        max_episodes: played at once, at least 1.
        max_requests: engine requests in flight, or None for no bound of ours.
        max_calls: tool calls in flight, or None for no bound of ours.
        turn_timeout: seconds for one completion.
        episode_timeout: seconds for one episode, or None.
        stragglers: ``wait`` for them, ``ask`` them for their answer, or ``cancel`` them.
        straggler_share: of the episodes that must be over first; in (0, 1].
        retries: how often a broken episode is played again, 0 or more.
        robust: when a turn is sampled again; None never.
        turn_jitter: each episode's ``max_turns`` is drawn anew, up to so many more or less
            (:mod:`agents.turn_limits`); 0 is the rules' own.
        seed: fixes the sampling and what else is drawn, 0 or more; None leaves it to the engine.

    Raises:
        SettingError: naming a value that can't work.
    """

    group_size: int = 1
    max_episodes: int = 256
    max_requests: int | None = None
    max_calls: int | None = None
    turn_timeout: float = TURN_TIMEOUT
    episode_timeout: float | None = None
    stragglers: Literal["wait", "ask", "cancel"] = "wait"
    straggler_share: float = 0.9
    retries: int = 1
    robust: RobustSampling | None = None
    turn_jitter: int = 0
    seed: int | None = 0

    def __post_init__(self) -> None:
        check_fields(
            self,
            group_size=at_least(1),
            max_episodes=at_least(1),
            max_requests=at_least(1),
            max_calls=at_least(1),
            turn_timeout=above(0, "seconds"),
            episode_timeout=above(0, "seconds"),
            straggler_share=between(0, 1, least_open=True),
            retries=at_least(0),
            turn_jitter=at_least(0),
            seed=SEED,
        )


@dataclass(frozen=True, slots=True, order=True)
class EpisodeId:
    """Which episode of a rollout: the task's number from 0, and the sample's within it."""

    task: int
    sample: int


@dataclass(frozen=True, slots=True)
class Rollout:
    """An episode that is over, and which attempt at it, from 1."""

    id: EpisodeId
    attempt: int
    trajectory: Trajectory


async def rollout(
    game: Game,
    engine: Engine | ChatEngine,
    template: ChatTemplate | None,
    tasks: Sequence[TaskLike],
    sampling: Sampling,
    settings: RolloutSettings = RolloutSettings(),
    *,
    provenance: Mapping[str, Any] | None = None,
    meter: Meter | None = None,
) -> list[Trajectory]:
    """Play ``group_size`` episodes of every task; all trajectories, in order, groups together.

    Arguments and errors are those of :func:`stream`.
    """
    found: dict[EpisodeId, Trajectory] = {}
    async with aclosing(
        stream(
            game,
            engine,
            template,
            tasks,
            sampling,
            settings,
            provenance=provenance,
            meter=meter,
        )
    ) as rollouts:
        async for item in rollouts:
            found[item.id] = item.trajectory
    return [found[key] for key in sorted(found)]


async def stream(
    game: Game,
    engine: Engine | ChatEngine,
    template: ChatTemplate | None,
    tasks: Sequence[TaskLike],
    sampling: Sampling,
    settings: RolloutSettings = RolloutSettings(),
    *,
    skip: Collection[EpisodeId] = (),
    provenance: Mapping[str, Any] | None = None,
    meter: Meter | None = None,
    on_sampled: OnSampled | None = None,
    on_turn: OnTurn | None = None,
) -> AsyncGenerator[Rollout, None]:
    """Play ``group_size`` episodes of every task, and give each as soon as it is over.

    Args:
        game: tools, outcome and rules; an env's is ``env.unwrapped.game``.
        engine: an engine on ids; or one that speaks text, whose transcripts are marked.
        template: how messages become ids; may be None with an engine that speaks text.
        tasks: the questions, each a task, a mapping or a pair.
        sampling: of every turn, its seed left out.
        settings: limits, deadlines, retries.
        skip: episodes not to play, because they were played before.
        provenance: goes with every trajectory.
        meter: counts, for showing progress.
        on_sampled: told of every turn before its tool runs.
        on_turn: told of every turn once it was played.

    Yields:
        Episodes in the order in which they end; broken ones only after their last attempt.

    Raises:
        SettingError: when engine, template and rules don't fit each other.
    """
    _check(game, engine, template, sampling, settings)
    tasks = each_task(tasks)
    meter = Meter() if meter is None else meter
    work = _Work(
        game, engine, template, sampling, settings, provenance or {}, meter, on_sampled, on_turn
    )
    ids = (
        EpisodeId(task, sample)
        for task in range(len(tasks))
        for sample in range(settings.group_size)
    )
    work.plan((key, tasks[key.task]) for key in ids if key not in skip)
    async with aclosing(work.run()) as rollouts:
        async for item in rollouts:
            yield item


@dataclass(eq=False, slots=True)
class _Attempt:
    """One go at an episode."""

    id: EpisodeId
    task: Task
    number: int = 1
    episode: Episode | None = None
    runner: asyncio.Task[None] | None = None
    hurried: bool = False
    final: bool = False  # not to be played again


@dataclass(eq=False)
class _Work:
    """The state of one rollout."""

    game: Game
    engine: Engine | ChatEngine
    template: ChatTemplate | None
    sampling: Sampling
    settings: RolloutSettings
    provenance: Mapping[str, Any]
    meter: Meter
    on_sampled: OnSampled | None
    on_turn: OnTurn | None
    waiting: deque[_Attempt] = field(default_factory=deque)
    playing: set[_Attempt] = field(default_factory=set)
    planned: int = 0
    ended: int = 0
    closing: bool = False

    def plan(self, episodes: Iterable[tuple[EpisodeId, Task]]) -> None:
        self.waiting.extend(_Attempt(key, task) for key, task in episodes)
        self.planned = len(self.waiting)
        self.meter.start(self.planned)

    async def run(self) -> AsyncGenerator[Rollout, None]:
        self.requests = _semaphore(self.settings.max_requests)
        self.calls = _semaphore(self.settings.max_calls)
        self.results: asyncio.Queue[Rollout | BaseException] = asyncio.Queue()
        try:
            self._begin()
            for _ in range(self.planned):
                item = await self.results.get()
                if isinstance(item, BaseException):
                    raise item
                self._begin()
                yield item
        finally:
            self.closing = True
            self.waiting.clear()
            runners = [attempt.runner for attempt in self.playing if attempt.runner is not None]
            for runner in runners:
                runner.cancel()
            await asyncio.gather(*runners, return_exceptions=True)
            self.meter.playing = 0

    def _begin(self) -> None:
        """Start what may start; no more is played ahead of who listens than at once."""
        limit = self.settings.max_episodes
        while self.waiting and len(self.playing) < limit and self.results.qsize() < limit:
            attempt = self.waiting.popleft()
            self.playing.add(attempt)
            attempt.runner = asyncio.create_task(self._run(attempt))
        self.meter.playing = len(self.playing)

    async def _run(self, attempt: _Attempt) -> None:
        """Play one attempt, and what becomes of it; the only place that ends one."""
        try:
            trajectory = await self._play(attempt)
        except BaseException as error:
            if self.closing:
                raise
            self.results.put_nowait(error)
            return
        if self.closing:
            return
        self.playing.discard(attempt)
        if trajectory.broken and attempt.episode is not None:
            self.meter.broke(attempt.episode.error or DrvError())
        if trajectory.broken and not attempt.final and attempt.number <= self.settings.retries:
            self.meter.retried += 1
            self.waiting.append(_Attempt(attempt.id, attempt.task, attempt.number + 1))
        else:
            self.ended += 1
            self.meter.over(trajectory)
            self.results.put_nowait(Rollout(attempt.id, attempt.number, trajectory))
        self._begin()
        self._hurry()

    async def _play(self, attempt: _Attempt) -> Trajectory:
        own = {"task": attempt.id.task, "sample": attempt.id.sample, "attempt": attempt.number}
        provenance = {**self.provenance, **own}
        player = self._player(attempt)
        limit = turn_limit(self.game.rules, self.settings.turn_jitter, self._words(attempt.id))
        episode = self.game.begin(attempt.task, player.counter, limit)
        if episode.ending is not None:  # the rules leave no room for its question
            attempt.final = True
            return Trajectory.of(episode, (), None, provenance)
        attempt.episode = episode
        self._hurry()
        rewards: list[TurnReward] = []
        try:
            async with asyncio.timeout(self.settings.episode_timeout) as watch:
                await self._turns(attempt.id, episode, player, rewards)
        except TimeoutError:
            if not watch.expired():
                raise
            seconds = self.settings.episode_timeout
            episode.break_off(EngineError(f"the episode was not over within {seconds:g} seconds"))
        except asyncio.CancelledError:
            if self.closing:
                raise
            if attempt.final:
                episode.break_off(EngineError("cut off as a straggler"))
            else:  # something on the far side has cancelled us
                _undo_cancellation()
                episode.break_off(EngineError("the episode was cancelled from inside"))
        _close_gap(episode, rewards)
        return Trajectory.of(episode, rewards, player.transcript, provenance)

    async def _turns(
        self, key: EpisodeId, episode: Episode, player: Player, rewards: list[TurnReward]
    ) -> None:
        while episode.ending is None:
            try:
                text = await player.act(episode)
            except EngineError as error:
                episode.break_off(error)
                return
            if self.on_sampled is not None:
                self.on_sampled(key, episode, text)
            played = await self.game.play_one(episode, text, self.calls, player.prepare)
            rewards.append(played.reward)
            transcript = player.transcript
            self.meter.turn(episode, 1 if transcript is None else transcript.sampled[-1].attempts)
            if self.on_turn is not None:
                self.on_turn(key, episode, played)

    def _words(self, key: EpisodeId) -> tuple[int, ...] | None:
        """What fixes all that is drawn for an episode; None where nothing does."""
        seed = self.settings.seed
        return None if seed is None else (seed, key.task, key.sample)

    def _player(self, attempt: _Attempt) -> Player:
        own = self._words(attempt.id)
        words = None if own is None else (*own, attempt.number)
        turns = TurnSettings(
            self.sampling, words, self.settings.robust, self.settings.turn_timeout, self.requests
        )
        if isinstance(self.engine, Engine):
            assert self.template is not None  # checked before
            return TokenPlayer(self.engine, self.template, turns)
        return ChatPlayer(self.engine, self.template, turns)

    def _hurry(self) -> None:
        """Deal with the stragglers, once the rest is over and nothing waits to begin."""
        if self.settings.stragglers == "wait" or self.waiting:
            return
        if self.ended < self.settings.straggler_share * self.planned:
            return
        for attempt in list(self.playing):
            if attempt.hurried or attempt.episode is None:
                continue
            attempt.hurried = True
            self.meter.hurried += 1
            if self.settings.stragglers == "ask":
                attempt.episode.cut_short()
            elif attempt.runner is not None:
                attempt.final = True
                attempt.runner.cancel()


def _close_gap(episode: Episode, rewards: list[TurnReward]) -> None:
    """A turn that was taken but whose tool or judge was cut off has no reward yet."""
    if len(rewards) < len(episode.turns):
        rewards.append(TurnReward(None, episode.turns[-1].well_formed, None))


def _undo_cancellation() -> None:
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


def _semaphore(limit: int | None) -> asyncio.Semaphore | None:
    return None if limit is None else asyncio.Semaphore(limit)


def _check(
    game: Game,
    engine: Engine | ChatEngine,
    template: ChatTemplate | None,
    sampling: Sampling,
    settings: RolloutSettings,
) -> None:
    if template is None and isinstance(engine, Engine):
        raise SettingError(f"{type(engine).__name__} works on ids and needs a chat template")
    if sampling.stop and not getattr(engine, "takes_stop_texts", True):
        raise SettingError(
            f"the engine can't stop at {sampling.stop}: it knows no tokenizer; make it with "
            "pieces=template.pieces"
        )
    if sampling.seed is not None:
        raise SettingError("set the seed of a rollout in its settings, not in the sampling")
    rules = game.rules
    held: int | None = getattr(engine, "max_context", None)
    if rules.max_context is not None and held is not None and held < rules.max_context:
        raise SettingError(
            f"the rules allow {rules.max_context} tokens of context, the engine holds {held}; "
            "lower max_context of the rules or raise the engine's"
        )
    if rules.max_context is not None and sampling.max_tokens > rules.max_turn_tokens:
        raise SettingError(
            f"a turn may be sampled up to {sampling.max_tokens} tokens, but the rules hold back "
            f"only {rules.max_turn_tokens} for one (max_turn_tokens)"
        )
