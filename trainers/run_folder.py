"""The folder of one run: configuration, versions, metrics, trajectories, checkpoints."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import shutil
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import IO, Any

from agents import folder_lock
from drv_env.errors import SettingError

_MADE_BEFORE = {folder_lock.NAME, "rows"}
"""What a run may have put into its folder before it began."""
_PACKAGES = ("drv-env", "torch", "transformers", "tokenizers", "gymnasium", "numpy", "pyarrow")


class RunFolder:
    """Writes what a run leaves behind.

    ``config.json`` (the resolved settings and the versions), ``metrics.jsonl`` and
    TensorBoard events (the same numbers), ``trajectories/``, ``checkpoints/``.

    One process fills a folder at a time.

    Args:
        path: the folder; made when it is missing.
        config: the resolved settings: plain values or dataclasses.
        done: steps that an earlier life of the run has done, whose metrics stay; what it
            logged of later ones, which are taken again, goes.  None begins anew.

    Raises:
        SettingError: when the path is taken by something else than a run's folder, or
            another process is at work in it.
    """

    def __init__(
        self, path: str | Path, config: Mapping[str, Any], done: int | None = None
    ) -> None:
        self.path = Path(path)
        refuse_foreign(self.path)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = (self.path / folder_lock.NAME).open("w")
        except OSError as error:
            raise SettingError(f"{self.path} can't be a run's folder: {error}") from None
        _lock(self._lock, self.path)
        document = {"config": plain_values(config), "versions": _versions()}
        write_text(self.path / "config.json", json.dumps(document, indent=2) + "\n")
        from torch.utils.tensorboard import SummaryWriter

        events, metrics = self.path / "tensorboard", self.path / "metrics.jsonl"
        if done is None:
            shutil.rmtree(events, ignore_errors=True)
        self._board = SummaryWriter(str(events), purge_step=None if done is None else done + 1)
        kept = [] if done is None or not metrics.exists() else _lines_up_to(metrics, done)
        write_text(metrics, "".join(kept))
        self._metrics = metrics.open("a", encoding="utf-8")

    @property
    def trajectories(self) -> Path:
        """Where trajectories go."""
        return self.path / "trajectories"

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints go."""
        return self.path / "checkpoints"

    def log(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        """One line of metrics: numbers by name, at a step of a phase."""
        line = {"phase": phase, "step": step, **values}
        self._metrics.write(json.dumps(line) + "\n")
        self._metrics.flush()
        for name, value in values.items():
            self._board.add_scalar(f"{phase}/{name}", value, step)

    def logged(self, phase: str) -> list[dict[str, Any]]:
        """The lines of metrics of a phase, those of earlier lives among them."""
        text = (self.path / "metrics.jsonl").read_text(encoding="utf-8")
        lines = [json.loads(line) for line in text.splitlines()]
        return [line for line in lines if line.get("phase") == phase]

    def close(self) -> None:
        """Flush and close the files."""
        self._metrics.close()
        self._board.close()
        self._lock.close()


def refuse_foreign(path: Path) -> None:
    """Refuse what is no run's folder and could not become one.

    Raises:
        SettingError: naming it.
    """
    above = next(each for each in (path, *path.parents) if each.exists())
    if not above.is_dir():
        raise SettingError(f"{above} is a file; name a folder for the run")
    if not os.access(above, os.W_OK):
        raise SettingError(f"{above} can't be written to; name another folder for the run")
    if path.is_dir() and not (path / "config.json").exists():
        others = {item.name for item in path.iterdir()} - _MADE_BEFORE
        if others:
            raise SettingError(f"{path} holds other files and no run; name another folder")


def refuse_busy(path: Path) -> None:
    """Refuse a run's folder in which a process is at work.

    Raises:
        SettingError: naming it.
    """
    if (path / folder_lock.NAME).exists():
        with (path / folder_lock.NAME).open("r+") as file:
            _lock(file, path)


def _lock(file: IO[str], path: Path) -> None:
    folder_lock.take_lock(
        file, f"another process is at work in {path}; wait for it, or name another folder"
    )


def recorded_config(path: Path) -> dict[str, Any] | None:
    """The settings that a run's folder holds; None where there is no run.

    Raises:
        SettingError: when they can't be read.
    """
    file = path / "config.json"
    if not file.is_file():
        return None
    try:
        found = json.loads(file.read_text(encoding="utf-8"))["config"]
        if not isinstance(found, dict):
            raise ValueError("it holds no settings")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SettingError(f"{file} can't be read: {error}; name another folder") from None
    return found


def _lines_up_to(file: Path, step: int) -> list[str]:
    """Whole lines of steps up to this one; a kill may have cut the last."""
    kept = []
    for line in file.read_text(encoding="utf-8").splitlines(keepends=True):
        with suppress(ValueError, KeyError, TypeError):
            if json.loads(line)["step"] <= step and line.endswith("\n"):
                kept.append(line)
    return kept


def write_text(path: Path, text: str) -> None:
    """Write a file under a temporary name, then rename it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed as a distribution"
    return found


def plain_values(value: Any) -> Any:
    """Records, mappings and sequences as JSON has them; anything else as its representation."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain_values(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain_values(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_values(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return repr(value)
