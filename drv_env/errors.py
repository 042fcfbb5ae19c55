"""The failures that can cross a boundary of the system, one type each.

A boundary is a place where the outside world answers: a tool, a judge, a model
engine, a file of tasks, a user's setting.  Whatever escapes such a place is
attributed with :func:`boundary`; what ends an episode is recorded in one place,
:meth:`drv_env.episode.Episode.break_off`.  Anything else is a bug and keeps its
own type.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from drv_env.printable import printable
from drv_env.secrets import mask

LONGEST_REASON = 20_000
"""Characters of an exception's text that are kept where nothing else is said."""


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
        cost: US dollars that the call cost all the same.
    """

    def __init__(
        self,
        message: str = "",
        *,
        kind: str = "failed",
        retryable: bool = False,
        retry_after: float | None = None,
        cost: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.retryable = retryable
        self.retry_after = retry_after
        self.cost = cost

    def said(self, message: str) -> ToolError:
        """The same failure in other words."""
        return _restore_tool_error(type(self), (message,), self._details())

    def _details(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "retryable": self.retryable,
            "retry_after": self.retry_after,
            "cost": self.cost,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_tool_error, (type(self), self.args, self._details())


class SiteError(ToolError):
    """A page could not be read because of the site that it stands on.

    A fact about that site, whether it passes or not; nothing against the tool that asked.
    """


class JudgeError(DrvError):
    """An outcome could not be judged.  Never to be read as a reward of 0."""


class EngineError(DrvError):
    """A model engine was lost or refused a request."""


class TaskDataError(DrvError):
    """A question or a file of questions can't be used."""


class SettingError(DrvError, ValueError):
    """A setting can't work; the message names it, its value and what would.

    Args:
        message: begins with the setting's name, where one is given.
        setting: the name, for whoever calls it otherwise: an option of the command line, say.

    Example:
        >>> error = SettingError("seed must be at least 0, got -1", setting="seed")
        >>> str(error.called("--world"))
        '--world must be at least 0, got -1'
    """

    def __init__(self, message: str = "", *, setting: str | None = None) -> None:
        super().__init__(message)
        self.setting = setting

    def called(self, name: str) -> SettingError:
        """The same with the setting under another name; of a list's item, the list's."""
        told = str(self)
        if self.setting is None or not told.startswith(self.setting):
            return self
        rest = re.sub(r"^\[\d+\]", "", told.removeprefix(self.setting))
        return type(self)(name + rest, setting=name)


class DiskError(SettingError):
    """A file can't be written where it was asked for; the message names it and says what to do."""


@contextmanager
def settings_called(**names: str) -> Iterator[None]:
    """Call settings otherwise in errors that leave the block: ``seed="world"``, for instance.

    Raises:
        SettingError: with the other name in its message.
    """
    try:
        yield
    except SettingError as error:
        if error.setting in names:
            raise error.called(names[error.setting]) from error.__cause__
        raise


@contextmanager
def boundary(kind: type[DrvError], what: str, longest: int = LONGEST_REASON) -> Iterator[None]:
    """Attribute any exception that leaves the block to ``kind``.

    A :class:`DrvError` passes as it is; cancellation, Ctrl-C and interpreter exit
    are not failures of the far side and pass too.  The text is that of :func:`said_by`.

    Example:
        >>> with boundary(ToolError, "search"):
        ...     raise OSError("connection reset")
        Traceback (most recent call last):
            ...
        drv_env.errors.ToolError: search: OSError: connection reset
    """
    try:
        yield
    except (DrvError, KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError):
        raise
    except BaseException as error:  # whatever class the far side has made up
        name = printable(mask(type(error).__name__))[:100]
        raise kind(f"{what}: {name}: {said_by(error, longest)}") from error


def said_by(error: BaseException, longest: int = LONGEST_REASON) -> str:
    """What an exception says, fit to be shown and stored.

    Keys are masked, control characters written out, and what is longer than ``longest``
    characters is cut.  Of an exception that can't say anything, that is said.
    """
    try:
        text = str.__str__(str(error))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as fault:  # noqa: BLE001 - its __str__ is the far side's too
        return f"(its text can't be had: {type(fault).__name__})"
    text = mask(text)
    cut = " …" if len(text) > longest else ""
    return printable(text[:longest]) + cut


def _restore_tool_error(
    kind: type[ToolError], args: tuple[Any, ...], details: dict[str, Any]
) -> ToolError:
    return kind(*args, **details)
