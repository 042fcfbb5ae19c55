"""Warnings about a user's tools: each is told once of each tool, however often it happens."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from drv_env.secrets import get_logger

_LOG = get_logger("drv_env.tools")
_lock = threading.Lock()
_told: dict[int, tuple[Any, set[tuple[str, str]]]] = {}
"""By the identity of the tools: what lets go of them, and what was told."""


def warn_once(owner: object, name: str, message: str, rule: str | None = None) -> None:
    """Warn that something of ``owner``'s breaks a rule, unless that was said before.

    Args:
        owner: the tools, or whatever else is at fault.
        name: what it is called, such as ``the tool 'search'``.
        message: what it did, in words that follow the name.
        rule: what is told once; the message where nothing else is said.
    """
    told = (name, message if rule is None else rule)
    with _lock:
        known = _told.get(id(owner))
        if known is None:
            known = _told[id(owner)] = (_release(owner), set())
        if told in known[1]:
            return
        known[1].add(told)
    _LOG.warning("%s %s", name, message)


def was_told(owner: object, rule: str) -> bool:
    """Whether :func:`warn_once` has told of any breach of ``rule`` by ``owner``'s."""
    known = _told.get(id(owner))
    return known is not None and any(told == rule for _, told in tuple(known[1]))


def _release(owner: object) -> Any:
    """A reference that forgets what was told once ``owner`` is gone."""
    number = id(owner)
    try:
        return weakref.ref(owner, lambda gone: _told.pop(number, None))
    except TypeError:  # no weak references to such objects: it stays
        return owner
