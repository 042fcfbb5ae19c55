"""Chunks of input cleaned by worker processes, a bounded number of them at a time.

A worker gets a chunk, writes the cleaned rows to a file and gives the counts back.  Workers
leave Ctrl-C to the parent, and end when the parent is killed.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa

from replay.clean import Cleaned, CleanRules, clean_row
from replay.clean_stats import CleanStats
from replay.cleaned_rows import to_table, write_file
from replay.raw_trajectory import Drop
from replay.read import Chunk, rows_of
from replay.resample import Resampling
from replay.worker_processes import ProcessPool, follow_parent, without_interrupts, worker_died


@dataclass(frozen=True, slots=True)
class CleanWork:
    """What a worker has to know of the job; see :class:`replay.pipeline.CleanJob`."""

    rules: CleanRules
    resampling: Resampling
    system_prompt: str | None


def clean_chunk(work: CleanWork, chunk: Chunk, part: Path) -> dict[str, Any]:
    """Clean a chunk into ``part``; gives the counts.  Runs in a worker."""
    stats = CleanStats()
    kept: list[Cleaned] = []
    for source, raw in rows_of(chunk):
        row = raw if isinstance(raw, Drop) else clean_row(raw, work.rules)
        stats.count_row(source, row)
        if not isinstance(row, Drop):
            kept.append(row)
    if kept:
        weights = [work.resampling.weight(row.turns) for row in kept]
        write_file(part, to_table(kept, weights, work.system_prompt), level=1)
    return stats.to_record()


def _start_worker() -> None:
    follow_parent()
    pa.set_cpu_count(1)


Done = Callable[[dict[str, Any]], None]
"""Told the counts of a chunk."""


class ChunkPool:
    """Worker processes with a bounded number of chunks under way, or this process alone.

    Args:
        workers: how many; with 1 the work is done in this process.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._executor: ProcessPool | None = None
        self._waiting: dict[Future[dict[str, Any]], tuple[str, Done]] = {}

    def __enter__(self) -> ChunkPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=kind is not None)

    def submit(self, chunk: Chunk, work: CleanWork, part: Path, done: Done) -> None:
        """Take a chunk; waits while as many as there are workers, and one, are under way.

        Args:
            chunk: the rows.
            work: how they are cleaned.
            part: the file that gets them.
            done: told the counts, here or in a later call.

        Raises:
            TaskDataError: when a worker died.
        """
        if self._workers == 1:
            done(clean_chunk(work, chunk, part))
            return
        if self._executor is None:
            self._executor = ProcessPool(
                self._workers, mp_context=get_context("spawn"), initializer=_start_worker
            )
        while len(self._waiting) > self._workers:
            self._collect()
        where = f"{chunk.file}, rows {chunk.first} to {chunk.last}"
        try:
            with without_interrupts():
                future = self._executor.submit(clean_chunk, work, chunk, part)
        except BrokenProcessPool as error:
            raise worker_died(where) from error
        self._waiting[future] = (where, done)

    def drain(self) -> None:
        """Wait for all.

        Raises:
            TaskDataError: when a worker died.
        """
        while self._waiting:
            self._collect()

    def _collect(self) -> None:
        ready, _ = wait(self._waiting, return_when=FIRST_COMPLETED)
        for future in ready:
            where, done = self._waiting.pop(future)
            try:
                record = future.result()
            except BrokenProcessPool as error:
                raise worker_died(where) from error
            done(record)
