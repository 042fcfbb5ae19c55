"""One message of a raw trajectory, brought into the deployment's form.  Pure functions of text.

What the release (DR-Venus, master at 60131410) does with a turn, and four ways in which a
user may want it otherwise:

* ``tags="released"`` takes the first ``<tool_call>`` and the last ``<answer>`` of the whole
  turn, also where the thought only mentions them; ``"after_thought"`` looks after the
  thought, and takes the tags that a thought mentions out of it.
* ``results="released"`` reads every observation in which the words ``Web Results`` occur as a
  page of search results; ``"searches"`` only the observation of a search that has such a
  page's opening line, and drops the ``=======`` between two pages.

* ``calls="released"`` finds a call's end at the next closing tag, and takes no line breaks in a
  string; ``"all"`` reads what the live reading reads where that finds nothing, and where a turn
  has several opening tags: a thought may quote one.
* ``thoughts="required"`` reads no turn without a thought; ``"optional"`` writes such a turn
  without one.

Every function takes time linear in its text, and none raises.
"""

from __future__ import annotations

import json
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Literal

from drv_env.calls import CODE, between, call_object, listed, parse_arguments, parse_body
from drv_env.protocol import (
    ANSWER,
    CALL,
    END_ANSWER,
    END_CALL,
    END_RESPONSE,
    END_THINK,
    RESPONSE,
    THINK,
    render_observation,
    thought_block,
)
from drv_env.turn_parts import parts_of
from replay.search_text import MARK, blocks_json, has_header, parse_search_text

Tags = Literal["released", "after_thought"]
Results = Literal["released", "searches"]
Thoughts = Literal["required", "optional"]
Calls = Literal["all", "released"]

SUMMARY, END_SUMMARY = "<summary>", "</summary>"
INTERPRETER = "PythonInterpreter"
_IN_THOUGHTS = (ANSWER, END_ANSWER, SUMMARY, END_SUMMARY)
_CONTROL = (*_IN_THOUGHTS, CALL, END_CALL, RESPONSE, END_RESPONSE, THINK)


@dataclass(frozen=True, slots=True)
class ToolTurn:
    """An assistant message that calls a tool.

    Attributes:
        text: the message in the deployment's form.
        tool: the tool's name.
        call: what the call is known by when repeats are looked for.
        goal: a visit's goal, stripped; empty for others.
    """

    text: str
    tool: str
    call: Hashable
    goal: str = ""


@dataclass(frozen=True, slots=True)
class FinalTurn:
    """The last message.

    Attributes:
        text: the message in the deployment's form.
        answer: the answer alone, stripped.
    """

    text: str
    answer: str


FinalProblem = Literal["no_thought", "no_answer"]
TurnProblem = Literal["no_thought", "no_call"]


def tool_turn(
    content: str,
    tags: Tags = "released",
    thoughts: Thoughts = "required",
    calls: Calls = "all",
) -> ToolTurn | TurnProblem:
    """An assistant message before the last one, or what it lacks.

    It needs a thought that is not empty and a call that can be read: a search with queries, a
    visit with urls and a goal, or another tool with an object of arguments.
    """
    thought, after = _thought(content, tags) or ("", 0)
    if not thought and thoughts == "required":
        return "no_thought"
    body = between(content[after:] if tags == "after_thought" else content, CALL, END_CALL)
    call = None if body is None else _call(body)
    if calls == "all" and (call is None or content.count(CALL) > 1):
        parts = parts_of(content, thoughts == "optional")
        if parts.block is not None and not parts.block.is_answer:
            call = _call(parts.block.inner, loosely=True) or call
    if call is None:
        return "no_call"
    written, tool, key, goal = call
    return ToolTurn(f"{_block(thought)}{CALL}\n{written}\n{END_CALL}", tool, key, goal)


def final_turn(
    content: str, tags: Tags = "released", thoughts: Thoughts = "required"
) -> FinalTurn | FinalProblem:
    """The last message, or what it lacks."""
    split = _thought(content, tags)
    if split is None and thoughts == "required":
        return "no_thought"
    thought, after = split or ("", 0)
    answer = _last_between(content, ANSWER, END_ANSWER, after if tags == "after_thought" else 0)
    answer = "" if answer is None else answer.strip()
    if not answer:
        return "no_answer"
    tail = content[content.rfind(END_THINK) + len(END_THINK) :] if split else content
    summaries = (block.strip() for block in _all_between(tail, SUMMARY, END_SUMMARY))
    thought = "\n\n".join(part for part in (thought, *summaries) if part)
    if not thought and thoughts == "required":
        return "no_thought"
    return FinalTurn(f"{_block(thought)}{ANSWER}\n{answer}\n{END_ANSWER}", answer)


def calls_a_tool(content: str, thoughts: Thoughts = "required") -> bool:
    """Whether a last message calls a tool before it answers: what came back is not there.

    Example:
        >>> calls_a_tool("<think>a</think><tool_call>{}</tool_call><answer>X</answer>")
        True
    """
    if CALL not in content:
        return False
    block = parts_of(content, thoughts == "optional").block
    return block is not None and not block.is_answer


def holds_turns(content: str) -> bool:
    """Whether a last message holds more than its own turn: text that is no thought between two.

    Example:
        >>> holds_turns("<think>a</think> Found: 1912. <think>b</think><answer>X</answer>")
        True
    """
    place = content.find(END_THINK)
    while place >= 0 and (following := content.find(THINK, place)) >= 0:
        between_thoughts = content[place + len(END_THINK) : following]
        for block in _all_between(between_thoughts, SUMMARY, END_SUMMARY):
            between_thoughts = between_thoughts.replace(f"{SUMMARY}{block}{END_SUMMARY}", "")
        if between_thoughts.strip() and ANSWER not in between_thoughts:
            return True
        place = content.find(END_THINK, following)
    return False


def _block(thought: str) -> str:
    return f"{thought_block(thought)}\n" if thought else ""


def observation(content: str, tool: str, results: Results = "released") -> str:
    """A tool's response in the deployment's form.

    Args:
        content: the message, with or without ``<tool_response>`` around it.
        tool: the name of the tool that was called.
        results: which texts are pages of search results.
    """
    text = content.strip().removeprefix(RESPONSE).removesuffix(END_RESPONSE).strip()
    if MARK in text and not _is_list(text):
        if results == "released":
            text = blocks_json(parse_search_text(text))
        elif tool == "search" and has_header(text):
            text = blocks_json(parse_search_text(text, separators=False))
    return render_observation(text)


_json = json.JSONEncoder(ensure_ascii=False).encode


def _is_list(text: str) -> bool:
    """Whether it is the deployment's JSON already."""
    if not text.startswith("["):
        return False
    try:
        return isinstance(json.loads(text), list)
    except (ValueError, RecursionError):
        return False


def _all_between(text: str, opening: str, closing: str, start: int = 0) -> list[str]:
    found = []
    while (start := text.find(opening, start)) >= 0:
        start += len(opening)
        end = text.find(closing, start)
        if end < 0:
            break
        found.append(text[start:end])
        start = end + len(closing)
    return found


def _last_between(text: str, opening: str, closing: str, start: int) -> str | None:
    found = _all_between(text, opening, closing, start)
    return found[-1] if found else None


def _thought(content: str, tags: Tags) -> tuple[str, int] | None:
    """(the first thought without tags that don't belong there, where it ends)."""
    start = content.find(THINK)
    if start < 0:
        return None
    start += len(THINK)
    end = content.find(END_THINK, start)
    if end < 0:
        return None
    thought = content[start:end]
    if "<" in thought:
        for tag in _CONTROL if tags == "after_thought" else _IN_THOUGHTS:
            thought = thought.replace(tag, "")
    return thought.strip(), end + len(END_THINK)


def _call(body: str, loosely: bool = False) -> tuple[str, str, Hashable, str] | None:
    """(the call as it is written, the tool, what it is known by, a visit's goal)."""
    parse = call_object if loosely else parse_body
    value = parse(body.partition(CODE)[0].strip())
    if not isinstance(value, dict):
        return None
    name, arguments = value.get("name"), parse_arguments(value.get("arguments"))
    if not isinstance(name, str) or arguments is None:
        return None
    if name == INTERPRETER and not arguments:
        return body.strip(), name, body.strip(), ""
    goal = ""
    key: Hashable
    if name == "search":
        queries = _strings(arguments, "query", "queries")
        if queries is None:
            return None
        arguments = {"query": queries}
        key = frozenset(query.strip() for query in queries)
    elif name == "visit":
        urls, wanted = _strings(arguments, "url", "urls"), arguments.get("goal")
        if isinstance(wanted, list) and wanted:
            wanted = wanted[0]
        if urls is None or not isinstance(wanted, str):
            return None
        arguments = {"url": urls, "goal": wanted}
        key, goal = frozenset(urls), wanted.strip()
    written = _json({"name": name, "arguments": arguments})
    if name not in ("search", "visit"):
        key = written
    return written, name, key, goal


def _strings(arguments: dict[str, Any], *names: str) -> list[str] | None:
    """The first argument that is there, as a list of texts that are not all blank."""
    for name in names:
        value = listed(arguments.get(name))
        if value:
            items = [value] if isinstance(value, str) else value
            if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
                return None
            return items if any(item.strip() for item in items) else None
    return None
