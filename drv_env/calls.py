"""Actions, and the JSON of a tool call: reading one tolerantly, writing one.

Knows the inside of ``<tool_call>`` and nothing of turns; :mod:`drv_env.protocol` is the
turn language that uses it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyjson5

CODE, END_CODE = "<code>", "</code>"


@dataclass(frozen=True, slots=True)
class Search:
    """Look up every query; ``queries`` is non-empty and holds no blank string."""

    queries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Visit:
    """Open every url with a goal in mind; ``urls`` is non-empty, ``goal`` may be blank."""

    urls: tuple[str, ...]
    goal: str


@dataclass(frozen=True, slots=True)
class Answer:
    """End the episode with this text, as written between the tags."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool by name, its arguments as written."""

    name: str
    arguments: dict[str, Any]


Action = Search | Visit | Answer | ToolCall


class Problem(StrEnum):
    """Why a turn holds no action that could be done."""

    NO_THOUGHT = "no_thought"
    NO_ACTION = "no_action"
    TWO_KINDS = "two_kinds"
    NOT_JSON = "not_json"
    NOT_A_CALL = "not_a_call"
    MISSING_ARGUMENT = "missing_argument"
    WRONG_ARGUMENT = "wrong_argument"
    EMPTY_QUERY = "empty_query"


UNUSABLE_ARGUMENTS = frozenset(
    {Problem.MISSING_ARGUMENT, Problem.WRONG_ARGUMENT, Problem.EMPTY_QUERY}
)
"""Problems of calls that were read but can't be carried out."""


def render_call(action: Search | Visit | ToolCall) -> str:
    """The JSON body of a tool call, as an agent should write it."""
    name: str
    arguments: dict[str, Any]
    match action:
        case Search(queries):
            name, arguments = "search", {"query": list(queries)}
        case Visit(urls, goal):
            name, arguments = "visit", {"url": list(urls), "goal": goal}
        case ToolCall(name, arguments):
            pass
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)


_KEPT = {"search": ("query",), "visit": ("url", "goal"), "PythonInterpreter": ("code",)}
"""Arguments that are kept of the tools the release knows; others keep all of theirs."""


_DEEPEST = 64
_WIDEST = 4_096


def parse_body(body: str) -> Any:
    """JSON or JSON5, or None where it is neither, or monstrous."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        # JSON5 is the wider language; it decides.
        try:
            value = pyjson5.decode(body)
        except (pyjson5.Json5Exception, ValueError, RecursionError):
            return None
    return value if _is_portable(value) else None


def _is_portable(value: Any) -> bool:
    """Whether a value can be written, compared, copied and pickled like any other.

    Python can do none of these with lists nested some hundreds deep, nor write a whole
    number of many thousand digits.
    """
    level = [value]
    for _ in range(_DEEPEST):
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
            elif isinstance(item, int) and item.bit_length() > _WIDEST:
                return False
        if not inner:
            return True
        level = inner
    return False


def between(text: str, opening: str, closing: str) -> str | None:
    """Text between the first ``opening`` and the first ``closing`` after it."""
    start = text.find(opening)
    if start < 0:
        return None
    start += len(opening)
    end = text.find(closing, start)
    return None if end < 0 else text[start:end]


def code_call(body: str) -> ToolCall | None:
    """The release's form for code: the interpreter's name and a ``<code>`` block."""
    if "pythoninterpreter" not in body.lower():
        return None
    code = between(body, CODE, END_CODE)
    return None if code is None else ToolCall("PythonInterpreter", {"code": code.strip()})


def read_call(body: str) -> tuple[ToolCall | None, Problem | None, str]:
    call = code_call(body)
    if call is not None:
        return call, None, ""
    value = parse_body(body)
    if value is None:
        return None, Problem.NOT_JSON, "the text inside <tool_call> is not JSON"
    if not isinstance(value, dict) or "name" not in value or "arguments" not in value:
        complaint = 'a tool call must be a JSON object with "name" and "arguments"'
        return None, Problem.NOT_A_CALL, complaint
    name, arguments = value["name"], value["arguments"]
    if not isinstance(name, str):
        return None, Problem.NOT_A_CALL, '"name" must be the name of a tool, as a string'
    if not isinstance(arguments, dict):
        arguments = {}
    if name in _KEPT:
        arguments = {key: arguments[key] for key in _KEPT[name] if key in arguments}
    return ToolCall(name, arguments), None, ""


def to_action(call: ToolCall) -> tuple[Action | None, Problem | None, str]:
    if call.name == "search":
        queries, problem, complaint = _strings(call, "query")
        return (None if problem else Search(queries)), problem, complaint
    if call.name == "visit":
        urls, problem, complaint = _strings(call, "url")
        if problem:
            return None, problem, complaint
        if "goal" not in call.arguments:
            complaint = 'visit needs a "goal": what to look for on the page'
            return None, Problem.MISSING_ARGUMENT, complaint
        goal = call.arguments["goal"]
        if not isinstance(goal, str):
            return None, Problem.WRONG_ARGUMENT, '"goal" must be a string'
        return Visit(urls, goal.strip()), None, ""
    return call, None, ""


def _strings(call: ToolCall, key: str) -> tuple[tuple[str, ...], Problem | None, str]:
    if key not in call.arguments:
        return (), Problem.MISSING_ARGUMENT, f'{call.name} needs "{key}"'
    value = call.arguments[key]
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        return (), Problem.WRONG_ARGUMENT, f'"{key}" must be a string or a list of strings'
    kept = tuple(item.strip() for item in items if item.strip())
    if not kept:
        return (), Problem.EMPTY_QUERY, f'"{key}" is empty; {call.name} needs at least one'
    return kept, None, ""
