"""The layouts in which people keep recorded trajectories, told apart by their columns.

=========  ==================================================================================
raw        ``meta`` (``question``, ``answer``), ``messages``, perhaps ``system_prompt``
clean      ``question``, ``gt``, ``messages``
rollout    ``messages``, perhaps ``request_id`` and ``num_turns``: no gold answer
sharegpt   ``conversations`` of ``from`` and ``value``, perhaps ``system``: no gold answer,
           unless there is a column ``gt`` or ``answer``
=========  ==================================================================================

This module knows rows, as dictionaries of plain values, and no files.  A row becomes a
:class:`RawTrajectory` or a :class:`Drop`; it never raises.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from drv_env.tasks import ANSWER_SEPARATOR

Message = dict[str, str]
"""``role`` and ``content``."""


class Reason(StrEnum):
    """Why a row was dropped; the whole set."""

    UNREADABLE = "unreadable"
    """The row is not JSON, not an object, or longer than the reader takes."""
    UNKNOWN_LAYOUT = "unknown_layout"
    WRONG_TYPE = "wrong_type"
    NO_QUESTION = "no_question"
    NO_GOLD_ANSWER = "no_gold_answer"
    NO_MESSAGES = "no_messages"
    MESSAGE_TOO_LONG = "message_too_long"
    UNKNOWN_ROLE = "unknown_role"
    LAST_NOT_ASSISTANT = "last_not_assistant"
    LAST_WITHOUT_THOUGHT = "last_without_thought"
    LAST_WITHOUT_ANSWER = "last_without_answer"
    ROLES_OUT_OF_ORDER = "roles_out_of_order"
    RESPONSE_IN_QUESTION = "response_in_question"
    CALL_AND_ANSWER = "call_and_answer"
    """A turn before the last mentions ``<answer>``, or the last one ``<tool_call>``."""
    WRONG_ANSWER = "wrong_answer"
    """The correctness filter found the final answer wrong."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a row comes from.

    Attributes:
        file: its name.
        row: its number: in JSON lines the line from 1, otherwise the index from 0.
    """

    file: str
    row: int

    def __str__(self) -> str:
        return f"{self.file} row {self.row}"


@dataclass(frozen=True, slots=True)
class Drop:
    """A row that can't be used.

    Attributes:
        reason: one of the closed set.
        detail: what was found, in a few words; may be empty.
    """

    reason: Reason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class RawTrajectory:
    """A trajectory as it was recorded.

    Attributes:
        question: its question.
        answers: gold answers; empty where the layout has none.
        messages: user and assistant messages in order, without a leading system message.
        system_prompt: the recorded system message, or None.
        source: the row it was.
    """

    question: str
    answers: tuple[str, ...]
    messages: tuple[Message, ...]
    system_prompt: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class Layout:
    """How a row is laid out.

    Attributes:
        name: as in the table above.
        conversation: the column of messages.
        role, content: the names within a message.
        needs_gold: whether a row without a gold answer is dropped.
        columns: the columns that are read, where they exist.
    """

    name: str
    conversation: str
    role: str
    content: str
    needs_gold: bool
    columns: tuple[str, ...]


_USUAL = ("question", "gt", "answer", "answers", "system_prompt", "system")
RAW = Layout(
    "raw", "messages", "role", "content", True, ("meta", "messages", "system_prompt", "system")
)
CLEAN = Layout("clean", "messages", "role", "content", True, ("messages", *_USUAL))
ROLLOUT = Layout("rollout", "messages", "role", "content", False, ("messages", *_USUAL))
SHAREGPT = Layout("sharegpt", "conversations", "from", "value", False, ("conversations", *_USUAL))

_GOLD = ("gt", "answers", "answer")
_ROLES = {
    "human": "user",
    "gpt": "assistant",
    "observation": "user",
    "tool": "user",
    "function_response": "user",
    "function_call": "assistant",
}
"""ShareGPT's names of roles."""


def layout_of(columns: Collection[str]) -> Layout | str:
    """The layout with these columns, or what is missing, in words.

    Example:
        >>> layout_of(["question", "messages", "gt"]).name
        'clean'
    """
    if "messages" in columns:
        if "meta" in columns:
            return RAW
        if "question" not in columns:
            return ROLLOUT
        if any(name in columns for name in _GOLD):
            return CLEAN
        return f"no column for the gold answer (gt); the columns are {_listed(columns)}"
    if "conversations" in columns:
        return SHAREGPT
    return f"no column messages (or conversations); the columns are {_listed(columns)}"


def read_row(row: Mapping[str, Any], layout: Layout, source: Source) -> RawTrajectory | Drop:
    """A row of a known layout."""
    question, gold = row.get("question"), next((row[k] for k in _GOLD if row.get(k)), None)
    if layout is RAW:
        meta = _decoded(row.get("meta"))
        if not isinstance(meta, Mapping):
            return Drop(Reason.NO_QUESTION if meta is None else Reason.WRONG_TYPE, "meta")
        question, gold = meta.get("question"), meta.get("answer")
    answers = _answers(gold)
    if answers is None:
        return Drop(Reason.WRONG_TYPE, f"gold answer {gold!r:.60}")
    if layout.needs_gold and not answers:
        return Drop(Reason.NO_GOLD_ANSWER)
    messages = _messages(row.get(layout.conversation), layout)
    if isinstance(messages, Drop):
        return messages
    system = row.get("system_prompt") or row.get("system")
    if messages[0]["role"] == "system":
        system = messages.pop(0)["content"]
    if question is None and not layout.needs_gold:
        question = next((m["content"] for m in messages if m["role"] == "user"), None)
    if question is not None and not isinstance(question, str):
        return Drop(Reason.WRONG_TYPE, f"question {question!r:.60}")
    if question is None or not question.strip():
        return Drop(Reason.NO_QUESTION)
    if system is not None and not isinstance(system, str):
        return Drop(Reason.WRONG_TYPE, f"system prompt {system!r:.60}")
    return RawTrajectory(question, answers, tuple(messages), system or None, source)


def _listed(columns: Collection[str]) -> str:
    return f"{', '.join(map(str, columns))[:200]}" or "none"


def _decoded(value: Any) -> Any:
    """Some tables keep nested columns as JSON text."""
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _answers(gold: Any) -> tuple[str, ...] | None:
    """Gold answers without blank ones; None where they are no texts."""
    if gold is None:
        return ()
    gold = [gold] if isinstance(gold, str) else gold
    if not isinstance(gold, list | tuple) or not all(isinstance(text, str) for text in gold):
        return None
    parts = (part for text in gold for part in text.split(ANSWER_SEPARATOR))
    return tuple(part for part in parts if part.strip())


def _messages(value: Any, layout: Layout) -> list[Message] | Drop:
    value = _decoded(value)
    if value is None or value == []:
        return Drop(Reason.NO_MESSAGES)
    if not isinstance(value, list | tuple):
        return Drop(Reason.WRONG_TYPE, f"{layout.conversation} {value!r:.60}")
    messages = []
    for number, item in enumerate(value):
        if not isinstance(item, Mapping):
            return Drop(Reason.WRONG_TYPE, f"message {number} is {item!r:.60}")
        role, content = item.get(layout.role), item.get(layout.content)
        if isinstance(content, list):
            content = _joined(content)
        if not isinstance(role, str) or not isinstance(content, str):
            detail = f"message {number}: {layout.role} {role!r:.20}, {layout.content} "
            return Drop(Reason.WRONG_TYPE, f"{detail}{type(content).__name__}")
        if layout is SHAREGPT:
            role = _ROLES.get(role, role)
        messages.append({"role": role, "content": content})
    if messages[0]["role"] == "system" and len(messages) == 1:
        return Drop(Reason.NO_MESSAGES, "only a system message")
    return messages


def _joined(parts: list[Any]) -> str | None:
    """Content in parts, as OpenAI's API has it; None unless all of them are texts."""
    texts = [part.get("text") if isinstance(part, Mapping) else None for part in parts]
    return "".join(map(str, texts)) if all(isinstance(text, str) for text in texts) else None
