"""``drv data show | stats | convert | rows | web | replay-check``: trajectories in files.

Nothing heavy is imported before a command runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

if TYPE_CHECKING:
    from replay.sources import Passed
    from replay.trajectory import Trajectory

Paths = tyro.conf.Positional[tuple[Path, ...]]


@dataclass(frozen=True)
class DataShow:
    """Print one trajectory readably."""

    file: tyro.conf.Positional[Path]
    """Trajectories, or recorded chat messages: a file, or a folder of parts."""
    row: int = 0
    """Which one, from 0."""
    full: bool = False
    """Show observations and the system prompt whole."""

    def run(self) -> None:
        """Print it."""
        from replay.show import show
        from replay.sources import trajectory_at

        text = show(trajectory_at(self.file, self.row), None if self.full else 1_500)
        sys.stdout.write(text)


@dataclass(frozen=True)
class DataStats:
    """Show figures over all trajectories of a file or folder."""

    file: tyro.conf.Positional[Path]
    """Trajectories, or recorded chat messages: a file, or a folder of parts."""

    def run(self) -> None:
        """Print a table."""
        from replay.summary import summarise

        passed = _passed()
        summary = summarise(_open((self.file,), passed))
        _print_table(self.file.name, summary.figures())
        _report(passed)


@dataclass(frozen=True)
class DataConvert:
    """Write trajectories as JSON lines, ShareGPT, or Parquet of the newest schema."""

    file: tyro.conf.Positional[Path]
    """Trajectories, or recorded chat messages: a file, or a folder of parts."""
    out: tyro.conf.Positional[Path]
    """The file to write, when all is read."""
    form: Annotated[
        Literal["jsonl", "sharegpt", "parquet"] | None, tyro.conf.arg(name="format")
    ] = None
    """By default as OUT ends: .parquet, or messages as .jsonl (lines) or .json (a list)."""
    force: bool = False
    """Replace a file that exists."""

    def run(self) -> None:
        """Convert; say how much, and what the form has no place for."""
        from collections import Counter

        from drv_env.whole_files import refuse_output
        from replay.convert import check_end, convert, form_of

        form = form_of(self.out) if self.form is None else self.form
        check_end(self.out, form)
        refuse_output(self.out, (self.file,), self.force)
        passed = _passed()
        lost: Counter[str] = Counter()
        count = convert(_open((self.file,), passed), self.out, form, lost, self.force)
        _say(f"{count:,} trajectories written to {self.out}")
        if lost:
            told = ", ".join(f"{what} (of {number:,})" for what, number in lost.items())
            _say(f"left out, as {form} has no place for it: {told}; parquet keeps all")
        _report(passed)


@dataclass(frozen=True)
class DataRows:
    """Tokenise trajectories into rows for SFT: ids, a mask of the agent's tokens, packing.

    A run that was cut short is run again and makes only what is missing.
    """

    files: Paths
    """Trajectories, or recorded chat messages: files, or folders of parts."""
    tokenizer: Path
    """A folder with tokenizer.json, as save_pretrained writes it, or a fetched model of the Hub."""
    out: Path
    """The folder to write."""
    chat_template: str = "own"
    """own, qwen3-thinking, chatml, or a file of Jinja."""
    max_tokens: int = 200_000
    """The most tokens of a trajectory."""
    cut: Literal["right", "turn"] = "right"
    """Longer ones lose their end: to the token, as published, or from a turn's boundary."""
    row_length: int | None = None
    """Of packed rows; by default max_tokens."""
    seed: int = 0
    """Decides which documents are drawn by weight, and the order of rows."""
    workers: int = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    """Processes; the result doesn't depend on them."""

    def run(self) -> None:
        """Tokenise, pack, and print figures."""
        from functools import partial

        from replay.documents import RowSettings
        from replay.own_folder import refuse_overlap
        from replay.packing import PackedRows, refuse_other_plan
        from replay.template import ChatTemplate
        from replay.token_store import KIND, TokenStore
        from replay.token_writer import write_documents
        from trainers.commands.agent_setup import template_source
        from trainers.commands.option_names import as_option

        own = template_source(self.chat_template)
        plan = self.out / "packing.json"
        KIND.record(self.out)
        refuse_overlap(self.out, (*self.files, self.tokenizer / "tokenizer.json"))
        refuse_other_plan(plan)
        passed = _passed()
        counts = write_documents(
            (item for item in _open(self.files, passed) if not _is_broken(item, passed)),
            self.out,
            partial(ChatTemplate.from_folder, self.tokenizer, chat_template=own),
            RowSettings(max_tokens=self.max_tokens, cut=self.cut),
            workers=self.workers,
            called=as_option("max_tokens"),
        )
        store = TokenStore(self.out)
        rows = PackedRows.of(store, self.row_length, seed=self.seed)
        rows.save(plan)
        figures = {
            "documents": f"{counts.documents:,}",
            "tokens": f"{counts.tokens:,}",
            "learnt": f"{counts.agent_tokens:,} ({counts.agent_tokens / counts.tokens:.1%})"
            if counts.tokens
            else "0",
            f"longer than {self.max_tokens:,} tokens": f"{counts.cut_documents:,}",
            "tokens cut": f"{counts.cut_tokens:,}, of them the agent's {counts.cut_agent_tokens:,}",
            "turns cut": f"{counts.cut_turns:,}",
            "without an agent's token, dropped": f"{counts.dropped:,}",
            f"packed rows of {rows.row_length:,}": f"{len(rows):,}, filled {rows.fill:.1%}",
        }
        _print_table(str(self.out), figures)
        _report(passed)


@dataclass(frozen=True)
class DataWeb:
    """Make a web of recorded trajectories, to replay them and to play in without a network."""

    files: Paths
    """Trajectories, or recorded chat messages: files, or folders of parts."""
    out: Path
    """The folder to write, or a web to add to."""

    def run(self) -> None:
        """Build, and print figures."""
        from replay.own_folder import refuse_overlap
        from replay.web import build_web

        refuse_overlap(self.out, self.files)
        passed = _passed()
        stats = build_web(_with_calls(_open(self.files, passed)), self.out)
        figures = {
            "trajectories": f"{stats.trajectories:,}",
            "calls": ", ".join(f"{name} {count:,}" for name, count in sorted(stats.tools.items())),
            "of them new for all": f"{stats.shared:,}",
            "recorded before, with the same result": f"{stats.repeated:,}",
            "kept for one turn alone": f"{stats.own:,}, {stats.failures:,} of them failures",
            "pages to search": f"{stats.pages:,}",
        }
        _print_table(str(self.out), figures)
        _report(passed)


@dataclass(frozen=True)
class DataReplayCheck:
    """Replay recorded trajectories through the env and compare every observation.

    Exits with 1 when one differs.
    """

    file: tyro.conf.Positional[Path]
    """Trajectories, or recorded chat messages: a file, or a folder of parts."""
    web: Path
    """A web that holds them, made by drv data web."""

    def run(self) -> None:
        """Check, and say how many turns match and which is the first that doesn't."""
        from drv_env.errors import TaskDataError
        from drv_env.printable import printable
        from replay.replay_check import check_replay
        from replay.web import RecordedWeb

        web = RecordedWeb(self.web, corpus=False, recorded_tools=True)
        passed = _passed()
        check = check_replay(_open((self.file,), passed), web)
        _say(
            f"{check.matched:,} of {check.turns:,} turns match, "
            f"{check.whole:,} of {check.trajectories:,} trajectories whole"
        )
        _report(passed)
        first = check.first
        if first is not None:
            _say(printable(first.describe()))
        if not check.passed:
            where = "nothing was replayed" if first is None else first.where
            raise TaskDataError(f"the replay differs: {where}")


def _passed() -> Passed:
    from replay.sources import Passed

    return Passed()


def _open(paths: tuple[Path, ...], passed: Passed) -> Iterator[Trajectory]:
    from drv_env.errors import SettingError
    from replay.sources import open_trajectories

    if not paths:
        raise SettingError("name at least one file of trajectories")
    return open_trajectories(paths, passed)


def _with_calls(trajectories: Iterator[Trajectory]) -> Iterator[Trajectory]:
    """The trajectories, if one of them calls a tool; read up to that one at once."""
    from itertools import chain

    from drv_env.errors import TaskDataError
    from replay.recorded import calls_of

    held = []
    for trajectory in trajectories:
        held.append(trajectory)
        if next(calls_of(trajectory), None) is not None:
            return chain(held, trajectories)
    raise TaskDataError(f"nothing could be read: {len(held):,} trajectories and no call of a tool")


def _is_broken(trajectory: Trajectory, passed: Passed) -> bool:
    """Whether a trajectory broke, which is nothing to learn from; counts it."""
    if trajectory.broken:
        passed.add(f"task {trajectory.task.id}: the episode broke")
    return trajectory.broken


def _report(passed: Passed) -> None:
    if passed.count:
        from drv_env.printable import printable

        what = "row or file was" if passed.count == 1 else "rows or files were"
        _say(f"{passed.count:,} {what} passed over, the first of them:")
        for reason in passed.reasons:
            _say(f"  {printable(reason)}")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def _print_table(title: str, figures: Mapping[str, str]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title), show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in figures.items():
        table.add_row(escape(name), escape(value))
    Console().print(table)
