"""The ``drv`` command: the place where everything is put together.

Nothing heavy is imported before a subcommand runs, so that help comes at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
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

    Takes about five minutes on two cores; needs no keys, no GPU and no network.
    """

    def __post_init__(self) -> None:
        """Values are checked when it runs, where a wrong one is one line."""

    def run(self) -> None:
        """Run the demo."""
        from trainers.demo import run_demo

        values = {field.name: getattr(self, field.name) for field in fields(DemoConfig)}
        run_demo(DemoConfig(**values))


@dataclass(frozen=True)
class Train:
    """Train a model: sft, grpo, igpo, or a trainer of your own; drv train lists them."""

    arguments: tyro.conf.Positional[tuple[str, ...]] = ()
    """The trainer's name, then its settings."""

    def run(self) -> None:
        """Run the trainer."""
        from trainers.commands.train import run_train

        run_train(self.arguments)


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
    | Annotated[Train, tyro.conf.subcommand("train")]
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
    given = tuple(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ("train",):  # whose options its settings make
        return guarded(Train(given[1:]).run)
    description = "Deep-research agents: their environment and their training."
    command = tyro.cli(Command, prog="drv", description=description, args=given)  # type: ignore[call-overload]
    return guarded(command.run)


def guarded(work: Callable[[], None]) -> int:
    """Do the work; what :func:`main` returns."""
    from drv_env.errors import DrvError

    try:
        work()
        sys.stdout.flush()
    except KeyboardInterrupt:
        sys.stderr.write("\nStopped.\n")
        return 130
    except DrvError as error:
        lines = (line.strip() for line in str(error).splitlines())  # other libraries' words too
        sys.stderr.write(f"drv: {' '.join(filter(None, lines))}\n")
        return 1
    except Exception as error:
        said = _refused_by_the_system(error)
        if said is None:
            raise
        sys.stderr.write(said)
        return 1
    return 0


def _refused_by_the_system(error: Exception) -> str | None:
    """A line for a full disk, or a standard output that takes no more; None for anything else.

    Files that we write are named where it happens; what comes here was printed.
    """
    from drv_env.whole_files import disk_fault

    reason = disk_fault(error)
    if isinstance(error, BrokenPipeError):
        said = ""  # the reader has seen enough
    elif reason is not None:
        said = f"drv: the standard output, or a file without a name, can't be written: {reason}\n"
    else:
        return None
    with suppress(OSError, ValueError):  # Python would try it once more at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return said


if __name__ == "__main__":
    sys.exit(main())
