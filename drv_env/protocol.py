"""The turn language: reading assistant turns and writing observations.

This file knows text and nothing else: no input or output, no tokens, no rewards, no
budgets.  Everything that decides how a turn is read stands here, in :mod:`drv_env.calls`
for the inside of a call, and in :mod:`drv_env.turn_parts` for where call and answer stand;
nowhere else.

A turn is ``<think>…</think>`` followed by one ``<tool_call>…</tool_call>`` or one
``<answer>…</answer>``.  It is judged twice:

* :func:`read_turn` is tolerant and decides what will be *done*;
* :func:`format_verdict` is strict and decides whether the turn is *well formed*.

What is well formed can be read, whatever tags it mentions.  Both take time linear in the
text, and neither raises, whatever the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from drv_env.calls import (
    UNUSABLE_ARGUMENTS,
    Action,
    Answer,
    Problem,
    Search,
    ToolCall,
    Visit,
    between,
    code_call,
    parse_body,
    read_call,
    render_call,
    to_action,
)
from drv_env.turn_parts import (
    ANSWER,
    CALL,
    END_ANSWER,
    END_CALL,
    END_RESPONSE,
    END_THINK,
    RESPONSE,
    THINK,
    parts_of,
)

__all__ = [
    "ANSWER",
    "CALL",
    "END_ANSWER",
    "END_CALL",
    "END_RESPONSE",
    "END_THINK",
    "PAGE_SEPARATOR",
    "RESPONSE",
    "THINK",
    "UNUSABLE_ARGUMENTS",
    "Action",
    "Answer",
    "Problem",
    "Reading",
    "ReadingRule",
    "Search",
    "ToolCall",
    "Visit",
    "action_end",
    "call_block",
    "format_verdict",
    "observation_body",
    "read_turn",
    "render_call",
    "render_observation",
    "render_search",
    "render_turn",
    "render_visit",
    "search_hits",
    "thought_block",
]

PAGE_SEPARATOR = "\n=======\n"
"""Stands between the pages of a visit observation."""

ReadingRule = Literal["default", "thought_optional", "released"]
"""How turns are read and judged; see :func:`read_turn`."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What was found in one assistant turn.

    Attributes:
        thought: text inside the thought, stripped.
        action: what will be done, or None with a ``problem``.
        problem: the kind of problem, or None.
        complaint: the problem in words, for the agent; empty without a problem.
        written: the call or answer as written, before arguments were checked: a
            :class:`ToolCall` (also for search and visit), an :class:`Answer`, or
            None where no block could be read.
    """

    thought: str
    action: Action | None
    problem: Problem | None = None
    complaint: str = ""
    written: ToolCall | Answer | None = None

    @property
    def is_unread(self) -> bool:
        """Whether the turn holds nothing that could be read, not even a call that can't work."""
        return self.problem is not None and self.problem not in UNUSABLE_ARGUMENTS


def read_turn(text: str, rule: ReadingRule = "default") -> Reading:
    """Read one whole assistant turn, tolerantly.

    JSON5 is accepted in the call, with raw line breaks and tabs in its strings, and the
    other forms of :func:`~drv_env.calls.call_object`; a ``query`` or ``url`` may be one
    string, arguments may be JSON in a string; a thought left open is closed; and
    everything from an invented ``<tool_response>`` on is cut.

    Args:
        text: the turn, with the ``<think>`` that a chat template may have opened.
        rule: ``"default"`` reads by structure: call and answer stand after the thought (an
            unclosed one ends right before the first complete block), and tags that a
            thought, a JSON string or an answer mentions are its text.
            ``"thought_optional"`` is the same for models that write no ``<think>``: what
            stands before a call or an answer is the thought.  ``"released"`` reproduces the
            DR-Venus release (master at 60131410), which takes the first complete block
            anywhere, the thought included, before the first ``<tool_response>`` anywhere.

    Example:
        >>> read_turn("<think>It is X.</think><answer>X</answer>").action
        Answer(text='X')
        >>> read_turn("hello").problem
        <Problem.NO_THOUGHT: 'no_thought'>
        >>> read_turn("It is X: <answer>X</answer>", "thought_optional").action
        Answer(text='X')
    """
    if rule == "released":
        thought, answer, call, body = _released_parts(text)
        two_kinds = answer is not None and call is not None
    else:
        parts = parts_of(text, rule == "thought_optional")
        thought, two_kinds, body = parts.thought, parts.two_kinds, parts.body
        inner = None if parts.block is None else parts.block.inner
        is_answer = parts.block is not None and parts.block.is_answer
        answer, call = (inner, None) if is_answer else (None, inner)
    if thought is None:
        return Reading(
            "",
            None,
            Problem.NO_THOUGHT,
            "the turn has no <think>…</think>; think first, then call a tool or answer",
        )
    thought = thought.strip()
    if two_kinds:
        complaint = "the turn holds both a <tool_call> and an <answer>; give exactly one"
        return Reading(thought, None, Problem.TWO_KINDS, complaint)
    if answer is not None:
        return Reading(thought, Answer(answer), written=Answer(answer))
    if call is None:
        return Reading(thought, None, Problem.NO_ACTION, _no_action_complaint(body, rule))
    written, problem, complaint = read_call(call, rule == "released")
    if written is None:
        return Reading(thought, None, problem, complaint)
    action, problem, complaint = to_action(written, rule == "released")
    return Reading(thought, action, problem, complaint, written)


def action_end(text: str, rule: ReadingRule = "default") -> int | None:
    """Behind the call or answer that is read from ``text``, whatever else may follow it.

    None where there is none yet, or where what follows could still show that it was only
    quoted.  A turn that is being written may be ended from here on without losing anything.

    Example:
        >>> action_end("<think>a</think><answer>X</answer> so"), action_end("<think>a <answer>")
        (34, None)
    """
    block = parts_of(text, rule == "thought_optional").block
    return block.end if block is not None and block.certain else None


def format_verdict(text: str, final: bool, rule: ReadingRule = "default") -> bool:
    """The strict verdict of the DR-Venus release: is the whole turn well formed?

    The text must open with a thought (only white space before it; thoughts strictly
    one after another), and after the last ``</think>`` hold exactly one block of the
    right kind, with nothing but white space around it and no tag of the other kind
    anywhere.

    Args:
        text: the turn, whole.
        final: True for the last turn of an episode, judged by the answer rule (an
            answer that is not blank); False for every other, judged by the tool-call
            rule (JSON5 of an object with ``name`` and an object ``arguments``).
        rule: with ``"thought_optional"`` a turn that opens with its block, and so has no
            thought, is judged like one with a thought; the others judge alike.
    """
    bare = rule == "thought_optional" and text.lstrip().startswith((CALL, ANSWER))
    body = text if bare else _after_thoughts(text)
    if body is None:
        return False
    if final:
        inner = _only_block(text, body, ANSWER, END_ANSWER, (CALL, END_CALL))
        return inner is not None and bool(inner.strip())
    inner = _only_block(text, body, CALL, END_CALL, (ANSWER, END_ANSWER))
    if inner is None:
        return False
    if code_call(inner) is not None:
        return True
    value = parse_body(inner)
    return isinstance(value, dict) and "name" in value and isinstance(value.get("arguments"), dict)


def render_observation(text: str) -> str:
    """``text`` as a user message: wrapped in ``<tool_response>``, itself unaltered."""
    return f"{RESPONSE}\n{text}\n{END_RESPONSE}"


def observation_body(message: str) -> str:
    """The text inside a message made by :func:`render_observation`.

    Raises:
        ValueError: when the message is not such a message.
    """
    head, tail = f"{RESPONSE}\n", f"\n{END_RESPONSE}"
    if not (message.startswith(head) and message.endswith(tail, len(head))):
        raise ValueError(f"not an observation message: {message[:80]!r}")
    return message[len(head) : len(message) - len(tail)]


def render_search(results: Iterable[tuple[str, Iterable[Mapping[str, Any]]]]) -> str:
    """The deployment's JSON for search results.

    Args:
        results: ``(query, pages)`` in order; a page maps ``title``, ``url``,
            ``snippet`` and what else is known to text.

    Example:
        >>> render_search([("x", [{"title": "T", "url": "u", "snippet": "s"}])])
        '[{"query": "x", "web_page_info_list": [{"title": "T", "url": "u", "snippet": "s"}]}]'
    """
    blocks = [
        {"query": query, "web_page_info_list": [dict(page) for page in pages]}
        for query, pages in results
    ]
    return json.dumps(blocks, ensure_ascii=False)


def search_hits(message: str) -> list[dict[str, Any]]:
    """The pages of a search observation, of all its queries in order; [] where none is.

    Args:
        message: an observation message, or the text inside it.

    Example:
        >>> text = render_search([("x", [{"title": "T", "url": "u", "snippet": "s"}])])
        >>> search_hits(render_observation(text))
        [{'title': 'T', 'url': 'u', 'snippet': 's'}]
        >>> search_hits("The search call failed: …")
        []
    """
    body = observation_body(message) if message.startswith(RESPONSE) else message
    try:
        # Words of the tool's own may follow the list.
        blocks, _ = json.JSONDecoder().raw_decode(body)
    except (ValueError, RecursionError):
        return []
    if not isinstance(blocks, list):
        return []
    return [
        page
        for block in blocks
        if isinstance(block, dict) and isinstance(block.get("web_page_info_list"), list)
        for page in block["web_page_info_list"]
        if isinstance(page, dict)
    ]


def render_visit(url: str, goal: str, evidence: str, summary: str = "") -> str:
    """What one visited page yielded for a goal; join several by ``PAGE_SEPARATOR``."""
    parts = [f"Page: {url}"]
    if goal:
        parts.append(f"Goal: {goal}")
    parts.append(f"Evidence:\n{evidence}")
    if summary:
        parts.append(f"Summary:\n{summary}")
    return "\n".join(parts)


def render_turn(thought: str, action: Action) -> str:
    """A well-formed turn with this thought and action, one tag a line.

    Example:
        >>> print(render_turn("Done.", Answer("X")))
        <think>
        Done.
        </think>
        <answer>
        X
        </answer>
    """
    if isinstance(action, Answer):
        block = f"{ANSWER}\n{action.text}\n{END_ANSWER}"
    else:
        block = call_block(render_call(action))
    return f"{thought_block(thought)}\n{block}"


def thought_block(thought: str) -> str:
    """A thought in its tags, which have lines of their own."""
    return f"{THINK}\n{thought}\n{END_THINK}"


def call_block(body: str) -> str:
    """The JSON of a call in its tags, which have lines of their own."""
    return f"{CALL}\n{body}\n{END_CALL}"


# ---- the release's reading -------------------------------------------------------------


def _released_parts(text: str) -> tuple[str | None, str | None, str | None, str]:
    """(thought, answer, call, whole text): the release searches blocks in the whole text."""
    cut = text.find(RESPONSE)
    if cut >= 0:
        text = text[:cut]
    has_open, has_close = THINK in text, END_THINK in text
    if has_open and not has_close:
        text = f"{text}\n{END_THINK}"
    elif has_close and not has_open:
        text = f"{THINK}\n{text}"
    thought = between(text, THINK, END_THINK)
    return thought, between(text, ANSWER, END_ANSWER), between(text, CALL, END_CALL), text


_SPACE = re.compile(r"\s*")


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return position if match is None else match.end()


def _after_thoughts(text: str) -> str | None:
    """What follows the last ``</think>``, if thoughts alternate strictly, else None."""
    position = _skip_space(text, 0)
    if not text.startswith(THINK, position):
        return None
    end = 0
    while True:
        opening = text.find(THINK, position)
        closing = text.find(END_THINK, position)
        if opening < 0 and closing < 0:
            return text[end:]
        if opening < 0 or closing < opening:
            return None
        following = text.find(THINK, opening + len(THINK))
        if 0 <= following < closing:
            return None
        position = end = closing + len(END_THINK)


def _only_block(
    text: str, body: str, opening: str, closing: str, others: tuple[str, str]
) -> str | None:
    if any(tag in text for tag in others):
        return None
    if text.count(opening) != 1 or text.count(closing) != 1:
        return None
    block = body.strip()
    if not (block.startswith(opening) and block.endswith(closing)):
        return None
    if len(block) < len(opening) + len(closing):
        return None
    return block[len(opening) : len(block) - len(closing)]


def _no_action_complaint(body: str, rule: ReadingRule) -> str:
    for opening, closing in ((CALL, END_CALL), (ANSWER, END_ANSWER)):
        if opening in body:
            return f"{opening} is not closed by {closing}"
    where = "in the turn" if rule == "thought_optional" else "after the thought"
    return f"{where} there is neither a <tool_call> nor an <answer>"
