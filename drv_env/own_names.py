"""The names ``agents``, ``replay`` and ``trainers``: whose they are where Python looks.

They are ordinary words, and others have them too: openai-agents is imported as ``agents``, many
a script lies beside a ``replay.py``.  Two packages of one name share it, for Python's search goes
by folder (docs/design.md); where that can't be, the error says who has the name and what to do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from importlib.machinery import ModuleSpec

from drv_env.errors import DrvError

WITNESSES = {"agents": "agents.players", "replay": "replay.trajectory", "trainers": "trainers.cli"}
"""A module of ours in each."""

REMEDY = (
    "rename or uninstall it, or install drv-env under a name of its own: DRV_ENV_NAMES=inside pip "
    "install drv-env's folder, then import drv_env.agents and so on (docs/design.md)"
)

_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_OWN = not os.path.isdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "agents"))
"""Whether the three have names of their own, and do not stand inside of drv_env."""
_looking: set[str] = set()


class NameTaken(DrvError, ImportError):
    """A package of ours can't be imported, for something else has its name."""


def refuse_others(*names: str) -> None:
    """Refuse to go on where Python finds something else under one of these names.

    Nothing is imported, so that nobody's script is run.

    Raises:
        NameTaken: saying where it is and what to do.
    """
    for name in names if _OWN else ():
        place = place_of_other(name)
        if place is not None:
            raise NameTaken(f"{name} is {place} here, not drv-env's: {REMEDY}", name=name)


def place_of_other(name: str) -> str | None:
    """Where Python finds something else under a name of ours, so that ours is out of reach.

    None where ours is found, alone or beside another package of the name.
    """
    if name in _looking or name not in WITNESSES:
        return None
    _looking.add(name)
    try:
        module = sys.modules.get(name)
        spec = _found(name, None) if module is None else getattr(module, "__spec__", None)
        if module is not None and spec is None:
            return str(getattr(module, "__file__", "a module without a file"))
        if spec is None:
            return None  # there is none at all, which Python says itself
        places = list(spec.submodule_search_locations or ())
        if spec.submodule_search_locations is None:
            return str(spec.origin)
        if _found(WITNESSES[name], places) is None:
            return str(places[0]) if places else str(spec.origin)
        return None
    finally:
        _looking.discard(name)


def owners(name: str) -> list[str]:
    """The other distributions that have a package of this name."""
    found = _distributions().get(name, [])
    return sorted({each for each in found if each.replace("_", "-").lower() != "drv-env"})


@cache
def _distributions() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()  # which reads the record of everything installed


def _found(name: str, places: Sequence[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = None if find is None else find(name, places)
        if spec is not None:
            return spec
    return None


class _Explanation:
    """The last to be asked for a module: of ours, it says why it was not found."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Find nothing.

        Raises:
            NameTaken: for a module that is there, in a package that something else hides.
        """
        top, dot, rest = name.partition(".")
        if not dot or top not in WITNESSES or top in _looking:
            return
        ours = os.path.join(_HOME, top, *rest.split("."))
        if os.path.exists(f"{ours}.py") or os.path.isdir(ours):
            refuse_others(top)


def explain_missing_modules() -> None:
    """Let an import of a module of ours that something else hides say so."""
    if _OWN and _Explanation not in sys.meta_path:
        sys.meta_path.append(_Explanation)  # type: ignore[arg-type]
