"""Calls made of parts: several queries, several urls, each with a fate of its own.

A call that asks for several things at once can fail in part.  Its result's ``data`` is
then a list of records, one a part; each has ``status``, and ``error``, ``kind`` and
``retries`` where something went wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from drv_env.errors import ToolError
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
    }
)
"""Kinds that say: this page can't be read, however often it is tried.  No fault of the tool."""


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
    """

    asked: str
    value: T | None = None
    status: Status = Status.OK
    error: ToolError | None = None
    retries: list[str] = field(default_factory=list)
    cost: float = 0.0

    def record(self) -> dict[str, Any]:
        """The part's fate for ``data``."""
        record: dict[str, Any] = {"status": self.status.value}
        if self.error is not None:
            record["error"], record["kind"] = str(self.error), self.error.kind
        if self.retries:
            record["retries"] = list(self.retries)
        return record


def page_status(error: ToolError) -> Status:
    """What a failure to open a page means: the tool's fault, or a fact about the page."""
    if error.kind in MISSING and not error.retryable:
        return Status.EMPTY
    return Status.REFUSED if error.kind in REFUSALS else Status.FAILED


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
    """Whether a result's ``data`` shows no part that failed: fit to be kept for later."""
    if not isinstance(data, list | tuple):
        return True
    return not any(
        isinstance(part, dict) and part.get("status") == Status.FAILED.value for part in data
    )
