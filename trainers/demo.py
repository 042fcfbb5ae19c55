"""The whole path once, small: expert, behaviour cloning, IGPO, evaluation.

A scripted expert with flaws plays an invented web; a model of 156 thousand parameters is
cloned from it and then trained by reinforcement on its own rollouts.  Nothing is
prepared: the web, the tokenizer and the model are made from the seed.  It prints what it
measures.

What was left half done goes on: the expert's episodes and the states of both trainings are in
the run's folder.  Evaluations are played again, so that the sampling after them is the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from transformers import PreTrainedModel

from agents.engines.base import Engine
from agents.engines.transformers import TransformersEngine
from agents.evaluate import Evaluation, evaluate
from drv_env import background
from drv_env.errors import SettingError
from drv_env.tasks import Task
from replay.chat_templates import QWEN3_THINKING
from replay.store import read_trajectories, write_trajectories
from replay.trajectory import Trajectory
from trainers.advantages import GRPO, IGPO
from trainers.checkpoint import save_model
from trainers.demo_config import DemoConfig
from trainers.rl import RLStep
from trainers.run_folder import (
    RunFolder,
    plain_values,
    recorded_config,
    refuse_busy,
    refuse_foreign,
)
from trainers.sft import SFTConfig, SFTStep
from trainers.small_world import ModelGame, SmallWorld, clone, reinforce, warm_up
from trainers.small_world_config import WorldSettings
from trainers.training_state import STATE, StateFolder
from trainers.warmup import CopyConfig

_EXPERT = "expert.parquet"
_SAVE_EVERY = 50
"""Steps of cloning between two states."""
_COUNTS = (
    "worlds",
    "expert_episodes",
    "copy_steps",
    "sft_epochs",
    "rl_steps",
    "questions",
    "threads",
)


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

    Raises:
        SettingError: for a number below 1, or another folder than one of this run, unfinished.
        DiskError: when the disk is full.
        KeyboardInterrupt: after Ctrl-C; what is done is kept.
    """
    for name in _COUNTS:
        if getattr(config, name) < 1:
            raise SettingError(f"{name} must be at least 1, got {getattr(config, name)}")
    done = _done(config)
    console = console or Console()
    torch.set_num_threads(config.threads)
    world = SmallWorld(WorldSettings(seed=config.seed, worlds=config.worlds))
    held_out = world.held_out(config.part, config.questions)
    run = RunFolder(config.folder, {"demo": config}, done)
    if done is not None:
        console.print(_goes_on(config.folder, done), highlight=False, soft_wrap=True)
    console.print(
        f"{len(world.train)} questions to train on, {len(held_out)} held out, in "
        f"{config.worlds} webs of {len(world.recipes[0].build().pages)} pages each"
    )
    engine: TransformersEngine | None = None
    try:
        with _progress(console) as track:
            kept = run.trajectories / _EXPERT
            if done is not None and kept.is_file():
                expert = list(read_trajectories(kept))
            else:
                expert = _expert_trajectories(world, config, track)
                write_trajectories(kept, expert)
            game = world.played_with(world.tokenizer_for(expert))
            model = game.new_model(config.seed)
            engine = game.engine(model, config.seed)
            evaluated = partial(_evaluate, game, engine, held_out, config, run, track)
            stages = [evaluated("untrained", 0)]

            if not done:
                _warm_up(model, game, config, run, track)
            _clone(model, game, expert, config, run, track)
            background.run(engine.update_weights(model))
            stages.append(evaluated("SFT", 1))

            _reinforce(model, game, engine, config, run, track)
            stages.append(evaluated(config.algorithm.upper(), config.rl_steps + 2))
            final = run.checkpoints / "final"
            save_model(
                final,
                model,
                game.tokenizer,
                QWEN3_THINKING,
                game.described(count=config.questions, part=config.part),
            )
    except KeyboardInterrupt:
        told = f"{config.folder} keeps what is done; the same command goes on"
        console.print(told, highlight=False, soft_wrap=True)
        raise
    finally:
        if engine is not None:
            background.run(engine.close())
        run.close()
    console.print(_table(stages, config))
    console.print(f"Trajectories, metrics and checkpoint: {config.folder}")
    return stages


def _goes_on(folder: Path, done: Mapping[str, int]) -> str:
    """What is said of a run that is taken up, of steps by phase."""
    if done:
        return f"goes on with {folder}"
    return (
        f"goes on with {folder}, which was left before the first saved step of SFT: the model "
        "learns to copy once more"
    )


def _done(config: DemoConfig) -> dict[str, int] | None:
    """How far the trainings of an unfinished run are, by phase; None where there is none.

    Raises:
        SettingError: for a finished run, and one of other settings.
    """
    folder = config.folder
    refuse_foreign(folder)
    refuse_busy(folder)
    there = recorded_config(folder)
    if there is None:
        return None
    before = there.get("demo")
    if not isinstance(before, dict):
        raise SettingError(f"{folder} is the folder of another run; name another with --out")
    if (folder / "checkpoints" / "final" / "config.json").is_file():
        raise SettingError(
            f"{folder} holds a finished run: play its model with drv eval world --model "
            f"{folder}/checkpoints/final, run the demo elsewhere with --out FOLDER, or delete the "
            "folder to run it again"
        )
    wanted = plain_values(config.to_record())
    differ = [name for name, value in wanted.items() if before.get(name) != value]
    if differ:
        name = differ[0]
        raise SettingError(
            f"{folder} holds an unfinished run with another {', '.join(differ)} ({name} was "
            f"{before.get(name)!r}, is {wanted[name]!r}); name another folder with --out"
        )
    states = {phase: StateFolder(folder / STATE / phase).latest() for phase in ("sft", "rl")}
    steps = {phase: state.step for phase, state in states.items() if state is not None}
    return {"copy": config.copy_steps, **steps} if steps else {}


# ---- phases ---------------------------------------------------------------------------

Track = Callable[[str, float], Callable[[float, str], None]]


@contextmanager
def _progress(console: Console) -> Iterator[Track]:
    """Bars: ``track(name, total)`` gives ``update(done, note)``."""
    columns = (
        TextColumn("{task.description:<24}"),
        BarColumn(bar_width=12),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:

        def track(name: str, total: float) -> Callable[[float, str], None]:
            bar = progress.add_task(name, total=total, note="")
            started, over = time.monotonic(), False

            def update(done: float, note: str = "") -> None:
                nonlocal over
                progress.update(bar, completed=done, note=note)
                if not console.is_terminal and done >= total and note and not over:
                    over = True  # a log gets one line a phase
                    console.print(f"{name:<24}{time.monotonic() - started:5.0f} s  {note}")

            return update

        yield track


def _expert_trajectories(world: SmallWorld, config: DemoConfig, track: Track) -> list[Trajectory]:
    count = config.expert_episodes
    update = track("expert plays", count)
    found = world.expert_trajectories(count, lambda over, playing: update(over, ""))
    figures = evaluate(found)
    update(count, f"success {figures.success:.0%}, {figures.turns:.1f} turns")
    return found


def _warm_up(
    model: PreTrainedModel, game: ModelGame, config: DemoConfig, run: RunFolder, track: Track
) -> None:
    settings = CopyConfig(max_steps=config.copy_steps, seed=config.seed)
    update = track("learns to copy", 1.0)

    def on_step(step: int, accuracy: float) -> None:
        over = accuracy >= settings.accuracy or step == settings.max_steps
        done = 1.0 if over else accuracy / settings.accuracy
        update(done, f"step {step}, accuracy {accuracy:.0%}")
        run.log("copy", step, {"accuracy": accuracy})

    warm_up(model, game, settings, on_step)


def _clone(
    model: PreTrainedModel,
    game: ModelGame,
    expert: Sequence[Trajectory],
    config: DemoConfig,
    run: RunFolder,
    track: Track,
) -> None:
    update = track("SFT on the expert", 1.0)

    def on_step(step: SFTStep) -> None:
        update(step.step / step.steps, f"step {step.step}/{step.steps}, loss {step.loss:.3f}")
        run.log("sft", step.step, {"loss": step.loss, "learning_rate": step.learning_rate})

    settings = SFTConfig(epochs=config.sft_epochs, seed=config.seed, save_every=_SAVE_EVERY)
    clone(model, game, expert, settings, on_step, state=run.path / STATE / "sft")


def _reinforce(
    model: PreTrainedModel,
    game: ModelGame,
    engine: Engine,
    config: DemoConfig,
    run: RunFolder,
    track: Track,
) -> None:
    settings = game.rl_config(
        config.seed,
        credit=IGPO if config.algorithm == "igpo" else GRPO,
        steps=config.rl_steps,
        learning_rate=config.rl_learning_rate,
    )
    update = track(f"{config.algorithm.upper()} on own rollouts", config.rl_steps)

    def on_step(step: RLStep) -> None:
        figures = step.metrics
        note = f"step {step.step}/{config.rl_steps}, success {figures['success']:.0%}"
        if "information_gain" in figures:
            note += f", gain {figures['information_gain']:+.2f}"
        update(step.step, note)
        run.log("rl", step.step, figures)
        write_trajectories(run.trajectories / f"rl-{step.step:04d}.parquet", step.trajectories)

    reinforce(model, game, engine, settings, on_step, state=run.path / STATE / "rl")


def _evaluate(
    game: ModelGame,
    engine: TransformersEngine,
    held_out: Sequence[Task],
    config: DemoConfig,
    run: RunFolder,
    track: Track,
    name: str,
    step: int,
) -> Stage:
    update = track(f"evaluation: {name}", 2 * len(held_out))
    figures: list[Evaluation] = []
    for way, temperature in (("sampled", 1.0), ("greedy", 0.0)):
        done = len(held_out) * len(figures)
        label = {"agent": name, "way": way, "seed": config.seed}
        found = game.play(
            engine,
            held_out,
            temperature,
            label,
            partial(_count, update, done),
            config.seed,  # as drv eval plays the checkpoint, whose agent.json has this seed
        )
        write_trajectories(run.trajectories / f"eval-{name.lower()}-{way}.parquet", found)
        figures.append(evaluate(found))
    stage = Stage(name, *figures)
    update(
        2 * len(held_out),
        f"success {stage.sampled.success:.0%} sampled, {stage.greedy.success:.0%} greedy",
    )
    run.log(
        "evaluation",
        step,
        {
            f"{way}_{key}": value
            for way, item in (("sampled", stage.sampled), ("greedy", stage.greedy))
            for key, value in (
                ("success", item.success),
                ("standard_error", item.standard_error),
                ("well_formed", item.well_formed),
                ("turns", item.turns),
            )
        },
    )
    return stage


def _count(update: Callable[[float, str], None], before: int, over: int, playing: int) -> None:
    update(before + over, "")


def _table(stages: Sequence[Stage], config: DemoConfig) -> Table:
    table = Table(
        title=f"Success on {config.questions} held-out questions, seed {config.seed}",
        caption="± standard error; visits: share of visits among tool calls, sampled",
    )
    table.add_column("agent")
    for column in ("sampled", "greedy", "well formed", "turns", "visits"):
        table.add_column(column, justify="right", no_wrap=True)
    for stage in stages:
        ratio = stage.sampled.visit_ratio
        table.add_row(
            stage.name,
            f"{stage.sampled.success:.3f} ± {stage.sampled.standard_error:.3f}",
            f"{stage.greedy.success:.3f} ± {stage.greedy.standard_error:.3f}",
            f"{stage.sampled.well_formed:.1%}",
            f"{stage.sampled.turns:.2f}",
            "–" if ratio != ratio else f"{ratio:.1%}",
        )
    return table
