"""Cleaning whole data sets: files in, zstd Parquet and ``stats.json`` out.

Three stages, each continued where it was when the job is killed:

1. chunks of the input are cleaned, each into a file of its own, by ``workers`` processes;
2. the correctness filter, where there is one, scores the answers chunk by chunk;
3. the parts are put together in the input's order (or shuffled), weighted, and moved into
   place when all of them are there.

Memory is bounded by chunks, not by the input.  The output depends on the input and the
settings alone: not on the number of workers, nor on how often the job was killed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from drv_env import background
from drv_env.errors import SettingError, TaskDataError
from drv_env.json_files import why_unread
from drv_env.settings import SEED, at_least, check_fields
from drv_env.whole_files import disk_faults_told, write_text
from replay.clean import CleanRules
from replay.clean_stats import CleanStats, histogram_svg, report
from replay.clean_workers import ChunkPool, CleanWork
from replay.cleaned_rows import VERSION, RowsAside, as_copies, write_shards
from replay.correctness import (
    NO_GOLD,
    CorrectnessFilter,
    Scored,
    judged_rows,
    score_rows,
)
from replay.journal import FINISHED, KIND, Journal
from replay.own_folder import FolderLock, refuse_overlap
from replay.read import Chunk, FileProblem, chunks_of, input_files, row_count
from replay.resample import Resampling, shuffled

Stage = Literal["cleaning", "judging", "writing"]
SET_ASIDE = "_set_aside.parquet"
PLOT = "turns.svg"
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class CleanJob:
    """What is cleaned, and how.

    Attributes:
        inputs: files and folders.
        out: the output folder; made where it isn't there.
        rules: how a row is cleaned.
        correctness: the filter, or None for no filter.
        resampling: the weights.
        copies: write each row as often as its weight says.
        shuffle: a seed; None keeps the input's order.
        system_prompt: of every row; None keeps each row's own, "" writes none.
        workers: processes, at least 1; with 1 the work is done in this one.
        again: start over where the folder holds another job, or this one.

    Raises:
        SettingError: for a value that can't work, and for a folder of something else.
    """

    inputs: tuple[Path, ...]
    out: Path
    rules: CleanRules = field(default_factory=CleanRules)
    correctness: CorrectnessFilter | None = None
    resampling: Resampling = field(default_factory=Resampling)
    copies: bool = False
    shuffle: int | None = None
    system_prompt: str | None = None
    workers: int = 2
    again: bool = False

    def __post_init__(self) -> None:
        if not self.inputs:
            raise SettingError("name at least one file or folder to clean")
        check_fields(self, workers=at_least(1), shuffle=SEED)
        KIND.record(self.out)
        refuse_overlap(self.out, self.inputs)

    def to_record(self, files: list[Path]) -> dict[str, Any]:
        """Inputs and settings that decide the output, as plain values."""
        chosen = self.correctness
        return {
            "version": VERSION,
            "inputs": [[str(file), file.stat().st_size, file.stat().st_mtime_ns] for file in files],
            "rules": asdict(self.rules),
            "correctness": None if chosen is None else [chosen.name, chosen.keep_from],
            "resampling": asdict(self.resampling),
            "copies": self.copies,
            "shuffle": self.shuffle,
            "system_prompt": self.system_prompt,
        }


@dataclass(frozen=True, slots=True)
class CleanResult:
    """What a job did.

    Attributes:
        stats: the counts.
        problems: files that were left out, or read in part.
        files: the names of the output's files.
        reused: True when the folder held this job's result and nothing was done.
    """

    stats: CleanStats
    problems: tuple[str, ...]
    files: tuple[str, ...]
    reused: bool = False


OnProgress = Callable[[Stage, int, int | None], None]
"""Told the stage, rows done, and rows in all where that is known."""


def run_clean(job: CleanJob, on_progress: OnProgress | None = None) -> CleanResult:
    """Run a job, or go on with it.

    Raises:
        TaskDataError: when no file can be read, no row is kept or set aside, most turns can't
            be read (but with ``calls="released"``), or a worker process dies.
        SettingError: when the output folder holds another job.
        JudgeError: when the judge is lost.
        DiskError: when the disk is full.
    """
    tell = on_progress or (lambda stage, done, total: None)
    problems: list[FileProblem] = []
    files = input_files(job.inputs, problems.append)
    if not files:
        raise TaskDataError("nothing to read: " + _told([str(problem) for problem in problems]))
    busy = f"another process fills {job.out}; wait for it, or name another folder"
    with FolderLock(job.out, busy, KIND.parts), disk_faults_told(job.out):
        KIND.record(job.out)
        return _run(job, files, problems, tell)


class _NothingKeptError(TaskDataError):
    """The job would leave nothing worth having."""


def _run(
    job: CleanJob, files: list[Path], problems: list[FileProblem], tell: OnProgress
) -> CleanResult:
    """The job, once its folder is held."""
    journal = Journal(job.out, job.to_record(files), job.again)
    journal.finish_moving()
    finished = None if job.again else journal.finished
    if finished is not None:
        try:
            found = _result(finished, reused=True)
        except ValueError as error:
            raise SettingError(
                f"{job.out / FINISHED} is damaged: {error}; start over with --again"
            ) from None
        whole = all((job.out / name).is_file() for name in found.files)
        if whole and found.stats.set_aside.total() == found.stats.set_aside[NO_GOLD]:
            return found
    journal.begin()
    stats = CleanStats()
    try:
        count = _clean_chunks(job, files, journal, stats, problems, tell)
        if not stats.rows:
            raise _NothingKeptError("no rows could be read: " + _told([str(p) for p in problems]))
        _refuse_nothing_kept(stats.cleaned, stats)
        if job.rules.calls == "all" and stats.mostly_unread:
            raise _NothingKeptError(
                f"{stats.turns_unread:,} of {stats.turns_met:,} turns before the last could not be "
                f"read, and nothing was written; {stats.likely_cause()}"
            )
        scores = None
        if job.correctness is not None:
            scores = _scores(job.correctness, journal, count, stats.cleaned, tell)
        names = _write(job, journal, count, scores, stats, tell)
        _refuse_nothing_kept(stats.kept + stats.set_aside.total(), stats)
    except _NothingKeptError:
        journal.abandon()
        raise
    write_text(journal.done / PLOT, histogram_svg(stats))
    names.append(PLOT)
    told = [str(problem) for problem in problems]
    record = {**report(stats), "problems": told, "files": sorted(names), "schema_version": VERSION}
    journal.commit(names, record)
    return _result(record, reused=False)


def _refuse_nothing_kept(kept: int, stats: CleanStats) -> None:
    if not kept:
        raise _NothingKeptError(f"no row was kept, and nothing written: {stats.likely_cause()}")


def read_result(folder: Path) -> CleanResult:
    """The result of a finished job.

    Raises:
        TaskDataError: when the folder holds none.
    """
    try:
        record = json.loads((folder / FINISHED).read_text(encoding="utf-8"))
        return _result(record, reused=True)
    except (OSError, ValueError, RecursionError) as error:
        raise TaskDataError(
            f"{folder} holds no finished result of drv data clean: {why_unread(error)}"
        ) from error


def _result(record: Any, reused: bool) -> CleanResult:
    """Raises ValueError for a record that is damaged."""
    if not isinstance(record, dict):
        raise ValueError("it is no JSON object")
    for name in ("problems", "files"):
        found = record.get(name)
        if not isinstance(found, list) or not all(isinstance(line, str) for line in found):
            raise ValueError(f"it has no {name}")
    stats = CleanStats.from_record(record.get("counts") or {})
    return CleanResult(stats, tuple(record["problems"]), tuple(record["files"]), reused)


def _told(lines: list[str]) -> str:
    more = f" (and {len(lines) - _SHOWN} more)" if len(lines) > _SHOWN else ""
    return "; ".join(lines[:_SHOWN]) + more


# ---- stage 1: cleaning ----------------------------------------------------------------


def _clean_chunks(
    job: CleanJob,
    files: list[Path],
    journal: Journal,
    stats: CleanStats,
    problems: list[FileProblem],
    tell: OnProgress,
) -> int:
    """Clean all chunks that are not finished; the number of chunks."""
    work = CleanWork(job.rules, job.resampling, job.system_prompt)
    before = _cleaned_before(journal)
    counted: dict[int, CleanStats] = {}
    counts = [row_count(file) for file in files]
    total = None if None in counts else sum(count or 0 for count in counts)
    rows_done = 0

    def chunks() -> Iterator[Chunk]:
        for file in files:
            yield from chunks_of(file, problems.append)

    def count(number: int, record: dict[str, Any]) -> None:
        nonlocal rows_done
        counted[number] = CleanStats.from_record(record)
        rows_done += record["rows"]
        tell("cleaning", rows_done, total)

    number = -1
    with ChunkPool(job.workers) as pool:
        for number, chunk in enumerate(chunks()):
            where = [chunk.file, chunk.first, chunk.last]
            if number in before and before[number][0] == where:
                count(number, before[number][1])
                continue

            def done(record: dict[str, Any], number: int = number, where: Any = where) -> None:
                journal.add("chunks", {"chunk": number, "where": where, "counts": record})
                count(number, record)

            pool.submit(chunk, work, journal.part(number), done)
        pool.drain()
    for index in range(number + 1):
        stats.add(counted[index])
    return number + 1


def _cleaned_before(journal: Journal) -> dict[int, tuple[Any, dict[str, Any]]]:
    """Where finished chunks are from, and their counts; a damaged line is no finished chunk."""
    found = {}
    for chunk, record in journal.lines("chunks").items():
        with suppress(ValueError):
            stats = CleanStats.from_record(record.get("counts") or {})
            if not stats.cleaned or _is_whole(journal.part(chunk)):
                found[chunk] = (record.get("where"), stats.to_record())
    return found


def _is_whole(part: Path) -> bool:
    """Whether the file of cleaned rows is there, with its end."""
    try:
        return bool(pq.read_schema(part).names)
    except (OSError, pa.ArrowException):
        return False


# ---- stage 2: the correctness filter --------------------------------------------------


def _scores(
    chosen: CorrectnessFilter, journal: Journal, count: int, rows: int, tell: OnProgress
) -> dict[int, list[Scored]]:
    """The scores of the rows of each part."""
    scores: dict[int, list[Scored]] = {}
    for chunk, record in journal.lines("scores").items():
        try:
            found = [Scored(score, why) for score, why in record["scores"]]
        except (KeyError, TypeError, ValueError):
            continue
        if all(scored.score is not None or scored.why == NO_GOLD for scored in found):
            scores[chunk] = found
    rows_done = 0

    def one_more(scored: Scored) -> None:
        nonlocal rows_done
        rows_done += 1
        tell("judging", rows_done, rows)

    for chunk in range(count):
        if chunk in scores:
            rows_done += len(scores[chunk])
            tell("judging", rows_done, rows)
        elif journal.part(chunk).exists():
            table = pq.read_table(journal.part(chunk), columns=["question", "gt", "answer"])
            asked = zip(*(table[name].to_pylist() for name in table.column_names), strict=True)
            scores[chunk] = background.run(score_rows(chosen, asked, one_more))
            pairs = [[scored.score, scored.why] for scored in scores[chunk]]
            journal.add("scores", {"chunk": chunk, "scores": pairs})
    return scores


# ---- stage 3: writing -----------------------------------------------------------------


def _write(
    job: CleanJob,
    journal: Journal,
    count: int,
    scores: dict[int, list[Scored]] | None,
    stats: CleanStats,
    tell: OnProgress,
) -> list[str]:
    """Write the output into ``done``; the names of its files."""
    aside = RowsAside(journal.done / SET_ASIDE)
    rows_done = 0

    def kept() -> Iterator[pa.Table]:
        nonlocal rows_done
        for chunk, table in _parts(journal, count):
            rows_done += len(table)
            if scores is not None and job.correctness is not None:
                table, unjudged = judged_rows(table, scores[chunk], job.correctness, stats)
                aside.add(unjudged)
            stats.count_kept(table["turns"].to_pylist(), table["weight"].to_pylist())
            tell("writing", rows_done, stats.cleaned)
            yield as_copies(table) if job.copies else table

    tables = kept()
    if job.shuffle is not None:
        tables = shuffled(tables, job.shuffle, journal.work)
    try:
        names = write_shards(tables, journal.done)
    finally:
        aside.close()
    return names + ([SET_ASIDE] if aside.rows else [])


def _parts(journal: Journal, count: int) -> Iterator[tuple[int, pa.Table]]:
    """Chunks of which rows were kept, in order, each read while the one before is used."""
    ahead: tuple[int, Future[pa.Table]] | None = None
    with ThreadPoolExecutor(1) as reader:
        for chunk in range(count):
            if not journal.part(chunk).exists():
                continue
            coming = reader.submit(pq.read_table, journal.part(chunk), use_threads=False)
            if ahead is not None:
                yield ahead[0], ahead[1].result()
            ahead = (chunk, coming)
        if ahead is not None:
            yield ahead[0], ahead[1].result()
