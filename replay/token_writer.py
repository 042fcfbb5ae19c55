"""Makes token documents of trajectories, in this process or several: shards, resumed, whole.

Here is what fills the folder that :mod:`replay.token_store` describes and reads: cutting
trajectories into shards, claiming a shard's files, the processes, the index at the end.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from drv_env.errors import SettingError, TaskDataError
from drv_env.settings import at_least, checked_whole
from drv_env.whole_files import read_json, replacing, write_json
from replay.documents import Counts, Document, RowSettings, document_of
from replay.own_folder import FolderLock
from replay.recorded import recording_id
from replay.sft_rows import transcribe
from replay.template import ChatTemplate
from replay.token_store import (
    BUILDING,
    ENDINGS,
    INDEX,
    KIND,
    VERSION,
    fingerprint,
    open_arrays,
    shard_path,
)
from replay.trajectory import Trajectory, weight_of
from replay.worker_processes import ProcessPool, follow_parent, without_interrupts, worker_died


def write_documents(
    trajectories: Iterable[Trajectory],
    out: str | Path,
    template: Callable[[], ChatTemplate],
    settings: RowSettings | None = None,
    *,
    workers: int = 1,
    on_shard: Callable[[Counts], None] = lambda counts: None,
    called: str = "max_tokens",
) -> Counts:
    """Tokenise trajectories into a folder; see :mod:`replay.token_store`.

    A trajectory's weight is ``provenance["weight"]``, a number of at least 0; 1 without.
    Nothing is written or removed before a trajectory keeps a token to learn.

    Args:
        trajectories: streamed; some shards' worth of them is in memory at a time.
        out: the folder.
        template: makes the template, perhaps in each process: importable, or a
            ``partial`` of what is, such as ``partial(ChatTemplate.from_folder, path)``.
        settings: the defaults if None.
        workers: processes, at least 1; with 1 all is done in this one.
        on_shard: told of the totals so far after every shard.
        called: what the user calls ``settings.max_tokens``.

    Returns:
        The totals.

    Raises:
        SettingError: for settings that can't work, or a folder of something else.
        TaskDataError: when there is no trajectory, none keeps a token to learn, or a process
            died.
        DiskError: when the disk is full.
    """
    settings = RowSettings() if settings is None else settings
    checked_whole("workers", workers, at_least(1))
    folder = Path(out)
    local = template()
    KIND.record(folder)
    busy = f"another process fills {folder}; wait for it, or name another folder"
    with FolderLock(folder, busy):
        claim, name = _Claim(folder), fingerprint(local, settings)

        def jobs(nothing_kept: _NothingKept) -> Iterator[_Job]:
            shards = _shards(trajectories, settings.shard_chars)
            limit = f"{called}={settings.max_tokens}"
            return _Jobs(folder, name, claim, limit).of(shards, nothing_kept)

        total, shards = Counts(), 0
        for counts in _run(jobs, local, template, settings, workers):
            total.add(counts)
            shards += 1
            on_shard(total)
        for path in _shards_from(folder, shards, claim.shards):
            path.unlink(missing_ok=True)  # of an earlier run with more trajectories
        index = {
            "version": VERSION,
            "template": local.name,
            "end_of_turn": local.end_of_turn,
            "fingerprint": name,
            "settings": asdict(settings),
            "shards": shards,
            "counts": asdict(total),
        }
        write_json(folder / INDEX, index, indent=None)
        (folder / BUILDING).unlink()
    return total


class _Claim:
    """Up to which number shards of a folder are ours, written down before one is made."""

    def __init__(self, folder: Path) -> None:
        record = KIND.record(folder)
        self._folder = folder
        self.shards = 0 if record is None else int(record["shards"])
        self._begun = False

    def take(self, number: int) -> None:
        """Have this shard, too.

        Raises:
            SettingError: when there is a file of its name that we did not make.
        """
        if not self._begun:
            self._write()
            (self._folder / INDEX).unlink(missing_ok=True)  # until all shards are there again
            self._begun = True
        if number < self.shards:
            return
        for ending in ENDINGS:
            path = shard_path(self._folder, number, ending)
            if os.path.lexists(path):
                raise SettingError(
                    f"{path} was not made by drv data rows and would be replaced; move it "
                    "elsewhere, and the same command goes on"
                )
        self.shards = number + 1
        self._write()

    def _write(self) -> None:
        record = {"token_documents": VERSION, "shards": self.shards}
        write_json(self._folder / BUILDING, record)


@dataclass(frozen=True, slots=True)
class _Job:
    """A shard to make; ``done`` are its counts where it is there already.

    Where it is known that no trajectory of it keeps a token, ``before`` has the counts, and
    the trajectories are left out.
    """

    folder: Path
    number: int
    digest: str
    trajectories: list[Trajectory]
    done: Counts | None
    before: Counts = field(default_factory=Counts)


def _shards(trajectories: Iterable[Trajectory], most: int) -> Iterator[list[Trajectory]]:
    batch: list[Trajectory] = []
    size = 0
    for trajectory in trajectories:
        batch.append(trajectory)
        size += sum(len(turn.text) + len(turn.observation or "") for turn in trajectory.turns)
        if size >= most:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


_NothingKept = Callable[[_Job], Counts | None]


@dataclass(frozen=True, slots=True)
class _Jobs:
    """The shards of trajectories, each claimed when it is given out."""

    folder: Path
    fingerprint: str
    claim: _Claim
    limit: str

    def of(self, shards: Iterable[list[Trajectory]], nothing_kept: _NothingKept) -> Iterator[_Job]:
        """All of them in order; the first ones wait until a trajectory keeps a token.

        Raises:
            TaskDataError: when none does; nothing is claimed then.
        """
        jobs = enumerate(shards)
        waiting: list[_Job] = []
        lost = Counts()
        for number, batch in jobs:
            job = self._job(number, batch)
            nothing = nothing_kept(job)
            if nothing is None:
                waiting.append(job)
                break
            lost.add(nothing)
            waiting.append(replace(job, trajectories=[], before=nothing))
        else:
            raise TaskDataError(_none_left(lost, self.limit))
        for job in waiting:
            self.claim.take(job.number)
            yield job
        for number, batch in jobs:
            self.claim.take(number)
            yield self._job(number, batch)

    def _job(self, number: int, batch: list[Trajectory]) -> _Job:
        digest = hashlib.sha256(self.fingerprint.encode())
        for trajectory in batch:
            digest.update(f"{recording_id(trajectory)} {weight_of(trajectory)!r}\n".encode())
        name = digest.hexdigest()
        done = _made_before(self.folder, number, name)
        return _Job(self.folder, number, name, batch if done is None else [], done)


def _nothing_kept(job: _Job, template: ChatTemplate, settings: RowSettings) -> Counts | None:
    """The counts of a shard without documents; None at the first trajectory that is one."""
    if job.done is not None:
        return None if job.done.documents else job.done
    counts = Counts()
    for trajectory in job.trajectories:
        if document_of(transcribe(trajectory, template), settings, counts) is not None:
            return None
    return counts


def _none_left(lost: Counts, limit: str) -> str:
    if not lost.dropped:
        return "there is no trajectory to tokenise"
    if not lost.cut_agent_tokens:
        return f"none of the {lost.dropped:,} trajectories has a token to learn"
    return (
        f"none of the {lost.dropped:,} trajectories keeps a token to learn within {limit}; raise it"
    )


def _made_before(folder: Path, number: int, digest: str) -> Counts | None:
    """The counts of a shard that is there, whole; None where it is to be made."""
    about = read_json(shard_path(folder, number, "json"))
    if not isinstance(about, dict) or about.get("digest") != digest:
        return None
    try:
        counts, size = Counts(**about["counts"]), sum(about["lengths"])
        if any(type(count) is not int for count in asdict(counts).values()):
            return None
        open_arrays(folder, number, int(size))
    except (OSError, EOFError, ValueError, TypeError, LookupError):
        return None
    return counts


def _run(
    jobs: Callable[[_NothingKept], Iterator[_Job]],
    local: ChatTemplate,
    template: Callable[[], ChatTemplate],
    settings: RowSettings,
    workers: int,
) -> Iterator[Counts]:
    """Make the shards that are missing; counts of all of them in order."""
    if workers == 1:
        for job in jobs(lambda job: _nothing_kept(job, local, settings)):
            yield job.done or _make(job, local, settings)
        return
    with _pool(local, template, settings, workers) as pool, _deaths_told():

        def nothing_kept(job: _Job) -> Counts | None:
            with without_interrupts():
                found = pool.submit(_nothing_kept_away, job)
            return found.result()

        waiting: deque[Counts | Future[Counts]] = deque()
        for job in jobs(nothing_kept):
            with without_interrupts():
                waiting.append(job.done or pool.submit(_make_away, job))
            if len(waiting) > 2 * workers:
                yield _result(waiting.popleft())
        while waiting:
            yield _result(waiting.popleft())


def _pool(
    local: ChatTemplate,
    template: Callable[[], ChatTemplate],
    settings: RowSettings,
    workers: int,
) -> ProcessPool:
    """Processes that have the template: forked with it where that is safe, else fresh ones.

    A large vocabulary takes seconds to prepare, and a fork has it at once; but a fork of a
    process with other threads may find their locks held for ever.
    """
    if "fork" in multiprocessing.get_all_start_methods() and threading.active_count() == 1:
        context = multiprocessing.get_context("fork")
        return ProcessPool(workers, context, _prepare, (lambda: local, settings))
    return ProcessPool(
        workers, multiprocessing.get_context("spawn"), _prepare, (template, settings)
    )


_prepared: tuple[ChatTemplate, RowSettings] | None = None


@contextmanager
def _deaths_told() -> Iterator[None]:
    try:
        yield
    except BrokenProcessPool as error:
        raise worker_died("a trajectory that is too long for the memory") from error


def _prepare(template: Callable[[], ChatTemplate], settings: RowSettings) -> None:
    global _prepared
    follow_parent()
    _prepared = (template(), settings)


def _make_away(job: _Job) -> Counts:
    assert _prepared is not None
    return _make(job, *_prepared)


def _nothing_kept_away(job: _Job) -> Counts | None:
    assert _prepared is not None
    return _nothing_kept(job, *_prepared)


def _result(counts: Counts | Future[Counts]) -> Counts:
    return counts.result() if isinstance(counts, Future) else counts


def _make(job: _Job, template: ChatTemplate, settings: RowSettings) -> Counts:
    counts = replace(job.before)
    documents: list[Document] = []
    kept: list[Trajectory] = []
    for trajectory in job.trajectories:
        document = document_of(transcribe(trajectory, template), settings, counts)
        if document is not None:
            documents.append(document)
            kept.append(trajectory)
    ids = [document.ids for document in documents] or [np.zeros(0, np.int32)]
    masks = [document.mask for document in documents] or [np.zeros(0, bool)]
    about = shard_path(job.folder, job.number, "json")
    about.unlink(missing_ok=True)  # it vouches for the arrays
    for kind, array in (("ids", np.concatenate(ids)), ("mask", np.concatenate(masks))):
        path = shard_path(job.folder, job.number, f"{kind}.npy")
        with replacing(path) as temporary, temporary.open("wb") as file:
            _save_array(file, array)
    write_json(
        about,
        {
            "digest": job.digest,
            "lengths": [len(document) for document in documents],
            "weights": [weight_of(trajectory) for trajectory in kept],
            "sources": [recording_id(trajectory) for trajectory in kept],
            "counts": asdict(counts),
        },
        indent=None,
    )
    return counts


def _save_array(file: IO[bytes], array: NDArray[Any]) -> None:
    """What ``numpy.save`` writes, but the file's own errors are what is raised."""
    header = np.lib.format.header_data_from_array_1_0(array)
    np.lib.format.write_array_header_1_0(file, header)
    file.write(array.data)


def _shards_from(folder: Path, first: int, end: int) -> list[Path]:
    """The files that are there of these shards."""
    found = []
    for item in folder.glob("shard-*"):
        name, _, ending = item.name.removeprefix("shard-").partition(".")
        number = int(name) if name.isdecimal() and name.isascii() else -1
        if first <= number < end and ending in ENDINGS:
            found += [item] if item == shard_path(folder, number, ending) else []
    return found
