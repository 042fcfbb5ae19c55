"""Microseconds per step of the environment with tools that answer at once.

Ours beside what people write by hand: one env that runs its async tool with
``asyncio.run`` each step, and 256 envs under Gymnasium's ``SyncVectorEnv``.

    python benchmarks/env_step.py [--quick]

Prints a table, and as its last line one JSON object with the keys ``us_per_step``,
``us_per_step_asyncio_run``, ``us_per_env_step_vector_256`` and
``us_per_env_step_sync_vector_256``.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import gymnasium

import drv_env
from drv_env.env import DeepResearchEnv
from drv_env.play import play_turn
from drv_env.protocol import Search, render_turn
from drv_env.testing import FakeTools

TURN = render_turn("I look it up.", Search(("capital of France",)))
TASKS = [("What is the capital of France?", "Paris")]
WIDE = 256


class AsyncioRunEnv(DeepResearchEnv):
    """The same env with a new event loop for every step."""

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        asyncio.run(play_turn(self.episode, action, self.game.tools, self.game.outcome))
        return "", 0.0, False, self.episode.ending is not None, {}


def per_step(env: gymnasium.Env[str, str], steps: int) -> float:
    """Mean microseconds of a step, resets of used-up episodes left out."""
    env.reset(seed=0)
    spent = 0.0
    for step in range(steps):
        if step % 150 == 149:
            env.reset()
        started = time.perf_counter()
        env.step(TURN)
        spent += time.perf_counter() - started
    return spent / steps * 1e6


def per_env_step(envs: gymnasium.vector.VectorEnv[Any, Any, Any], steps: int) -> float:
    """Mean microseconds of a vector step, divided by the number of envs."""
    envs.reset(seed=0)
    actions = [TURN] * WIDE
    spent = 0.0
    for step in range(steps):
        if step % 150 == 149:
            envs.reset()
        started = time.perf_counter()
        envs.step(actions)
        spent += time.perf_counter() - started
    return spent / steps / WIDE * 1e6


def best_of(measure: Callable[[], float], rounds: int) -> float:
    """Median over rounds."""
    return statistics.median(measure() for _ in range(rounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer steps; ends within 50 s")
    quick = parser.parse_args().quick
    steps, wide_steps, rounds = (1500, 20, 3) if quick else (6000, 100, 7)

    ours = DeepResearchEnv(TASKS, FakeTools())
    naive = AsyncioRunEnv(TASKS, FakeTools())
    vector = gymnasium.make_vec(drv_env.ENV_ID, num_envs=WIDE, tasks=TASKS, tools=FakeTools())
    sync = gymnasium.vector.SyncVectorEnv([lambda: DeepResearchEnv(TASKS, FakeTools())] * WIDE)
    found = {
        "us_per_step": best_of(lambda: per_step(ours, steps), rounds),
        "us_per_step_asyncio_run": best_of(lambda: per_step(naive, steps // 5), rounds),
        "us_per_env_step_vector_256": best_of(lambda: per_env_step(vector, wide_steps), rounds),
        "us_per_env_step_sync_vector_256": best_of(lambda: per_env_step(sync, wide_steps), rounds),
    }
    labels = {
        "us_per_step": "one env",
        "us_per_step_asyncio_run": "one env, asyncio.run each step",
        "us_per_env_step_vector_256": "256 envs, make_vec (per env)",
        "us_per_env_step_sync_vector_256": "256 envs, SyncVectorEnv (per env)",
    }
    print(f"{'µs per step':<40}{'median':>10}")
    for key, label in labels.items():
        print(f"{label:<40}{found[key]:>10.1f}")
    print(json.dumps({key: round(value, 2) for key, value in found.items()}))


if __name__ == "__main__":
    main()
