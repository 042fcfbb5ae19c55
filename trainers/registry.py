"""Names for what users plug in: trainers, advantages, tools, outcomes, scorers.

A name is looked up in three places, the same for every kind: among what is registered, by the
package and by the modules that a command or configuration names under ``plugins``; as
``module:attribute``, found on ``sys.path`` and in the current folder; and among the entry points
of the kind's group, by which an installed package brings it along.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
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
        group: of the entry points that bring further ones; None looks at none.

    Example:
        >>> colours: Registry[int] = Registry("colour")
        >>> _ = colours.register("red")(0xFF0000)
        >>> colours["red"] == 0xFF0000, colours.names()
        (True, ['red'])
    """

    def __init__(self, kind: str, group: str | None = None) -> None:
        self.kind = kind
        self.group = group
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
            SettingError: when there is none, naming those there are, and when what it names
                can't be imported.
        """
        if name in self._things:
            return self._things[name]
        module, colon, attribute = name.partition(":")
        if colon and module and attribute:
            with _importing(f"the {self.kind} {name}"):
                found: Any = importlib.import_module(importable(module))
                for part in attribute.split("."):
                    found = getattr(found, part)
            return found  # type: ignore[no-any-return]
        for entry in self._entries():
            if entry.name == name:
                with boundary(SettingError, f"the {self.kind} {name} ({entry.value}) can't be had"):
                    return entry.load()  # type: ignore[no-any-return]
        own = "one of your own is module:attribute"
        if self.group is not None:
            own += f", an entry point of the group {self.group}"
        there = f", only {', '.join(self.names())}" if self.names() else ""
        raise SettingError(
            f"there is no {self.kind} {name!r}{there}; {own}, or known once the module that "
            "registers it is imported (plugins)"
        )

    def __contains__(self, name: object) -> bool:
        return name in self._things

    def names(self) -> list[str]:
        """All names that are registered or installed, in order."""
        return sorted({*self._things, *(entry.name for entry in self._entries())})

    def _entries(self) -> Iterable[metadata.EntryPoint]:
        return () if self.group is None else metadata.entry_points(group=self.group)


def made(thing: Any, fits: Callable[[Any], bool], what: str, wanted: str) -> Any:
    """What was plugged in, or what a class or function without arguments makes.

    Args:
        thing: as it was found by its name.
        fits: whether something can be used as it is.
        what: for messages, such as ``the outcome mine:outcome``.
        wanted: what can be used, in words.

    Raises:
        SettingError: when neither can be used.
    """
    if not inspect.isclass(thing) and fits(thing):
        return thing
    found = thing
    if callable(thing) and takes(thing, 0):
        with boundary(SettingError, f"{what} can't be made"):
            found = thing()
        if not inspect.isclass(found) and fits(found):
            return found
    raise SettingError(f"{what} can't be used: it is, or makes, {type(found).__name__}; {wanted}")


def takes(thing: Any, count: int) -> bool:
    """Whether something can be called with so many arguments."""
    try:
        inspect.signature(thing).bind(*[None] * count)
    except (TypeError, ValueError):
        return False
    return True


AdvantageFunction = Callable[[Sequence[Trajectory], Sequence[int], Any], Advantages]
"""Advantages of a step: ``function(trajectories, groups, config)``.

Trajectories are whole (no broken ones), with the gains in their records where
``config.credit.information_gain`` is set; ``groups`` has the group of each; ``config`` is the
:class:`trainers.rl_config.RLConfig`.  :meth:`trainers.advantages.Advantages.of` makes the
result of one array of numbers a rollout.
"""

ADVANTAGES: Registry[AdvantageFunction] = Registry("way to advantages", "drv_env.advantages")
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
    for name in modules:
        with _importing(f"the plugin {name}"):
            importlib.import_module(importable(name))


@contextmanager
def _importing(what: str) -> Iterator[None]:
    """Attribute what goes wrong in the block to ``what``, and to the line of its file."""
    try:
        with boundary(SettingError, f"{what} can't be imported"):
            yield
    except SettingError as error:
        cause = error.__cause__
        trace = traceback.extract_tb(None if cause is None else cause.__traceback__)
        places = [at for at in trace if at.filename != __file__ and at.filename[0] != "<"]
        if not places or "importlib" in Path(places[-1].filename).parts:
            if not isinstance(cause, ModuleNotFoundError):
                raise
            where = f"it is looked for in {Path.cwd()} and among what is installed"
            raise SettingError(f"{error}; {where}") from cause
        place = f"{Path(places[-1].filename).name}, line {places[-1].lineno}"
        raise SettingError(f"{error} ({place})") from cause


def importable(name: str) -> str:
    """The name of a module, once the current folder is among the places it is looked for in."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    return name
