"""Every subcommand of ``drv``, and which of them the arguments mean."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any

import tyro

from trainers.commands.ask import AskCommand
from trainers.commands.cassette import Cassette
from trainers.commands.data import Data
from trainers.commands.doctor import Doctor
from trainers.commands.eval import EvalCommand
from trainers.commands.judge import JudgeCommand
from trainers.commands.option_names import naming_options, options_of
from trainers.commands.rollout import RolloutCommand
from trainers.commands.world import World
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
        from drv_env import __version__

        sys.stdout.write(__version__ + "\n")


Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[AskCommand, tyro.conf.subcommand("ask")]
    | Annotated[EvalCommand, tyro.conf.subcommand("eval")]
    | Annotated[RolloutCommand, tyro.conf.subcommand("rollout")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Doctor, tyro.conf.subcommand("doctor")]
    | Annotated[Data, tyro.conf.subcommand("data")]
    | Annotated[World, tyro.conf.subcommand("world")]
    | Annotated[Cassette, tyro.conf.subcommand("cassette")]
    | Annotated[JudgeCommand, tyro.conf.subcommand("judge")]
    | Annotated[Version, tyro.conf.subcommand("version")]
)


def run_command(given: Sequence[str]) -> None:
    """Run what these arguments mean.

    Raises:
        SystemExit: after help, and for arguments that mean nothing.
    """
    if given[:1] in (("--version",), ("-V",)):
        Version().run()
        return
    if given[:1] == ("train",):  # whose options its settings make
        Train(tuple(given[1:])).run()
        return
    description = "Deep-research agents: their environment and their training."
    description += " drv --version says which version this is."
    command: Any = tyro.cli(Command, prog="drv", description=description, args=given)  # type: ignore[call-overload]
    with naming_options(options_of(command)):
        command.run()
