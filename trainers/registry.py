"""Names for what users plug in: trainers, and ways from rewards to advantages.

A registry is filled by importing the module that registers; the commands import what a
configuration names under ``plugins`` before they look a name up.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from drv_env.errors import SettingError, boundary
from replay.trajectory import Trajectory
from trainers.advantages import Advantages, advantages_of

T = TypeVar("T")


class Registry(Generic[T]):
    """Things of one kind by their names.

    Args:
        kind: what they are, for messages: ``trainer``.

    Example:
        >>> colours: Registry[int] = Registry("colour")
        >>> _ = colours.register("red")(0xFF0000)
        >>> colours["red"] == 0xFF0000, colours.names()
        (True, ['red'])
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._things: dict[str, T] = {}
        self._ours: set[str] = set()

    def register(self, name: str, ours: bool = False) -> Callable[[T], T]:
        """A decorator that registers what it is put on, and gives it back.

        A name that is registered again means the new thing, as where a module or a
        notebook's cell is run again.

        Args:
            name: what it is called.
            ours: it belongs to this package, and nothing takes its name.

        Raises:
            SettingError: when the name belongs to this package.
        """

        def register(thing: T) -> T:
            if name in self._ours:
                raise SettingError(
                    f"{name!r} is a {self.kind} of this package's; take another name"
                )
            self._things[name] = thing
            if ours:
                self._ours.add(name)
            return thing

        return register

    def __getitem__(self, name: str) -> T:
        """The thing of that name.

        Raises:
            SettingError: when there is none, naming those there are.
        """
        if name not in self._things:
            raise SettingError(
                f"there is no {self.kind} {name!r}, only {', '.join(self.names())}; one of your "
                "own is known once the module that registers it is imported (plugins)"
            )
        return self._things[name]

    def __contains__(self, name: object) -> bool:
        return name in self._things

    def names(self) -> list[str]:
        """All names, in order."""
        return sorted(self._things)


AdvantageFunction = Callable[[Sequence[Trajectory], Sequence[int], Any], Advantages]
"""Advantages of a step: ``function(trajectories, groups, config)``.

Trajectories are whole (no broken ones), with the gains in their records where
``config.credit.information_gain`` is set; ``groups`` has the group of each; ``config`` is the
:class:`trainers.rl_config.RLConfig`.  :meth:`trainers.advantages.Advantages.of` makes the
result of one array of numbers a rollout.
"""

ADVANTAGES: Registry[AdvantageFunction] = Registry("way to advantages")
"""What ``RLConfig.advantages`` may name."""


@ADVANTAGES.register("credit", ours=True)
def by_credit(trajectories: Sequence[Trajectory], groups: Sequence[int], config: Any) -> Advantages:
    """As ``config.credit`` says: IGPO, GRPO and what is between (:mod:`trainers.advantages`)."""
    return advantages_of(
        [item.rewards for item in trajectories],
        groups,
        config.credit,
        [[turn.tool for turn in item.turns] for item in trajectories],
        config.gain.tools,
    )


def import_plugins(modules: Iterable[str]) -> None:
    """Import modules that register something.

    Args:
        modules: names as in ``import``, found on ``sys.path`` and in the current folder.

    Raises:
        SettingError: naming the one that can't be imported.
    """
    here = str(Path.cwd())
    for name in modules:
        if here not in sys.path:
            sys.path.append(here)
        with boundary(SettingError, f"the plugin {name} can't be imported"):
            importlib.import_module(name)
