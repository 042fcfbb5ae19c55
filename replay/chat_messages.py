"""Chat messages as other people write them, brought into texts of user and assistant.

What is understood, in any mixture: roles by OpenAI's and ShareGPT's names; ``tool_calls`` and
``function_call``, arguments as an object or as JSON text; a message before results whose whole
text is a call; results in messages of their own (``tool``, ``observation``, …), by
``tool_call_id`` or in the order of the calls; the thought in a field of its own
(:mod:`drv_env.chat_turns`); content in parts, those of tools among them.

Calls become ``<tool_call>`` blocks of their turn, and the results of a turn one user message of
``<tool_response>`` blocks in the order of the calls.  Texts of user and assistant that have
neither stay byte for byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from drv_env.calls import ARGUMENTS, call_object, parse_arguments, parse_loosely
from drv_env.chat_turns import thought_field
from drv_env.protocol import (
    ANSWER,
    CALL,
    END_ANSWER,
    END_RESPONSE,
    END_THINK,
    RESPONSE,
    THINK,
    call_block,
    render_observation,
    thought_block,
)
from replay.raw_trajectory import Drop, Message, Reason

SYSTEM, USER, ASSISTANT = "system", "user", "assistant"
_CALL, _RESULT = "call", "result"
_ROLES = {
    **dict.fromkeys(("system", "developer"), SYSTEM),
    **dict.fromkeys(("user", "human"), USER),
    **dict.fromkeys(("assistant", "gpt", "chatgpt", "bot", "model", "ai"), ASSISTANT),
    **dict.fromkeys(("function_call", "tool_call"), _CALL),
    **dict.fromkeys(
        (
            "tool",
            "observation",
            "function",
            "function_response",
            "tool_response",
            "tool_result",
            "ipython",
            "environment",
        ),
        _RESULT,
    ),
}


@dataclass(slots=True)
class _Call:
    text: str
    id: str | None = None


@dataclass(slots=True)
class _Entry:
    """One message, taken apart; ``results`` are pairs of the call's id and the text."""

    role: str
    text: str = ""
    thought: str = ""
    calls: list[_Call] = field(default_factory=list)
    results: list[tuple[str | None, str]] = field(default_factory=list)


def plain_messages(items: Sequence[Any], name: str) -> list[Message] | Drop:
    """Messages of ``role`` and ``content``, or why they are none.

    Args:
        items: as they are in the row.
        name: the column's, for the detail of a drop.
    """
    if all(map(_is_plain, items)):
        return [{"role": item["role"], "content": item["content"]} for item in items]
    entries: list[_Entry] = []
    for number, item in enumerate(items):
        if not isinstance(item, Mapping):
            return Drop(Reason.WRONG_TYPE, f"{name}: message {number} is {item!r:.60}")
        entry = _entry(item, number)
        if isinstance(entry, Drop):
            return entry
        entries.append(entry)
    structured = any(entry.calls or entry.results for entry in entries)
    messages: list[Message] = []
    place = 0
    while place < len(entries):
        entry = entries[place]
        place += 1
        if entry.role == _RESULT:
            texts = [text for _, text in entry.results]
            messages.append(_observations(texts))
            continue
        if entry.role != ASSISTANT:
            if structured and entry.role == USER and any(m["role"] == USER for m in messages):
                return Drop(Reason.ROLES_OUT_OF_ORDER, f"message {place - 1} is a second question")
            messages.append({"role": entry.role, "content": entry.text})
            continue
        while place < len(entries) and entries[place].role == ASSISTANT and entries[place].calls:
            entry = _joined_turn(entry, entries[place])
            place += 1
        results: list[tuple[str | None, str]] = []
        while place < len(entries) and entries[place].role == _RESULT:
            results += entries[place].results
            place += 1
        if results and not entry.calls and CALL not in entry.text:
            _read_bare_calls(entry)
        last = place == len(entries) and not results
        messages.append({"role": ASSISTANT, "content": _turn(entry, structured and last)})
        texts_or_fault = _in_order(entry.calls, results, last)
        if isinstance(texts_or_fault, Drop):
            return texts_or_fault
        if texts_or_fault:
            messages.append(_observations(texts_or_fault))
    return messages


def _is_plain(item: Any) -> bool:
    """Whether the message is one of ours already, as most are."""
    return (
        type(item) is dict
        and len(item) == 2
        and type(item.get("content")) is str
        and item.get("role") in (SYSTEM, USER, ASSISTANT)
    )


# ---- one message ----------------------------------------------------------------------


def _entry(item: Mapping[str, Any], number: int) -> _Entry | Drop:
    given = next((item[key] for key in ("role", "from") if item.get(key) is not None), None)
    content = next((item[key] for key in ("content", "value") if item.get(key) is not None), None)
    if not isinstance(given, str):
        return Drop(Reason.WRONG_TYPE, f"message {number}: role {given!r:.20}")
    role = _ROLES.get(given.strip().lower().replace("-", "_"), given)
    entry = _Entry(ASSISTANT if role == _CALL else role)
    entry.thought = thought_field(item).strip()
    entry.calls = _structured_calls(item)
    if role == _RESULT:
        call_id = item.get("tool_call_id") or item.get("id")
        entry.results.append((call_id if isinstance(call_id, str) else None, _result(content)))
        return entry
    if isinstance(content, list | tuple):
        fault = _read_parts(entry, content)
        if fault is not None:
            return Drop(Reason.WRONG_TYPE, f"message {number}: {fault}")
    elif isinstance(content, Mapping) and role == _CALL:
        entry.calls.append(_call(content))
    elif isinstance(content, str):
        entry.text = content
    elif content is not None or not (entry.calls or entry.thought):
        detail = f"message {number}: role {given!r:.20}, content {type(content).__name__}"
        return Drop(Reason.WRONG_TYPE, detail)
    if role == _CALL and CALL not in entry.text:
        thought, text = _split_thought(entry.text)
        entry.thought = entry.thought or thought
        entry.text = ""
        entry.calls += _written_calls(text)
    if entry.results and role == USER:
        entry.role = _RESULT
    return entry


def _read_parts(entry: _Entry, parts: Sequence[Any]) -> str | None:
    """Put the parts of a content into the entry; what can't be read, in words."""
    texts: list[str] = []
    for part in parts:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if isinstance(part, str):
            texts.append(part)
        elif kind == "tool_use":
            entry.calls.append(_call(part))
        elif kind == "tool_result":
            call_id = part.get("tool_use_id")
            found = (call_id if isinstance(call_id, str) else None, _result(part.get("content")))
            entry.results.append(found)
        elif kind in ("thinking", "reasoning") and isinstance(part.get(kind), str):
            entry.thought = "\n\n".join(filter(None, (entry.thought, part[kind].strip())))
        elif isinstance(part, Mapping) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        else:
            return f"a part of its content is no text: {part!r:.60}"
    entry.text = "".join(texts)
    return None


def _result(content: Any) -> str:
    """A result as text; what is no text as JSON."""
    if isinstance(content, str):
        return content
    if isinstance(content, list | tuple):
        texts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
        if all(isinstance(text, str) for text in texts):
            return "".join(map(str, texts))
    return "" if content is None else json.dumps(content, ensure_ascii=False, default=str)


def _structured_calls(item: Mapping[str, Any]) -> list[_Call]:
    calls = item.get("tool_calls")
    if isinstance(calls, str):
        calls = _json(calls)
    if isinstance(calls, Mapping):
        calls = [calls]
    found = [_call(call) for call in calls] if isinstance(calls, list | tuple) else []
    single = item.get("function_call")
    single = _json(single) if isinstance(single, str) else single
    return found + ([_call(single)] if isinstance(single, Mapping) and not found else [])


def _call(value: Any) -> _Call:
    """A call as the body of ``<tool_call>``; one that can't be read as what is there."""
    if not isinstance(value, Mapping):
        return _Call(value if isinstance(value, str) else json.dumps(value, default=str))
    call_id = value.get("id")
    inner = value.get("function")
    source = inner if isinstance(inner, Mapping) else value
    name = source.get("name")
    arguments: Any = next((source[key] for key in ARGUMENTS if source.get(key) is not None), {})
    if isinstance(arguments, str):
        read = parse_arguments(arguments) if arguments.strip() else {}
        arguments = arguments if read is None else read
    if isinstance(arguments, Mapping):
        # A table gives every call the arguments of all others, as nulls.
        arguments = {key: item for key, item in arguments.items() if item is not None}
    body = {"name": name, "arguments": arguments}
    text = json.dumps(body, ensure_ascii=False, default=str)
    return _Call(text, call_id if isinstance(call_id, str) else None)


def _written_calls(text: str) -> list[_Call]:
    """The calls of a ShareGPT message: JSON of one, or of a list."""
    value = _json(text)
    if isinstance(value, list):
        return [_call(call) for call in value]
    return [_call(value) if isinstance(value, Mapping) else _Call(text.strip())]


_BEFORE_A_CALL = re.compile(r"\s*(?:<\|python_tag\|>|\[TOOL_CALLS\]|<functioncall>)\s*")
_BEHIND_A_CALL = re.compile(r"\s*(?:<\|\w+\|>|</functioncall>|</s>)\s*\Z")


def _read_bare_calls(entry: _Entry) -> None:
    """The calls of a message before results whose text is nothing else, as Llama writes them."""
    thought, text = _split_thought(entry.text)
    text = _BEHIND_A_CALL.sub("", _BEFORE_A_CALL.sub("", text, count=1))
    value = parse_loosely(text)
    found = [call_object(text)] if not isinstance(value, list) else list(map(_object, value))
    if found and None not in found:
        entry.calls = [_call(call) for call in found]
        entry.thought, entry.text = entry.thought or thought, ""


def _object(value: Any) -> dict[str, Any] | None:
    return call_object(json.dumps(value, default=str)) if isinstance(value, Mapping) else None


def _json(text: str) -> Any:
    """JSON as people write it, or None."""
    return parse_loosely(text)


# ---- a turn and its results -----------------------------------------------------------


def _joined_turn(first: _Entry, second: _Entry) -> _Entry:
    thought = "\n\n".join(filter(None, (first.thought, second.thought)))
    text = "\n\n".join(filter(None, (first.text, second.text)))
    return _Entry(ASSISTANT, text, thought, first.calls + second.calls)


def _turn(entry: _Entry, ends: bool) -> str:
    """The assistant's message as one text.

    What is said beside a structured call, or before the answer, belongs to the thought.

    Args:
        entry: the message.
        ends: it ends a conversation whose calls and results are structured: then what it says
            is the answer, where no tag tells it.
    """
    if not entry.calls and not entry.thought and not ends:
        return entry.text
    inside, outside = _split_thought(entry.text)
    if entry.calls:
        parts = (entry.thought, inside, outside)
        blocks = [call_block(call.text) for call in entry.calls]
    elif ends and ANSWER not in outside and CALL not in outside:
        parts = (entry.thought, inside, "")
        blocks = [f"{ANSWER}\n{outside}\n{END_ANSWER}"] if outside else []
    else:
        before, tag, after = outside.partition(ANSWER) if ends else ("", "", outside)
        parts = (entry.thought, inside, before.strip() if tag else "")
        blocks = [f"{tag}{after}" if tag else f"{before}{after}"]
    thought = "\n\n".join(part for part in parts if part)
    return "\n".join([*([thought_block(thought)] if thought else []), *blocks])


def _split_thought(text: str) -> tuple[str, str]:
    """(the first thought, what is around it), both stripped."""
    start, end = text.find(THINK), text.find(END_THINK)
    if end < 0:
        return "", text.strip()
    if start < 0 or start > end:  # its beginning stood in the prompt
        start, begins = 0, 0
    else:
        begins = start + len(THINK)
    return text[begins:end].strip(), (text[:start] + text[end + len(END_THINK) :]).strip()


def _in_order(
    calls: Sequence[_Call], results: Sequence[tuple[str | None, str]], last: bool
) -> list[str] | Drop:
    """The results in the order of the calls."""
    texts = [text for _, text in results]
    if not calls or last:
        return texts
    ids = [call.id for call in calls]
    found = [call_id for call_id, _ in results]
    if None not in ids and None not in found and len({*ids}) == len(ids):
        by_id = dict(results)
        if {*ids} == {*found} and len(found) == len(ids):
            return [by_id[call_id] for call_id in ids]
        if len(found) == len(ids):
            stray = next((each for each in found if each not in ids), None)
            told = f"a result is of {stray!r:.40}, which is no call's id in its turn"
            if stray is None:
                told = f"two results are of {max(found, key=found.count)!r:.40}"
            return Drop(Reason.UNPAIRED_RESULTS, told)
    elif len(calls) == len(texts):
        return texts
    elif len(texts) == 1:
        listed = _json(texts[0])
        if isinstance(listed, list) and len(listed) == len(calls):
            return [_result(item) for item in listed]
    return Drop(Reason.UNPAIRED_RESULTS, f"{len(calls)} calls and {len(texts)} results in a turn")


def _observations(texts: Sequence[str]) -> Message:
    return {"role": USER, "content": "\n".join(map(_observation, texts))}


def _observation(text: str) -> str:
    inner = text.strip()
    wrapped = inner.startswith(RESPONSE) and inner.endswith(END_RESPONSE)
    return inner if wrapped else render_observation(text)
