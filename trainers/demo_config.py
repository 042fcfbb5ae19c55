"""The demo's settings, apart from the demo: the command line reads them without torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro


@dataclass(frozen=True, kw_only=True)
class DemoConfig:
    """Settings of the demo; the counts are at least 1.

    Raises:
        SettingError: naming a value that can't work.
    """

    seed: int = 0
    """Decides the webs, the model and the sampling."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")] = None
    """Folder for trajectories, metrics and checkpoint; by default runs/demo, and for other settings
    one that is named after them, such as runs/demo-seed1-grpo."""
    algorithm: Literal["igpo", "grpo"] = "igpo"
    """The published method, or its baseline without information gain."""
    worlds: int = 12
    """Webs to train in; they share their names and differ in their facts."""
    expert_episodes: int = 6400
    """Trajectories of the expert to clone."""
    copy_steps: int = 1000
    """The most steps of learning to copy, before cloning."""
    sft_epochs: int = 2
    """Passes over the expert's trajectories."""
    rl_steps: int = 40
    """Rollout batches of 8 questions × 8 rollouts."""
    rl_learning_rate: float = 5e-4
    """AdamW's, of the reinforcement."""
    questions: int = 192
    """Held-out questions of each evaluation."""
    part: Literal["test", "validation"] = "test"
    """Which held-out questions: validation is for choosing settings."""
    threads: int = 1
    """Threads of torch."""

    def __post_init__(self) -> None:
        from drv_env.settings import SEED, above, at_least, check_fields  # which is not light

        counts = ("worlds", "expert_episodes", "copy_steps", "sft_epochs", "rl_steps")
        check_fields(
            self,
            seed=SEED,
            rl_learning_rate=above(0),
            **dict.fromkeys((*counts, "questions", "threads"), at_least(1)),
        )

    @property
    def folder(self) -> Path:
        """Where the run goes: each variant has a folder of its own.

        Example:
            >>> [str(DemoConfig(**each).folder) for each in ({}, {"seed": 1, "rl_steps": 9})]
            ['runs/demo', 'runs/demo-seed1-rl_steps9']
        """
        if self.out is not None:
            return self.out
        name = "demo"
        for each in fields(self):
            value = getattr(self, each.name)
            if value != each.default:
                name += f"-{'' if isinstance(value, str) else each.name}{value}"
        return Path("runs") / name

    def to_record(self) -> dict[str, Any]:
        """What must be the same when a run is gone on with."""
        return {name: value for name, value in asdict(self).items() if name != "out"}
