"""What a cassette holds: recordings, their keys, and both as rows of the file.

Pure functions and records; no file is touched here.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from drv_env.errors import SettingError


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded result.

    Attributes:
        text: the result; any text, lone surrogates among it.
        status: how it went, such as ``ok`` or ``empty``; never ``failed``.
        data: the same in structured form, as JSON has it: a tuple comes back as a list, and
            what JSON does not know as its ``repr``.
        latency: seconds that the original took.
        cost: price of the original in US dollars.
        recorded_at: seconds since 1970; None in a recording that is yet to be put, which
            gets the store's time.
        provenance: where it came from, as JSON has it.
    """

    text: str
    status: str = "ok"
    data: Any = None
    latency: float = 0.0
    cost: float = 0.0
    recorded_at: float | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """A recording with what finds it.

    Attributes:
        kind: a tool's name, or another kind of result.
        key: what was asked, a JSON object.
        value: what came back.
        namespace: the world it was asked in; "" where there is only one.
    """

    kind: str
    key: Mapping[str, Any]
    value: Recorded
    namespace: str = ""


class Row(NamedTuple):
    """An entry as the file has it, with its texts unpacked and its JSON as text."""

    kind: str
    namespace: str
    key: str
    text: str
    status: str
    data: str
    latency: float
    cost: float
    recorded_at: float
    provenance: str

    @property
    def address(self) -> tuple[str, str, str]:
        """What finds it: kind, namespace, key."""
        return (self.kind, self.namespace, self.key)

    @property
    def content(self) -> tuple[str, str, str]:
        """What was recorded: text, status, data."""
        return (self.text, self.status, self.data)


def canonical(key: Mapping[str, Any]) -> str:
    """The text by which keys are compared: JSON, names sorted, no blanks, not escaped.

    Equal JSON gives equal text and different JSON different text.  Lists keep their
    order.  1, 1.0 and true differ.  Unicode is not normalised: an "é" of one character
    and one of two differ.

    Raises:
        TypeError: when the key holds what JSON does not know.

    Example:
        >>> canonical({"url": ["https://a"], "goal": "né"})
        '{"goal":"né","url":["https://a"]}'
    """
    return json.dumps(key, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def to_row(entry: Entry, now: float) -> Row:
    """The entry as a row, recorded ``now`` unless it says when.

    Raises:
        SettingError: when it says that it failed.
        TypeError: when the key holds what JSON does not know.
    """
    value = entry.value
    if value.status == "failed":
        raise SettingError(f"a failed {entry.kind} can't be recorded: {value.text[:200]!r}")
    return Row(
        entry.kind,
        entry.namespace,
        canonical(entry.key),
        value.text,
        str(value.status),
        _json(value.data),
        float(value.latency),
        float(value.cost),
        now if value.recorded_at is None else float(value.recorded_at),
        _json(value.provenance),
    )


def to_entry(row: Row) -> Entry:
    """The inverse of :func:`to_row`."""
    return Entry(row.kind, json.loads(row.key), to_recorded(row), row.namespace)


def to_recorded(row: Row) -> Recorded:
    """The recording alone."""
    return Recorded(
        row.text,
        row.status,
        json.loads(row.data),
        row.latency,
        row.cost,
        row.recorded_at,
        json.loads(row.provenance),
    )


def to_line(row: Row) -> bytes:
    """The row as a line of JSON, in UTF-8."""
    line = {
        "kind": row.kind,
        "namespace": row.namespace,
        "arguments": json.loads(row.key),
        "text": row.text,
        "status": row.status,
        "data": json.loads(row.data),
        "latency": row.latency,
        "cost": row.cost,
        "recorded_at": row.recorded_at,
        "provenance": json.loads(row.provenance),
    }
    try:
        return json.dumps(line, ensure_ascii=False).encode("utf-8") + b"\n"
    except UnicodeEncodeError:  # lone surrogates
        return json.dumps(line).encode("utf-8") + b"\n"


def _json(value: Any) -> str:
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """``value`` as JSON can have it."""
    if value is None or type(value) in (str, bool, int, float):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, str) else repr(value)
