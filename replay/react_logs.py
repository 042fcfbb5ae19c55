"""Transcripts in ReAct's lines: ``Thought:``, ``Action:``, ``Observation:``, ``Final Answer:``.

As ReAct (https://arxiv.org/abs/2210.03629) writes them (``Action 1: Search[mill]``,
``Action 2: Finish[1912]``), and as LangChain does (``Action: search``, ``Action Input: mill``,
the input also as JSON).  A line means an action only in one of these two forms, so that a
page that says ``Action: film`` ends no observation.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from drv_env.calls import parse_body, render_call
from drv_env.protocol import (
    ANSWER,
    CALL,
    END_ANSWER,
    END_THINK,
    THINK,
    Search,
    ToolCall,
    call_block,
    render_observation,
    thought_block,
)
from replay.raw_trajectory import Message

THOUGHT, ACTION, INPUT, OBSERVATION, FINAL = (
    "thought",
    "action",
    "action input",
    "observation",
    "final answer",
)
_LINE = re.compile(
    r"^[ \t]*(?:\*\*)?(Thought|Action Input|Action|Observation|Final Answer)"
    r"(?:[ \t]+\d+)?(?:\*\*)?[ \t]*:(?:\*\*)?",
    re.MULTILINE,
)
_BRACKETS = re.compile(r"\s*([A-Za-z_][\w ]*?)\s*\[(.*)\]\.?\s*\Z", re.DOTALL)
_FINISHES = ("finish", "final answer", "final_answer")
_TAGS = (THINK, END_THINK, CALL, ANSWER)


@dataclass(frozen=True, slots=True)
class _Part:
    kind: str
    text: str


def is_react(text: str) -> bool:
    """Whether an assistant's text is in ReAct's lines: it acts, or thinks and answers.

    Example:
        >>> is_react("Thought: I look.\\nAction: search\\nAction Input: mill")
        True
        >>> is_react("Action: a film of 1912.")
        False
    """
    if "Action" not in text and "Final Answer" not in text:
        return False
    if any(tag in text for tag in _TAGS):
        return False
    kinds = [part.kind for part in _parts(text)]
    return ACTION in kinds or (kinds[:1] == [THOUGHT] and FINAL in kinds)


def turns_of_react(text: str) -> list[Message]:
    """Turns and observations in the deployment's tags, in order.

    Example:
        >>> found = turns_of_react("Thought: a\\nAction: search[b]\\nObservation: c\\n"
        ...     "Thought: d\\nFinal Answer: e")
        >>> [message["role"] for message in found]
        ['assistant', 'user', 'assistant']
        >>> found[0]["content"].splitlines()[-2]
        '{"name": "search", "arguments": {"query": ["b"]}}'
    """
    messages: list[Message] = []
    thought: list[str] = []

    def turn(block: str = "") -> None:
        said = "\n\n".join(thought)
        parts = [thought_block(said)] if said else []
        if parts or block:
            content = "\n".join([*parts, *([block] if block else [])])
            messages.append({"role": "assistant", "content": content})
        thought.clear()

    for part in _parts(text):
        if part.kind == THOUGHT:
            if part.text:
                thought.append(part.text)
        elif part.kind == OBSERVATION:
            turn()
            messages.append({"role": "user", "content": render_observation(part.text)})
        elif part.kind == FINAL:
            turn(f"{ANSWER}\n{part.text}\n{END_ANSWER}")
        else:
            turn(_acted(part.text))
    turn()
    return messages


def observed(text: str) -> str:
    """An observation in a message of its own, without the word before it."""
    found = _LINE.match(text.lstrip())
    if found is None or found[1].lower() != OBSERVATION:
        return text
    return text.lstrip()[found.end() :].strip()


def _parts(text: str) -> list[_Part]:
    """The text cut at its lines; an action has its input in brackets behind the name."""
    marks = list(_LINE.finditer(text))
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    bodies = [text[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=True)]
    kinds = [mark[1].lower() for mark in marks]
    first = text[: marks[0].start()] if marks else text
    parts = [_Part(THOUGHT, first.strip())] if first.strip() else []
    place = 0
    while place < len(marks):
        kind, body = kinds[place], bodies[place]
        follows = kinds[place + 1] if place + 1 < len(marks) else ""
        if kind == ACTION and follows == INPUT:
            parts.append(_Part(ACTION, f"{body}[{bodies[place + 1]}]"))
            place += 1
        elif kind == INPUT or (kind == ACTION and not _BRACKETS.match(body)):
            # Words of what stands before it.
            said = text[marks[place].start() : ends[place]].rstrip()
            last = parts.pop() if parts else _Part(THOUGHT, "")
            parts.append(_Part(last.kind, f"{last.text}\n{said}".strip()))
        else:
            parts.append(_Part(kind, body))
        place += 1
    return parts


def _acted(text: str) -> str:
    """The block of a call, or of the answer, of an action and its input in brackets."""
    name, _, given = text.partition("[")
    name, given = name.strip().strip("`"), given.rstrip(". \t\n").removesuffix("]").strip()
    given = re.sub(r"\A```\w*\n|\n```\Z", "", given)
    if name.lower() in _FINISHES:
        return f"{ANSWER}\n{given}\n{END_ANSWER}"
    value = parse_body(given) if given.startswith(("{", '"')) else None
    name = name.lower() if name.lower() in ("search", "visit") else name
    action: Search | ToolCall
    if isinstance(value, dict):
        action = ToolCall(name, value)
    else:
        said = value if isinstance(value, str) else given
        if name == "search":
            action = Search((said,))
        elif name == "visit":
            action = ToolCall(name, {"url": [said], "goal": ""})
        else:
            action = ToolCall(name, {"input": said})
    return call_block(render_call(action))
