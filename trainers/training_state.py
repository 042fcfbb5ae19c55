"""The whole state of a training run on disk, so that a killed run goes on as if it had not been.

A folder of states, ``000003-step-340`` and so on (the third, after 340 steps), of which the
last counts:

- ``weights.safetensors``: parameters that are trained, and buffers, under their names;
- ``optimizer.pt``: the optimiser's tensors and torch's random states (CPU, every CUDA device);
- ``state.json``: the step, NumPy's random states, whatever the caller adds, checksums of the
  other two (CRC-32), and what must be the same when it is taken up.

A state is written under a hidden name, made durable and then renamed; the one before it is
removed only after that.  Whenever the process dies, the last one under its name is whole.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from drv_env.errors import SettingError, boundary
from drv_env.whole_files import disk_faults_told, sync
from trainers.interrupts import Interrupt, finishing_first

VERSION = 2
STATE = "state"
"""Where a run's folder has its states."""

_CHECKED = ("optimizer.pt", "weights.safetensors")
_FILES = ("state.json", *_CHECKED)
_NAME = re.compile(r"\d+-step-\d+|\.\d+-step-\d+\.(new|old)")

Generators = Mapping[str, np.random.Generator | torch.Generator]
"""Random generators by name, whose states are kept."""


@dataclass(frozen=True, slots=True)
class SavedState:
    """A state on disk.

    Attributes:
        path: its folder.
        step: steps that were done.
        settings: what must be the same.
        extra: what else the caller kept.
    """

    path: Path
    step: int
    settings: dict[str, Any]
    extra: dict[str, Any]

    def restore(
        self,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        settings: Mapping[str, Any] | None = None,
        generators: Generators | None = None,
    ) -> None:
        """Make everything as it was; nothing is changed where something does not fit.

        Args:
            model: of the same shape and, as far as it is not trained, the same weights.
            optimiser: of the same kind, over the same parameters.
            settings: compared with those that were saved.
            generators: those that were saved, by the same names.

        Raises:
            SettingError: naming what differs.
        """
        about = _read(self.path)
        refuse_other(self.path, "settings", self.settings, plain(settings or {}))
        refuse_other(self.path, "model", about["model"], _described(model))
        refuse_other(self.path, "optimiser", about["optimiser"], _optimiser_described(optimiser))
        refuse_other(self.path, "generators", sorted(about["generators"]), sorted(generators or {}))
        with boundary(SettingError, f"the state in {self.path} can't be read"):
            for name in _CHECKED:
                if _checksum(self.path / name) != about["checksums"][name]:
                    raise SettingError(
                        f"the state in {self.path} is damaged: {name} is not what was written; "
                        "remove this state to begin anew"
                    )
            weights = load_file(self.path / "weights.safetensors")
            rest = torch.load(self.path / "optimizer.pt", map_location="cpu", weights_only=True)
        tensors = _kept(model)
        with torch.no_grad():
            for name, tensor in tensors.items():
                tensor.copy_(weights[name])
        optimiser.load_state_dict(rest["optimiser"])
        for name, generator in (generators or {}).items():
            if isinstance(generator, torch.Generator):
                generator.set_state(rest["generators"][name])
            else:
                generator.bit_generator.state = about["generators"][name]
        torch.set_rng_state(rest["torch"])
        if torch.cuda.is_available() and len(rest["cuda"]) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all(rest["cuda"])


class StateFolder:
    """The states of one run.

    Args:
        path: the folder; made when the first state is saved.

    Raises:
        SettingError: when the path is something else than a folder of states.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.exists():
            if not self.path.is_dir():
                raise SettingError(f"{self.path} is a file; name a folder for the state")
            for item in self.path.iterdir():
                if not _NAME.fullmatch(item.name):
                    raise SettingError(f"{self.path} holds {item.name} and is no folder of states")

    def latest(self) -> SavedState | None:
        """The newest whole state.

        Raises:
            SettingError: when it is of another version or damaged.
        """
        found = self._last()
        if found is None:
            return None
        about = _read(found)
        return SavedState(found, about["step"], about["settings"], about["extra"])

    def save(
        self,
        step: int,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        settings: Mapping[str, Any] | None = None,
        generators: Generators | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> Path:
        """Write a state; earlier ones go once it is whole.

        Args:
            step: steps that are done.
            model: parameters that require no gradient are not kept.
            optimiser: over them.
            settings: plain values that must be the same when it is taken up.
            generators: of NumPy (not MT19937's) or torch.
            extra: anything JSON has a form for, such as a position in the data.

        Raises:
            DiskError: when the disk is full; the state before stays, and no half of this one.
        """
        with disk_faults_told(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        last = self._last()
        number = 1 if last is None else int(last.name.split("-")[0]) + 1
        final = self.path / f"{number:06d}-step-{step}"
        temporary = self.path / f".{final.name}.new"
        with disk_faults_told(final):
            try:
                self._write(temporary, step, model, optimiser, settings, generators, extra)
                temporary.rename(final)
                sync(self.path)
            except BaseException:
                _remove(temporary)
                raise
        self._remove_all_but(final)
        return final

    def _write(
        self,
        temporary: Path,
        step: int,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        settings: Mapping[str, Any] | None,
        generators: Generators | None,
        extra: Mapping[str, Any] | None,
    ) -> None:
        _remove(temporary)
        temporary.mkdir()
        tensors = {name: tensor.detach().contiguous() for name, tensor in _kept(model).items()}
        save_file(tensors, temporary / "weights.safetensors")
        torch_states: dict[str, Tensor] = {}
        numpy_states: dict[str, Any] = {}
        for name, generator in (generators or {}).items():
            if isinstance(generator, torch.Generator):
                torch_states[name], numpy_states[name] = generator.get_state(), None
            else:
                numpy_states[name] = generator.bit_generator.state
        cuda = torch.cuda.is_available()
        rest = {
            "optimiser": optimiser.state_dict(),
            "generators": torch_states,
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if cuda else [],
        }
        with (temporary / "optimizer.pt").open("wb") as file:  # whose errors say what it was
            torch.save(rest, file)
        about = {
            "version": VERSION,
            "step": step,
            "settings": plain(settings or {}),
            "extra": plain(extra or {}),
            "model": _described(model),
            "optimiser": _optimiser_described(optimiser),
            "generators": numpy_states,
            "checksums": {name: _checksum(temporary / name) for name in _CHECKED},
        }
        (temporary / "state.json").write_text(json.dumps(about), encoding="utf-8")
        for item in (*temporary.iterdir(), temporary):
            sync(item)

    def _last(self) -> Path | None:
        found = (
            item
            for item in self.path.glob("[0-9]*-step-*")
            if any((item / name).exists() for name in _FILES)
        )
        return max(found, default=None)

    def _remove_all_but(self, final: Path) -> None:
        for item in sorted(self.path.iterdir()):
            if item == final:
                continue
            hidden = item
            if not item.name.startswith("."):
                # what is half removed must not look whole
                hidden = item.with_name(f".{item.name}.old")
                item.rename(hidden)
            if not _remove(hidden) and hidden != item:
                hidden.rename(item)  # somebody's files lie there


class Keeper:
    """A run's state on disk, for a loop over steps; without a folder it keeps nothing.

    Args:
        folder: see :class:`StateFolder`.
        model: what is trained.
        optimiser: over it.
        settings: plain values that must be the same when the run is taken up.
        generators: whose states are kept.
    """

    def __init__(
        self,
        folder: str | Path | None,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        settings: Mapping[str, Any],
        generators: Generators | None = None,
    ) -> None:
        self._folder = None if folder is None else StateFolder(folder)
        self._model, self._optimiser = model, optimiser
        self._settings, self._generators = dict(settings), generators

    def guard(self) -> AbstractContextManager[Interrupt]:
        """Ctrl-C lets a step finish where there is a state to save."""
        if self._folder is None:
            return nullcontext(Interrupt())
        return finishing_first("this step, whose state is saved")

    def start(self) -> int:
        """Steps that an earlier life of the run has done; its state is restored."""
        saved = None if self._folder is None else self._folder.latest()
        if saved is None:
            return 0
        saved.restore(self._model, self._optimiser, self._settings, self._generators)
        return saved.step

    def save(self, step: int) -> None:
        """Write the state after so many steps."""
        if self._folder is not None:
            self._folder.save(step, self._model, self._optimiser, self._settings, self._generators)


def plain(value: Any) -> Any:
    """As JSON gives it back, so that what was saved can be compared."""
    return json.loads(json.dumps(value))


def refuse_other(path: Path, what: str, saved: Any, now: Any) -> None:
    """Refuse to take up a state under something else than it was saved under.

    Raises:
        SettingError: naming what differs.
    """
    if saved == now:
        return
    if isinstance(saved, dict) and isinstance(now, dict):
        named = [
            f"{name}: {saved.get(name, 'missing')} there, {now.get(name, 'missing')} here"
            for name in dict.fromkeys([*saved, *now])
            if saved.get(name, ...) != now.get(name, ...)
        ]
        more = f" and {len(named) - 5} more" if len(named) > 5 else ""
        told = "; ".join(named[:5]) + more
    else:
        told = f"{saved} there, {now} here"
    raise SettingError(
        f"the state in {path} is of another run, its {what} differ ({told}); "
        "make them the same, or name another folder"
    )


# ---- what is kept, and what must be the same -------------------------------------------------


def _kept(model: nn.Module) -> dict[str, Tensor]:
    """Trained parameters, each once, and buffers that are part of the model."""
    found = {name: each for name, each in model.named_parameters() if each.requires_grad}
    names = set(model.state_dict())
    return found | {name: each for name, each in model.named_buffers() if name in names}


def _described(model: nn.Module) -> dict[str, str]:
    """Names with type and shape; of what is not trained, a digest of its beginning too."""
    found = {}
    kept = _kept(model)
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if name in kept:
            found[name] = f"{tensor.dtype} {tuple(tensor.shape)}"
        elif isinstance(tensor, nn.Parameter):
            sample = tensor.detach().flatten()[:1024].cpu().contiguous().view(torch.uint8)
            digest = zlib.crc32(sample.numpy().tobytes())
            found[name] = f"{tensor.dtype} {tuple(tensor.shape)}, frozen {digest:08x}"
    return found


def _optimiser_described(optimiser: torch.optim.Optimizer) -> dict[str, str]:
    found = {"kind": type(optimiser).__name__}
    for number, group in enumerate(optimiser.param_groups):
        sizes = [each.numel() for each in group["params"]]
        found[f"group {number}"] = f"{len(sizes)} parameters of {sum(sizes)} values"
    return found


def _checksum(path: Path) -> int:
    """CRC-32 of a file, read in pieces."""
    found = 0
    with path.open("rb") as file:
        while piece := file.read(1 << 24):
            found = zlib.crc32(piece, found)
    return found


def _read(path: Path) -> dict[str, Any]:
    with boundary(SettingError, f"the state in {path} can't be read"):
        about: dict[str, Any] = json.loads((path / "state.json").read_text(encoding="utf-8"))
    version = about.get("version")
    if version != VERSION:
        raise SettingError(f"the state in {path} is of version {version}, not {VERSION}")
    return about


def _remove(folder: Path) -> bool:
    """Remove a state's files, and the folder where nothing else is in it; whether it is gone."""
    for name in _FILES:
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()
    return not folder.exists()
