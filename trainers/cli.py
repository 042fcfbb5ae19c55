"""The ``drv`` command: the place where everything is put together.

Nothing heavy is imported before a subcommand runs, so that help comes at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Annotated

import tyro

from trainers.commands.ask import AskCommand
from trainers.commands.cassette import Cassette
from trainers.commands.data import Data
from trainers.commands.doctor import Doctor
from trainers.commands.eval import EvalCommand
from trainers.commands.judge import JudgeCommand
from trainers.commands.rollout import RolloutCommand
from trainers.demo_config import DemoConfig


@dataclass(frozen=True, kw_only=True)
class Demo(DemoConfig):
    """Run the whole path once, small: expert, behaviour cloning, IGPO, evaluation.

    Takes about four minutes on two cores; needs no keys, no GPU and no network.
    """

    def run(self) -> None:
        """Run the demo."""
        from trainers.demo import run_demo

        run_demo(self)


@dataclass(frozen=True)
class Version:
    """Print the version of drv-env."""

    def run(self) -> None:
        """Print it."""
        sys.stdout.write(metadata.version("drv-env") + "\n")


Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[AskCommand, tyro.conf.subcommand("ask")]
    | Annotated[EvalCommand, tyro.conf.subcommand("eval")]
    | Annotated[RolloutCommand, tyro.conf.subcommand("rollout")]
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
