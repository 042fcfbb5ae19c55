"""Many episodes at once: groups of rollouts in a vectorised env, stored as Parquet.

    python examples/vector_rollout.py

Eight copies of each of four questions are played side by side by a scripted expert that
makes mistakes; the tool calls of each step run together.
"""

import random
import tempfile
from pathlib import Path

import gymnasium

import drv_env
from agents.evaluate import evaluate
from agents.vector_rollout import rollout_agents
from drv_env.tools.offline import OfflineTools
from drv_env.worlds import Expert, Noise, WorldRecipe, questions
from replay.store import read_trajectories, write_trajectories


def main() -> None:
    recipe = WorldRecipe(seed=7)
    world = recipe.build()
    rng = random.Random(0)
    chosen = rng.sample(questions(world), 4)
    group = [task for task in chosen for _ in range(8)]

    envs = gymnasium.make_vec(
        drv_env.ENV_ID, num_envs=len(group), tasks=chosen, tools=OfflineTools([recipe])
    )
    trajectories = rollout_agents(envs, lambda task: Expert(task, world, rng, Noise()), group)
    envs.close()

    for task in chosen:
        outcomes = [t.outcome for t in trajectories if t.task is task]
        print(f"{sum(o or 0.0 for o in outcomes):.0f} of {len(outcomes)} solved: {task.question}")
    figures = evaluate(trajectories)
    print(f"success {figures.success:.2f}, {figures.turns:.1f} turns, endings {figures.endings}")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rollouts.parquet"
        count = write_trajectories(path, trajectories)
        again = list(read_trajectories(path))
        print(f"{count} trajectories stored and {len(again)} read back")


if __name__ == "__main__":
    main()
