"""The correctness filter: is a cleaned trajectory's final answer right?

An outcome (exact match, F1, a judge; see docs/rewards.md) scores the answers of a part of the
rows at a time, with a limit on how many are under way.  A row whose outcome fails has no
score and is set aside with the reason: it is neither right nor wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from drv_env.errors import JudgeError
from drv_env.play import Outcome, score_answer
from drv_env.settings import at_least, between, check_fields
from drv_env.tasks import ANSWER_SEPARATOR, Task
from replay.clean_stats import CleanStats
from replay.cleaned_rows import with_outcomes
from replay.raw_trajectory import Drop, Reason, Source

NO_GOLD = "no gold answer"
JUDGE_FAILED = "judge failed"
GIVE_UP_AFTER = 32
"""Failures in a row after which the judge counts as lost and the job stops, to be continued."""


@dataclass(frozen=True, slots=True)
class CorrectnessFilter:
    """Keeps rows whose answer is right.

    Attributes:
        name: names outcome and settings; a job is continued only under the same name.
        outcome: ``outcome(answer, task)``, a number in [0, 1], or awaitable for one.
        keep_from: the least score that is kept, above 0 and at most 1.
        at_once: outcomes under way at a time, at least 1.

    Raises:
        SettingError: for a value that can't work.
    """

    name: str
    outcome: Outcome
    keep_from: float = 1.0
    at_once: int = 16

    def __post_init__(self) -> None:
        check_fields(self, keep_from=between(0, 1, least_open=True), at_once=at_least(1))


@dataclass(frozen=True, slots=True)
class Scored:
    """One row after the filter.

    Attributes:
        score: in [0, 1]; None where there is none.
        why: why there is none; empty otherwise.
    """

    score: float | None
    why: str = ""


async def score_rows(
    chosen: CorrectnessFilter,
    rows: Iterable[tuple[str, str | None, str]],
    on_scored: Callable[[Scored], None] | None = None,
) -> list[Scored]:
    """Score ``(question, gold answers, answer)`` rows; the result is in their order.

    Args:
        chosen: the filter.
        rows: gold answers in one text, as the table has them, or None.
        on_scored: told of each as it is done, in the order of finishing.

    Raises:
        JudgeError: after :data:`GIVE_UP_AFTER` failures in a row.
    """
    rows = list(rows)
    done: list[Scored | None] = [None] * len(rows)
    waiting = iter(enumerate(rows))
    failures = 0

    async def work() -> None:
        nonlocal failures
        for place, (question, gold, answer) in waiting:
            if gold is None:
                scored = Scored(None, NO_GOLD)
            else:
                task = Task(question, tuple(gold.split(ANSWER_SEPARATOR)))
                try:
                    scored = Scored(await score_answer(chosen.outcome, answer, task))
                    failures = 0
                except JudgeError as error:
                    scored = Scored(None, str(error)[:300])
                    failures += 1
                    if failures >= GIVE_UP_AFTER:
                        raise JudgeError(
                            f"{failures} answers in a row could not be judged; what was judged is "
                            f"kept, and the same command goes on from there. The last: {error}"
                        ) from error
            done[place] = scored
            if on_scored is not None:
                on_scored(scored)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(chosen.at_once, len(rows))):
                group.create_task(work())
    except ExceptionGroup as several:
        raise several.exceptions[0] from None
    return [scored for scored in done if scored is not None]


def judged_rows(
    table: pa.Table, scores: Sequence[Scored], chosen: CorrectnessFilter, stats: CleanStats
) -> tuple[pa.Table, pa.Table]:
    """The rows that are right, and those without a score with ``why``; all are counted.

    Args:
        table: cleaned rows, as :data:`replay.cleaned_rows.SCHEMA` has them.
        scores: one for each.
        chosen: the filter.
        stats: counts those that are right, wrong and set aside.
    """
    outcomes = pa.array([scored.score for scored in scores], pa.float64())
    table = with_outcomes(table, outcomes)
    sources = zip(table["file"].to_pylist(), table["row"].to_pylist(), scores, strict=True)
    for file, row, scored in sources:
        if scored.score is None:
            stats.set_aside[scored.why if scored.why == NO_GOLD else JUDGE_FAILED] += 1
        elif scored.score >= chosen.keep_from:
            stats.right += 1
        else:
            drop = Drop(Reason.WRONG_ANSWER, f"scored {scored.score:g}")
            stats.drop(Source(file, row), drop)
    missing = pc.is_null(outcomes)
    whys = pa.array([scored.why for scored in scores if scored.score is None], pa.string())
    aside = table.filter(missing).append_column("why", whys)
    return table.filter(pc.greater_equal(outcomes, chosen.keep_from)), aside
