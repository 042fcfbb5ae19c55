"""``drv data clean`` and ``drv data report``: recorded trajectories to data worth training on.

Nothing heavy is imported before a command runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

if TYPE_CHECKING:
    from rich.table import Table

    from drv_env.rewards.judge import Judge
    from replay.clean_stats import CleanStats
    from replay.correctness import CorrectnessFilter
    from replay.pipeline import CleanResult, OnProgress, Stage

SHOWN = 10
"""Problems that are printed; stats.json has all of them."""


@dataclass(frozen=True)
class DataClean:
    """Clean recorded trajectories into zstd Parquet with weights and stats.json.

    Reads chats as OpenAI's API, LLaMA-Factory, ShareGPT and REDSearcher lay them out, and logs of
    Search-R1 and its kin; Parquet, JSON lines and JSON. With --calls released a row comes out as it
    does in the DR-Venus release. Where no row is kept, or most turns can't be read, the command
    ends with 1 and writes nothing. Ctrl-C, or a kill, loses nothing: the same command goes on.
    """

    inputs: tyro.conf.Positional[tuple[Path, ...]]
    """Files, and folders of shards."""
    out: Path
    """The folder for the output."""
    correctness: Literal["none", "exact", "f1", "judge"] = "none"
    """Keep only trajectories whose answer is right, by this outcome."""
    keep_from: float | None = None
    """The least score that is kept; 1.0, with f1 0.5, where it is left out."""
    judge_model: str | None = None
    """The judge's model, in place of JUDGE_MODEL_NAME."""
    cassette: Path | None = Path("runs/judge.cassette")
    """Where the judge's verdicts are kept; None keeps none."""
    limit: int = 16
    """The judge's requests under way at a time."""
    weights: str = "50:1,100:2,5"
    """How often a trajectory counts: up to 50 turns once, up to 100 twice, beyond 5 times."""
    copies: bool = False
    """Write each trajectory as often as its weight says, in place of a weight."""
    shuffle: int | None = None
    """A seed; left out, the input's order is kept."""
    tools: tuple[str, ...] = ("search", "visit")
    """The tools that the deployment has; calls of others are removed."""
    calls: Literal["all", "released"] = "all"
    """All calls of a turn, each with its result; released: the first call with all results."""
    thoughts: Literal["required", "optional"] = "required"
    """Leave turns without a thought out, or keep them."""
    tags: Literal["released", "after_thought"] = "released"
    """Look for calls and answers in the whole turn, or only after the thought."""
    results: Literal["released", "searches"] = "released"
    """Read as search results what has the words Web Results, or only what a search gave."""
    repeats: Literal["released", "same_goal", "keep"] = "released"
    """Remove visits of a page seen before, only those with the same goal, or no repeats."""
    longest_message: int = 1_000_000
    """Characters; a trajectory with a longer message is dropped."""
    system_prompt: str = "project"
    """Of every trajectory: project (its tools are search and visit), keep, none, or a file."""
    workers: int = 2
    """Processes."""
    again: bool = False
    """Start over, where the folder holds a job."""

    def run(self) -> None:
        """Clean, and print what became of the rows."""
        from contextlib import ExitStack

        from rich.console import Console

        from drv_env.cassette import CassetteStore
        from drv_env.errors import TaskDataError
        from drv_env.rewards.judge import Judge
        from replay.clean import CleanRules
        from replay.pipeline import CleanJob, run_clean
        from replay.resample import Resampling

        rules = CleanRules(
            tools=self.tools,
            tags=self.tags,
            results=self.results,
            repeats=self.repeats,
            longest_message=self.longest_message,
            calls=self.calls,
            thoughts=self.thoughts,
        )
        resampling = Resampling.parse(self.weights)
        aside = Console(stderr=True)
        with ExitStack() as stack:
            judge = None
            if self.correctness == "judge":
                store = None
                if self.cassette is not None:
                    store = stack.enter_context(CassetteStore(self.cassette))
                judge = Judge.from_env(model=self.judge_model, limit=self.limit, cassette=store)
                stack.callback(_close, judge)
            job = CleanJob(
                inputs=self.inputs,
                out=self.out,
                rules=rules,
                correctness=self._filter(judge),
                resampling=resampling,
                copies=self.copies,
                shuffle=self.shuffle,
                system_prompt=_system_prompt(self.system_prompt),
                workers=self.workers,
                again=self.again,
            )
            try:
                with _Bars(aside) as bars:
                    result = run_clean(job, bars)
            except KeyboardInterrupt:
                aside.print(f"{self.out} keeps what is done; the same command goes on from there")
                raise
        _show(Console(), self.out, result)
        if not result.stats.kept:
            raise TaskDataError(f"no row was kept: {result.stats.likely_cause()}")

    def _filter(self, judge: Judge | None) -> CorrectnessFilter | None:
        from drv_env.rewards.outcome import exact_match, token_f1
        from replay.correctness import CorrectnessFilter

        least = self.keep_from
        if self.correctness == "none":
            return None
        if self.correctness == "exact":
            return CorrectnessFilter("exact", exact_match, 1.0 if least is None else least)
        if self.correctness == "f1":
            return CorrectnessFilter("f1", token_f1, 0.5 if least is None else least)
        assert judge is not None
        name = f"judge {judge.client.model}"
        return CorrectnessFilter(name, judge, 1.0 if least is None else least, 4 * self.limit)


@dataclass(frozen=True)
class DataReport:
    """Print again what became of the rows of a cleaned folder."""

    folder: tyro.conf.Positional[Path]
    """The output folder of drv data clean."""

    def run(self) -> None:
        """Print the table."""
        from rich.console import Console

        from replay.pipeline import read_result

        _show(Console(), self.folder, read_result(self.folder))


def _close(judge: Judge) -> None:
    from drv_env import background

    background.run(judge.close())


def _system_prompt(choice: str) -> str | None:
    """The prompt of every row; None keeps each row's own."""
    from drv_env.prompts import build_system_prompt, read_system_prompt
    from drv_env.tools.base import SEARCH_SCHEMA, VISIT_SCHEMA

    if choice == "keep":
        return None
    if choice == "none":
        return ""
    if choice == "project":
        return build_system_prompt((SEARCH_SCHEMA, VISIT_SCHEMA))
    return read_system_prompt(choice)


class _Bars:
    """A progress bar for each stage."""

    def __init__(self, console: Any) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
        )

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        shown = bool(console.is_terminal)  # elsewhere rich leaves an empty line behind
        self._progress = Progress(*columns, console=console, transient=True, disable=not shown)
        self._tasks: dict[Stage, Any] = {}

    def __enter__(self) -> OnProgress:
        self._progress.start()
        return self._tell

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def _tell(self, stage: Stage, done: int, total: int | None) -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._progress.add_task(stage, total=total)
        self._progress.update(self._tasks[stage], completed=done, total=total)


def _show(console: Any, folder: Path, result: CleanResult) -> None:
    console.print(clean_table(result.stats))
    first = result.stats.first_drops()
    if first:
        console.print("of each reason the first row that was dropped (more in stats.json):")
    for line in first:
        console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
    for problem in result.problems[:SHOWN]:
        console.print(f"left out: {problem}", markup=False, highlight=False, soft_wrap=True)
    more = len(result.problems) - SHOWN
    if more > 0:
        console.print(f"and {more} more in stats.json")
    said = "were there already" if result.reused else "written"
    names = ", ".join(name for name in result.files if not name.startswith("part-"))
    parts = sum(name.startswith("part-") for name in result.files)
    told = f"{folder}: {parts} data file{'s' if parts != 1 else ''}, {names} and stats.json {said}"
    console.print(told, markup=False, highlight=False, soft_wrap=True)


def clean_table(stats: CleanStats) -> Table:
    """What became of the rows; the published figures beside them for the full set."""
    from rich.table import Table

    from replay.clean_stats import PUBLISHED, PUBLISHED_ROWS, figures

    full = stats.rows == PUBLISHED_ROWS
    table = Table(title="Cleaned trajectories")
    table.add_column("")
    table.add_column("here", justify="right")
    if full:
        table.add_column("published", justify="right")

    def add(name: str, value: float | None, published: float | None = None) -> None:
        cells = [name, _number(value)]
        table.add_row(*cells, *([_number(published)] if full else []))

    details: dict[str, list[tuple[str, int]]] = {
        "rows": [(f"  dropped: {reason}", n) for reason, n in stats.dropped.most_common()],
        "pruned calls": [(f"  {tool}", n) for tool, n in stats.pruned.most_common()],
        "repeats: calls": [(f"  {tool}", n) for tool, n in stats.repeated.most_common()],
        "correct": [(f"  set aside: {why}", n) for why, n in stats.set_aside.most_common()],
    }
    for name, value in figures(stats).items():
        if value is None and name in ("correct", "retention of the filter"):
            continue
        add(name, value, PUBLISHED[name])
        for detail, count in details.get(name, []):
            add(detail, count)
    add("turns that could not be read", stats.unread)
    add("kept", stats.kept)
    return table


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:.2%}"
