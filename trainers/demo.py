"""The whole path once, small: expert, behaviour cloning, IGPO, evaluation.

A scripted expert with flaws plays an invented web; a model of 156 thousand parameters is
cloned from it and then trained by reinforcement on its own rollouts.  Nothing is
prepared: the web, the tokenizer and the model are made from the seed.  It prints what it
measures.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from tokenizers import Tokenizer
from transformers import PreTrainedModel

from agents.engines.base import Sampling
from agents.engines.transformers import TransformersEngine
from agents.evaluate import Evaluation, evaluate
from agents.rollout import VectorEnv, rollout_agents, rollout_vector
from drv_env import ENV_ID, background
from drv_env.episode import Rules
from drv_env.tasks import Task
from drv_env.tools.offline import OfflineTools
from drv_env.worlds import Expert, Noise, WorldRecipe, split
from replay.chat_templates import QWEN3_THINKING
from replay.sft_rows import transcribe
from replay.store import write_trajectories
from replay.template import ChatTemplate
from replay.trajectory import Trajectory
from trainers.advantages import GRPO, IGPO
from trainers.checkpoint import save_model
from trainers.rl import RLConfig, RLStep, train_rl
from trainers.rows import Row
from trainers.run_folder import RunFolder
from trainers.sft import SFTConfig, SFTStep, train_sft
from trainers.tiny import IM_END, TinySize, build_model, build_tokenizer
from trainers.warmup import CopyConfig, warm_up_copying

TURN_TOKENS = 48
"""The most tokens of one turn; the expert's longest has 24."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoConfig:
    """Settings of the demo.

    Attributes:
        seed: decides everything: world, model, sampling.
        out: the run's folder.
        algorithm: ``igpo``, or ``grpo`` for the baseline.
        worlds: webs to train in; they share their names and differ in their facts.
        expert_episodes: trajectories of the expert to clone.
        sft_epochs: passes over them.
        rl_steps: rollout batches of 8 questions × 8 rollouts.
        rl_learning_rate: AdamW's.
        questions: held-out questions of each evaluation.
        threads: threads of torch; 0 takes one for each core, 2 at most.
    """

    seed: int = 0
    out: Path = Path("runs/demo")
    algorithm: str = "igpo"
    worlds: int = 16
    expert_episodes: int = 2400
    sft_epochs: int = 2
    rl_steps: int = 40
    rl_learning_rate: float = 5e-4
    questions: int = 192
    threads: int = 1
    part: str = "test"
    copy: CopyConfig = field(default_factory=CopyConfig)


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage's evaluations on the held-out questions."""

    name: str
    sampled: Evaluation
    greedy: Evaluation


def run_demo(config: DemoConfig, console: Console | None = None) -> list[Stage]:
    """Run the demo and print its table.

    Returns:
        The evaluations: untrained, cloned, and after reinforcement.
    """
    console = console or Console()
    torch.set_num_threads(config.threads)
    game = _Game.of(config)
    run = RunFolder(config.out, {"demo": config})
    console.print(
        f"{len(game.train)} questions to train on, {len(game.held_out)} held out, in "
        f"{config.worlds} webs of {len(game.recipes[0].build().pages)} pages each"
    )
    engine: TransformersEngine | None = None
    try:
        with _progress(console) as track:
            expert = _expert_trajectories(game, config, track)
            write_trajectories(run.trajectories / "expert.parquet", expert)
            tokenizer, template, model = _new_model(game, expert, config)
            game.start(tokenizer, template)
            engine = TransformersEngine(
                model, slots=game.envs.num_envs, max_context=TinySize().context, seed=config.seed
            )
            stages = [_evaluate("untrained", game, engine, config, run, track)]

            _warm_up(model, tokenizer, config, run, track)
            _clone(model, expert, template, config, run, track)
            background.run(engine.update_weights(model))
            stages.append(_evaluate("SFT", game, engine, config, run, track))

            _reinforce(model, engine, game, config, run, track)
            name = config.algorithm.upper()
            stages.append(_evaluate(name, game, engine, config, run, track))
            save_model(run.checkpoints / "final", model, tokenizer, QWEN3_THINKING)
    finally:
        if engine is not None:
            background.run(engine.close())
        run.close()
    console.print(_table(stages, config))
    console.print(f"Trajectories, metrics and checkpoint: {config.out}")
    return stages
