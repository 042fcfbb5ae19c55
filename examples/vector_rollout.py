"""Many episodes at once: groups of rollouts in a vectorised env, stored as Parquet.

    python examples/vector_rollout.py                                      a scripted expert plays
    python examples/vector_rollout.py --model runs/demo/checkpoints/final  a model plays
    python examples/vector_rollout.py --model … --engine vllm              … by vLLM

Eight copies of each of four questions are played side by side; the tool calls of each step
run together.  A model plays them a second time without waiting for each other, through
agents.rollout.  What it is shown fits the model that `make demo` leaves behind.
"""

import argparse
import os
import random
import tempfile
import time
from pathlib import Path

import gymnasium

import drv_env
from agents.engines.base import Engine, Sampling
from agents.evaluate import evaluate
from agents.rollout import RolloutSettings, rollout
from agents.vector_rollout import rollout_agents, rollout_vector
from drv_env import Rules, Task, background
from drv_env.tools.offline import OfflineTools
from drv_env.worlds import Expert, Noise, WorldRecipe, questions
from replay.counter import TemplateCounter
from replay.store import read_trajectories, write_trajectories
from replay.template import ChatTemplate
from replay.trajectory import Trajectory

RECIPE = WorldRecipe(seed=7)
COPIES = 8
TURN_TOKENS = 48


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="a model's folder")
    parser.add_argument("--engine", choices=("vllm", "transformers"), default="transformers")
    arguments = parser.parse_args()

    world = RECIPE.build()
    rng = random.Random(0)
    chosen = rng.sample(questions(world), 4)
    group = [task for task in chosen for _ in range(COPIES)]

    if arguments.model is None:
        envs = make_envs(chosen, Rules())
        played = rollout_agents(envs, lambda task: Expert(task, world, rng, Noise()), group)
        report(chosen, played)
        envs.close()
    else:
        played = play_model(arguments.model, arguments.engine, chosen, group)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rollouts.parquet"
        count = write_trajectories(path, played)
        again = list(read_trajectories(path))
        print(f"{count} trajectories stored and {len(again)} read back")


def make_envs(
    tasks: list[Task], rules: Rules, counter: TemplateCounter | None = None
) -> gymnasium.vector.VectorEnv:
    tools = OfflineTools([RECIPE], results=1, fields=("url",), evidence_words=8)
    return gymnasium.make_vec(
        drv_env.ENV_ID,
        num_envs=COPIES * len(tasks),
        tasks=tasks,
        tools=tools,
        rules=rules,
        counter=counter,
    )


def play_model(folder: Path, kind: str, chosen: list[Task], group: list[Task]) -> list[Trajectory]:
    template = ChatTemplate.from_folder(folder)
    sampling = Sampling(TURN_TOKENS, stop_ids=template.stop_ids)
    engine = make_engine(folder, kind)
    rules = Rules(
        system_prompt="",
        max_turns=8,
        max_context=engine.max_context,
        max_turn_tokens=TURN_TOKENS,
    )
    envs = make_envs(chosen, rules, TemplateCounter(template))
    try:
        started = time.perf_counter()
        in_step = rollout_vector(envs, engine, template, group, sampling, seed=0, group_size=COPIES)
        print(f"in lock-step: {time.perf_counter() - started:.1f} s")
        report(chosen, in_step)

        started = time.perf_counter()
        settings = RolloutSettings(group_size=COPIES, seed=0)
        game = envs.unwrapped.game
        own_pace = background.run(rollout(game, engine, template, chosen, sampling, settings))
        print(f"each at its own pace: {time.perf_counter() - started:.1f} s")
        report(chosen, own_pace)
    finally:
        background.run(engine.close())
        envs.close()
    return in_step


def make_engine(folder: Path, kind: str) -> Engine:
    if kind == "vllm":
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        from agents.engines.vllm import VllmEngine

        return VllmEngine(folder)
    from transformers import AutoModelForCausalLM

    from agents.engines.transformers import TransformersEngine

    return TransformersEngine(AutoModelForCausalLM.from_pretrained(folder), slots=32)


def report(chosen: list[Task], trajectories: list[Trajectory]) -> None:
    for task in chosen:
        outcomes = [item.outcome or 0.0 for item in trajectories if item.task is task]
        print(f"{sum(outcomes):.0f} of {len(outcomes)} solved: {task.question}")
    figures = evaluate(trajectories)
    print(f"success {figures.success:.2f}, {figures.turns:.1f} turns, endings {figures.endings}")


if __name__ == "__main__":  # vLLM's processes import this file again
    main()
