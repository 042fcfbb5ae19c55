"""Seconds of the phases of a step of reinforcement, beside TRL's GRPOTrainer.

    make bench
    python benchmarks/rl_step.py [--quick] [--threads 1] [--processor]

One model (Qwen3's architecture, 2 layers of 128, half a million weights, float32), one game
(four questions of an invented web, tools of this process), eight rollouts a question, on one
device, in turns in one process.  The model first copies an expert's
episodes of these questions, so that its own have calls, visits and answers; how many of its
turns are well formed is printed.

What is compared with TRL, and what makes it fair:

- *The update*: forward, backward, clipping and fused AdamW on the same rollouts (ids, agent's
  tokens, one advantage a rollout), the same loss (clipped surrogate, a mean over rollouts of
  means over tokens, no KL, entropy measured), one optimiser's step.  TRL takes the rollouts
  through its ``rollout_func``, and its time runs from where advantages are there to the end of
  the optimiser's step.  That both do the same is seen by the norm of the first gradient, which
  is printed.  TRL is run with 8 and with 16 rollouts a pass, and the better counts; it pads
  every pass to the longest rollout of the step.  Ours is run packed and padded, in passes of at
  most 8,192 tokens.  Counted are tokens of the rollouts, no padding.
- *The rollouts*: episodes of the same game by the same weights, as many at once, with the same
  bounds on turns and on tokens of a turn and of an episode, at temperature 1.  TRL plays through
  :mod:`agents.adapters.trl` with Transformers' ``generate``, whole prompts anew each turn; ours
  keeps an episode's keys and values.  After a turn that can't be read an episode goes on with us
  and ends with TRL, so it is tokens sampled a second that are compared, not seconds; turns are
  printed.  TRL's time has its rewards and advantages in it, which are next to nothing.  (With a
  GPU both would sample by vLLM; this is not about that.)

Not compared: information gain, which TRL has not.  The learning rate is so small that all steps
are alike, and rollouts without an advantage are learnt from too.  The first step of everything
is left out.  Where other programs run on the machine, ``--processor`` is steadier.

Prints a table, and as its last line one JSON object with the keys ``igpo_step_seconds``,
``grpo_step_seconds``, ``information_gain_share`` (of an IGPO step), and, null where there is no
TRL, ``update_tokens_per_s_over_trl`` and ``rollout_tokens_per_s_over_trl``.
"""

import argparse
import copy
import dataclasses
import importlib.metadata
import importlib.util
import json
import statistics
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from agents.rollout import RolloutSettings
from agents.vector_rollout import unwrapped
from drv_env import background
from drv_env.tools.offline import OfflineTools
from drv_env.worlds import NO_NOISE
from replay.trajectory import Trajectory
from trainers.advantages import GRPO, IGPO, Credit
from trainers.learnt import LearntRollout
from trainers.rl import RLConfig, RLStep
from trainers.rl_metrics import sampled_tokens, transcript_tokens
from trainers.sft import SFTConfig
from trainers.small_world import (
    ModelGame,
    SmallWorld,
    WorldSettings,
    clone,
    reinforce,
)
from trainers.tiny import TinySize, build_model
from trainers.update import update_policy

GROUP = 8
CONTEXT = 1_024
RATE = 1e-6
AT_ONCE = (16, 8)
"""Rollouts in a pass of TRL's updates."""
CONFIG = RLConfig(
    group_size=GROUP,
    minibatches=1,
    packed=True,
    learning_rate=RATE,
    drop_silent="none",
    rollout=RolloutSettings(seed=0),
)
PHASES = ("rollout", "information_gain", "update", "sync")


def prepared(questions: int, cloning_steps: int) -> tuple[ModelGame, Any]:
    """The game, and a model that has copied an expert's episodes of its questions."""
    world = SmallWorld(WorldSettings(worlds=1, context=CONTEXT, noise=NO_NOISE))
    world.tools = OfflineTools(world.recipes, results=3, evidence_words=40)
    world.train = world.train[:questions]
    expert = world.expert_trajectories(8 * questions)
    game = world.played_with(world.tokenizer_for(expert))
    size = TinySize(hidden=128, heads=4, kv_heads=2, feed_forward=384, context=CONTEXT)
    model = build_model(game.tokenizer, 0, size)
    config = SFTConfig(
        epochs=100,
        max_steps=cloning_steps,
        batch_size=4,
        packed=True,
        learning_rate=5e-3,
        warmup_steps=10,
    )
    clone(model, game, expert, config)
    return game, model


def steps_of(game: ModelGame, model: Any, credit: Credit, count: int) -> list[RLStep]:
    """Steps of ours, the first of which is not to be counted."""
    engine = game.engine(model, 0)
    found: list[RLStep] = []
    questions = len(game.world.train)
    config = dataclasses.replace(CONFIG, credit=credit, steps=1 + count, tasks_per_step=questions)
    try:
        reinforce(copy.deepcopy(model), game, engine, config, found.append)
    finally:
        background.run(engine.close())
    return found


def learnt(trajectories: Sequence[Trajectory]) -> list[LearntRollout]:
    """Rollouts with a random advantage each, whose mean in a group is 0."""
    drawn = np.random.default_rng(0).normal(size=(len(trajectories) // GROUP, GROUP))
    advantages = (drawn - drawn.mean(axis=1, keepdims=True)).reshape(-1)
    return [
        LearntRollout.of(item, np.full(len(item.turns), advantage))
        for item, advantage in zip(trajectories, advantages, strict=True)
    ]


def updates(
    model: Any, rollouts: Sequence[LearntRollout], packed: bool, count: int
) -> tuple[list[float], float]:
    """Seconds of updates after a first one, and the first gradient's norm."""
    policy = copy.deepcopy(model)
    optimiser = torch.optim.AdamW(policy.parameters(), lr=RATE, weight_decay=0.0, fused=True)
    config = dataclasses.replace(CONFIG, packed=packed)
    rng = np.random.default_rng(0)
    seconds, norms = [], []
    for _ in range(1 + count):
        start = time.perf_counter()
        norms.append(update_policy(policy, optimiser, rollouts, config, rng)["grad_norm"])
        seconds.append(time.perf_counter() - start)
    return seconds[1:], norms[0]


def whole(step: RLStep) -> float:
    """Seconds of all phases of a step."""
    return sum(step.metrics.get(f"seconds_{phase}", 0.0) for phase in PHASES)


class Medians:
    """Figures by name, one a round, and their medians."""

    def __init__(self) -> None:
        self.found: dict[str, list[float]] = {}

    def note(self, name: str, values: Sequence[float]) -> None:
        """A round's values, of which the median is kept."""
        self.found.setdefault(name, []).append(statistics.median(values))

    def __getitem__(self, name: str) -> float:
        return statistics.median(self.found[name])

    def over(self, name: str, other: str) -> float:
        """The median of the rounds' ratios."""
        pairs = zip(self.found[name], self.found[other], strict=True)
        return statistics.median(one / two for one, two in pairs)


def note_step(figures: Medians, name: str, steps: Sequence[RLStep]) -> None:
    for phase in PHASES:
        figures.note(
            f"{name} {phase}", [step.metrics.get(f"seconds_{phase}", 0.0) for step in steps]
        )
    figures.note(f"{name} step", [whole(step) for step in steps])
    figures.note(
        f"{name} share",
        [step.metrics.get("seconds_information_gain", 0.0) / whole(step) for step in steps],
    )
    figures.note(f"{name} sampled/s", [step.metrics["tokens_per_s_rollout"] for step in steps])
    figures.note(f"{name} sampled", [sampled_tokens(step.trajectories) for step in steps])
    figures.note(
        f"{name} turns", [sum(len(item.turns) for item in step.trajectories) for step in steps]
    )
    figures.note(f"{name} tokens", [transcript_tokens(step.trajectories) for step in steps])
    for metric in ("success", "well_formed"):
        figures.note(f"{name} {metric}", [step.metrics[metric] for step in steps])


def note_trl(
    figures: Medians,
    game: ModelGame,
    model: Any,
    rollouts: Sequence[LearntRollout],
    count: int,
    at_once: Sequence[int],
) -> None:
    """A round of TRL: its steps, and its updates on our rollouts."""
    import rl_step_trl as trl

    steps = trl.play_and_update(
        model,
        game.tokenizer,
        unwrapped(game.envs).game,
        GROUP,
        at_once[0],
        RATE,
        1 + count,
    )[1:]
    figures.note("TRL rollout", [step.rollout for step in steps])
    figures.note("TRL update", [step.update for step in steps])
    figures.note("TRL step", [step.rollout + step.update for step in steps])
    figures.note("TRL sampled/s", [step.sampled / step.rollout for step in steps])
    figures.note("TRL sampled", [step.sampled for step in steps])
    figures.note("TRL turns", [step.turns for step in steps])
    figures.note("TRL tokens", [step.tokens for step in steps])
    tokens = sum(len(item.row) for item in rollouts)
    best = 0.0
    for of_a_pass in at_once:
        done = trl.update_only(model, game.tokenizer, rollouts, GROUP, of_a_pass, RATE, 1 + count)
        speeds = [tokens / step.update for step in done[1:]]
        figures.note(f"update, TRL, {of_a_pass} a pass", speeds)
        figures.note(f"norm, TRL, {of_a_pass} a pass", [done[0].grad_norm])
        best = max(best, statistics.median(speeds))
    figures.note("update, TRL", [best])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smaller run, under 50 seconds")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--processor", action="store_true", help="processor time of all threads, not wall clock"
    )
    arguments = parser.parse_args()
    if arguments.processor:
        time.perf_counter = time.process_time  # type: ignore[assignment]
    warnings.filterwarnings("ignore")  # TRL's use of Transformers, and its experiments
    torch.set_num_threads(arguments.threads)
    quick = arguments.quick
    rounds, count, questions, cloning = (1, 1, 1, 60) if quick else (3, 2, 4, 80)
    game, model = prepared(questions, cloning)
    has_trl = importlib.util.find_spec("trl") is not None
    figures = Medians()
    rollouts: list[LearntRollout] = []
    for _ in range(rounds):
        steps = steps_of(game, model, GRPO, count)
        note_step(figures, "GRPO", steps[1:])
        note_step(figures, "IGPO", steps_of(game, model, IGPO, count)[1:])
        rollouts = rollouts or learnt(steps[0].trajectories)  # sampled by the model as it is
        tokens = sum(len(item.row) for item in rollouts)
        for name, packed in (("packed", True), ("padded", False)):
            seconds, norm = updates(model, rollouts, packed, count)
            figures.note(f"update, {name}", [tokens / each for each in seconds])
            figures.note(f"norm, {name}", [norm])
        if has_trl:
            note_trl(figures, game, model, rollouts, count, AT_ONCE[1:] if quick else AT_ONCE)
    clock = "processor time" if arguments.processor else "wall clock"
    print(f"{clock}, {arguments.threads} threads, medians of {rounds}")
    report(figures, has_trl, rollouts)


def report(figures: Medians, has_trl: bool, rollouts: Sequence[LearntRollout]) -> None:
    lengths = [len(item.row) for item in rollouts]
    print(
        f"{len(rollouts)} rollouts a step, {np.mean(lengths):.0f} tokens each "
        f"({min(lengths)} to {max(lengths)}), of them the agent's "
        f"{sum(item.tokens for item in rollouts) / sum(lengths):.0%}"
    )
    print(
        f"{figures['GRPO success']:.0%} of our rollouts succeed, "
        f"{figures['GRPO well_formed']:.0%} of their turns are well formed"
    )
    names = ["IGPO", "GRPO", *(["TRL"] if has_trl else [])]
    print(f"{'seconds of a step':<24}" + "".join(f"{name:>10}" for name in names))
    for phase in (*PHASES, "step"):
        cells = [f"{name} {phase}" for name in names]
        told = [f"{figures[cell]:.2f}" if cell in figures.found else "–" for cell in cells]
        print(f"{phase.replace('_', ' '):<24}" + "".join(f"{each:>10}" for each in told))
    for kind in ("turns", "sampled", "tokens", "sampled/s"):
        found = [figures[f"{name} {kind}"] for name in names]
        print(f"{kind:<24}" + "".join(f"{each:>10,.0f}" for each in found))
    for name in [name for name in figures.found if name.startswith("update, ")]:
        norm = name.replace("update", "norm")
        told = f"   gradient norm {figures[norm]:.4f}" if norm in figures.found else "   the better"
        print(f"{name:<24}{figures[name]:>10,.0f} tokens/s{told}")
    update = rollout = None
    if has_trl:
        update = round(figures.over("update, packed", "update, TRL"), 2)
        rollout = round(figures.over("GRPO sampled/s", "TRL sampled/s"), 2)
        print(
            f"ours over TRL {importlib.metadata.version('trl')}: "
            f"update {update:.2f}×, rollouts {rollout:.2f}×"
        )
    else:
        print("TRL is not installed here; make bench compares with it where it is")
    print(
        json.dumps(
            {
                "igpo_step_seconds": round(figures["IGPO step"], 2),
                "grpo_step_seconds": round(figures["GRPO step"], 2),
                "information_gain_share": round(figures["IGPO share"], 3),
                "update_tokens_per_s_over_trl": update,
                "rollout_tokens_per_s_over_trl": rollout,
            }
        )
    )


if __name__ == "__main__":
    main()
