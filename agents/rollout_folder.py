"""A rollout on the disk: episodes streamed to Parquet as they end, and gone on with later.

    FOLDER/rollout.json    what was asked: tasks, group size, and what else must stay the same
    FOLDER/trajectories/   episodes that are whole, in parts
    FOLDER/broken/         every attempt that was set apart, in parts; the next run plays
                           these episodes again, and what was written stays

Parts are whole or not there; a killed run loses at most the part that was being gathered,
which is closed at 64 episodes and every half a minute.  One process fills a folder at a time.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import Any

from agents.rollout import EpisodeId, Rollout
from drv_env.errors import SettingError
from drv_env.settings import at_least, checked_number
from drv_env.tasks import TaskLike, each_task
from drv_env.whole_files import write_json
from replay.own_folder import FolderKind, FolderLock
from replay.store import TrajectoryWriter, read_columns

FLUSH_SECONDS = 30.0
_RECORD = "rollout.json"
KIND = FolderKind(
    "a rollout",
    {_RECORD: {"tasks": str, "task_count": int}},
    parts=("trajectories", "broken"),
)


class RolloutFolder:
    """Where one rollout's episodes are kept.

    Args:
        path: made where it is missing.
        tasks: the questions, in order.
        asked: what else must be the same when the rollout goes on: plain values, such as
            the model, the sampling, the seed.
        flush_seconds: a part is closed this often; 0 makes a part of every episode.

    Attributes:
        done: episodes that are there, to be skipped.

    Raises:
        SettingError: when the folder holds a rollout that was asked otherwise, naming what
            differs; or something else.
    """

    def __init__(
        self,
        path: str | Path,
        tasks: Sequence[TaskLike],
        asked: Mapping[str, Any] | None = None,
        flush_seconds: float = FLUSH_SECONDS,
    ) -> None:
        self.path = Path(path)
        self._flush_seconds = checked_number("flush_seconds", flush_seconds, at_least(0))
        self._tasks = len(tasks)
        asked = {"tasks": fingerprint(tasks), "task_count": len(tasks), **(asked or {})}
        self._asked = json.loads(json.dumps(asked))
        self._agree()
        self.done = _episodes(self.trajectories, self._tasks)

    @property
    def trajectories(self) -> Path:
        """The folder of whole episodes."""
        return self.path / "trajectories"

    @property
    def broken(self) -> Path:
        """The folder of broken ones."""
        return self.path / "broken"

    async def keep(self, rollouts: AsyncGenerator[Rollout, None]) -> AsyncGenerator[Rollout, None]:
        """Write each episode on its way through; what came is on the disk when this ends.

        Writing happens on a thread of its own, one part at a time.

        Raises:
            SettingError: when another process fills the folder, or has done so since
                :attr:`done` was read.
        """
        loop = asyncio.get_running_loop()
        with self._alone(), ThreadPoolExecutor(1, "rollout-writer") as thread:
            writers = [TrajectoryWriter(self.trajectories), TrajectoryWriter(self.broken)]

            async def flush() -> None:
                while True:
                    await asyncio.sleep(self._flush_seconds)
                    for writer in writers:
                        await loop.run_in_executor(thread, writer.flush)

            flushing = asyncio.create_task(flush()) if self._flush_seconds > 0 else None
            try:
                async with aclosing(rollouts):
                    async for item in rollouts:
                        writer = writers[item.trajectory.broken]
                        await loop.run_in_executor(thread, writer.write, item.trajectory)
                        if flushing is None:
                            await loop.run_in_executor(thread, writer.flush)
                        elif flushing.done():
                            flushing.result()  # why it could not write
                        yield item
            finally:
                if flushing is not None:
                    flushing.cancel()
                closing = [thread.submit(writer.close) for writer in writers]
                for written in closing:
                    written.result()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other process fills the folder meanwhile; what was asked is written down."""
        busy = f"another process fills {self.path}; wait for it, or choose another folder"
        with FolderLock(self.path, busy, KIND.parts):
            self._agree()
            if _episodes(self.trajectories, self._tasks) != self.done:
                raise SettingError(
                    f"another process has filled {self.path} meanwhile; the same again goes on"
                )
            write_json(self.path / _RECORD, self._asked)
            yield

    def _agree(self) -> None:
        """What is asked now must be what was asked."""
        there, wanted = KIND.record(self.path), self._asked
        if there is None or there == wanted:
            return
        keys = sorted(set(there) | set(wanted))
        differ = [key for key in keys if there.get(key) != wanted.get(key)]
        first = differ[0]
        raise SettingError(
            f"{self.path} holds a rollout with another {', '.join(differ)} "
            f"({first} was {there.get(first)!r:.100}, is {wanted.get(first)!r:.100}); "
            "choose another folder, or delete it"
        )


def fingerprint(tasks: Sequence[TaskLike]) -> str:
    """Tells lists of tasks apart: a hash of their ids, questions and answers."""
    text = json.dumps([[task.id, task.question, list(task.answers)] for task in each_task(tasks)])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _episodes(folder: Path, tasks: int) -> frozenset[EpisodeId]:
    if not folder.is_dir() or not any(folder.glob("*.parquet")):
        return frozenset()
    found = set()
    for table in read_columns(folder, ["provenance"]):
        for text in table["provenance"].to_pylist():
            origin = json.loads(text)
            task, sample = origin.get("task"), origin.get("sample")
            if type(task) is not int or type(sample) is not int or not 0 <= task < tasks:
                raise SettingError(f"{folder} holds trajectories of another origin: {text:.200}")
            if EpisodeId(task, sample) in found:
                raise SettingError(
                    f"{folder} holds sample {sample} of task {task} twice; take the copy out"
                )
            found.add(EpisodeId(task, sample))
    return frozenset(found)
