"""What became of the rows: counts, shares, the published figures beside them, a plot.

Figures are counted chunk by chunk and added up in any order.  The plot is plain SVG, a
histogram of turns before and after resampling; nothing needs to be installed for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from replay.clean import Cleaned
from replay.raw_trajectory import Drop, Reason, Source

PUBLISHED_ROWS = 10_001
PUBLISHED: Mapping[str, float] = {
    "rows": 10_001,
    "cleaned": 10_000,
    "pruned trajectories": 1_064,
    "pruned calls": 3_378,
    "repeats: trajectories": 6_821,
    "repeats: calls": 15_728,
    "correct": 9_365,
    "retention of the filter": 0.9365,
    "instances": 18_745,
    "over 50 turns, before": 0.6028,
    "over 100 turns, before": 0.1329,
    "over 50 turns, after": 0.8015,
    "over 100 turns, after": 0.3321,
}
"""Of the full REDSearcher set, from the DR-Venus report (arXiv 2604.19859)."""

_EXAMPLES = 3
_HINTS = {
    str(Reason.LAST_WITHOUT_THOUGHT): ", which --thoughts optional keeps",
    str(Reason.NO_GOLD_ANSWER): ", which these layouts need",
    str(Reason.WRONG_ANSWER): " by the correctness filter",
}
_BIN = 10


@dataclass(slots=True)
class CleanStats:
    """Counts of a cleaning job.

    Attributes:
        rows: rows read.
        dropped: rows by the reason they were dropped, the correctness filter's too.
        examples: for each reason the first few rows, in words.
        cleaned: rows that came through cleaning, before the correctness filter.
        pruned: removed calls by tool, and in how many trajectories.
        repeated: removed repeats by tool, and in how many trajectories.
        unread: turns left out because they could not be read, and in how many trajectories.
        turns_met: turns before the last that were looked at, of dropped rows too.
        turns_unread: those of them that could not be read.
        right: rows whose answer the filter found right.
        set_aside: rows that the filter could not judge, by why.
        turns: kept rows by their number of turns.
        instances: the same, each row counted by its weight.
    """

    rows: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    cleaned: int = 0
    pruned: Counter[str] = field(default_factory=Counter)
    pruned_rows: int = 0
    repeated: Counter[str] = field(default_factory=Counter)
    repeated_rows: int = 0
    unread: int = 0
    unread_rows: int = 0
    turns_met: int = 0
    turns_unread: int = 0
    right: int = 0
    set_aside: Counter[str] = field(default_factory=Counter)
    turns: Counter[int] = field(default_factory=Counter)
    instances: Counter[int] = field(default_factory=Counter)

    def count_row(self, source: Source, row: Cleaned | Drop) -> None:
        """Count a row after cleaning."""
        self.rows += 1
        self.turns_met += row.met
        self.turns_unread += row.unread
        if isinstance(row, Drop):
            self.drop(source, row)
            return
        self.cleaned += 1
        self.pruned += row.pruned
        self.pruned_rows += bool(row.pruned)
        self.repeated += row.repeated
        self.repeated_rows += bool(row.repeated)
        self.unread += row.unread
        self.unread_rows += bool(row.unread)

    def drop(self, source: Source, drop: Drop) -> None:
        """Count a dropped row."""
        reason = str(drop.reason)
        self.dropped[reason] += 1
        told = self.examples.setdefault(reason, [])
        if len(told) < _EXAMPLES:
            told.append(f"{source}: {drop.detail}" if drop.detail else str(source))

    def count_kept(self, turns: Iterable[int], weights: Iterable[int]) -> None:
        """Count rows that are kept in the end."""
        for number, weight in zip(turns, weights, strict=True):
            self.turns[number] += 1
            self.instances[number] += weight

    def add(self, other: CleanStats) -> None:
        """Add another's counts; its examples come after ours."""
        for name in _NUMBERS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("dropped", "pruned", "repeated", "set_aside", "turns", "instances"):
            getattr(self, name).update(getattr(other, name))
        for reason, told in other.examples.items():
            ours = self.examples.setdefault(reason, [])
            ours += told[: _EXAMPLES - len(ours)]

    @property
    def kept(self) -> int:
        """Rows kept in the end."""
        return self.turns.total()

    @property
    def mostly_unread(self) -> bool:
        """Whether more than half of the turns before the last could not be read."""
        return 2 * self.turns_unread > self.turns_met

    def likely_cause(self) -> str:
        """What became of most rows that were not kept, in one line."""
        if self.set_aside.total() > self.dropped.total():
            why, count = self.set_aside.most_common(1)[0]
            return f"{count:,} of {self.rows:,} rows could not be judged: {why}"
        if not self.dropped:
            return f"{self.rows:,} rows were read"
        reason, count = self.dropped.most_common(1)[0]
        told = f"{count:,} of {self.rows:,} rows were dropped as {reason}{_HINTS.get(reason, '')}"
        examples = self.examples.get(reason)
        return f"{told} ({examples[0]})" if examples else told

    def first_drops(self) -> list[str]:
        """For each reason that rows were dropped for, a line with the first of them."""
        return [
            f"{reason}{_HINTS.get(reason, '')}: {', '.join(self.examples[reason][:1])}"
            for reason, _ in self.dropped.most_common()
            if self.examples.get(reason)
        ]

    @property
    def retention(self) -> float | None:
        """Share of right answers among those judged; None where none was."""
        judged = self.right + self.dropped[Reason.WRONG_ANSWER]
        return self.right / judged if judged else None

    def to_record(self) -> dict[str, Any]:
        """Plain values, from which :meth:`from_record` makes the same."""
        record = {name: getattr(self, name) for name in self.__slots__}
        return {
            name: dict(sorted(value.items())) if isinstance(value, Counter) else value
            for name, value in record.items()
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> CleanStats:
        """The stats of a record.

        Raises:
            ValueError: for what :meth:`to_record` can't have made.
        """
        try:
            values = {name: record[name] for name in cls.__slots__}
            for name in ("dropped", "pruned", "repeated", "set_aside"):
                values[name] = Counter(_counts(values[name]))
            for name in ("turns", "instances"):
                counted = _counts(values[name])
                values[name] = Counter({int(turns): count for turns, count in counted.items()})
            told = values.pop("examples")
            examples = {str(reason): [str(line) for line in told[reason]] for reason in told}
            _counts(rest := {name: values[name] for name in _NUMBERS})
            return cls(**{**values, **rest, "examples": examples})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"counts are missing or of another kind ({error})") from error


_NUMBERS = (
    "rows",
    "cleaned",
    "pruned_rows",
    "repeated_rows",
    "unread",
    "unread_rows",
    "turns_met",
    "turns_unread",
    "right",
)


def _counts(found: Any) -> dict[str, int]:
    """The mapping, whose values must be counts."""
    for name, count in found.items():
        if type(count) is not int or count < 0:
            raise ValueError(f"{name} can't be {count!r:.80}")
    return dict(found)


def share_over(turns: Counter[int], limit: int) -> float | None:
    """The share of trajectories with more than ``limit`` turns; None where there are none."""
    total = turns.total()
    return sum(n for number, n in turns.items() if number > limit) / total if total else None


def figures(stats: CleanStats) -> dict[str, float | None]:
    """The figures that the report published, under the names of :data:`PUBLISHED`."""
    judged = stats.right + stats.dropped[Reason.WRONG_ANSWER] + stats.set_aside.total()
    return {
        "rows": stats.rows,
        "cleaned": stats.cleaned,
        "pruned trajectories": stats.pruned_rows,
        "pruned calls": stats.pruned.total(),
        "repeats: trajectories": stats.repeated_rows,
        "repeats: calls": stats.repeated.total(),
        "correct": stats.right if judged else None,
        "retention of the filter": stats.retention,
        "instances": stats.instances.total(),
        "over 50 turns, before": share_over(stats.turns, 50),
        "over 100 turns, before": share_over(stats.turns, 100),
        "over 50 turns, after": share_over(stats.instances, 50),
        "over 100 turns, after": share_over(stats.instances, 100),
    }


def report(stats: CleanStats) -> dict[str, Any]:
    """What ``stats.json`` says of the rows; docs/data.md lists the fields."""
    found = figures(stats)
    full = stats.rows == PUBLISHED_ROWS
    return {
        "kept": stats.kept,
        "figures": found,
        "published": dict(PUBLISHED) if full else None,
        "counts": stats.to_record(),
    }


def histogram(turns: Counter[int]) -> list[tuple[int, int]]:
    """``(first turn of a bin of 10, rows)`` from 0 to the last bin that has any."""
    counts: Counter[int] = Counter()
    for number, count in turns.items():
        counts[number // _BIN * _BIN] += count
    return [(start, counts[start]) for start in range(0, max(counts, default=0) + 1, _BIN)]


def histogram_svg(stats: CleanStats) -> str:
    """Turns of the kept trajectories before and after resampling, as an SVG picture."""
    before, after = histogram(stats.turns), histogram(stats.instances)
    width, height, left, bottom, top = 860, 360, 60, 50, 50
    most = max([count for _, count in (*before, *after)], default=0) or 1
    step = (width - left - 20) / len(before)
    scale = (height - bottom - top) / most
    base = height - bottom
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{left}" y="20" font-size="15">Turns of a trajectory</text>',
    ]
    labels = (("before resampling", before, "#9aa5b1"), ("after", after, "#1f6f8b"))
    for place, (label, bins, colour) in enumerate(labels):
        x = left + place * 150
        parts.append(f'<rect x="{x}" y="28" width="11" height="11" fill="{colour}"/>')
        parts.append(f'<text x="{x + 16}" y="38">{label}</text>')
        for number, (start, count) in enumerate(bins):
            x_bar = left + number * step + (place * 0.42 + 0.08) * step
            tall = count * scale
            parts.append(
                f'<rect x="{x_bar:.1f}" y="{base - tall:.1f}" width="{step * 0.42:.1f}" '
                f'height="{tall:.1f}" fill="{colour}"><title>{start}–{start + _BIN - 1} turns: '
                f"{count:,}</title></rect>"
            )
    every = max(1, len(before) // 16)
    for number, (start, _) in enumerate(before):
        if number % every == 0:
            x_text = left + number * step
            parts.append(f'<text x="{x_text:.1f}" y="{base + 18}">{start}</text>')
    parts += [
        f'<line x1="{left}" y1="{base}" x2="{width - 20}" y2="{base}" stroke="black"/>',
        f'<text x="{left - 8}" y="{top + 6}" text-anchor="end">{most:,}</text>',
        f'<text x="{left - 8}" y="{base}" text-anchor="end">0</text>',
        f'<text x="{width - 20}" y="{height - 10}" text-anchor="end">turns, bins of {_BIN}</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"
