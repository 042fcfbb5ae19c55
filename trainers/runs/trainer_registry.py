"""Trainers by name: what ``drv train NAME`` looks up, and where one of your own goes.

A trainer is a record of settings with defaults, and a function that makes a *job* of a
configuration: it checks everything that can be known beforehand and says what it plans; only
the job's ``run`` loads a model.  The built-in ones are in :mod:`trainers.runs.builtin_trainers`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from trainers.registry import Registry

if TYPE_CHECKING:
    from trainers.runs.plan import Plan

Say = Callable[[str], None]
"""Tells the user a line."""


class Job(Protocol):
    """A run that is ready to start."""

    @property
    def plan(self) -> Plan:
        """What it will do and need."""
        ...

    def run(self) -> None:
        """Do it, from the start or from where it was left.

        Raises:
            KeyboardInterrupt: after Ctrl-C, once the state is saved.
            DrvError: when something can't work.
        """
        ...


@dataclass(frozen=True)
class Trainer:
    """One way of training.

    Attributes:
        name: as in ``drv train NAME``.
        summary: a line.
        defaults: its settings: an instance of a frozen dataclass, best one of
            :mod:`trainers.runs.run_config` or derived from it.
        prepare: the job of such an instance, the trainer's name and something that tells
            the user a line.  It refuses settings that can't work with a SettingError, and
            loads no model.
    """

    name: str
    summary: str
    defaults: Any
    prepare: Callable[[Any, str, Say], Job]


TRAINERS: Registry[Trainer] = Registry("trainer", "drv_env.trainers")
"""All that are known; a module under ``plugins`` may add to it."""


def add_trainer(trainer: Trainer, ours: bool = False) -> Trainer:
    """Register it under its name; see :meth:`trainers.registry.Registry.register`.

    Raises:
        SettingError: when the name belongs to this package.
    """
    return TRAINERS.register(trainer.name, ours)(trainer)
