"""A question that stands behind instructions in one message: the two told apart.

People's recordings and question files often hold the whole prompt as the user's message:
what tools there are, how to write a turn, an example, and at its end ``Question: …`` or
``User: …``.
"""

from __future__ import annotations

import re

_TAGS = re.compile(
    r"</?(?:think|search|answer|tool_call|tools|tool_response|information|result|access|visit"
    r"|use_mcp_tool)>|<\|(?:begin|end)_[a-z_]+\|>|\\boxed"
    r"|^(?:Thought|Action(?: Input)?|Observation|Final Answer)(?: \d+)?:",  # ReAct's lines
    re.MULTILINE,
)
_WORDS = re.compile(
    r"\b(?:[Yy]ou (?:are|have|must|can|should|will)|[Aa]nswer the (?:given|following|question)"
    r"|search engine|step by step|following tools?)\b|\u4f60\u662f|\u8bf7\u56de\u7b54|\u5de5\u5177"
)
_MARK = re.compile(
    r"(?:^|(?<=[.!:\u3002]\s)|(?<=[.!:\u3002]))[ \t]*(?:\#+[ \t]*)?\**"
    r"(?:(?:[Tt]he |[Uu]ser(?:'s)? )?[Qq]uestion|QUESTION|User(?: [Qq]uery)?|Query|Problem|Q|Task"
    r"|(?:\u7528\u6237)?\u95ee\u9898|\u7528\u6237)"
    r"(?:[ \t]+is)?[ \t]*\**[:\uff1a]\**\s*"
    r"|^[ \t]*\#+[ \t]*(?:[Uu]ser )?(?:[Qq]uestion|Query|Task|\u95ee\u9898)[ \t]*\n\s*",
    re.MULTILINE,
)
_OPENED = re.compile(r"(?:Assistant[:\uff1a]|(?<=\n)Thought(?: \d+)?:)\Z")
_OPEN, _CLOSE = "<question>", "</question>"


def question_behind(text: str, known: str | None = None) -> tuple[str, str] | None:
    """The question and the instructions before it (and after); None where there are none.

    Args:
        text: the message.
        known: the question, where a column of its own holds it.

    Example:
        >>> question_behind("Write <answer> and </answer> around it. Question: Who wrote Emma?\\n")
        ('Who wrote Emma?', 'Write <answer> and </answer> around it.')
    """
    if known is not None and known.strip():
        before, found, after = text.rpartition(known.strip())
        rest = f"{before}{after}"
        if not found or not (_TAGS.search(rest) or _WORDS.search(rest)):
            return None
        mark = next((m for m in _MARK.finditer(before) if m.end() == len(before)), None)
        before = before if mark is None else before[: mark.start()]
        return known.strip(), f"{before.strip()}\n\n{_closed(after)}".strip()
    text = _closed(text)
    end = text.rfind(_CLOSE)
    start = text.rfind(_OPEN, 0, max(end, 0))
    if start >= 0 and (inside := text[start + len(_OPEN) : end].strip()):
        around = f"{text[:start].strip()}\n\n{text[end + len(_CLOSE) :].strip()}"
        return inside, around.strip()
    tags = [found.end() for found in _TAGS.finditer(text)]
    if tags:
        mark = _MARK.search(text, max(0, tags[-1] - 1))
    else:
        words = _WORDS.search(text)
        mark = None if words is None else _MARK.search(text, words.end())
    if mark is not None:
        question, instructions = text[mark.end() :].strip(), text[: mark.start()].strip()
        return (question, instructions) if question and instructions else None
    start = text.rfind("\n\n")
    last = text[start:].strip()
    if tags and start >= tags[-1] and last.endswith(("?", "\uff1f")):
        return last, text[:start].strip()
    return None


def _closed(text: str) -> str:
    """The text without the beginning of the assistant's turn at its end."""
    text = text.rstrip().removesuffix("<think>").rstrip()
    return _OPENED.sub("", text).rstrip()
