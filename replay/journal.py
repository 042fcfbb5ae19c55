"""The state of a cleaning job in its output folder, so that a killed one goes on.

``OUT/.work`` holds, while a job is under way:

* ``job.json``: inputs and settings; a job is continued only with the same;
* ``parts/``: one file of cleaned rows for each finished chunk of input;
* ``chunks.jsonl``, ``scores.jsonl``: a line for each finished chunk, written after its file;
  a line that was cut off by a kill is not there;
* ``done/``: finished output, and ``moves.json`` once it is complete: from then on the job
  only moves it into place.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from drv_env.errors import SettingError
from replay.cleaned_rows import write_json

FINISHED = "stats.json"


class Journal:
    """The working folder of one job.

    Args:
        out: the output folder.
        job: inputs and settings, as plain JSON values.
        again: forget what is there and begin anew.

    Raises:
        SettingError: when the folder holds another job's state or result.
    """

    def __init__(self, out: Path, job: dict[str, Any], again: bool = False) -> None:
        self.out = out
        self.work = out / ".work"
        self.parts = self.work / "parts"
        self.done = self.work / "done"
        self._job = json.loads(json.dumps(job))
        if again:
            shutil.rmtree(self.work, ignore_errors=True)
        elif (self.work / "job.json").exists():
            self._check(self.work / "job.json", "an unfinished job")
        else:
            self._check(out / FINISHED, "the result of a job")

    @property
    def finished(self) -> dict[str, Any] | None:
        """What stats.json says, when the job is finished and nothing is under way."""
        if self.work.exists():
            return None
        found = _read_json(self.out / FINISHED)
        return found if isinstance(found, dict) else None

    def begin(self) -> None:
        """Make the folders and write down the job."""
        self.parts.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.done, ignore_errors=True)
        self.done.mkdir()
        write_json(self.work / "job.json", self._job)

    def part(self, chunk: int) -> Path:
        """The file of cleaned rows of a chunk; not there where none was kept."""
        return self.parts / f"{chunk:08d}.parquet"

    def lines(self, name: str) -> dict[int, dict[str, Any]]:
        """The lines of ``chunks`` or ``scores``, by chunk."""
        try:
            text = (self.work / f"{name}.jsonl").read_text(encoding="utf-8")
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
        """Add a line, after a line break that ends one which was cut off."""
        with (self.work / f"{name}.jsonl").open("a", encoding="utf-8") as file:
            file.write("\n" + json.dumps(record))

    def commit(self, files: Iterable[str], stats: dict[str, Any]) -> None:
        """Put the finished output in place of what was there.

        Args:
            files: names of files in ``done``.
            stats: what stats.json says; written last.
        """
        write_json(self.work / "moves.json", {"files": sorted(files), "stats": stats})
        self.finish_moving()

    def finish_moving(self) -> bool:
        """Move complete output into place; False when there is none."""
        moves = _read_json(self.work / "moves.json")
        if moves is None:
            return False
        (self.out / FINISHED).unlink(missing_ok=True)
        for old in (*self.out.glob("part-*.parquet"), *self.out.glob("_set_aside.parquet")):
            if old.name not in moves["files"] or (self.done / old.name).exists():
                old.unlink()
        for name in moves["files"]:
            if (self.done / name).exists():
                os.replace(self.done / name, self.out / name)
        write_json(self.out / FINISHED, {**moves["stats"], "job": self._job})
        shutil.rmtree(self.work)
        return True

    def _check(self, file: Path, what: str) -> None:
        found = _read_json(file)
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


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
