"""What a tool returned, checked whole: the one place that says what a result may be.

A tool is anybody's code.  What it returns goes to the agent, into statistics, cassettes and
trajectories, so every field is checked and made plain here, by the boundary
(:func:`drv_env.play.run_call`) and by every layer that reads a result.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from inspect import iscoroutine
from numbers import Real
from typing import Any

from drv_env.errors import ToolError
from drv_env.printable import printable
from drv_env.tools.base import Status, ToolResult

MAX_OBSERVATION_CHARS = 4_000_000
"""A tool that returns more than this has failed; nothing is cut silently."""

MAX_DATA_DEPTH = 64
"""Of lists and objects inside each other in ``data``."""

MAX_DATA_VALUES = 1_000_000
"""Values of any kind in ``data``, keys not counted."""

MAX_DATA_CHARS = 64_000_000
"""Characters in all of ``data``'s texts and keys."""


def checked_result(result: object) -> ToolResult:
    """What a tool returned, as a plain record of plain values.

    ``text`` is a ``str`` of at most :data:`MAX_OBSERVATION_CHARS`, unaltered; ``status`` a
    :class:`Status`; ``cost`` and ``latency`` are finite floats of at least 0; ``data`` is
    JSON: None, bool, int of at most 64 bits, finite float, ``str``, list (tuples become
    lists) or dict with ``str`` keys, a copy, bounded by :data:`MAX_DATA_DEPTH`,
    :data:`MAX_DATA_VALUES` and :data:`MAX_DATA_CHARS`.  Values of subclasses of these become
    plain ones.

    Raises:
        ToolError: naming the field that is something else; kind ``bad_result``.
        Exception: what a property of the result's own raises.
    """
    if not isinstance(result, ToolResult):
        if iscoroutine(result):
            result.close()  # nobody will await it
        raise _bad(f"it returned {_kind(result)} in place of a ToolResult")
    text, status, data = result.text, result.status, result.data
    if not isinstance(text, str) or type(status) is not Status:
        raise _bad(
            f"its result has, in place of a text and a Status: {_kind(text)}, {_kind(status)}"
        )
    text = str.__str__(text)
    if len(text) > MAX_OBSERVATION_CHARS:
        raise _bad(f"its output of {len(text)} characters is over {MAX_OBSERVATION_CHARS}")
    return ToolResult(
        text,
        status,
        _Data().plain(data, 0),
        _amount("latency", result.latency),
        _amount("cost", result.cost),
    )


def checked_clock(clock: Callable[[], Any]) -> float:
    """What a tool's clock says.

    Raises:
        ToolError: when it is no finite number.
        Exception: what the clock raises.
    """
    value = clock()
    if not isinstance(value, Real) or isinstance(value, bool) or not math.isfinite(value):
        raise _bad(f"its clock gives {_shown(value)}, which is no finite number of seconds")
    return float(value)


def _amount(field: str, value: Any) -> float:
    number = isinstance(value, Real) and not isinstance(value, bool)
    try:
        found = float(value) if number else math.nan
    except OverflowError:
        found = math.inf
    if not 0 <= found < math.inf:
        raise _bad(f"its result's {field} must be a finite number of at least 0: {_shown(value)}")
    return found + 0.0  # plain, and no -0.0


class _Data:
    """Copies data, counting."""

    def __init__(self) -> None:
        self.values = 0
        self.chars = 0

    def plain(self, value: Any, depth: int) -> Any:
        self.values += 1
        if self.values > MAX_DATA_VALUES:
            raise _bad(f"its result's data has more than {MAX_DATA_VALUES} values")
        if value is None or value is True or value is False:
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, int):
            return self._whole(value)
        if isinstance(value, float):
            return self._number(value)
        if not isinstance(value, list | tuple | dict):
            raise _bad(f"its result's data is no plain JSON: it holds {_kind(value)}")
        if depth == MAX_DATA_DEPTH:
            raise _bad(f"its result's data is nested more than {MAX_DATA_DEPTH} deep")
        if isinstance(value, dict):
            return {self._key(key): self.plain(item, depth + 1) for key, item in dict.items(value)}
        every = list.__iter__ if isinstance(value, list) else tuple.__iter__
        return [self.plain(item, depth + 1) for item in every(value)]  # type: ignore[arg-type]

    def _text(self, value: str) -> str:
        text = str.__str__(value)
        self.chars += len(text)
        if self.chars > MAX_DATA_CHARS:
            raise _bad(f"its result's data has more than {MAX_DATA_CHARS} characters")
        return text

    def _key(self, value: Any) -> str:
        if not isinstance(value, str):
            raise _bad(f"its result's data is no plain JSON: a key is {_kind(value)}")
        return self._text(value)

    def _whole(self, value: int) -> int:
        number = int.__int__(value)
        if number.bit_length() > 64:
            raise _bad("its result's data holds a whole number of more than 64 bits")
        return number

    def _number(self, value: float) -> float:
        number = float.__float__(value)
        if not math.isfinite(number):
            raise _bad(f"its result's data is no plain JSON: it holds {number}")
        return number


def _bad(message: str) -> ToolError:
    return ToolError(message, kind="bad_result")


def _kind(value: object) -> str:
    return printable(type(value).__name__)[:100]


def _shown(value: object) -> str:
    """A plain number as it is; of anything else the kind, for its ``repr`` is the tool's code."""
    if type(value) is float or (type(value) is int and value.bit_length() <= 64):
        return repr(value)
    return _kind(value)
