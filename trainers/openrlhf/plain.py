"""Records out of plain values (JSON), by their annotations; the other way is ``asdict``."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


def from_plain(kind: type[T], value: Mapping[str, Any]) -> T:
    """A dataclass out of what ``json.loads(json.dumps(asdict(it)))`` gives.

    Lists become tuples, texts paths and objects dataclasses where the fields' annotations
    say so.

    Raises:
        TypeError: for a name that is no field's.
    """
    hints = get_type_hints(kind)
    return kind(
        **{name: _of(hints[name], item) if name in hints else item for name, item in value.items()}
    )


def _of(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        return _of(kinds[0], value) if len(kinds) == 1 else _untyped(value)
    if dataclasses.is_dataclass(hint):
        return from_plain(cast(type, hint), value)
    if hint is Path:
        return Path(value)
    if origin is tuple:
        inner = get_args(hint)[0]
        return tuple(_of(inner, item) for item in value)
    return value


def _untyped(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
