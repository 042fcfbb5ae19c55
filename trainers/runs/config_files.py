"""Settings from YAML: merged in order, checked, and every problem said with file and setting.

What is given later wins: the trainer's defaults, a preset, the file.  The command line comes
after all of them (:mod:`trainers.commands.train`).
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import yaml
from pydantic import TypeAdapter, ValidationError

from drv_env.errors import SettingError
from drv_env.json_files import read_text, why_unread

T = TypeVar("T")
Settings = dict[str, Any]
"""Nested mappings of plain values, as a file has them."""


def read_settings(path: str | Path) -> Settings:
    """The mapping that a YAML file holds.

    Raises:
        SettingError: naming the file, when it can't be read or holds something else.
    """
    path = Path(path)
    try:
        found = yaml.load(read_text(path, "utf-8-sig"), _OnceLoader)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"{path} can't be read: {why_unread(error)}") from None
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = "" if where is None else f", line {where.line + 1}"
        told = getattr(error, "problem", None) or "it can't be parsed"
        raise SettingError(f"{path}{line} is no YAML: {told}") from None
    except (ValueError, AttributeError, RecursionError) as error:  # of a value's own type
        raise SettingError(f"{path} holds a value that YAML can't read: {error}") from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise SettingError(f"{path} must hold settings by name, not {type(found).__name__}")
    return found


class _OnceLoader(yaml.SafeLoader):
    """Plain values, every name once: of two the first would be lost without a word."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """A mapping, refused where a name is there twice."""
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, "a name must be a word, not a list or a mapping", key.start_mark
                )
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value} is there twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: Any) -> Any:
        """A value, refused where it holds a zero byte, which no path may."""
        if "\0" in (found := super().construct_scalar(node)):  # type: ignore[no-untyped-call]
            raise yaml.constructor.ConstructorError(
                None, None, "a text holds a zero byte", node.start_mark
            )
        return found


def merged(*layers: Mapping[str, Any]) -> Settings:
    """Settings one over the other, the last on top; sections are merged, all else replaced.

    Example:
        >>> merged({"rl": {"steps": 1, "seed": 2}}, {"rl": {"steps": 3}})
        {'rl': {'steps': 3, 'seed': 2}}
    """
    found: Settings = {}
    for layer in layers:
        for name, value in layer.items():
            below = found.get(name)
            nested = isinstance(below, Mapping) and isinstance(value, Mapping)
            found[name] = merged(below, value) if nested else value  # type: ignore[arg-type]
    return found


def as_settings(instance: Any) -> Settings:
    """A record's values as a file would have them; its sections as mappings."""
    return {
        each.name: as_settings(value) if dataclasses.is_dataclass(value) else value
        for each in dataclasses.fields(instance)
        for value in (getattr(instance, each.name),)
    }


def apply_settings(defaults: T, settings: Mapping[str, Any], source: str) -> T:
    """The defaults with settings over them.

    Numbers may be written as text, for YAML takes ``1e-6`` for text.

    Args:
        defaults: an instance of a dataclass.
        settings: what is to differ.
        source: where they come from, for messages.

    Raises:
        SettingError: as :func:`from_settings`.
    """
    return from_settings(type(defaults), merged(as_settings(defaults), settings), source)


def from_settings(kind: type[T], settings: Mapping[str, Any], source: str) -> T:
    """A dataclass out of settings, whose sections are dataclasses too.

    Args:
        kind: the dataclass.
        settings: by name; lists become tuples, texts paths or numbers where it says so.
        source: where they come from, for messages.

    Raises:
        SettingError: naming source and setting: for an unknown name, with the nearest there
            is; for a value of the wrong kind; for values that can't work.
    """
    for where, name, known in _unknown(kind, settings):
        raise SettingError(f"{source}: there is no setting {'.'.join((*where, name))}{known}")
    for place in _mistaken_numbers(kind, settings):
        raise SettingError(f"{source}: {place} is a number, not true or false")
    try:
        return TypeAdapter(kind).validate_python(settings)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise SettingError(f"{source}: {_told(first)}") from None


def _told(problem: Any) -> str:
    where = ".".join(str(part) for part in problem["loc"] if not _is_branch(part))
    own = problem.get("ctx", {}).get("error")
    if isinstance(own, SettingError):  # a record's own check, which names the value
        if own.setting is not None and where:
            return str(own.called(f"{where}.{own.setting}"))
        return f"{where}: {own}" if where else str(own)
    message = str(problem["msg"])
    return f"{where} can't be {problem['input']!r:.80}: {message[:1].lower()}{message[1:]}"


def _is_branch(part: Any) -> bool:
    """Whether a part of a place names a member of a union, which no setting is called."""
    return isinstance(part, str) and not part.isidentifier()


def _unknown(
    kind: Any, settings: Mapping[Any, Any], where: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Places and names that are no settings, each with a hint."""
    hints = get_type_hints(kind)
    names = [each.name for each in dataclasses.fields(kind)]
    for name, value in settings.items():
        if name not in names:
            near = difflib.get_close_matches(str(name), names, 1)
            hint = f"; do you mean {'.'.join((*where, near[0]))}?" if near else ""
            section = ".".join(where) or "a run"
            yield where, str(name), hint or f"; {section} has {', '.join(names)}"
            continue
        inner = _section(hints[name])
        if inner is not None and isinstance(value, Mapping):
            yield from _unknown(inner, value, (*where, name))


def _mistaken_numbers(
    kind: Any, settings: Mapping[Any, Any], where: tuple[str, ...] = ()
) -> Iterator[str]:
    """Places of numbers that are given as true or false, of which Python makes 1 and 0."""
    hints = get_type_hints(kind)
    for name, value in settings.items():
        inner = _section(hints[name])
        if inner is not None and isinstance(value, Mapping):
            yield from _mistaken_numbers(inner, value, (*where, name))
        elif isinstance(value, bool) and {hints[name], *get_args(hints[name])} & {int, float}:
            yield ".".join((*where, name))


def _section(hint: Any) -> Any:
    """The dataclass that a field holds, also where it may be None; None for plain values."""
    for candidate in (hint, *get_args(hint)):
        if isinstance(candidate, type) and dataclasses.is_dataclass(candidate):
            return candidate
    return None
