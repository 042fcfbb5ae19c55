"""Calls made of parts: several queries, several urls, each with a fate of its own.

A call that asks for several things at once can fail in part.  Its result's ``data`` is
then a list of records, one a part; each has ``status``, and ``error``, ``kind`` and
``retries`` where something went wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from drv_env.errors import SiteError, ToolError
from drv_env.tools.base import Status

T = TypeVar("T")

MISSING = frozenset({"not_found", "no_such_host"})
"""Kinds that say: there is nothing at this url.  The tool did its work."""

REFUSALS = frozenset(
    {
        "refused_address",
        "bad_url",
        "too_large",
        "too_costly",
        "not_text",
        "redirects",
        "unauthorised",
        "rejected",
        "tls",
        "robot_wall",
    }
)
"""Kinds that say: this page can't be read, however often it is tried.  No fault of the tool."""


PASSING = frozenset(
    {
        "rate_limited",
        "server_error",
        "timeout",
        "connection",
        "no_such_host",
        "bad_reply",
        "robot_wall",
    }
)
"""Kinds that say of a site: it may be otherwise a little later, or from another place."""


@dataclass(slots=True)
class Part(Generic[T]):
    """What became of one query or url.

    Attributes:
        asked: the query or url.
        value: what came back, or None.
        status: how it went.
        error: why it didn't, or None.
        retries: kinds of the failures that were tried again.
        cost: US dollars.
        at_site: its site is being asked, by nobody else than us.
    """

    asked: str
    value: T | None = None
    status: Status = Status.OK
    error: ToolError | None = None
    retries: list[str] = field(default_factory=list)
    cost: float = 0.0
    at_site: bool = False

    def record(self) -> dict[str, Any]:
        """The part's fate for ``data``."""
        record: dict[str, Any] = {"status": self.status.value}
        if self.error is not None:
            record["error"], record["kind"] = str(self.error), self.error.kind
        if self.retries:
            record["retries"] = list(self.retries)
        return record


def page_status(error: ToolError) -> Status:
    """What a failure to open a page means: the tool's fault, or a fact about page or site."""
    if error.kind in MISSING and not error.retryable:
        return Status.EMPTY
    about_it = isinstance(error, SiteError) or error.kind in REFUSALS
    return Status.REFUSED if about_it else Status.FAILED


def joined_status(statuses: Iterable[Status]) -> Status:
    """Of the whole call: ``OK`` if a part is, ``FAILED`` only if all are.

    Otherwise ``EMPTY`` if a part is, else ``REFUSED``.
    """
    found = set(statuses)
    if Status.OK in found:
        return Status.OK
    if found == {Status.FAILED}:
        return Status.FAILED
    return Status.EMPTY if Status.EMPTY in found else Status.REFUSED


def is_whole(data: Any) -> bool:
    """Whether a result's ``data`` shows that it is fit to be kept for later.

    No part of it failed, nor was a site down, or behind a wall, for the time being.
    """
    if not isinstance(data, list | tuple):
        return True
    return not any(isinstance(part, dict) and _passes(part) for part in data)


def is_passing(error: ToolError) -> bool:
    """Whether a site may be otherwise a little later; a wall stands for longer."""
    return isinstance(error, SiteError) and error.kind in PASSING - {"robot_wall"}


def _passes(part: dict[str, Any]) -> bool:
    status = part.get("status")
    if status == Status.REFUSED.value:
        return part.get("kind") in PASSING
    return status == Status.FAILED.value
