"""A chat server's assistant message as one turn of text.

A server may take a turn apart: the thought into a field of its own, calls into
``tool_calls``.  Here they are put back into their tags; the only place that does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from drv_env.calls import ARGUMENTS
from drv_env.protocol import ANSWER, CALL, END_THINK, THINK, action_end, call_block
from drv_env.turn_parts import parts_of

_THOUGHTS = ("reasoning_content", "reasoning", "thinking", "reasoning_details")
"""Fields of a message that hold its thought, as text or in parts."""


def turn_of(message: Mapping[str, Any]) -> str:
    """An assistant message as one turn: thought, text and calls in this order.

    Args:
        message: ``content``, and what the server took out of it.

    Example:
        >>> turn_of({"reasoning_content": "Known.", "content": "<answer>Paris</answer>"})
        '<think>\\nKnown.\\n</think>\\n<answer>Paris</answer>'
    """
    content = content_text(message.get("content"))
    return whole_turn(content, thought_of(message), calls=calls_of(message))


def content_text(content: Any) -> str:
    """The text of a message's content, which may be in parts; "" where it has none."""
    if isinstance(content, list):
        parts = (
            part.get("text", "")
            for part in content
            if isinstance(part, dict) and not is_thought(part)
        )
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def thought_of(message: Mapping[str, Any]) -> str:
    """What the message says was thought before its text; "" where it has no place for that.

    It is a field of its own, or parts of the content (Mistral's, of the type ``thinking``).

    Example:
        >>> part = {"type": "thinking", "thinking": [{"type": "text", "text": "Known."}]}
        >>> thought_of({"content": [part, {"type": "text", "text": "<answer>A</answer>"}]})
        'Known.'
    """
    content = message.get("content")
    parts = filter(is_thought, content) if isinstance(content, list) else ()
    inside = "".join(content_text(part["thinking"]) for part in parts)
    return inside if inside.strip() else thought_field(message)


def thought_field(message: Mapping[str, Any]) -> str:
    """The thought in a field of its own, beside the content; "" where there is none."""
    found = (content_text(message.get(name)) for name in _THOUGHTS)
    return next((text for text in found if text.strip()), "")


def is_thought(part: Any) -> bool:
    """Whether a part of a message's content is a thought."""
    return isinstance(part, Mapping) and isinstance(part.get("thinking"), str | list)


def calls_of(message: Mapping[str, Any]) -> list[str]:
    """The JSON of every call that was taken out of the text, as an agent would write it.

    Arguments that are no JSON of an object stay a text, which the reading tells of.

    Example:
        >>> calls_of({"tool_calls": [{"function": {"name": "search", "arguments": "{}"}}]})
        ['{"name": "search", "arguments": {}}']
    """
    calls = message.get("tool_calls") or [message.get("function_call")]
    found = []
    for call in calls if isinstance(calls, list | tuple) else [calls]:
        function = call.get("function", call) if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            continue
        arguments: Any = next((function[key] for key in ARGUMENTS if key in function), {})
        if isinstance(arguments, str):
            arguments = _parsed(arguments)
        body = {"name": function.get("name"), "arguments": arguments}
        found.append(json.dumps(body, ensure_ascii=False))
    return found


def _parsed(arguments: str) -> Any:
    try:
        value = json.loads(arguments, strict=False)
    except (ValueError, RecursionError):
        return arguments
    return value if isinstance(value, dict) else arguments


def _begins_inside(content: str) -> bool:
    """Whether a text begins inside a thought, which it closes and doesn't open."""
    if content.lstrip().startswith((CALL, ANSWER)) or parts_of(content).thought is None:
        return False
    before, closing, _ = content.partition(END_THINK)
    return bool(closing) and THINK not in before


def whole_turn(content: str, thought: str, cut: bool = False, calls: Sequence[str] = ()) -> str:
    """The turn whose parts these are.

    Args:
        content: what the server says the reply is.
        thought: what it says was thought before; may be empty.
        cut: whether the reply ran out of tokens.
        calls: the JSON of calls that it took out of the text.  They are left out where the
            text still has a call or an answer.

    Example:
        >>> whole_turn("<answer>X</answer>", "It is X.")
        '<think>\\nIt is X.\\n</think>\\n<answer>X</answer>'
        >>> whole_turn("It is X.</think><answer>X</answer>", "")
        '<think>\\nIt is X.</think><answer>X</answer>'
    """
    text = content
    if not content.lstrip().startswith(THINK):
        if thought.strip():
            text = f"{THINK}\n{thought.strip()}"
            if not (cut and not content and not calls):  # else it was still thinking
                text += f"\n{END_THINK}\n{content.lstrip()}"
        elif _begins_inside(content):
            text = f"{THINK}\n{content.lstrip()}"  # the server's template had opened it
    if not calls or action_end(text, "thought_optional") is not None:
        return text
    text = text.strip()
    if text.startswith(THINK) and END_THINK not in text:
        text += f"\n{END_THINK}"
    blocks = "\n".join(map(call_block, calls))
    return f"{text}\n{blocks}" if text else blocks
