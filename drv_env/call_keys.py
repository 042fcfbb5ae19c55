"""What makes two calls the same: for a recording, for results kept in memory, for repeats.

Queries and goals are compared as :func:`~drv_env.unicode_text.canonical_text`, urls as
:func:`~drv_env.urls.canonical_url`, without blanks around them.  Another tool's arguments
count as they are written: code and data mean what they are to the character.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from drv_env.protocol import Search, ToolCall, Visit
from drv_env.unicode_text import canonical_text
from drv_env.urls import canonical_url


def call_arguments(action: Search | Visit | ToolCall) -> dict[str, Any]:
    """What makes two calls the same recording; compared as :func:`drv_env.cassette.canonical`.

    A search's queries and a visit's urls keep their order, which the observation shows.

    Example:
        >>> call_arguments(Visit((" HTTPS://a#top",), "founder "))
        {'url': ['https://a/'], 'goal': 'founder'}
    """
    return _arguments(action, _text, canonical_url)


def earlier_call_arguments(action: Search | Visit | ToolCall) -> dict[str, Any]:
    """The same in the spelling of the call, under which older recordings may stand.

    Example:
        >>> earlier_call_arguments(Visit((" HTTPS://a#top",), "founder "))
        {'url': ['HTTPS://a#top'], 'goal': 'founder'}
    """
    return _arguments(action, str.strip, str.strip)


def call_key(action: Search | Visit | ToolCall) -> tuple[object, ...]:
    """What makes a call a repeat: a search's queries, a visit's urls, as sets.

    Example:
        >>> call_key(Visit(("http://a",), "x")) == call_key(Visit(("http://a:80/",), "y"))
        True
    """
    match action:
        case Search(queries):
            return ("search", frozenset(map(_text, queries)))
        case Visit(urls, _):
            return ("visit", frozenset(map(canonical_url, urls)))
        case ToolCall(name, arguments):
            return (name, json.dumps(arguments, sort_keys=True, default=repr))


def _arguments(
    action: Search | Visit | ToolCall, text: Callable[[str], str], url: Callable[[str], str]
) -> dict[str, Any]:
    match action:
        case Search(queries):
            return {"query": [text(query) for query in queries]}
        case Visit(urls, goal):
            return {"url": [url(item) for item in urls], "goal": text(goal)}
        case ToolCall(_, arguments):
            return arguments


def _text(text: str) -> str:
    return canonical_text(text).strip()
