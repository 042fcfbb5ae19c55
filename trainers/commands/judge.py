"""``drv judge check``: does the judge agree with people's labels?

Nothing heavy is imported before the command runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

if TYPE_CHECKING:
    from rich.table import Table

    from drv_env.rewards.calibration import Agreement, Checked
    from drv_env.rewards.judge import Judge
    from drv_env.rewards.labelled import Labelled

SHOWN = 10
"""Disagreements, losses and bad rows that are printed; --json has all of them."""


@dataclass(frozen=True)
class JudgeCommand:
    """Check the judge against labelled answers.

    Reads JSONL or CSV with the columns question, answers (gold), answer and label. The judge
    is the one that JUDGE_MODEL_NAME, JUDGE_API_BASE and JUDGE_API_KEY name, in the
    environment or .env. Verdicts are kept, so that a stopped check goes on where it was.
    """

    action: tyro.conf.Positional[Literal["check"]]
    """What to do."""
    file: tyro.conf.Positional[Path]
    """The labelled answers, .jsonl or .csv."""
    model: str | None = None
    """The judge's model, in place of JUDGE_MODEL_NAME."""
    cassette: Path | None = Path("runs/judge.cassette")
    """Where verdicts are kept; None keeps none."""
    attempts: int = 3
    """Replies asked for before the judge counts as unreadable."""
    limit: int = 16
    """Requests under way at a time."""
    temperature: float | None = 0.0
    """Of the judge's sampling; None leaves it to the server."""
    omit_field: tuple[str, ...] = ()
    """Fields that the server doesn't take; one that it refuses by name is left out anyway."""
    max_tokens_field: str | None = None
    """What the server calls the limit of a reply's tokens, in place of JUDGE_MAX_TOKENS_FIELD."""
    confidence: float = 0.95
    """Of the interval."""
    json: bool = False
    """Print JSON in place of the table."""

    def run(self) -> None:
        """Check, and print what was found."""
        import json
        import sys

        from rich.console import Console

        from drv_env import background
        from drv_env.cassette import CassetteStore
        from drv_env.errors import JudgeError
        from drv_env.request_fields import check_field_names
        from drv_env.rewards.calibration import agreement, wilson_interval
        from drv_env.rewards.judge import Judge
        from drv_env.rewards.labelled import read_labelled

        check_field_names(
            self.omit_field,
            self.max_tokens_field or "max_tokens",
            ("--omit-field", "--max-tokens-field"),
        )
        wilson_interval(0, 0, self.confidence)  # a bad setting is told before anything is asked
        labelled = read_labelled(self.file)
        store = None if self.cassette is None else CassetteStore(self.cassette)
        try:
            judge = Judge.from_env(
                model=self.model,
                temperature=self.temperature,
                leave_out=self.omit_field or None,
                max_tokens_field=self.max_tokens_field,
                attempts=self.attempts,
                limit=self.limit,
                cassette=store,
            )
            aside = Console(stderr=True)
            for problem in labelled.problems[:SHOWN]:
                aside.print(f"left out: {problem}", markup=False, highlight=False, soft_wrap=True)
            checked = background.run(_check(judge, labelled, aside))
        finally:
            if store is not None:
                store.close()
        found = agreement(checked, self.confidence)
        model = judge.client.model
        if self.json:
            told = report(self.file, model, labelled, checked, found)
            sys.stdout.write(json.dumps(told, indent=2, ensure_ascii=True) + "\n")
        else:
            console = Console()
            console.print(_table(model, labelled, found))
            for line in _remarks(checked)[:SHOWN]:
                console.print(line, markup=False, highlight=False, soft_wrap=True)
        if checked and all(item.verdict is None for item in checked):
            raise JudgeError(f"no answer could be judged; the first: {checked[0].error}")


async def _check(judge: Judge, labelled: Labelled, console: Any) -> list[Checked]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from drv_env.rewards.calibration import check_judge

    columns = (TextColumn("judging"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(
            *columns, console=console, transient=True, disable=not console.is_terminal
        ) as progress:
            bar = progress.add_task("judging", total=len(labelled.rows))
            return await check_judge(judge, labelled.rows, lambda _: progress.advance(bar))
    finally:
        await judge.close()


def report(
    file: Path, model: str, labelled: Labelled, checked: list[Checked], found: Agreement
) -> dict[str, Any]:
    """What --json prints; docs/rewards.md lists the fields."""
    from dataclasses import asdict

    return {
        "file": str(file),
        "model": model,
        "rows": len(labelled.rows),
        "problems": labelled.problems,
        "agreement": found.share,
        "interval": list(found.interval),
        "confidence": found.confidence,
        "judged": found.confusion.total,
        "from_cassette": found.recorded,
        "confusion": asdict(found.confusion),
        "without_judge": asdict(found.without_judge),
        "unreadable": found.unreadable,
        "failed": found.failed,
        "disagreements": [
            {
                "where": item.row.where,
                "question": item.row.task.question,
                "answers": list(item.row.task.answers),
                "answer": item.row.answer,
                "label": item.row.label,
                "verdict": item.verdict.correct,
                "source": item.verdict.source,
            }
            for item in checked
            if item.verdict is not None and item.verdict.correct is not item.row.label
        ],
        "lost": [
            {"where": item.row.where, "error": str(item.error)}
            for item in checked
            if item.verdict is None
        ],
    }


def _table(model: str, labelled: Labelled, found: Agreement) -> Table:
    from rich.table import Table

    table = Table(title=f"{model} against {len(labelled.rows):,} labelled answers")
    table.add_column("")
    table.add_column("labelled right", justify="right")
    table.add_column("labelled wrong", justify="right")
    for name, part in (
        ("judge", found.confusion),
        ("blank or exact (nobody asked)", found.without_judge),
    ):
        table.add_row(f"{name}: found right", f"{part.right_right:,}", f"{part.wrong_right:,}")
        table.add_row(f"{name}: found wrong", f"{part.right_wrong:,}", f"{part.wrong_wrong:,}")
    low, high = found.interval
    share = "nothing was judged"
    if found.share is not None:
        share = (
            f"agreement {found.share:.1%} of {found.confusion.total:,} judged "
            f"({found.confidence:.0%} interval {low:.1%} to {high:.1%}; Wilson)"
        )
    table.caption = (
        f"{share}\n"
        f"{found.recorded:,} from the cassette, {found.unreadable:,} unreadable, "
        f"{found.failed:,} failed, {len(labelled.problems):,} rows left out"
    )
    return table


def _remarks(checked: list[Checked]) -> list[str]:
    """A line for each answer that was lost, then for each that the judge sees otherwise."""
    lost = [f"{item.row.where}: {item.error}" for item in checked if item.verdict is None]
    other = [
        f"{item.row.where}: labelled {_word(item.row.label)}, found {_word(item.verdict.correct)}: "
        f"{item.row.answer!r:.100} (gold {item.row.task.answers[0]!r:.100})"
        for item in checked
        if item.verdict is not None and item.verdict.correct is not item.row.label
    ]
    return lost + other


def _word(right: bool) -> str:
    return "right" if right else "wrong"
