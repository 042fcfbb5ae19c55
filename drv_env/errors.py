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


class DrvError(Exception):
    """Base of every error this package raises on purpose."""


class ToolError(DrvError):
    """A tool could not do its work (unreachable, timed out, wrong reply)."""


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
