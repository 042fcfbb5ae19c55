"""Batches of rollouts for training, in lock-step or each episode at its own pace.

Both ways give the same episodes for the same seed; the second wastes no time on the slowest
of a step, and may run ahead of the updates (:mod:`agents.ahead`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np

from agents.ahead import Ahead
from agents.engines.base import Engine, Sampling
from agents.meter import Meter
from agents.rollout import RolloutSettings, rollout
from agents.vector_rollout import OnTurns, VectorEnv, rollout_vector, unwrapped
from drv_env import background
from drv_env.errors import SettingError
from drv_env.game import Game
from drv_env.tasks import Task, TaskLike
from replay.template import ChatTemplate
from replay.trajectory import Trajectory

RolloutWay = Literal["vector", "async"]
Step = tuple[int, Sequence[Task]]
"""A step's number from 1, and its questions."""


class Rollouts(Protocol):
    """Steps in order, each with its trajectories; groups stand together."""

    def __iter__(self) -> Iterator[tuple[Step, list[Trajectory]]]: ...

    def updated(self) -> None:
        """The step's update is done, and the engine has the new weights."""
        ...


def rollouts_of(
    way: RolloutWay,
    env: VectorEnv,
    engine: Engine,
    template: ChatTemplate,
    steps: Iterable[Step],
    sampling: Sampling,
    settings: RolloutSettings,
    max_staleness: int,
    meter: Meter,
) -> AbstractContextManager[Rollouts]:
    """The rollouts of some steps, played as they are asked for, or ahead.

    Args:
        way: ``vector`` or ``async``.
        env: of this package; the asynchronous way plays its game, not its wrappers.
        engine, template, sampling: as for :func:`agents.rollout.rollout`.
        steps: what to play.
        settings: of the rollouts; their seed is made into one for each step.
        max_staleness: see :class:`agents.ahead.Ahead`.
        meter: counts what is played; in lock-step when a step's rollouts are over.

    Raises:
        SettingError: when the way can't do what the settings ask for.
    """
    if way == "vector":
        return nullcontext(_InStep(env, engine, template, steps, sampling, settings, meter))
    play = partial(_play, unwrapped(env).game, engine, template, sampling, settings, meter)
    return Ahead(steps, play, max_staleness)


def check_way(way: RolloutWay, settings: RolloutSettings, max_staleness: int) -> None:
    """Refuse what the lock-step way can't do.

    Raises:
        SettingError: naming the setting.
    """
    if way == "async":
        return
    if max_staleness:
        raise SettingError(
            "max_staleness needs async rollouts: in lock-step (vector) nothing runs ahead",
            setting="max_staleness",
        )
    plain = RolloutSettings()
    for name in ("max_requests", "max_calls", "episode_timeout", "stragglers"):
        if getattr(settings, name) != getattr(plain, name):
            raise SettingError(
                f"rollout.{name} needs async rollouts, not vector", setting=f"rollout.{name}"
            )


def play_all(
    way: RolloutWay,
    env: VectorEnv,
    engine: Engine,
    template: ChatTemplate,
    tasks: Sequence[TaskLike],
    sampling: Sampling,
    settings: RolloutSettings,
    provenance: Mapping[str, Any],
) -> list[Trajectory]:
    """``settings.group_size`` episodes of every task, once, in either way; groups together.

    Args:
        way, env, engine, template, sampling: as for :func:`rollouts_of`.
        tasks: the questions.
        settings: of the rollout; its seed is taken as it is.
        provenance: goes with every trajectory.
    """
    if way == "vector":
        return _in_lock_step(env, engine, template, tasks, sampling, settings, provenance)
    game = unwrapped(env).game
    return background.run(
        rollout(game, engine, template, tasks, sampling, settings, provenance=provenance)
    )


def _in_lock_step(
    env: VectorEnv,
    engine: Engine,
    template: ChatTemplate,
    tasks: Sequence[TaskLike],
    sampling: Sampling,
    settings: RolloutSettings,
    provenance: Mapping[str, Any],
    on_turns: OnTurns = lambda over, playing: None,
) -> list[Trajectory]:
    return rollout_vector(
        env,
        engine,
        template,
        [task for task in tasks for _ in range(settings.group_size)],
        sampling,
        provenance,
        on_turns,
        seed=settings.seed,
        group_size=settings.group_size,
        robust=settings.robust,
        turn_timeout=settings.turn_timeout,
        turn_jitter=settings.turn_jitter,
    )


class _InStep:
    """Lock-step, nothing ahead."""

    def __init__(
        self,
        env: VectorEnv,
        engine: Engine,
        template: ChatTemplate,
        steps: Iterable[Step],
        sampling: Sampling,
        settings: RolloutSettings,
        meter: Meter,
    ) -> None:
        self._meter = meter
        self._steps = iter(steps)
        self._play = partial(_in_lock_step, env, engine, template)
        self._sampling = sampling
        self._settings = settings

    def __iter__(self) -> Iterator[tuple[Step, list[Trajectory]]]:
        settings = self._settings
        for number, tasks in self._steps:
            self._meter.start(len(tasks) * settings.group_size)
            own = replace(settings, seed=_step_seed(settings.seed, number))
            found = self._play(tasks, self._sampling, own, _provenance(number), self._playing)
            for trajectory in found:
                self._meter.over(trajectory)
            yield (number, tasks), found

    def updated(self) -> None:
        """Nothing runs ahead, so nothing was held back."""

    def _playing(self, over: int, playing: int) -> None:
        self._meter.playing = playing


async def _play(
    game: Game,
    engine: Engine,
    template: ChatTemplate,
    sampling: Sampling,
    settings: RolloutSettings,
    meter: Meter,
    step: Step,
) -> list[Trajectory]:
    number, tasks = step
    own = replace(settings, seed=_step_seed(settings.seed, number))
    return await rollout(
        game, engine, template, tasks, sampling, own, provenance=_provenance(number), meter=meter
    )


def _step_seed(seed: int | None, step: int) -> int | None:
    if seed is None:
        return None
    return int(np.random.SeedSequence([seed, step]).generate_state(1)[0])


def _provenance(step: int) -> dict[str, Any]:
    return {"phase": "rl", "step": step}
