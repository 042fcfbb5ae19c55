"""The settings of scoring, apart from it: whoever reads settings needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from drv_env.rewards.information_gain import GainKind, GoldAnswers, check_settings

Method = Literal["auto", "packed", "sequential", "plain"]
"""How log-probs are scored; see :func:`trainers.trajectory_scores.score_trajectories`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GainSettings:
    """What is scored, and how.

    Attributes:
        tools: names of the tools whose calls are scored.
        kind: difference of mean log-probs, or of their exponentials.
        answers: the first gold answer, or the best of all.
        failed: whether the histories after failed calls are scored, too.
        probe: text put between history and answer; None for the template's default, which
            closes the thought and opens the answer.
        closed: whether the answer's ids are those that it has before ``</answer>``, where its
            last one may hold the line break; else those of a text that ends with it.

    Raises:
        SettingError: for a setting that can't work.
    """

    tools: tuple[str, ...] = ("visit",)
    kind: GainKind = "log_prob_diff"
    answers: GoldAnswers = "first"
    failed: bool = False
    probe: str | None = None
    closed: bool = False

    def __post_init__(self) -> None:
        check_settings(self.kind, self.answers, self.tools)
