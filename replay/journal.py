"""The state of a cleaning job in its output folder, so that a killed one goes on.

``OUT/.work`` holds, while a job is under way:

* ``job.json``: inputs and settings; a job is continued only with the same;
* ``parts/``: one file of cleaned rows for each finished chunk of input;
* ``chunks.jsonl``, ``scores.jsonl``: a line for each finished chunk, written after its file;
  a line that was cut off by a kill is not there;
* ``done/``: finished output, and ``moves.json`` once it is complete: from then on the job
  only moves it into place.

``stats.json`` of a finished job lists its files; only these are ever replaced or removed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from drv_env.errors import SettingError
from drv_env.whole_files import append_line, read_json, sync
from replay.cleaned_rows import write_json
from replay.own_folder import FolderKind, holds_no_file

FINISHED = "stats.json"
_WORK = ".work"
_OWN = ("job.json", "moves.json", "chunks.jsonl", "scores.jsonl")
KIND = FolderKind(
    "a cleaning job",
    {
        f"{_WORK}/job.json": {"version": int, "inputs": list, "rules": dict},
        FINISHED: {"job": dict, "files": list, "counts": dict},
    },
    parts=(_WORK, f"{_WORK}/parts", f"{_WORK}/done"),
    before={_WORK: holds_no_file},
)


class Journal:
    """The working folder of one job, whose lock is held.

    Args:
        out: the output folder, of :data:`KIND`.
        job: inputs and settings, as plain JSON values.
        again: forget what is there and begin anew.

    Raises:
        SettingError: when the folder holds another job's state or result.
    """

    def __init__(self, out: Path, job: dict[str, Any], again: bool = False) -> None:
        self.out = out
        self.work = out / _WORK
        self.parts = self.work / "parts"
        self.done = self.work / "done"
        self._job = json.loads(json.dumps(job))
        if again:
            self.finish_moving()
            self._clear()
        elif (self.work / "job.json").exists():
            self._check(self.work / "job.json", "an unfinished job")
        else:
            self._check(out / FINISHED, "the result of a job")

    @property
    def finished(self) -> dict[str, Any] | None:
        """What stats.json says, when the job is finished and nothing is under way."""
        if (self.work / "job.json").exists():
            return None
        found = read_json(self.out / FINISHED)
        return found if isinstance(found, dict) else None

    def begin(self) -> None:
        """Make the folders and write down the job."""
        write_json(self.work / "job.json", self._job)
        self.parts.mkdir(exist_ok=True)
        for old in (self.done, *self.work.glob(".shuffle-*")):
            shutil.rmtree(old, ignore_errors=True)
        self.done.mkdir()

    def part(self, chunk: int) -> Path:
        """The file of cleaned rows of a chunk; not there where none was kept."""
        return self.parts / f"{chunk:08d}.parquet"

    def lines(self, name: str) -> dict[int, dict[str, Any]]:
        """The lines of ``chunks`` or ``scores``, by chunk."""
        try:
            text = (self.work / f"{name}.jsonl").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return {}
        found = {}
        for line in text.split("\n"):
            try:
                record = json.loads(line)
                found[int(record["chunk"])] = record
            except (ValueError, KeyError, TypeError):
                continue
        return found

    def add(self, name: str, record: dict[str, Any]) -> None:
        """Add a line."""
        append_line(self.work / f"{name}.jsonl", json.dumps(record))

    def commit(self, files: Iterable[str], stats: dict[str, Any]) -> None:
        """Put the finished output in place of what the job before it left.

        Args:
            files: names of files in ``done``.
            stats: what stats.json says; written last.

        Raises:
            SettingError: when a file that no job made has one of the names.
        """
        names = sorted(files)
        before = read_json(self.out / FINISHED)
        old = _plain_names(before.get("files") if isinstance(before, dict) else None)
        for name in names:
            if os.path.lexists(self.out / name) and name not in old:
                raise SettingError(
                    f"{self.out / name} was not made by drv data clean and would be replaced; move "
                    "it elsewhere, and the same command goes on"
                )
        for name in names:
            sync(self.done / name)
        moves = {"files": names, "old": old, "stats": {**stats, "job": self._job}}
        write_json(self.work / "moves.json", moves)
        self.finish_moving()

    def finish_moving(self) -> bool:
        """Move complete output into place; False when there is none."""
        moves = read_json(self.work / "moves.json")
        if moves is None:
            return False
        if not _is_plan(moves):
            raise SettingError(
                f"{self.work / 'moves.json'} is damaged; take it away, and the same command goes on"
            )
        (self.out / FINISHED).unlink(missing_ok=True)
        files = _plain_names(moves["files"])
        for name in _plain_names(moves["old"]):
            if name not in files or (self.done / name).exists():
                with suppress(IsADirectoryError):
                    (self.out / name).unlink(missing_ok=True)
        for name in files:
            if (self.done / name).exists():
                os.replace(self.done / name, self.out / name)
        write_json(self.out / FINISHED, moves["stats"])
        self._clear()
        return True

    def abandon(self) -> None:
        """Forget the job under way; what a finished one left stays."""
        self._clear()

    def _clear(self) -> None:
        """Remove what a job puts into its working folder; the journal last."""
        if not self.work.is_dir():
            return
        for folder in (self.parts, self.done, *self.work.glob(".shuffle-*")):
            shutil.rmtree(folder, ignore_errors=True)
        for name in reversed(_OWN):
            (self.work / name).unlink(missing_ok=True)
        with suppress(OSError):  # something that is not ours lies there
            self.work.rmdir()

    def _check(self, file: Path, what: str) -> None:
        found = read_json(file)
        if found is None:
            return
        other = found.get("job", found) if file.name == FINISHED else found
        differs = sorted(
            key for key in {*self._job, *other} if self._job.get(key) != other.get(key)
        )
        if differs:
            raise SettingError(
                f"{self.out} holds {what} with other {', '.join(differs)}; name another folder, "
                "or start over with --again"
            )


def _is_plan(moves: Any) -> bool:
    """Whether this is what :meth:`Journal.commit` writes."""
    return (
        isinstance(moves, dict)
        and isinstance(moves.get("stats"), dict)
        and all(isinstance(moves.get(name), list) for name in ("files", "old"))
    )


def _plain_names(names: Any) -> list[str]:
    """Those that are names of files in the folder itself."""
    found = names if isinstance(names, list) else []
    return [name for name in found if isinstance(name, str) and Path(name).name == name]
