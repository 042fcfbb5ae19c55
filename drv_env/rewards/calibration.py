"""How far a judge agrees with people's labels, and how sure that figure is.

Agreement is the share of equal verdicts among the answers that were judged.  An answer
whose judge was unreadable or unreachable is counted apart: it is in no share.  Answers
that were settled without the judge (blank, or equal to a gold answer) say nothing about it
and are left out of the agreement too; their own agreement is counted beside it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from drv_env.errors import JudgeError, SettingError
from drv_env.rewards.judge import Judge, UnreadableVerdict, Verdict
from drv_env.rewards.labelled import LabelledAnswer
from drv_env.settings import between, checked_number


@dataclass(frozen=True, slots=True)
class Checked:
    """One labelled answer after the judge.

    Attributes:
        row: the answer and its label.
        verdict: the judge's, or None.
        error: why there is none: :class:`UnreadableVerdict`, or another JudgeError.
    """

    row: LabelledAnswer
    verdict: Verdict | None
    error: JudgeError | None = None

    @property
    def judged(self) -> bool:
        """Whether a judge's verdict, new or recorded, was had."""
        return self.verdict is not None and self.verdict.source in ("judge", "cassette")


@dataclass(frozen=True, slots=True)
class Confusion:
    """Counts by label and verdict.

    Attributes:
        right_right: labelled right, found right.
        right_wrong: labelled right, found wrong.
        wrong_right: labelled wrong, found right.
        wrong_wrong: labelled wrong, found wrong.
    """

    right_right: int = 0
    right_wrong: int = 0
    wrong_right: int = 0
    wrong_wrong: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.right_right + self.right_wrong + self.wrong_right + self.wrong_wrong

    @property
    def equal(self) -> int:
        """Those whose verdict is the label."""
        return self.right_right + self.wrong_wrong


@dataclass(frozen=True, slots=True)
class Agreement:
    """A judge against labels.

    Attributes:
        confusion: of the answers that were judged.
        without_judge: of the answers that were settled without it.
        unreadable: answers for which no reply of the judge could be read.
        failed: answers for which the judge was not reached.
        recorded: of those judged, verdicts that came from the cassette.
        confidence: of the interval, in (0, 1).
    """

    confusion: Confusion
    without_judge: Confusion
    unreadable: int
    failed: int
    recorded: int
    confidence: float = 0.95

    @property
    def share(self) -> float | None:
        """Agreement in [0, 1], or None where nothing was judged."""
        return self.confusion.equal / self.confusion.total if self.confusion.total else None

    @property
    def interval(self) -> tuple[float, float]:
        """The Wilson interval of the share; (0, 1) where nothing was judged."""
        return wilson_interval(self.confusion.equal, self.confusion.total, self.confidence)


def wilson_interval(hits: float, total: float, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a share.

    E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
    Journal of the American Statistical Association 22 (1927), 209-212.  It stays within
    [0, 1] and is of use at small numbers and at shares near 0 and 1.

    Args:
        hits: how many of them, from 0 to ``total``; of weighted samples any number.
        total: how many; 0 gives (0.0, 1.0).
        confidence: in (0, 1).

    Raises:
        SettingError: for numbers that can't be.

    Example:
        >>> low, high = wilson_interval(81, 263)
        >>> round(low, 4), round(high, 4)
        (0.2553, 0.3662)
    """
    if not 0 <= hits <= total:
        raise SettingError(f"hits must be from 0 to total, got {hits} of {total}")
    checked_number("confidence", confidence, between(0, 1, least_open=True, most_open=True))
    if total == 0:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = hits / total
    centre = share + z * z / (2 * total)
    spread = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    scale = 1 + z * z / total
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def agreement(checked: Iterable[Checked], confidence: float = 0.95) -> Agreement:
    """Count what a check found."""
    checked = list(checked)
    lost = [item.error for item in checked if item.verdict is None]
    return Agreement(
        confusion=_confusion([item for item in checked if item.judged]),
        without_judge=_confusion([item for item in checked if item.verdict and not item.judged]),
        unreadable=sum(isinstance(error, UnreadableVerdict) for error in lost),
        failed=sum(not isinstance(error, UnreadableVerdict) for error in lost),
        recorded=sum(item.verdict.source == "cassette" for item in checked if item.verdict),
        confidence=confidence,
    )


async def check_judge(
    judge: Judge,
    rows: Sequence[LabelledAnswer],
    on_checked: Callable[[Checked], Any] | None = None,
    *,
    at_once: int = 64,
) -> list[Checked]:
    """Judge labelled answers.

    Args:
        judge: its own limit bounds the requests under way.
        rows: the answers.
        on_checked: told of each as it is done, in the order of finishing.
        at_once: answers under way at a time, at least 1.

    Returns:
        One record for each row, in their order.
    """
    waiting = iter(enumerate(rows))
    done: list[Checked | None] = [None] * len(rows)

    async def work() -> None:
        for index, row in waiting:
            try:
                checked = Checked(row, await judge.verdict(row.answer, row.task))
            except JudgeError as error:
                checked = Checked(row, None, error)
            done[index] = checked
            if on_checked is not None:
                on_checked(checked)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(at_once, len(rows))):
                group.create_task(work())
    except ExceptionGroup as failures:  # a cassette that can't be written, say
        raise failures.exceptions[0] from None
    return [checked for checked in done if checked is not None]


def _confusion(checked: Sequence[Checked]) -> Confusion:
    pairs = [(item.row.label, item.verdict.correct) for item in checked if item.verdict]
    return Confusion(
        right_right=pairs.count((True, True)),
        right_wrong=pairs.count((True, False)),
        wrong_right=pairs.count((False, True)),
        wrong_wrong=pairs.count((False, False)),
    )
