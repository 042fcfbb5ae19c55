"""``drv data``: recorded trajectories, from raw files to rows for training.

The commands stand in modules beside this one; nothing heavy is imported before one runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro

from trainers.commands.data_clean import DataClean, DataReport
from trainers.commands.data_files import (
    DataConvert,
    DataReplayCheck,
    DataRows,
    DataShow,
    DataStats,
    DataWeb,
)

DataCommand = (
    Annotated[DataClean, tyro.conf.subcommand("clean")]
    | Annotated[DataReport, tyro.conf.subcommand("report")]
    | Annotated[DataRows, tyro.conf.subcommand("rows")]
    | Annotated[DataShow, tyro.conf.subcommand("show")]
    | Annotated[DataStats, tyro.conf.subcommand("stats")]
    | Annotated[DataConvert, tyro.conf.subcommand("convert")]
    | Annotated[DataWeb, tyro.conf.subcommand("web")]
    | Annotated[DataReplayCheck, tyro.conf.subcommand("replay-check")]
)


@dataclass(frozen=True)
class Data:
    """Recorded trajectories: cleaning, reading, converting, replaying them."""

    command: Annotated[DataCommand, tyro.conf.arg(name="")]

    def run(self) -> None:
        """Run the command."""
        self.command.run()
