"""Trajectories as token documents on disk, memory-mapped: ids, loss masks, weights.

A folder of shards.  Shard n is ``shard-NNNNN.ids.npy`` (int32), ``shard-NNNNN.mask.npy``
(bool, True at the agent's tokens) and ``shard-NNNNN.json`` (where each document starts, its
weight, its source, what was cut), which is written last.  ``index.json`` has the settings
and the totals, and is written when all shards are there.

Shards are cut by the documents' sizes, never by who makes them: the same trajectories and
settings give the same bytes with any number of processes.  A shard carries a digest of its
texts and settings; a run that was cut short is run again and makes only what is missing.
``.building.json`` stands there meanwhile: up to which number shards are ours to replace and
remove.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from drv_env.errors import SettingError, TaskDataError
from drv_env.settings import at_least, checked_whole
from drv_env.whole_files import read_json, replacing, write_json
from replay.documents import Counts, Document, RowSettings, document_of
from replay.own_folder import FolderKind, FolderLock
from replay.recorded import recording_id
from replay.sft_rows import transcribe
from replay.template import ChatTemplate
from replay.trajectory import Trajectory, weight_of
from replay.worker_processes import follow_parent, without_interrupts, worker_died

VERSION = 1

_INDEX, _BUILDING = "index.json", ".building.json"
KIND = FolderKind(
    "a store of token documents",
    {
        _BUILDING: {"token_documents": int, "shards": int},
        _INDEX: {"version": int, "fingerprint": str, "shards": int, "counts": dict},
    },
)
_ENDINGS = ("ids.npy", "mask.npy", "json")


def write_documents(
    trajectories: Iterable[Trajectory],
    out: str | Path,
    template: Callable[[], ChatTemplate],
    settings: RowSettings | None = None,
    *,
    workers: int = 1,
    on_shard: Callable[[Counts], None] = lambda counts: None,
) -> Counts:
    """Tokenise trajectories into a folder; see the module.

    A trajectory's weight is ``provenance["weight"]``, a number of at least 0; 1 without.

    Args:
        trajectories: streamed; some shards' worth of them is in memory at a time.
        out: the folder.
        template: makes the template, perhaps in each process: importable, or a
            ``partial`` of what is, such as ``partial(ChatTemplate.from_folder, path)``.
        settings: the defaults if None.
        workers: processes, at least 1; with 1 all is done in this one.
        on_shard: told of the totals so far after every shard.

    Returns:
        The totals.

    Raises:
        SettingError: for settings that can't work, or a folder of something else.
        TaskDataError: when there is no trajectory, or a process died.
        DiskError: when the disk is full.
    """
    settings = RowSettings() if settings is None else settings
    checked_whole("workers", workers, at_least(1))
    folder = Path(out)
    local = template()
    KIND.record(folder)
    busy = f"another process fills {folder}; wait for it, or name another folder"
    with FolderLock(folder, busy):
        return _write_all(trajectories, folder, local, template, settings, workers, on_shard)


def _write_all(
    trajectories: Iterable[Trajectory],
    folder: Path,
    local: ChatTemplate,
    template: Callable[[], ChatTemplate],
    settings: RowSettings,
    workers: int,
    on_shard: Callable[[Counts], None],
) -> Counts:
    """The documents, once the folder is held."""
    claim = _Claim(folder)
    name = _fingerprint(local, settings)
    total, shards = Counts(), 0
    jobs = _jobs(_shards(trajectories, settings.shard_chars), folder, name, claim)
    for counts in _run(jobs, local, template, settings, workers):
        total.add(counts)
        shards += 1
        on_shard(total)
    if not shards:
        raise TaskDataError("there is no trajectory to tokenise")
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
    write_json(folder / _INDEX, index, indent=None)
    (folder / _BUILDING).unlink()
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
            (self._folder / _INDEX).unlink(missing_ok=True)  # until all shards are there again
            self._begun = True
        if number < self.shards:
            return
        for ending in _ENDINGS:
            path = _shard_path(self._folder, number, ending)
            if os.path.lexists(path):
                raise SettingError(
                    f"{path} was not made by drv data rows and would be replaced; move it "
                    "elsewhere, and the same command goes on"
                )
        self.shards = number + 1
        self._write()

    def _write(self) -> None:
        record = {"token_documents": VERSION, "shards": self.shards}
        write_json(self._folder / _BUILDING, record)


class TokenStore:
    """Documents of a folder made by :func:`write_documents`, memory-mapped.

    Attributes:
        lengths: int64 ``(documents,)``.
        weights: float64 ``(documents,)``.
        sources: recording ids, see :func:`replay.recorded.recording_id`.
        counts: what was kept and cut when it was made.

    Raises:
        SettingError: when the folder holds no finished documents of this version.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        index = read_json(self.path / _INDEX)
        if not isinstance(index, dict) or index.get("version") != VERSION:
            raise SettingError(
                f"{self.path} holds no finished token documents of version {VERSION}; make them, "
                "or run to the end: drv data rows TRAJECTORIES… --out FOLDER"
            )
        self.index: dict[str, Any] = index
        lengths: list[int] = []
        weights: list[float] = []
        self.sources: list[str] = []
        places: list[tuple[int, int]] = []
        self._maps: dict[int, tuple[NDArray[Any], NDArray[Any]]] = {}
        with _damage(self.path / _INDEX):
            self.counts = Counts(**index["counts"])
            self.max_tokens = RowSettings(**index["settings"]).max_tokens
            shards = range(index["shards"])
        for shard in shards:
            file = _shard_path(self.path, shard, "json")
            about = read_json(file)
            if not isinstance(about, dict):
                raise SettingError(f"shard {shard} of {self.path} is missing; make them again")
            with _damage(file):
                sizes = np.asarray(about["lengths"], np.int64)
                shares = [float(weight) for weight in about["weights"]]
                if not len(sizes) == len(shares) == len(about["sources"]):
                    raise ValueError("it has different numbers of lengths, weights and sources")
                if (sizes < 1).any() or not all(0 <= share < 1e6 for share in shares):
                    raise ValueError("a length or weight can't be")
                self._arrays(shard, int(sizes.sum()))
            starts = [0, *np.cumsum(sizes).tolist()]
            places += [(shard, start) for start in starts[:-1]]
            lengths += sizes.tolist()
            weights += shares
            self.sources += about["sources"]
        self.lengths: NDArray[np.int64] = np.asarray(lengths, np.int64)
        self.weights: NDArray[np.float64] = np.asarray(weights, np.float64)
        self._places = places

    def outside(self, vocabulary: int) -> list[tuple[int, str]]:
        """Documents with an id that the vocabulary doesn't have, each with its place in words.

        Reads all ids once.

        Args:
            vocabulary: ids are from 0 to this, exclusive.
        """
        found = []
        for number, (shard, start) in enumerate(self._places):
            ids = self[number].ids
            wrong = np.flatnonzero((ids < 0) | (ids >= vocabulary))
            if wrong.size:
                file = _shard_path(self.path, shard, "ids.npy")
                place = start + int(wrong[0])
                told = f"{file}, row {number}: id {int(ids[wrong[0]])} at {place} is none of the "
                found.append((number, f"{told}{vocabulary:,} of the vocabulary"))
        return found

    def _arrays(self, shard: int, size: int | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
        """A shard's ids and mask, memory-mapped; checked where its size is given."""
        if shard not in self._maps or size is not None:
            self._maps[shard] = _open_arrays(self.path, shard, size)
        return self._maps[shard]

    def made_with(self, template: ChatTemplate) -> bool:
        """Whether the documents were made with this tokenizer and chat template."""
        settings = RowSettings(**self.index["settings"])
        return bool(self.index["fingerprint"] == _fingerprint(template, settings))

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, number: int) -> Document:
        """A document; its arrays are views of the files, read-only."""
        shard, start = self._places[number]
        stop = start + int(self.lengths[number])
        ids, mask = self._arrays(shard)
        return Document(ids[start:stop], mask[start:stop])

    def __iter__(self) -> Iterator[Document]:
        return (self[number] for number in range(len(self)))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": {}}


# ---- shards -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Job:
    """A shard to make; ``done`` are its counts where it is there already."""

    folder: Path
    number: int
    digest: str
    trajectories: list[Trajectory]
    done: Counts | None


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


def _jobs(
    shards: Iterable[list[Trajectory]], folder: Path, fingerprint: str, claim: _Claim
) -> Iterator[_Job]:
    for number, batch in enumerate(shards):
        claim.take(number)
        digest = hashlib.sha256(fingerprint.encode())
        for trajectory in batch:
            digest.update(f"{recording_id(trajectory)} {weight_of(trajectory)!r}\n".encode())
        name = digest.hexdigest()
        done = _made_before(folder, number, name)
        yield _Job(folder, number, name, batch if done is None else [], done)


def _made_before(folder: Path, number: int, digest: str) -> Counts | None:
    """The counts of a shard that is there, whole; None where it is to be made."""
    about = read_json(_shard_path(folder, number, "json"))
    if not isinstance(about, dict) or about.get("digest") != digest:
        return None
    try:
        counts, size = Counts(**about["counts"]), sum(about["lengths"])
        if any(type(count) is not int for count in asdict(counts).values()):
            return None
        _open_arrays(folder, number, int(size))
    except (OSError, EOFError, ValueError, TypeError, LookupError):
        return None
    return counts


def _run(
    jobs: Iterator[_Job],
    local: ChatTemplate,
    template: Callable[[], ChatTemplate],
    settings: RowSettings,
    workers: int,
) -> Iterator[Counts]:
    """Make the shards that are missing; counts of all of them in order."""
    if workers == 1:
        for job in jobs:
            yield job.done or _make(job, local, settings)
        return
    with _pool(local, template, settings, workers) as pool, _deaths_told():
        waiting: deque[Counts | Future[Counts]] = deque()
        for job in jobs:
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
) -> ProcessPoolExecutor:
    """Processes that have the template: forked with it where that is safe, else fresh ones.

    A large vocabulary takes seconds to prepare, and a fork has it at once; but a fork of a
    process with other threads may find their locks held for ever.
    """
    if "fork" in multiprocessing.get_all_start_methods() and threading.active_count() == 1:
        context = multiprocessing.get_context("fork")
        return ProcessPoolExecutor(workers, context, _prepare, (lambda: local, settings))
    return ProcessPoolExecutor(
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


def _result(counts: Counts | Future[Counts]) -> Counts:
    return counts.result() if isinstance(counts, Future) else counts


def _make(job: _Job, template: ChatTemplate, settings: RowSettings) -> Counts:
    counts = Counts()
    documents: list[Document] = []
    kept: list[Trajectory] = []
    for trajectory in job.trajectories:
        document = document_of(transcribe(trajectory, template), settings, counts)
        if document is not None:
            documents.append(document)
            kept.append(trajectory)
    ids = [document.ids for document in documents] or [np.zeros(0, np.int32)]
    masks = [document.mask for document in documents] or [np.zeros(0, bool)]
    about = _shard_path(job.folder, job.number, "json")
    about.unlink(missing_ok=True)  # it vouches for the arrays
    for kind, array in (("ids", np.concatenate(ids)), ("mask", np.concatenate(masks))):
        path = _shard_path(job.folder, job.number, f"{kind}.npy")
        with replacing(path) as temporary, temporary.open("wb") as file:
            save_array(file, array)
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


def save_array(file: IO[bytes], array: NDArray[Any]) -> None:
    """What ``numpy.save`` writes, but the file's own errors are what is raised."""
    header = np.lib.format.header_data_from_array_1_0(array)
    np.lib.format.write_array_header_1_0(file, header)
    file.write(array.data)


def _fingerprint(template: ChatTemplate, settings: RowSettings) -> str:
    """What the ids depend on besides the texts."""
    digest = hashlib.sha256(template.pieces.digest.encode())
    probe = [{"role": "user", "content": "question"}]
    digest.update(repr((VERSION, template.scaffold, template.render(probe))).encode())
    digest.update(repr((template.end_of_turn, sorted(asdict(settings).items()))).encode())
    return digest.hexdigest()


def _open_arrays(
    folder: Path, shard: int, size: int | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """A shard's ids and mask, memory-mapped.

    Raises:
        OSError, EOFError, ValueError: where they are missing, damaged, or not of this size.
    """
    files = [_shard_path(folder, shard, f"{kind}.npy") for kind in ("ids", "mask")]
    ids, mask = (np.load(file, mmap_mode="r") for file in files)
    kinds = (ids.dtype, mask.dtype)
    if size is not None and (
        kinds != (np.int32, np.bool_) or not ids.shape == mask.shape == (size,)
    ):
        raise ValueError(f"its arrays are not {size:,} ids and marks")
    return ids, mask


def _shard_path(folder: Path, number: int, ending: str) -> Path:
    return folder / f"shard-{number:05}.{ending}"


def _shards_from(folder: Path, first: int, end: int) -> list[Path]:
    """The files that are there of these shards."""
    found = []
    for item in folder.glob("shard-*"):
        name, _, ending = item.name.removeprefix("shard-").partition(".")
        number = int(name) if name.isdecimal() and name.isascii() else -1
        if first <= number < end and ending in _ENDINGS:
            found += [item] if item == _shard_path(folder, number, ending) else []
    return found


@contextmanager
def _damage(file: Path) -> Iterator[None]:
    """What can't be in a file of a store is told with its name."""
    try:
        yield
    except (OSError, EOFError, ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise SettingError(
            f"{file} or what belongs to it is damaged ({error}); make the documents again"
        ) from error
