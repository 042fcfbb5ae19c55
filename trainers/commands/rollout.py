"""``drv rollout``: many episodes of many questions, streamed to a folder.

Nothing heavy is imported before the command runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from trainers.commands.agent_options import USUAL_PACE, AgentOptions, PaceOptions, TaskOptions

SHOWN = 5
"""Reasons of broken episodes that are printed."""


@dataclass(frozen=True, kw_only=True)
class RolloutCommand:
    """Play episodes of every question and keep them as they end, in Parquet.

    Ctrl-C, or a kill, loses next to nothing: the same command goes on where it was. Broken
    episodes are set apart, and played again by the next run.
    """

    tasks: Annotated[TaskOptions, tyro.conf.arg(name="")]
    out: Path
    """The folder for the episodes."""
    agent: Annotated[AgentOptions, tyro.conf.arg(name="")]
    group_size: int = 1
    """Episodes of each question."""
    retries: int = 1
    """How often a broken episode is played again."""
    outcome: str = "exact"
    """How answers are scored: exact, f1, exact-cjk, f1-cjk, key-facts, judge; or one of your own,
    module:attribute or an entry point."""
    scorer: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """Put each visit's information gain into the trajectories, by this scorer: engine (the model
    that plays), a model's folder, or one of your own, module:attribute or an entry point."""
    pace: Annotated[PaceOptions, tyro.conf.arg(name="")] = USUAL_PACE

    def run(self) -> None:
        """Play, and print what became of the episodes."""
        from rich.console import Console

        from trainers.commands.rolling import Rolling, print_table

        rolling = Rolling.plan(
            self.agent,
            self.tasks,
            self.pace,
            self.outcome,
            "train",
            self.group_size,
            self.retries,
            self.scorer,
        )
        try:
            folder = rolling.run(self.out)
        except KeyboardInterrupt:
            rolling.say(f"{self.out} keeps the episodes that are over; the same command goes on")
            raise
        for reason, count in rolling.reasons().most_common(SHOWN):
            rolling.say(f"broken, {count:,} times: {reason}")
        print_table(Console(), str(self.out), rolling.evaluation(folder).rows())
