"""One run of ``benchmarks/learning.py``: a supervised part, or a reinforcement from it.

A run is one JSON file in the study's folder, written under a temporary name and renamed.
Processes share a folder: each run is claimed by a lock, which its process loses when it ends
in whatever way, and what is there is not run again.
"""

from __future__ import annotations

import fcntl
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from learning_plan import METHODS, RLRun, Run, SFTRun, Study, result_file
from tokenizers import Tokenizer

from agents.engines.base import Engine
from agents.evaluate import Evaluation, evaluate
from drv_env import background
from drv_env.tasks import Task
from drv_env.whole_files import write_text
from replay.chat_templates import QWEN3_THINKING
from replay.trajectory import Trajectory
from trainers.checkpoint import load_model, save_model
from trainers.information_gain import GainSettings
from trainers.rl import RLStep
from trainers.sft import SFTConfig
from trainers.small_world import (
    HeldOut,
    ModelGame,
    SmallWorld,
    clone,
    reinforce,
    warm_up,
)
from trainers.warmup import CopyConfig

_PLAY_SEED = 20_260_000
"""Of the sampling in every evaluation: models that differ little then play alike."""
_KEPT = (
    "success",
    "well_formed",
    "turns",
    "silent_groups",
    "information_gain",
    "ig_scale",
    "entropy",
    "clip_share",
    "grad_norm",
    "seconds_rollout",
    "seconds_information_gain",
    "seconds_update",
)


def work(folder: Path, study: Study, runs: Sequence[Run], say: Callable[[str], None]) -> None:
    """Do what of these runs nobody has done or is doing, then wait for the others."""
    torch.set_num_threads(1)
    left = list(runs)
    while left:
        others: list[Run] = []
        for run in left:
            with _claimed(folder, run, wait=False) as mine:
                done = mine and result_file(folder, run).exists()
                if not done and not (mine and _do(folder, study, run, say)):
                    others.append(run)
        left = others
        if left:
            for run in (_first(left[0]), left[0]):
                with _claimed(folder, run, wait=True):
                    pass


def _first(run: Run) -> SFTRun:
    """The run that it starts from; of a supervised one itself."""
    return run if isinstance(run, SFTRun) else SFTRun(run.sft_seed)


def _do(folder: Path, study: Study, run: Run, say: Callable[[str], None]) -> bool:
    """Do a claimed run; False when another process is at what it starts from."""
    if isinstance(run, RLRun):
        with _claimed(folder, _first(run), wait=False) as mine:
            there = result_file(folder, _first(run)).exists()
            if not there and (not mine or not _do(folder, study, _first(run), say)):
                return False
    started, used = time.monotonic(), time.process_time()
    found = (
        _supervised(folder, study, run, say)
        if isinstance(run, SFTRun)
        else _reinforced(folder, study, run, say)
    )
    found["seconds"] = time.monotonic() - started
    found["processor_seconds"] = time.process_time() - used
    write_text(result_file(folder, run), json.dumps(found, indent=1) + "\n")
    shown = found.get("test") or found["curve"][-1]
    say(f"{run.name}: {shown['success']:.3f}, {found['seconds']:.0f} s")
    return True


# ---- the two kinds of run ------------------------------------------------------------------


def _supervised(
    folder: Path, study: Study, run: SFTRun, say: Callable[[str], None]
) -> dict[str, Any]:
    world = _world(study, run.seed)
    expert = world.expert_trajectories(study.expert_episodes)
    game = world.played_with(world.tokenizer_for(expert))
    model = game.new_model(run.seed)
    copying = CopyConfig(max_steps=study.copy_steps, seed=run.seed)
    accuracy = warm_up(model, game, copying)
    say(f"{run.name}: copies {accuracy:.0%}")
    weights: list[float] | None = None
    if run.resampled:
        often = [study.resampling.weight(len(item.turns)) for item in expert]
        weights = [len(often) * item / sum(often) for item in often]  # as many steps
    losses = clone(model, game, expert, SFTConfig(seed=run.seed), weights=weights)
    engine = game.engine(model, run.seed)
    try:
        curve = [_point(_played(game, engine, study, "validation"), 0)]
        found = {
            "expert_success": evaluate(expert).success,
            "copied": accuracy,
            "loss": sum(step.loss for step in losses[-50:]) / len(losses[-50:]),
            "steps": len(losses),
            "curve": curve,
            **_tested(game, engine, study),
        }
    finally:
        background.run(engine.close())
    save_model(folder / run.name, model, game.tokenizer, QWEN3_THINKING, game.described())
    return found


def _reinforced(
    folder: Path, study: Study, run: RLRun, say: Callable[[str], None]
) -> dict[str, Any]:
    game = _game(folder, study, _first(run))
    model = load_model(folder / _first(run).name)
    method = METHODS[run.method]
    config = game.rl_config(
        run.rl_seed,
        credit=method.credit,
        gain=GainSettings(tools=method.scored),
        steps=study.rl_steps,
        tasks_per_step=study.tasks_per_step,
        group_size=study.group_size,
        minibatches=study.minibatches,
        learning_rate=run.learning_rate,
    )
    batch = study.tasks_per_step * study.group_size
    curve: list[dict[str, Any]] = []
    steps: dict[str, list[float | None]] = {name: [] for name in _KEPT}
    engine = game.engine(model, run.rl_seed)

    def on_step(step: RLStep) -> None:
        for name in _KEPT:
            steps[name].append(step.metrics.get(name))
        if step.step % study.eval_every == 0 or step.step == study.rl_steps:
            played = _played(game, engine, study, "validation")
            curve.append(_point(played, step.step * batch))
            say(f"{run.name}: step {step.step}, validation {curve[-1]['success']:.3f}")

    try:
        reinforce(model, game, engine, config, on_step)
        tested = _tested(game, engine, study) if run.test else {}
    finally:
        background.run(engine.close())
    return {"curve": curve, **tested, "steps": steps}


@lru_cache(maxsize=4)
def _world(study: Study, seed: int) -> SmallWorld:
    return SmallWorld(replace(study.world, seed=seed))


@lru_cache(maxsize=4)
def _game(folder: Path, study: Study, run: SFTRun) -> ModelGame:
    """The game with the tokenizer of a supervised run; made once a process."""
    tokenizer = Tokenizer.from_file(str(folder / run.name / "tokenizer.json"))
    return _world(study, run.seed).played_with(tokenizer)


# ---- evaluation ----------------------------------------------------------------------------


def _played(
    game: ModelGame, engine: Engine, study: Study, part: HeldOut, temperature: float = 1.0
) -> list[Trajectory]:
    count = study.validation if part == "validation" else study.test
    tasks: Sequence[Task] = game.world.held_out(part, count)
    return game.play(engine, tasks, temperature, seed=_PLAY_SEED)


def _tested(game: ModelGame, engine: Engine, study: Study) -> dict[str, Any]:
    """The final evaluation, sampled and greedy; the one place where test questions are played."""
    sampled = _played(game, engine, study, "test")
    by_hops: dict[int, list[float]] = defaultdict(list)
    for item in sampled:
        by_hops[item.task.metadata["hops"]].append(float(item.outcome or 0.0))
    greedy = evaluate(_played(game, engine, study, "test", temperature=0.0))
    return {
        "test": {
            **_figures(evaluate(sampled)),
            "by_hops": {str(n): sum(of) / len(of) for n, of in sorted(by_hops.items())},
        },
        "test_greedy": _figures(greedy),
    }


def _point(played: Sequence[Trajectory], rollouts: int) -> dict[str, Any]:
    return {"rollouts": rollouts, **_figures(evaluate(played))}


def _figures(item: Evaluation) -> dict[str, Any]:
    told = item.to_json()
    names = ("success", "standard_error", "well_formed", "turns", "visit_ratio", "context_tokens")
    return {name: told[name] for name in names}


@contextmanager
def _claimed(folder: Path, run: Run, *, wait: bool) -> Iterator[bool]:
    """Hold a run; False when another process holds it and this one does not wait."""
    locks = folder / ".locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / run.name).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True
