"""Whether a run teaches its agent to stop early while it never succeeds.

Where all rollouts of a group fail, gains alone decide.  Centred, a visit that taught less than
the group's mean counts as bad though it taught something, and taking fewer turns escapes that.
The script of the DR-Venus release (``RL/train_igpo.sh``) recommends ``raw_ig``, which "solves
turn-shortening".
"""

from __future__ import annotations

from collections.abc import Mapping

from trainers.credit import Credit

WINDOW = 5
"""Steps at the start, and steps at the end, whose means are compared."""
SHORTER = 0.7
"""Mean turns at the end, as a share of those at the start, from which on they are a warning."""
NO_SUCCESS = 0.05
"""Mean success at the end up to which nothing but the gains can have shortened the episodes."""


class ShorteningWatch:
    """Reads the metrics of each step, and warns once.

    Args:
        credit: gains that are centred are watched; without gains, and with the gains of
            ``raw_ig``, there is nothing to warn of.
    """

    def __init__(self, credit: Credit) -> None:
        self._watching = credit.information_gain and credit.normalisation != "raw_ig"
        self._remedy = "rl.credit.normalisation to raw_ig"
        if credit.format_penalty and not credit.penalty_alone:
            self._remedy += " and rl.credit.penalty_alone to true"
        self._steps: list[tuple[float, float]] = []

    def step(self, metrics: Mapping[str, float]) -> str | None:
        """A step is over.

        Args:
            metrics: with ``turns`` and ``success`` (:mod:`trainers.rl_metrics`).

        Returns:
            What to tell the user, or None.
        """
        if not self._watching or "turns" not in metrics or "success" not in metrics:
            return None
        self._steps.append((metrics["turns"], metrics["success"]))
        if len(self._steps) < 2 * WINDOW:
            return None
        first = sum(turns for turns, _ in self._steps[:WINDOW]) / WINDOW
        last = sum(turns for turns, _ in self._steps[-WINDOW:]) / WINDOW
        success = sum(success for _, success in self._steps[-WINDOW:]) / WINDOW
        if last > SHORTER * first or success > NO_SUCCESS:
            return None
        self._watching = False
        return (
            f"warning: episodes have become shorter, {first:.1f} turns at first and {last:.1f} "
            f"over the last {WINDOW} steps, and {success:.1%} succeed: where all rollouts fail, "
            f"centred gains can teach the agent to stop early. Set {self._remedy}, or give it "
            "easier questions"
        )
