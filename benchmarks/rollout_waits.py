"""Episodes that wait for slow tools: the rollout engine, the ideal, and lock-step."""

import asyncio
import heapq
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import gymnasium
import numpy as np
from numpy.typing import NDArray
from rollout_stub import RULES, SAMPLING, TURNS, SlowTools, StubEngine, World

from agents.rollout import RolloutSettings, stream
from agents.vector_rollout import rollout_vector
from drv_env import ENV_ID
from drv_env.game import Game
from drv_env.tasks import Task

SLOWEST = 2.0
"""Seconds of the slowest call; the quickest takes a tenth."""


@dataclass(frozen=True)
class Load:
    """Episodes with the seconds of their calls, and the limits they are played under."""

    tasks: list[Task]
    latencies: NDArray[np.float64]
    at_once: int
    calls_at_once: int | None = None

    @classmethod
    def make(
        cls, world: World, count: int, at_once: int, scale: float, calls_at_once: int | None = None
    ) -> "Load":
        """``count`` episodes of calls of 0.2 to 2 seconds, times ``scale``."""
        rng = np.random.default_rng(count)
        seconds = rng.uniform(SLOWEST / 10, SLOWEST, (count, TURNS - 1)) * scale
        return cls(world.tasks(count), seconds, at_once, calls_at_once)


def ideal(load: Load) -> float:
    """Seconds if nothing but the tools' latencies and the limits took any time.

    Episodes begin in order, each as soon as a place is free; calls too.  Without a limit on
    calls no scheduler that begins episodes in this order is quicker: each begins at the
    earliest moment there is, by induction.  With one it is what the same rules come to.
    """
    count, calls = load.latencies.shape
    waiting = deque(range(count))
    ready: deque[tuple[int, int]] = deque()
    running: list[tuple[float, int, int]] = []
    free = count if load.calls_at_once is None else load.calls_at_once
    now = 0.0
    for _ in range(min(load.at_once, count)):
        ready.append((waiting.popleft(), 0))
    while ready or running:
        while ready and free:
            episode, call = ready.popleft()
            free -= 1
            heapq.heappush(running, (now + load.latencies[episode, call], episode, call))
        now, episode, call = heapq.heappop(running)
        free += 1
        if call + 1 < calls:
            ready.append((episode, call + 1))
        elif waiting:
            ready.append((waiting.popleft(), 0))
    return now


async def play(world: World, load: Load, tools: SlowTools, engine: StubEngine) -> int:
    """Roll all episodes out with the engine's own pace; the number of turns."""
    game = Game(load.tasks, tools, rules=RULES)
    settings = RolloutSettings(max_episodes=load.at_once, max_calls=load.calls_at_once)
    turns = 0
    rollouts = stream(game, engine, world.template, load.tasks, SAMPLING, settings)
    async with aclosing(rollouts):
        async for item in rollouts:
            turns += len(item.trajectory.turns)
            assert str(item.trajectory.ending) == "answered", item.trajectory.error
    return turns


@dataclass(frozen=True)
class Wall:
    """Seconds, and how many of them our threads were ready to run but had no core."""

    seconds: float
    starved: float

    @classmethod
    def of(cls, work: Callable[[], object]) -> "Wall":
        """Do it and see."""
        started, starved = time.perf_counter(), _starved()
        work()
        return cls(time.perf_counter() - started, _starved() - starved)


def _starved() -> float:
    """Seconds that this process's threads have waited for a core; 0.0 where nobody counts."""
    counts = [file.read_text().split() for file in Path("/proc/self/task").glob("*/schedstat")]
    return sum(int(count[1]) for count in counts) / 1e9


def at_own_pace(world: World, load: Load) -> Wall:
    """The rollout engine."""
    tools, engine = SlowTools(world.texts.pages, load.latencies), StubEngine(world)
    return Wall.of(lambda: asyncio.run(play(world, load, tools, engine)))


def in_lock_step(world: World, load: Load) -> Wall:
    """The same episodes in a vector env as wide as the limit."""
    envs = gymnasium.make_vec(
        ENV_ID,
        num_envs=load.at_once,
        tasks=load.tasks,
        tools=SlowTools(world.texts.pages, load.latencies),
        rules=RULES,
    )
    engine = StubEngine(world)
    return Wall.of(
        lambda: rollout_vector(envs, engine, world.template, load.tasks, SAMPLING, seed=0)
    )


def overhead(world: World, load: Load) -> float:
    """Microseconds of processor time per turn, tools and engine answering at once.

    What the stub engine and the tools take themselves is taken off.
    """
    tools, engine = SlowTools(world.texts.pages), StubEngine(world)
    started = time.process_time()
    turns = asyncio.run(play(world, load, tools, engine))
    return (time.process_time() - started - tools.spent - engine.spent) / turns * 1e6


def reading_only(world: World, pages: Sequence[str]) -> tuple[float, float]:
    """Microseconds that the tokenizer alone takes for an observation, and its tokens."""
    started = time.process_time()
    tokens = sum(len(world.tokenizer.encode(page).ids) for page in pages)
    return (time.process_time() - started) / len(pages) * 1e6, tokens / len(pages)
