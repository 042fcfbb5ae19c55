"""What every run on one device does alike: its device, model, folder and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from drv_env.errors import SettingError
from replay.own_folder import refuse_overlap
from trainers.checkpoint import load_model, save_tuned
from trainers.commands.agent_setup import template_source
from trainers.model_setup import merged, prepare_model
from trainers.optimiser_settings import OptimiserSettings
from trainers.run_folder import (
    ROWS,
    RunFolder,
    plain_values,
    recorded_config,
    refuse_busy,
    refuse_foreign,
)
from trainers.runs.run_config import WORLD, ModelSection, RLRun, Run, SFTRun
from trainers.training_state import STATE, StateFolder, refuse_other
from trainers.written_folder import refuse_unwritten, remove_written

_MAY_CHANGE = (
    "out",
    "plugins",
    "backend",
    "checkpoints",
    "evaluation",
    "engine.gpu_memory",
    "rl.steps",
    "rl.save_every",
    "sft.eval_every",
    "sft.save_every",
    "data.workers",
)
"""Settings, or whole sections, that may differ between two lives of a run."""


def chosen_device(model: ModelSection) -> str:
    """Where the model is trained.

    Raises:
        SettingError: for a device that this machine doesn't have.
    """
    name = model.device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        kind = torch.device(name).type
    except RuntimeError:
        raise SettingError(f"model.device can't be {name!r}; say cuda, cuda:0 or cpu") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise SettingError(f"model.device is {name}, but torch finds no GPU; say cpu, or leave it")
    return name


def ready_model(model: ModelSection, seed: int) -> nn.Module:
    """The model of the folder, ready to be trained.

    Args:
        model: its section.
        seed: of new adapters.
    """
    torch.manual_seed(seed)
    full = not model.lora.rank
    loaded = load_model(model.folder, "float32" if full else "auto")
    return prepare_model(loaded, model.settings()).to(chosen_device(model))


def steps_done(run: Run) -> int:
    """Steps that an earlier life of the run has done and kept.

    Raises:
        SettingError: for a folder of something else, or a state that can't be read.
    """
    refuse_foreign(run.out)
    saved = StateFolder(run.out / STATE).latest()
    return 0 if saved is None else saved.step


def how_it_stands(run: Run) -> str:
    """What to do after Ctrl-C."""
    done = steps_done(run)
    if not done:
        return f"{run.out} has no saved step yet; the same command begins anew"
    return f"{run.out} keeps the state after step {done}; the same command goes on"


def refuse_other_run(run: Run, trainer: str) -> None:
    """Refuse a folder in which another run has begun, or this one under other settings.

    What failed before its first state was saved may be begun again under other settings.

    Raises:
        SettingError: naming what differs; when a process is at work in the folder; or when it
            is no run's, or has to do with what the run reads.
    """
    refuse_foreign(run.out)
    refuse_inputs(run)
    refuse_busy(run.out)
    there = recorded_config(run.out)
    if there is None:
        return
    name = there.get("trainer")
    if name != trainer:
        what = f"a run of {name}" if isinstance(name, str) else "another run"
        raise SettingError(f"{run.out} is the folder of {what}; name another folder")
    if not steps_done(run):
        return
    free = _free(run)
    before, now = _compared(there, free), _compared(resolved(run, trainer), free)
    refuse_other(run.out / STATE, "settings", before, now)


def _free(run: Run) -> list[str]:
    """What may differ; not the steps where what one does follows from how many there are."""
    loop = getattr(run, "rl", None)
    follows = isinstance(loop, OptimiserSettings) and loop.follows_steps
    return [name for name in _MAY_CHANGE if not (follows and name == "rl.steps")]


def refuse_inputs(run: Run) -> None:
    """Refuse a folder that is one of what the run reads, or has to do with it.

    Raises:
        SettingError: naming both.
    """
    inputs = [Path(run.model.folder) / "config.json"]
    if isinstance(run, SFTRun):
        inputs += [*run.data.trajectories, *([run.data.rows] if run.data.rows else [])]
    if isinstance(run, RLRun):
        sources = (run.tasks.source, run.evaluation.source)
        inputs += [Path(name) for name in sources if name not in (None, WORLD)]
        inputs += [run.tools.web] if run.tools.web else []
    refuse_overlap(run.out, inputs, kept=[run.out / ROWS])


def resolved(run: Run, trainer: str) -> dict[str, Any]:
    """The configuration as ``config.json`` holds it."""
    values = plain_values(run)
    return {"trainer": trainer, **values}


def _compared(config: Mapping[str, Any], may_change: Sequence[str]) -> dict[str, Any]:
    """Settings by dotted name, without those that may change."""
    flat = _flat(config)
    if "model.folder" in flat:
        flat["model.folder"] = str(Path(flat["model.folder"]).resolve())
    return {
        name: value
        for name, value in flat.items()
        if not any(name == free or name.startswith(f"{free}.") for free in may_change)
    }


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{before}{name}.")
        else:
            found[f"{before}{name}"] = value
    return found


class Checkpoints:
    """Models to play with, in the folder of a run.

    Args:
        folder: the run's.
        run: its configuration.
        agent: how the model plays; None says nothing of it.
    """

    def __init__(self, folder: RunFolder, run: Run, agent: Mapping[str, Any] | None) -> None:
        self._path = folder.checkpoints
        self._run, self._agent = run, agent
        self._template = template_source(run.model.chat_template)
        refuse_unwritten(self._path / "final")

    def after(self, step: int, model: nn.Module) -> None:
        """Write one where the settings ask for it; older ones than they keep go."""
        section = self._run.checkpoints
        if not section.every or step % section.every:
            return
        self._save(f"step-{step:04d}", model)
        found = {
            int(path.name[5:]): path
            for path in self._path.glob("step-*")
            if path.name[5:].isdecimal()
        }
        newest = sorted(number for number in found if number <= step)[-section.keep :]
        for number, path in found.items():  # later ones are of steps that were taken back
            if number not in newest:
                remove_written(path)

    def final(self, model: nn.Module) -> Path:
        """Write ``final``."""
        return self._save("final", model)

    def _save(self, name: str, model: nn.Module) -> Path:
        base = self._run.model.folder
        return save_tuned(self._path / name, merged(model), base, self._template, self._agent)
