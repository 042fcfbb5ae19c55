"""Actions, and the JSON of a tool call: reading one tolerantly, writing one.

Knows the inside of ``<tool_call>`` and nothing of turns; :mod:`drv_env.protocol` is the
turn language that uses it.
"""

from __future__ import annotations

import json
import re
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


INTERPRETER = "PythonInterpreter"
_KEPT = {"search": ("query",), "visit": ("url", "goal"), INTERPRETER: ("code",)}
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


_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_STRING_OR_WORD = re.compile(
    r"""
      "(?>[^"\\]*(?:\\.[^"\\]*)*)"
    | '(?>[^'\\]*(?:\\.[^'\\]*)*)'
    | \b(?P<word>True|False|None)\b
    """,
    re.S | re.X,
)
_RAW_CONTROL = re.compile(r"\\.|[\x00-\x1f]", re.S)
_OTHERWISE = re.compile(r"[\x00-\x1f]|\\.|\b(?:True|False|None)\b", re.S)


def parse_loosely(body: str) -> Any:
    """As :func:`parse_body`, with line breaks, tabs and the like as they are in strings, and
    with Python's words for true, false and null.

    Example:
        >>> parse_loosely("{'safe': True, 'of': None}")
        {'safe': True, 'of': None}
    """
    value = parse_body(body)
    if value is not None or not _OTHERWISE.search(body):
        return value
    return parse_body(_STRING_OR_WORD.sub(_as_json, body))


def _as_json(match: re.Match[str]) -> str:
    if match["word"]:
        return _PYTHON_WORDS[match["word"]]
    return _RAW_CONTROL.sub(_escaped, match[0])


def _escaped(match: re.Match[str]) -> str:
    return match[0] if len(match[0]) > 1 else f"\\u{ord(match[0]):04x}"


_DEEPEST_TEXT = 4


def parse_arguments(value: Any) -> dict[str, Any] | None:
    """The arguments of a call: an object, or JSON of one in a string, in a string again, …

    None where it is neither.

    Example:
        >>> parse_arguments('{"query": ["mill"]}')
        {'query': ['mill']}
    """
    for _ in range(_DEEPEST_TEXT):
        if not isinstance(value, str):
            break
        value = parse_loosely(value)
    return value if isinstance(value, dict) else None


ARGUMENTS = ("arguments", "parameters", "input", "args")
"""What models call the arguments of a call, the usual name first."""


def call_object(body: str) -> dict[str, Any] | None:
    """The call that a text is, as an object of ``name`` and ``arguments``; None where it is none.

    Besides the object as it should be: in a fence of Markdown's, in a string, as the one item of
    a list, inside ``{"type": "function", "function": …}``, its arguments under another name
    (:data:`ARGUMENTS`), with stray braces or words behind it, and Qwen3-Coder's
    ``<function=…>`` with a ``<parameter=…>`` each.

    Example:
        >>> call_object('{"function": {"name": "search", "parameters": {"query": "mill"}}}')
        {'name': 'search', 'arguments': {'query': 'mill'}}
        >>> call_object("<function=search><parameter=query>mill</parameter></function>")
        {'name': 'search', 'arguments': {'query': 'mill'}}
    """
    text = body.strip()
    if text.startswith("`"):
        text = _FENCE.sub("", text).rstrip("`").strip()
    if text.startswith(_FUNCTION):
        return _tagged_call(text)
    value = parse_loosely(text)
    if isinstance(value, str):
        value = parse_arguments(value)
    if value is None:
        value = _first_object(text)
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, dict) and "name" not in value and "function" in value:
        value = value["function"]
    if not isinstance(value, dict) or "name" not in value:
        return None
    found = next((value[key] for key in ARGUMENTS if key in value), None)
    return None if found is None else {"name": value["name"], "arguments": found}


_FENCE = re.compile(r"\A`+\w*")
_FUNCTION, _PARAMETER, _END_PARAMETER = "<function=", "<parameter=", "</parameter>"


def _first_object(text: str) -> Any:
    """The JSON object that a text begins with, if no other follows it; else None."""
    if not text.startswith("{"):
        return None
    try:
        value, end = json.JSONDecoder(strict=False).raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return value if "{" not in text[end:] and _is_portable(value) else None


def _tagged_call(text: str) -> dict[str, Any] | None:
    """A call as Qwen3-Coder's template has it; lists and objects among its values are JSON."""
    name, closed, rest = text.removeprefix(_FUNCTION).partition(">")
    if not closed or _FUNCTION in rest:
        return None
    arguments: dict[str, Any] = {}
    while (start := rest.find(_PARAMETER)) >= 0:
        key, _, rest = rest[start + len(_PARAMETER) :].partition(">")
        written, closed, rest = rest.partition(_END_PARAMETER)
        if not closed:
            return None
        written = written.strip()
        value = parse_loosely(written) if written.startswith(("[", "{")) else None
        arguments[key.strip()] = written if value is None else value
    return {"name": name.strip(), "arguments": arguments}


def listed(value: Any) -> Any:
    """A list that was written as JSON in a string, as the list; all else as it is.

    Example:
        >>> listed('["mill", "weir"]'), listed("[sic] mill")
        (['mill', 'weir'], '[sic] mill')
    """
    if not isinstance(value, str) or not value.lstrip().startswith(("[", '"[')):
        return value
    found: Any = value
    for _ in range(_DEEPEST_TEXT):
        if not isinstance(found, str):
            break
        found = parse_loosely(found)
    whole = isinstance(found, list) and all(isinstance(item, str) for item in found)
    return found if whole else value


_SCANNED = re.compile(
    r"""
      "[^"\\]*(?:\\.[^"\\]*)*\\?(?P<double>"|\Z)
    | '[^'\\]*(?:\\.[^'\\]*)*\\?(?P<single>'|\Z)
    | //(?:(?!</tool_call>)[^\n])*
    | /\*(?:(?!\*/|</tool_call>).)*
    | (?P<code><code>)
    | (?P<end></tool_call>)
    """,
    re.S | re.X,
)  # no possessive groups: before Python 3.11.5 they give up what they need not (gh-106052)
_CODE_END = re.compile(r"</code>\s*+(?P<end></tool_call>)")


def find_call_end(text: str, start: int) -> int | None:
    """Where the ``</tool_call>`` stands that ends the call whose inside begins at ``start``.

    One inside a JSON string, or inside ``<code>`` of the interpreter's, is the call's text.
    None where there is no other.
    """
    position = since = start
    while (found := _SCANNED.search(text, position)) is not None:
        kind = found.lastgroup
        if kind == "end":
            return found.start()
        if kind in ("double", "single") and not found[kind]:
            return None  # the string is never closed
        position = found.end()
        if kind == "code":
            if INTERPRETER.lower() in text[since : found.start()].lower():
                closed = _CODE_END.search(text, position)
                return None if closed is None else closed.start("end")
            since = position
    return None


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
    if INTERPRETER.lower() not in body.lower():
        return None
    code = between(body, CODE, END_CODE)
    return None if code is None else ToolCall(INTERPRETER, {"code": code.strip()})


def _whole_code(body: str, call: ToolCall) -> ToolCall:
    """The same with all of the code, where it mentions ``</code>`` itself."""
    code = body[body.find(CODE) + len(CODE) : body.rfind(END_CODE)]
    return ToolCall(call.name, {"code": code.strip()})


def read_call(body: str, released: bool) -> tuple[ToolCall | None, Problem | None, str]:
    """What is inside ``<tool_call>``; ``released`` keeps to the release's JSON5 and code."""
    value = parse_body(body) if released else call_object(body) or parse_loosely(body)
    called = value.get("name") if isinstance(value, dict) else INTERPRETER
    call = code_call(body) if released or called == INTERPRETER else None
    if call is not None:
        return (call if released else _whole_code(body, call)), None, ""
    if value is None:
        return None, Problem.NOT_JSON, "the text inside <tool_call> is not JSON"
    if not isinstance(value, dict) or "name" not in value or "arguments" not in value:
        complaint = 'a tool call must be a JSON object with "name" and "arguments"'
        return None, Problem.NOT_A_CALL, complaint
    name, arguments = value["name"], value["arguments"]
    if not isinstance(name, str):
        return None, Problem.NOT_A_CALL, '"name" must be the name of a tool, as a string'
    if not released:
        arguments = parse_arguments(arguments)
    if not isinstance(arguments, dict):
        arguments = {}
    if name in _KEPT:
        arguments = {key: arguments[key] for key in _KEPT[name] if key in arguments}
    return ToolCall(name, arguments), None, ""


def to_action(call: ToolCall, released: bool) -> tuple[Action | None, Problem | None, str]:
    """What the call asks for; lists that are JSON in a string are read unless ``released``."""
    if call.name == "search":
        queries, problem, complaint = _strings(call, "query", released)
        return (None if problem else Search(queries)), problem, complaint
    if call.name == "visit":
        urls, problem, complaint = _strings(call, "url", released)
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


def _strings(
    call: ToolCall, key: str, released: bool
) -> tuple[tuple[str, ...], Problem | None, str]:
    if key not in call.arguments:
        return (), Problem.MISSING_ARGUMENT, f'{call.name} needs "{key}"'
    value = call.arguments[key] if released else listed(call.arguments[key])
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        return (), Problem.WRONG_ARGUMENT, f'"{key}" must be a string or a list of strings'
    kept = tuple(item.strip() for item in items if item.strip())
    if not kept:
        return (), Problem.EMPTY_QUERY, f'"{key}" is empty; {call.name} needs at least one'
    return kept, None, ""
