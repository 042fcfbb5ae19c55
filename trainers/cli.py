"""The ``drv`` command: the place where everything is put together.

Nothing heavy is imported before a subcommand runs, so that help comes at once.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Run the whole path once, small: expert, behaviour cloning, IGPO, evaluation.

    Takes about four minutes on two cores; needs no keys, no GPU and no network.
    """

    seed: int = 0
    """Decides the webs, the model and the sampling."""
    out: Path = Path("runs/demo")
    """Folder for trajectories, metrics and checkpoint."""
    algorithm: Literal["igpo", "grpo"] = "igpo"
    """The published method, or its baseline without information gain."""
    rl_steps: int = 40
    """Rollout batches of 8 questions × 8 rollouts."""
    expert_episodes: int = 2400
    """Trajectories of the expert to clone."""
    questions: int = 192
    """Held-out questions of each evaluation."""

    def run(self) -> None:
        """Run it."""
        from trainers.demo import DemoConfig, run_demo

        run_demo(
            DemoConfig(
                seed=self.seed,
                out=self.out,
                algorithm=self.algorithm,
                rl_steps=self.rl_steps,
                expert_episodes=self.expert_episodes,
                questions=self.questions,
            )
        )


Command = Annotated[Demo, tyro.conf.subcommand("demo", description=Demo.__doc__)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run ``drv``; exits with 1 on an error that the user can mend, 130 on Ctrl-C."""
    command = tyro.extras.subcommand_cli_from_dict({"demo": Demo}, args=arguments)
    del command
