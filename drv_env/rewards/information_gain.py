"""Information gain as a definition on log-probs; who computes them is elsewhere.

With v_t the mean log-prob per token of the gold answer after the history h_t, the gain
of a turn is v_t minus the value of the last scored history (IGPO, arXiv 2510.14967, eq.
for r_t; the visit filter is DR-Venus, arXiv 2604.19859).  Scored histories are the
opening and those right after a call of one of the ``tools``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from numbers import Real
from typing import Any, Literal, Protocol

from drv_env.context import Message
from drv_env.episode import Episode, ObservationKind, Turn
from drv_env.errors import EngineError, SettingError, boundary
from drv_env.tools.base import Status

GainKind = Literal["log_prob_diff", "prob_diff"]
GoldAnswers = Literal["first", "best"]


class Scorer(Protocol):
    """Gives the model's belief in an answer."""

    def score(
        self, messages: Sequence[Message], answer: str, transcript: object | None = None
    ) -> float:
        """Mean log-prob per token of ``answer`` as the next turn's answer.

        Args:
            messages: the history, ending where the next assistant turn would begin.
            answer: a gold answer.
            transcript: the history in tokens, where the caller has one.

        Returns:
            A number ≤ 0, or one that is not finite where it can't be had.
        """
        ...


def is_scored(turn: Turn, tools: Collection[str], failed: bool = False) -> bool:
    """Whether the history after ``turn`` is scored.

    True after a call of one of ``tools`` whose result the agent saw; a failed call is scored
    with ``failed`` alone, and one whose output made way for the request for the answer never.
    A malformed turn whose call could be read is scored: its value is the next baseline.
    """
    return shows_result(
        None if turn.call is None else turn.call.name,
        None if turn.result is None else turn.result.status,
        None if turn.observation is None else turn.observation.kind,
        tools,
        failed,
    )


def shows_result(
    tool: str | None,
    status: str | None,
    kind: str | None,
    tools: Collection[str],
    failed: bool = False,
) -> bool:
    """:func:`is_scored` on a turn's bare facts, as a stored trajectory has them."""
    if tool not in tools or status is None or kind != ObservationKind.RESULT:
        return False
    return failed or status != Status.FAILED


def gain(before: float, after: float, kind: GainKind = "log_prob_diff") -> float:
    """The gain from one scored history to the next, both mean log-probs and finite."""
    if kind == "prob_diff":
        return math.exp(after) - math.exp(before)
    return after - before


def finite_or_none(value: float) -> float | None:
    """``value``, or None where it is no number: not computed, which is not 0.0."""
    return value if math.isfinite(value) else None


def gains(values: Sequence[float | None], kind: GainKind = "log_prob_diff") -> list[float | None]:
    """Gains of consecutive scored histories.

    Args:
        values: v of the opening and of each later scored history, None where not finite.
        kind: difference of log-probs, or of probabilities.

    Returns:
        One gain fewer than values; None where its own value or every earlier one is
        missing.  A gain is measured from the last value there is.

    Example:
        >>> gains([-3.0, None, -1.0])
        [None, 2.0]
    """
    last = values[0] if values else None
    found: list[float | None] = []
    for value in values[1:]:
        found.append(None if value is None or last is None else gain(last, value, kind))
        last = last if value is None else value
    return found


def answer_value(
    score: Callable[[str], float], answers: Sequence[str], which: GoldAnswers = "first"
) -> float | None:
    """v of one history: of the first gold answer, or the best over all of them."""
    return best_value(score(answer) for answer in answers_to_score(answers, which))


def history_value(
    scorer: Scorer, messages: Sequence[Message], answers: Sequence[str], which: GoldAnswers
) -> float | None:
    """v of one history by a scorer: finite, or None.

    Raises:
        EngineError: when the scorer gives no number; whatever else it raises passes.
    """

    def score(answer: str) -> float:
        found: Any = scorer.score(messages, answer)
        if getattr(found, "shape", None) == ():
            found = found.item()  # a scalar of numpy or torch
        if not isinstance(found, Real) or isinstance(found, bool):
            kind = type(found).__name__
            raise EngineError(f"scorer: it gave {kind} where a number is expected")
        return float(found)

    return answer_value(score, answers, which)


def answers_to_score(answers: Sequence[str], which: GoldAnswers) -> Sequence[str]:
    """The gold answers whose values count."""
    return answers[:1] if which == "first" else answers


def best_value(values: Iterable[float]) -> float | None:
    """v of one history from its answers' values: the best finite one, or None."""
    finite = (finite_or_none(value) for value in values)
    return max((value for value in finite if value is not None), default=None)


def check_settings(kind: str, answers: str, tools: Collection[str]) -> None:
    """Raise :class:`SettingError` for a setting that can't work."""
    if kind not in ("log_prob_diff", "prob_diff"):
        raise SettingError(
            f"kind must be 'log_prob_diff' or 'prob_diff', got {kind!r}", setting="kind"
        )
    if answers not in ("first", "best"):
        raise SettingError(f"answers must be 'first' or 'best', got {answers!r}", setting="answers")
    if isinstance(tools, str) or not tools:
        raise SettingError(
            f"tools must be a non-empty collection of tool names, got {tools!r}", setting="tools"
        )


def check_scorer(scorer: Any) -> None:
    """Refuse what is no scorer.

    Raises:
        SettingError: naming what it lacks.
    """
    if isinstance(scorer, type) or not callable(getattr(scorer, "score", None)):
        raise SettingError(
            f"a scorer needs a method score(messages, answer, transcript=None), got {scorer!r:.80}"
        )


class GainTracker:
    """The gains of one episode while it is played.

    Args:
        scorer: gives the model's belief in an answer; held by reference.
        tools: names of the tools whose calls are scored.
        kind: difference of log-probs, or of probabilities.
        answers: score the first gold answer, or the best of all.
        known: names of the tools there are.
        failed: score the histories after failed calls too.

    Raises:
        SettingError: for a setting that can't work, or could never pay.
    """

    def __init__(
        self,
        scorer: Scorer,
        tools: Collection[str],
        kind: GainKind,
        answers: GoldAnswers,
        known: Collection[str],
        failed: bool = False,
    ) -> None:
        check_settings(kind, answers, tools)
        check_scorer(scorer)
        unknown = [name for name in tools if name not in known]
        if unknown:
            raise SettingError(
                f"there is no tool {unknown[0]!r} to score; there are {sorted(known)}"
            )
        self._scorer = scorer
        self._tools = tuple(tools)
        self._kind: GainKind = kind
        self._answers: GoldAnswers = answers
        self._failed = failed
        self._last: float | None = None

    def begin(self, episode: Episode) -> None:
        """Score the opening of an episode that has just begun.

        Raises:
            DrvError: when the scorer is lost, or gives no number.
            Exception: whatever else it raises: nothing has been played yet, so it shows.
        """
        self._last = self._value(episode)

    def after_turn(self, episode: Episode) -> float | None:
        """The gain of the last turn, or None where none is computed.

        Raises:
            DrvError: when the scorer is lost, raises anything, or gives no number.
        """
        if episode.ending is not None:
            return None
        if not is_scored(episode.turns[-1], self._tools, self._failed):
            return None
        with boundary(EngineError, "scorer"):
            value = self._value(episode)
        if value is None:
            return None
        before, self._last = self._last, value
        return None if before is None else gain(before, value, self._kind)

    def _value(self, episode: Episode) -> float | None:
        return history_value(self._scorer, episode.messages, episode.task.answers, self._answers)
