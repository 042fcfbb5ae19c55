"""The ``drv`` command: the place where everything is put together.

Nothing heavy is imported before a subcommand runs, so that help comes at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

import tyro

from trainers.commands.cassette import Cassette
from trainers.commands.data import Data
from trainers.commands.doctor import Doctor
from trainers.commands.judge import JudgeCommand


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
    worlds: int = 16
    """Webs to train in; they share their names and differ in their facts."""
    expert_episodes: int = 6400
    """Trajectories of the expert to clone."""
    copy_steps: int = 1000
    """The most steps of learning to copy, before cloning."""
    rl_steps: int = 40
    """Rollout batches of 8 questions × 8 rollouts."""
    questions: int = 192
    """Held-out questions of each evaluation."""

    def run(self) -> None:
        """Run the demo."""
        from trainers.demo import DemoConfig, run_demo

        run_demo(
            DemoConfig(
                seed=self.seed,
                out=self.out,
                algorithm=self.algorithm,
                worlds=self.worlds,
                expert_episodes=self.expert_episodes,
                copy_steps=self.copy_steps,
                rl_steps=self.rl_steps,
                questions=self.questions,
            )
        )


@dataclass(frozen=True)
class Version:
    """Print the version of drv-env."""

    def run(self) -> None:
        """Print it."""
        sys.stdout.write(metadata.version("drv-env") + "\n")


Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Doctor, tyro.conf.subcommand("doctor")]
    | Annotated[Data, tyro.conf.subcommand("data")]
    | Annotated[Cassette, tyro.conf.subcommand("cassette")]
    | Annotated[JudgeCommand, tyro.conf.subcommand("judge")]
    | Annotated[Version, tyro.conf.subcommand("version")]
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``drv``.

    Returns:
        0, or 1 after an error that the user can mend (one line on standard error), or 130
        after Ctrl-C.
    """
    description = "Deep-research agents: their environment and their training."
    command = tyro.cli(Command, prog="drv", description=description, args=arguments)  # type: ignore[call-overload]
    return _guarded(command.run)


def _guarded(work: Callable[[], None]) -> int:
    from drv_env.errors import DrvError

    try:
        work()
    except KeyboardInterrupt:
        sys.stderr.write("\nStopped.\n")
        return 130
    except DrvError as error:
        sys.stderr.write(f"drv: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
