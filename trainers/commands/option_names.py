"""What the user of a command calls a setting: errors name the option, as it is typed.

Records and functions know their own names (``max_turns``), which are the options' with other
marks: one place puts the option there, for every command.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, get_type_hints

if TYPE_CHECKING:
    from drv_env.errors import DrvError

_NAME = re.compile(r"(?<![\w./\\'\"-])(?<!: )[a-z]+(?:[._][a-z]+)+(?![\w/\\'\"]|\.\w)")
"""A name that is no English word, no part of a path or a quoted value, and none that a file has,
which stands behind the file's name and a colon."""


_INSTEAD = {
    "api_key_env": ("api_key", "key in the variable that --api-key-env names"),
    "max_requests": ("max_in_flight", "--max-requests"),
}
"""By an option's field: what takes its value, and what messages say in that one's place."""


def as_option(name: str) -> str:
    """The option of a field.

    Example:
        >>> as_option("rl.learning_rate")
        '--rl.learning-rate'
    """
    return "--" + name.replace("_", "-")


def options_of(command: Any) -> dict[str, str]:
    """The options of a command by the names of their fields, those of its parts included.

    Args:
        command: an instance of its dataclass.
    """
    found: dict[str, str] = {}
    hints = get_type_hints(type(command), include_extras=True)
    for field in dataclasses.fields(command):
        value = getattr(command, field.name)
        if dataclasses.is_dataclass(value):
            found |= options_of(value)
            continue
        metadata = getattr(hints[field.name], "__metadata__", ())
        if any("Positional" in repr(each) for each in metadata):
            continue
        names = [name for each in metadata if (name := getattr(each, "name", None))]
        found[field.name] = as_option(names[0] if names else field.name)
    return found | dict(_INSTEAD[name] for name in found if name in _INSTEAD)


def dotted_options(settings: Any) -> dict[str, str]:
    """The options of ``drv train`` by dotted place, and by its last parts where those are enough.

    Args:
        settings: an instance of a trainer's settings, with its sections.
    """
    places = list(_places(settings))
    ends = [(end, place) for place in places for end in _ends(place)]
    often = Counter(end for end, _ in ends)
    found = {end: place for end, place in ends if often[end] == 1}
    return {name: as_option(place) for name, place in {**found, **{p: p for p in places}}.items()}


def _ends(place: str) -> Iterator[str]:
    parts = place.split(".")
    return (".".join(parts[at:]) for at in range(1, len(parts)))


def _places(settings: Any, above: str = "") -> Iterator[str]:
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            yield from _places(value, f"{above}{field.name}.")
        else:
            yield f"{above}{field.name}"


def in_options(error: DrvError, options: Mapping[str, str]) -> str:
    """What the error says, with options in place of the settings that it names.

    Example:
        >>> from drv_env.errors import SettingError
        >>> error = SettingError("seed must be at least 0, got -1", setting="seed")
        >>> in_options(error, {"seed": "--seed"})
        '--seed must be at least 0, got -1'
        >>> error = SettingError("the rules hold back 5 tokens (max_turn_tokens)")
        >>> in_options(error, {"max_turn_tokens": "--max-turn-tokens"})
        'the rules hold back 5 tokens (--max-turn-tokens)'
    """
    from drv_env.errors import SettingError, TaskDataError

    told = str(error)
    if told.startswith("--"):
        return told  # said in options already
    if isinstance(error, SettingError) and error.setting and error.setting in options:
        told = str(error.called(options[error.setting]))
    of_a_file = isinstance(error, TaskDataError)  # whose columns have names without a dot

    def named(match: re.Match[str]) -> str:
        name = match[0]
        return name if of_a_file and "." not in name else options.get(name, name)

    return _NAME.sub(named, told)


@contextmanager
def naming_options(options: Mapping[str, str]) -> Iterator[None]:
    """Let errors that leave the block name the command's options.

    Raises:
        DrvError: the same one, saying so.
    """
    from drv_env.errors import DrvError

    try:
        yield
    except DrvError as error:
        error.args = (in_options(error, options), *error.args[1:])
        raise
