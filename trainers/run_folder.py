"""The folder of one run: configuration, versions, metrics, trajectories, checkpoints."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import shutil
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from drv_env.errors import SettingError

_PACKAGES = ("drv-env", "torch", "transformers", "tokenizers", "gymnasium", "numpy", "pyarrow")


class RunFolder:
    """Writes what a run leaves behind.

    ``config.json`` (the resolved settings and the versions), ``metrics.jsonl`` and
    TensorBoard events (the same numbers), ``trajectories/``, ``checkpoints/``.

    Args:
        path: the folder; made when it is missing.
        config: the resolved settings: plain values or dataclasses.

    Raises:
        SettingError: when the path is taken by something else than a run's folder.
    """

    def __init__(self, path: str | Path, config: Mapping[str, Any]) -> None:
        self.path = Path(path)
        if self.path.exists() and not self.path.is_dir():
            raise SettingError(f"{self.path} is a file; name a folder for the run")
        foreign = self.path.is_dir() and not (self.path / "config.json").exists()
        if foreign and any(self.path.iterdir()):
            raise SettingError(f"{self.path} holds other files and no run; name another folder")
        self.path.mkdir(parents=True, exist_ok=True)
        document = {"config": _plain(config), "versions": _versions()}
        write_text(self.path / "config.json", json.dumps(document, indent=2) + "\n")
        from torch.utils.tensorboard import SummaryWriter

        events = self.path / "tensorboard"
        shutil.rmtree(events, ignore_errors=True)
        self._board = SummaryWriter(str(events))
        self._metrics = (self.path / "metrics.jsonl").open("w", encoding="utf-8")

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

    def close(self) -> None:
        """Flush and close the files."""
        self._metrics.close()
        self._board.close()


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


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return repr(value)
