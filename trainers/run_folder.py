"""The folder of one run: configuration, versions, metrics, trajectories, checkpoints."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from drv_env.errors import DiskError, SettingError
from drv_env.json_files import why_unread
from drv_env.whole_files import append, disk_fault, told, write_json, write_text
from replay import own_folder, token_store
from replay.own_folder import FolderKind, FolderLock, holds_no_file

ROWS = "rows"
"""Where a run keeps the rows that it made of trajectories, before it began."""
_RECORD = "config.json"
_PARTS = ("trajectories", "checkpoints", "tensorboard", "state")
_PACKAGES = ("drv-env", "torch", "transformers", "tokenizers", "gymnasium", "numpy", "pyarrow")


def holds_own_rows(folder: Path) -> bool:
    """Whether this is a folder of rows, perhaps one that is being made."""
    if not folder.is_dir() or folder.is_symlink():
        return False
    return holds_no_file(folder) or token_store.KIND.record(folder) is not None


KIND = FolderKind(
    "a run",
    {_RECORD: {"config": dict, "versions": dict}},
    parts=(*_PARTS, ROWS),
    before={ROWS: holds_own_rows},
)


class RunFolder:
    """Writes what a run leaves behind.

    ``config.json`` (the resolved settings and the versions), ``metrics.jsonl`` and
    TensorBoard events (the same numbers), ``trajectories/``, ``checkpoints/``.

    One process fills a folder at a time.

    Args:
        path: the folder; made when it is missing.
        config: the resolved settings: plain values or dataclasses.
        done: steps that an earlier life of the run has done, whose metrics stay; what it
            logged of later ones, which are taken again, goes.  None begins anew.  Phases that
            are gone on with each at a step of their own have it by their name.

    Raises:
        SettingError: when the path is taken by something else than a run's folder, or
            another process is at work in it.
        DiskError: when the disk is full.
    """

    def __init__(
        self,
        path: str | Path,
        config: Mapping[str, Any],
        done: int | Mapping[str, int] | None = None,
    ) -> None:
        self.path = Path(path)
        refuse_foreign(self.path)
        self._lock = FolderLock(self.path, _busy(self.path), _PARTS)
        try:
            self._open(config, done)
        except BaseException:
            self._lock.close()
            raise

    def _open(self, config: Mapping[str, Any], done: int | Mapping[str, int] | None) -> None:
        from trainers.event_file import EventFile

        refuse_foreign(self.path)
        document = {"config": plain_values(config), "versions": _versions()}
        write_json(self.path / _RECORD, document)
        metrics, events = self.path / "metrics.jsonl", self.path / "tensorboard"
        kept = [] if done is None or not metrics.exists() else _lines_up_to(metrics, done)
        write_text(metrics, "".join(kept))
        try:
            self._board = EventFile(events, done + 1 if isinstance(done, int) else 0)
            if isinstance(done, Mapping):  # the board has one count of steps for all phases
                for line in kept:
                    self._show(**json.loads(line))
        except OSError as error:
            raise _unwritten(events, error) from error
        self._metrics = metrics.open("ab", buffering=0)

    @property
    def trajectories(self) -> Path:
        """Where trajectories go."""
        return self.path / "trajectories"

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints go."""
        return self.path / "checkpoints"

    def log(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        """One line of metrics: numbers by name, at a step of a phase.

        Raises:
            DiskError: when it can't be written; no part of it is in a file then.
        """
        line = json.dumps({"phase": phase, "step": step, **values}) + "\n"
        for path, write in (
            (self.path / "metrics.jsonl", lambda: append(self._metrics, line.encode("utf-8"))),
            (self._board.path, lambda: self._show(phase, step, **values)),
        ):
            try:
                write()
            except OSError as error:
                raise _unwritten(path, error) from error

    def logged(self, phase: str) -> list[dict[str, Any]]:
        """The lines of metrics of a phase, those of earlier lives among them."""
        text = (self.path / "metrics.jsonl").read_text(encoding="utf-8")
        lines = [json.loads(line) for line in text.splitlines()]
        return [line for line in lines if line.get("phase") == phase]

    def _show(self, phase: str, step: int, **values: float) -> None:
        self._board.add(step, {f"{phase}/{name}": value for name, value in values.items()})

    def close(self) -> None:
        """Close the files; may be called twice."""
        self._metrics.close()
        self._board.close()
        self._lock.close()


def refuse_foreign(path: Path) -> None:
    """Refuse what is no run's folder and could not become one.

    Raises:
        SettingError: naming it.
    """
    KIND.record(path)
    above = next(each for each in (path, *path.parents) if each.exists())
    if not os.access(above, os.W_OK):
        raise SettingError(f"{above} can't be written to; name another folder for the run")


def refuse_busy(path: Path) -> None:
    """Refuse a run's folder in which a process is at work.

    Raises:
        SettingError: naming it.
    """
    own_folder.refuse_busy(path, _busy(path))


def _busy(path: Path) -> str:
    return f"another process is at work in {path}; wait for it, or name another folder"


def _unwritten(path: Path, error: OSError) -> DiskError:
    return DiskError(told(path, disk_fault(error) or error.strerror or str(error)))


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
        raise SettingError(
            f"{file} can't be read: {why_unread(error)}; name another folder"
        ) from None
    return found


def _lines_up_to(file: Path, done: int | Mapping[str, int]) -> list[str]:
    """Whole lines of the steps that are done; a kill may have cut the last."""
    kept = []
    text = file.read_text(encoding="utf-8", errors="replace")
    for line in text.splitlines(keepends=True):
        with suppress(ValueError, KeyError, TypeError):
            found = json.loads(line)
            last = done if isinstance(done, int) else done.get(found["phase"], -1)
            if found["step"] <= last and line.endswith("\n"):
                kept.append(line)
    return kept


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
