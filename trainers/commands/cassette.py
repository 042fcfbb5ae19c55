"""``drv cassette``: look into cassettes, put several together, write one out as text.

Nothing heavy is imported before a command runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class CassetteStats:
    """Show what a cassette holds, by tool."""

    file: tyro.conf.Positional[Path]
    """The cassette."""

    def run(self) -> None:
        """Print a table."""
        from datetime import UTC, datetime

        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        from drv_env.cassette import CassetteStore

        with CassetteStore(self.file, read_only=True) as store:
            kinds = store.stats()
        table = Table(title=f"{escape(self.file.name)}, {self.file.stat().st_size / 1e6:.1f} MB")
        table.add_column("tool")
        for name in ("recorded", "empty", "worlds", "MB", "seconds", "US$", "newest"):
            table.add_column(name, justify="right", no_wrap=True)
        for kind in kinds:
            table.add_row(
                escape(kind.kind),
                f"{kind.recordings:,}",
                f"{kind.empty:,}",
                f"{kind.namespaces:,}",
                f"{kind.text_bytes / 1e6:,.1f}",
                f"{kind.latency:,.1f}",
                f"{kind.cost:,.2f}",
                f"{datetime.fromtimestamp(kind.last, UTC):%Y-%m-%d}",
            )
        Console().print(table)


@dataclass(frozen=True)
class CassetteMerge:
    """Put the recordings of several cassettes into one.

    Where two differ in what one call gave, it is counted and one of them stands.
    """

    into: tyro.conf.Positional[Path]
    """The cassette that gets the recordings; made where there is none."""
    sources: tyro.conf.Positional[tuple[Path, ...]]
    """The cassettes that are read, in this order."""
    keep: Literal["first", "last"] = "first"
    """Which of two that differ stands: the one there was, or the one recorded later."""
    dry_run: bool = False
    """Write nothing; only count (each source against the cassette as it is)."""

    def run(self) -> None:
        """Merge, and print a table."""
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        from drv_env.cassette import CassetteStore
        from drv_env.errors import SettingError

        if not self.sources:
            raise SettingError("name at least one cassette to merge: drv cassette merge INTO FROM…")
        for source in self.sources:
            with CassetteStore(source, read_only=True) as store:
                store.check()
        table = Table(
            title=f"{'would go' if self.dry_run else 'gone'} into {escape(self.into.name)}"
        )
        table.add_column("from")
        for name in ("added", "same", "conflicts", "of them replaced"):
            table.add_column(name, justify="right")
        read_only = self.dry_run and self.into.exists()
        with CassetteStore(self.into, keep=self.keep, read_only=read_only) as store:
            for source in self.sources:
                merged = store.merge(source, dry_run=self.dry_run)
                numbers = (merged.added, merged.same, merged.conflicts, merged.replaced)
                table.add_row(escape(source.name), *(f"{number:,}" for number in numbers))
        Console().print(table)


@dataclass(frozen=True)
class CassetteExport:
    """Write a cassette as JSON lines, one recording a line."""

    file: tyro.conf.Positional[Path]
    """The cassette."""
    out: tyro.conf.Positional[Path]
    """The file to write, when all is read."""
    force: bool = False
    """Replace a file that exists."""

    def run(self) -> None:
        """Export, and say how much."""
        from rich.console import Console

        from drv_env.cassette import CassetteStore
        from drv_env.whole_files import refuse_output

        with CassetteStore(self.file, read_only=True) as store:
            store.check()
            refuse_output(self.out, (self.file,), self.force)
            count = store.export(self.out, self.force)
        said = f"{count:,} recordings written to {self.out}"
        Console().print(said, soft_wrap=True, markup=False, highlight=False)


@dataclass(frozen=True)
class Cassette:
    """Recorded tool calls: what is in a cassette, merging, export."""

    command: Annotated[
        Annotated[CassetteStats, tyro.conf.subcommand("stats")]
        | Annotated[CassetteMerge, tyro.conf.subcommand("merge")]
        | Annotated[CassetteExport, tyro.conf.subcommand("export")],
        tyro.conf.arg(name=""),
    ]

    def run(self) -> None:
        """Run the command."""
        self.command.run()
