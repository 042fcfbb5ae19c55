"""The failures that can cross a boundary of the system, one type each.

A boundary is a place where the outside world answers: a tool, a judge, a model
engine, a file of tasks, a user's setting.  Whatever escapes such a place is
attributed with :func:`boundary`; what ends an episode is recorded in one place,
:meth:`drv_env.episode.Episode.break_off`.  Anything else is a bug and keeps its
own type.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class DrvError(Exception):
    """Base of every error this package raises on purpose."""


class ToolError(DrvError):
    """A tool could not do its work (unreachable, timed out, wrong reply).

    Args:
        message: what went wrong, in words that the agent may be shown; without keys.
        kind: the cause in one word, for metrics: ``failed`` where nothing better is known;
            docs/tools.md lists those in use.
        retryable: the same call may succeed a little later.
        retry_after: seconds that the far side asked to wait first, or None.
    """

    def __init__(
        self,
        message: str = "",
        *,
        kind: str = "failed",
        retryable: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[Any, ...]:
        details = {
            "kind": self.kind,
            "retryable": self.retryable,
            "retry_after": self.retry_after,
        }
        return _restore_tool_error, (type(self), self.args, details)


class JudgeError(DrvError):
    """An outcome could not be judged.  Never to be read as a reward of 0."""


class EngineError(DrvError):
    """A model engine was lost or refused a request."""


class TaskDataError(DrvError):
    """A question or a file of questions can't be used."""


class SettingError(DrvError, ValueError):
    """A setting can't work; the message names it, its value and what would."""


@contextmanager
def boundary(kind: type[DrvError], what: str) -> Iterator[None]:
    """Attribute any exception that leaves the block to ``kind``.

    A :class:`DrvError` passes as it is; cancellation, Ctrl-C and interpreter exit
    are not failures of the far side and pass too.

    Example:
        >>> with boundary(ToolError, "search"):
        ...     raise OSError("connection reset")
        Traceback (most recent call last):
            ...
        drv_env.errors.ToolError: search: OSError: connection reset
    """
    try:
        yield
    except DrvError:
        raise
    except Exception as error:
        raise kind(f"{what}: {type(error).__name__}: {error}") from error


def _restore_tool_error(
    kind: type[ToolError], args: tuple[Any, ...], details: dict[str, Any]
) -> ToolError:
    return kind(*args, **details)
