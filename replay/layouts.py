"""The layouts in which people keep recorded trajectories, told apart by their columns.

=========  ==================================================================================
raw        ``meta`` (``question``, ``answer``), ``messages``, perhaps ``system_prompt``
clean      ``question``, ``gt``, ``messages``
rollout    ``messages``, perhaps ``request_id`` and ``num_turns``: no question, perhaps a gold
           answer
sharegpt   ``conversations``, perhaps ``system``: no gold answer, unless a column holds it
log        a question (``question``, ``prompt``, ``instruction``, ``input``, …) and what the
           model wrote (``response``, ``output``, ``completion``, …), as one text or messages
=========  ==================================================================================

Names of columns are found as :mod:`drv_env.column_names` finds them.  Messages may be in any of
the forms of :mod:`replay.chat_messages`, their texts logs of :mod:`replay.search_logs`.

This module knows rows, as dictionaries of plain values, and no files.  A row becomes a
:class:`RawTrajectory` or a :class:`Drop`; it never raises.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from drv_env.cells import gold_answers, is_missing
from drv_env.column_names import find, folded, has_column, like
from drv_env.errors import TaskDataError
from drv_env.instructions import question_behind
from replay.chat_messages import plain_messages
from replay.raw_trajectory import Drop, Message, RawTrajectory, Reason, Source
from replay.rendered_chats import prompt_and_reply
from replay.search_logs import is_transcript, with_logs_cut

__all__ = [
    "CLEAN",
    "LOG",
    "RAW",
    "ROLLOUT",
    "SHAREGPT",
    "Drop",
    "Layout",
    "Message",
    "RawTrajectory",
    "Reason",
    "Source",
    "layout_of",
    "read_row",
]


@dataclass(frozen=True, slots=True)
class Layout:
    """How a row is laid out.

    Attributes:
        name: as in the table above.
        conversation: the column of messages, or of a log.
        needs_gold: whether a row without a gold answer is dropped.
        columns: the columns that are read, where they exist.
    """

    name: str
    conversation: str
    needs_gold: bool
    columns: tuple[str, ...] = ()


RAW = Layout("raw", "messages", True)
CLEAN = Layout("clean", "messages", True)
ROLLOUT = Layout("rollout", "messages", False)
SHAREGPT = Layout("sharegpt", "conversations", False)
LOG = Layout("log", "response", False)

_CHATS = ("messages", "conversations", "conversation", "dialogue", "dialog", "chat", "trajectory")
_LOGS = (
    "response",
    "output",
    "completion",
    "generated_text",
    "generation",
    "model_output",
    "full_response",
    "responses",
    "outputs",
    "solution_str",
    "sequences_str",
    "text",
)
_QUESTION = ("question", "problem", "query", "question_text")
_PROMPT = ("instruction", "prompt", "prompts", "input")
_GOLD = (
    "gt",
    "gts",
    "ground_truth",
    "golden_answers",
    "gold_answers",
    "golden_answer",
    "gold_answer",
    "gold",
    "correct_answer",
    "reward_model.ground_truth",
    "answers",
    "answer",
)
_SYSTEM = ("system_prompt", "system")
_READ = frozenset(folded(name.partition(".")[0]) for name in (*_QUESTION, *_GOLD, *_SYSTEM, "meta"))
_READ_OF_LOGS = frozenset(map(folded, _PROMPT))


def layout_of(columns: Collection[str], needs_gold: bool = True) -> Layout | str:
    """The layout with these columns, or what is missing, in words.

    Args:
        columns: of a table, or a row's.
        needs_gold: False where rows of any layout are read without a gold answer too.

    Example:
        >>> layout_of(["question", "messages", "gt"]).name
        'clean'
    """
    return _layout_of(tuple(columns), needs_gold)


@lru_cache(256)
def _layout_of(columns: tuple[str, ...], needs_gold: bool) -> Layout | str:
    def made(kind: Layout, conversation: str) -> Layout:
        wanted = _READ | _READ_OF_LOGS if kind is LOG else _READ
        beside = (n for n in columns if folded(str(n)) in wanted and n != conversation)
        read = (conversation, *beside)
        return Layout(kind.name, conversation, needs_gold and kind.needs_gold, read)

    def first(names: Sequence[str]) -> str | None:
        found = (name if name in columns else like(name, columns) for name in names)
        return next((name for name in found if name is not None), None)

    chat = first(_CHATS)
    if chat is not None:
        if has_column(columns, "meta"):
            return made(RAW, chat)
        if folded(chat) == "conversations":
            return made(SHAREGPT, chat)
        if any(has_column(columns, name.partition(".")[0]) for name in _GOLD):
            return made(CLEAN if first(_QUESTION) is not None else ROLLOUT, chat)
        if needs_gold and has_column(columns, "question"):
            return f"no column for the gold answer (gt); the columns are {_listed(columns)}"
        return made(ROLLOUT, chat)
    log = first(_LOGS)
    if log is not None and (first((*_QUESTION, *_PROMPT)) is not None or folded(log) == "text"):
        return made(LOG, log)
    return f"no column messages (or conversations); the columns are {_listed(columns)}"


def read_row(row: Mapping[str, Any], layout: Layout, source: Source) -> RawTrajectory | Drop:
    """A row of a known layout."""
    needs_gold = layout.needs_gold
    question, gold = _value(row, _QUESTION), _value(row, _GOLD)
    if layout.name == RAW.name:
        meta = _decoded(_value(row, ("meta",)))
        if not isinstance(meta, Mapping):
            return Drop(Reason.NO_QUESTION if meta is None else Reason.WRONG_TYPE, "meta")
        if "question" in meta or "answer" in meta:
            question, gold = meta.get("question"), meta.get("answer")
        else:
            needs_gold = False
    try:
        answers = gold_answers(gold)
    except TaskDataError as error:
        return Drop(Reason.WRONG_TYPE, f"gold answer {gold!r:.60}: {error}"[:200])
    if needs_gold and not answers:
        return Drop(Reason.NO_GOLD_ANSWER)
    if question is not None and not isinstance(question, str):
        return Drop(Reason.WRONG_TYPE, f"question {question!r:.60}")
    messages = _messages(row, layout, question)
    if isinstance(messages, Drop):
        return messages
    system = _value(row, _SYSTEM)
    if messages[0]["role"] == "system":
        system = messages.pop(0)["content"]
    if system is not None and not isinstance(system, str):
        return Drop(Reason.WRONG_TYPE, f"system prompt {system!r:.60}")
    first = next((m for m in messages if m["role"] == "user"), None)
    if first is not None and first is messages[0]:
        behind = question_behind(first["content"], question)
        if behind is not None:
            asked, instructions = behind
            messages[0] = {"role": "user", "content": asked}
            system = "\n\n".join(filter(None, (system, instructions)))
            first, question = messages[0], asked if question is None else question
    if question is None and not needs_gold and first is not None:
        question = first["content"]
    if question is None or not question.strip():
        return Drop(Reason.NO_QUESTION)
    return RawTrajectory(question, answers, tuple(messages), system or None, source)


def _listed(columns: Collection[str]) -> str:
    return f"{', '.join(map(str, columns))[:200]}" or "none"


def _value(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The value of the first column that has one; a blank text is one where nothing else is."""
    blank = None
    for name in names:
        found = find(row, name)
        if found is not None and not is_missing(found[1]):
            return found[1]
        if found is not None and blank is None:
            blank = found[1]
    return blank


def _decoded(value: Any) -> Any:
    """Some tables keep nested columns as JSON text."""
    if isinstance(value, str) and value.lstrip().startswith(("{", "[")):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _messages(row: Mapping[str, Any], layout: Layout, question: str | None) -> list[Message] | Drop:
    value = _decoded(row.get(layout.conversation))
    if is_missing(value):
        return Drop(Reason.NO_MESSAGES)
    if layout.name == LOG.name or (isinstance(value, str) and is_transcript(value)):
        prompt = question if question is not None else _prompt(row)
        if prompt is None and isinstance(value, str) and not is_transcript(value):
            return Drop(Reason.UNKNOWN_LAYOUT, f"no question beside {layout.conversation}")
        value = prompt_and_reply(_decoded(prompt), value)
    if not isinstance(value, list | tuple):
        return Drop(Reason.WRONG_TYPE, f"{layout.conversation} {value!r:.60}")
    messages = plain_messages(value, layout.conversation)
    if isinstance(messages, Drop):
        return messages
    messages = with_logs_cut(messages)
    if not messages or (messages[0]["role"] == "system" and len(messages) == 1):
        return Drop(Reason.NO_MESSAGES, "only a system message")
    return messages


def _prompt(row: Mapping[str, Any]) -> Any:
    """What the model was given: in Alpaca's layout an instruction with its input."""
    instruction, given = _value(row, ("instruction",)), _value(row, ("input",))
    if isinstance(instruction, str) and isinstance(given, str) and given.strip():
        return f"{instruction}\n\n{given}"
    return _value(row, _PROMPT)
