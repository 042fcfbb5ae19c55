"""A recorded trajectory as it came, and why a row is none."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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
    UNPAIRED_RESULTS = "unpaired_results"
    """Calls and results of a turn can't be told together: more of one than of the other."""
    CALLS_LOST = "calls_lost"
    """There were results of tools, and no call could be kept."""
    RESPONSE_IN_QUESTION = "response_in_question"
    CALL_AND_ANSWER = "call_and_answer"
    """A turn before the last mentions ``<answer>``, or the last one ``<tool_call>``."""
    WRONG_ANSWER = "wrong_answer"
    """The correctness filter found the final answer wrong."""


LINES = (".jsonl", ".ndjson")
"""Ends of the names of JSON lines; ``.gz`` may stand after them."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a row comes from.

    Attributes:
        file: its name.
        row: its number: in JSON lines the line from 1, otherwise the index from 0.
    """

    file: str
    row: int

    @property
    def of_lines(self) -> bool:
        """Whether the file is JSON lines."""
        return self.file.lower().removesuffix(".gz").endswith(LINES)

    def __str__(self) -> str:
        return f"{self.file} {'line' if self.of_lines else 'row'} {self.row}"


@dataclass(frozen=True, slots=True)
class Drop:
    """A row that can't be used.

    Attributes:
        reason: one of the closed set.
        detail: what was found, in a few words; may be empty.
        met: turns before the last that cleaning looked at.
        unread: those of them in which no thought or call could be read.
    """

    reason: Reason
    detail: str = ""
    met: int = 0
    unread: int = 0


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
