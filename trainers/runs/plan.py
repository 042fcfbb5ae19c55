"""What a run will do and need, said before it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table

from trainers.runs.memory import Part, readable


@dataclass(frozen=True)
class Plan:
    """The plan.

    Attributes:
        title: a line.
        rows: name and value of each figure.
        memory: of the device, by part; their sum is an estimate.
        available: bytes of memory that the device has; None where nobody knows.
        warnings: what may go wrong, and what to do.
    """

    title: str
    rows: Sequence[tuple[str, str]]
    memory: Sequence[Part] = ()
    available: int | None = None
    warnings: Sequence[str] = ()

    @property
    def bytes(self) -> int:
        """The memory in all."""
        return sum(part.bytes for part in self.memory)

    def show(self, console: Console) -> None:
        """Print it."""
        table = _table(self.title)
        for name, value in self.rows:
            table.add_row(escape(name), escape(value))
        shown = [table]
        if self.memory:
            memory = _table("Memory, an estimate")
            memory.add_column()
            for part in self.memory:
                memory.add_row(part.name, readable(part.bytes), f"[dim]{escape(part.how)}[/]")
            memory.add_section()
            of = "" if self.available is None else f"of {readable(self.available)}"
            memory.add_row("together", readable(self.bytes), of)
            shown.append(memory)
        console.print(Group(*shown))
        for warning in self._warnings():
            console.print(f"[yellow]{escape(warning)}[/]", soft_wrap=True)

    def _warnings(self) -> list[str]:
        found = list(self.warnings)
        if self.available is not None and self.bytes > self.available:
            found.append(
                f"the estimate of {readable(self.bytes)} is more than the device's "
                f"{readable(self.available)}: lower microbatch_tokens or engine.parallel, turn on "
                "model.gradient_checkpointing, or train adapters (model.lora.rank)"
            )
        return found


def _table(title: str) -> Table:
    table = Table(title=escape(title), title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    return table
