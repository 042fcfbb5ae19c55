"""What a setting may be: one check of kinds and ranges for every record and every argument.

A record of settings calls :func:`check_fields` when it is made, which reads the kind of each
field off its annotation; an argument that is no field is checked by :func:`checked_whole` or
:func:`checked_number`.  NaN is never a number, True never a whole number, and infinity only
where a range says so.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from drv_env.errors import SettingError

LARGEST = 2**63 - 1
"""The largest whole number that a setting may be: files and libraries keep them in int64."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The range of a number.

    Attributes:
        least: the smallest value.
        most: the largest value.
        least_open: whether ``least`` itself is left out.
        most_open: whether ``most`` itself is left out.
        infinite: whether infinity counts as a number.
        unit: what is counted, for the message; may be empty.
    """

    least: float = -math.inf
    most: float = math.inf
    least_open: bool = False
    most_open: bool = False
    infinite: bool = False
    unit: str = ""

    def hold(self, value: float) -> bool:
        """Whether the number is in the range."""
        above = value > self.least if self.least_open else value >= self.least
        below = value < self.most if self.most_open else value <= self.most
        return above and below

    def __str__(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        if self.most == math.inf:
            return f"{'above' if self.least_open else 'at least'} {self.least}{unit}"
        if not (self.least_open or self.most_open):
            return f"from {self.least} to {self.most}{unit}"
        opened, closed = "(" if self.least_open else "[", ")" if self.most_open else "]"
        return f"in {opened}{self.least}, {self.most}{closed}{unit}"


def at_least(least: float, unit: str = "", *, infinite: bool = False) -> Limits:
    """Numbers from ``least`` on.

    Example:
        >>> str(at_least(1))
        'at least 1'
    """
    return Limits(least=least, infinite=infinite, unit=unit)


def above(least: float, unit: str = "", *, infinite: bool = False) -> Limits:
    """Numbers greater than ``least``.

    Example:
        >>> str(above(0, "seconds"))
        'above 0 seconds'
    """
    return Limits(least=least, least_open=True, infinite=infinite, unit=unit)


def between(
    least: float, most: float, *, least_open: bool = False, most_open: bool = False
) -> Limits:
    """Numbers from ``least`` to ``most``.

    Example:
        >>> str(between(0, 1, least_open=True))
        'in (0, 1]'
    """
    return Limits(least, most, least_open, most_open)


SEED = at_least(0)
"""Of every seed: no generator takes a negative one."""

ANY = Limits()


def checked_whole(name: str, value: Any, limits: Limits = ANY) -> int:
    """The value as an int, NumPy's included.

    Args:
        name: of the setting, for the message.
        value: what was given.
        limits: where it must lie; never beyond :data:`LARGEST`.

    Raises:
        SettingError: naming setting and value, when it is no whole number (a text, True,
            1.5, NaN) or out of range.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise _refused(name, f"must be a whole number, got {shown(value)}")
    number = int(value)
    if not limits.hold(number):
        raise _refused(name, f"must be {limits}, got {shown(number)}")
    if not -LARGEST <= number <= LARGEST:
        raise _refused(name, f"must be at most {LARGEST} (2^63 - 1), got {shown(number)}")
    return number


def checked_number(name: str, value: Any, limits: Limits = ANY) -> float:
    """The value as a number: an int stays one, NumPy's become Python's.

    Raises:
        SettingError: naming setting and value, when it is no number (a text, True, NaN),
            infinite without leave, or out of range.
    """
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return checked_whole(name, value, limits)
    if not isinstance(value, float | np.floating) or math.isnan(value):
        raise _refused(name, f"must be a number, got {shown(value)}")
    number = float(value)
    if not limits.hold(number):
        raise _refused(name, f"must be {limits}, got {number}")
    if math.isinf(number) and not limits.infinite:
        wanted = "" if limits.least == -math.inf else f"{limits} and "
        raise _refused(name, f"must be {wanted}finite, got {number}")
    return number


def checked_seed(value: Any) -> int:
    """The value of an argument ``seed``: a whole number of at least 0, however large.

    Records keep to :data:`LARGEST`: their seeds go into files and to other libraries.

    Raises:
        SettingError: naming the value.
    """
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or value < 0:
        raise _refused("seed", f"must be a whole number of at least 0, got {shown(value)}")
    return int(value)


def checked_shares(parts: Mapping[str, Any]) -> dict[str, float]:
    """Shares by name: numbers above 0 that sum to at most 1.

    Raises:
        SettingError: naming them.
    """
    numeric = all(
        isinstance(share, int | float | np.number) and not isinstance(share, bool)
        for share in parts.values()
    )
    positive = numeric and all(share > 0 for share in parts.values())
    if not parts or not positive or not sum(parts.values()) <= 1 + 1e-9:
        raise _refused("parts", f"must be above 0 and sum to at most 1, got {shown(dict(parts))}")
    return {part: float(share) for part, share in parts.items()}


def _refused(name: str, why: str) -> SettingError:
    return SettingError(f"{name} {why}", setting=name.partition("[")[0])


def check_fields(record: Any, **limits: Limits) -> None:
    """Check every field of a record that has a plain kind; NumPy's numbers become Python's.

    Kinds are whole numbers, numbers, True or False, texts, the values of a ``Literal``, and
    tuples of these; any of them may be None where the annotation says so.  Fields of other
    kinds are left to the record.

    Args:
        record: an instance of a dataclass, whose annotations can be evaluated.
        limits: ranges, by field; of a tuple, each item's.

    Raises:
        SettingError: naming the first field that can't work, and its value.
    """
    kind: Any = type(record)
    hints = _hints(kind)
    for each in fields(record):
        value = getattr(record, each.name)
        found = _checked(each.name, value, hints[each.name], limits.get(each.name, ANY))
        if found is not value:
            object.__setattr__(record, each.name, found)


def shown(value: Any) -> str:
    """A value for a message: cut, and never failing."""
    try:
        text = repr(value)
    except (ValueError, RecursionError) as error:  # of an int of over 4,300 digits, say
        return f"a {type(value).__name__} that can't be shown ({type(error).__name__})"
    return text if len(text) <= 80 else f"{text[:80]}…"


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _checked(name: str, value: Any, hint: Any, limits: Limits) -> Any:
    if get_origin(hint) in (Union, UnionType):
        choices = [choice for choice in get_args(hint) if choice is not type(None)]
        if value is None and len(choices) < len(get_args(hint)):
            return None
        if len(choices) == 1:
            return _checked(name, value, choices[0], limits)
        if isinstance(value, str) and str in choices:
            return value
        if int in choices and all(choice in (int, str) for choice in choices):
            return checked_whole(name, value, limits)
        return value
    if hint is int:
        return checked_whole(name, value, limits)
    if hint is float:
        return checked_number(name, value, limits)
    if hint is bool:
        if not isinstance(value, bool | np.bool_):
            raise _refused(name, f"must be True or False, got {shown(value)}")
        return bool(value)
    if hint is str and not isinstance(value, str):
        raise _refused(name, f"must be a text, got {shown(value)}")
    if get_origin(hint) is Literal:
        allowed = get_args(hint)
        plain = isinstance(value, str | int) and not isinstance(value, bool)
        if not plain or value not in allowed:
            *most, last = map(str, allowed)
            told = f"{', '.join(most)} or {last}" if most else last
            raise _refused(name, f"may be {told}, got {shown(value)}")
    if get_origin(hint) is tuple:
        return _checked_tuple(name, value, get_args(hint), limits)
    return value


def _checked_tuple(name: str, value: Any, kinds: tuple[Any, ...], limits: Limits) -> Any:
    if not isinstance(value, tuple | list | AbstractSet):
        raise _refused(name, f"must be a tuple, got {shown(value)}")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        kinds = (kinds[0],) * len(value)
    if len(kinds) != len(value):
        raise _refused(name, f"must have {len(kinds)} items, got {shown(value)}")
    items = tuple(
        _checked(f"{name}[{place}]", item, kind, limits)
        for place, (item, kind) in enumerate(zip(value, kinds, strict=True))
    )
    unchanged = all(new is old for new, old in zip(items, value, strict=True))
    return value if unchanged and not isinstance(value, list) else items
