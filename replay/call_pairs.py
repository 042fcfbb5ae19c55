"""One call a turn: turns that call several tools at once become turns of one call each.

Models that call tools in parallel write several ``<tool_call>`` blocks in a turn and get as many
``<tool_response>`` blocks back.  The environment does one call a turn.  So each call gets a turn
of its own with its own result behind it; a call without a thought of its own gets the turn's.
A block that holds a list of calls is as many blocks where as many results came back, be it in one
JSON list; else it is a block that can't be read.  Calls and results that are not as many as one
another can't be told together.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise

from drv_env.calls import find_call_end, parse_loosely
from drv_env.protocol import (
    CALL,
    END_CALL,
    END_RESPONSE,
    END_THINK,
    RESPONSE,
    THINK,
    call_block,
    render_observation,
)
from replay.raw_trajectory import Drop, Message, Reason

_WALKS = 16
"""Calls of a turn whose JSON is walked through; the next closing tag ends the others."""
_LISTED = re.compile(rf"{CALL}\s*\[")
_BLOCK = re.compile(rf"\A\s*{RESPONSE}|{END_RESPONSE}\s*\Z")
_BETWEEN = re.compile(rf"{END_RESPONSE}\s*{RESPONSE}")


def one_call_a_turn(messages: Sequence[Message], first_alone: bool = False) -> list[Message] | Drop:
    """The messages with one call a turn, or why they can't be told apart.

    Args:
        messages: user and assistant; those of a turn with at most one call stay as they are.
        first_alone: a turn of several calls with a single result stays as it is too: the
            environment carries out a turn's first call.
    """
    made: list[Message] = []
    place = 0
    while place < len(messages):
        message = messages[place]
        place += 1
        if message["role"] != "assistant":
            made.append(message)
            continue
        reply = messages[place]["content"] if place < len(messages) else ""
        listed = _LISTED.search(message["content"]) is not None
        apart = len(messages) > place + 1 and all(map(_is_result, messages[place : place + 2]))
        alone = message["content"].count(CALL) < 2 and reply.count(RESPONSE) < 2
        if alone and not listed and not apart:
            made.append(message)
            continue
        turns = _turns(message["content"])
        stop = place
        while stop < len(messages) and messages[stop]["role"] == "user":
            stop += 1
        results = [text for reply in messages[place:stop] for text in _results(reply["content"])]
        if listed:
            spread = _turns(_spread(message["content"]))
            if len(results) == 1 < len(spread):
                results = _listed(results[0], len(spread)) or results
            turns = spread if len(spread) == len(results) else turns
        several = len(turns) > 1 or (
            len(turns) == 1
            and (apart or (stop == place + 1 and _count(messages[place]["content"]) > 1))
        )
        if not several or stop == place:
            made.append(message)
            continue
        if first_alone and len(results) == 1:
            made.append(message)
            continue
        if len(results) != len(turns):
            detail = f"message {place - 1}: {len(turns)} calls, {len(results)} results"
            return Drop(Reason.UNPAIRED_RESULTS, detail)
        for turn, result in zip(turns, results, strict=True):
            made += [{"role": "assistant", "content": turn}, {"role": "user", "content": result}]
        place = stop
    return made


def _is_result(message: Message) -> bool:
    return message["role"] == "user" and message["content"].lstrip().startswith(RESPONSE)


def _turns(text: str) -> list[str]:
    """The turn as turns of one call each; [] where no call stands after its thought."""
    opening, start = text.find(THINK), 0
    if opening >= 0:
        end = text.find(END_THINK, opening)
        start = len(text) if end < 0 else end + len(END_THINK)
    spans = _calls(text, start)
    if not spans:
        return []
    thought = text[:start].strip()
    turns = [f"{text[: spans[0][1]]}"]
    for (_, before), (begin, end) in pairwise(spans):
        own = text[before:begin].strip()
        if own.startswith(THINK) and own.endswith(END_THINK):
            thought = own
        turns.append("\n".join(filter(None, (thought, text[begin:end]))))
    return turns


def _calls(text: str, start: int) -> list[tuple[int, int]]:
    """Where the blocks of calls begin and end; a tag inside a call's strings ends none."""
    spans: list[tuple[int, int]] = []
    while (begin := text.find(CALL, start)) >= 0:
        inside = begin + len(CALL)
        end = find_call_end(text, inside) if len(spans) < _WALKS else None
        if end is None:
            end = text.find(END_CALL, inside)
        if end < 0:
            break
        start = end + len(END_CALL)
        spans.append((begin, start))
    return spans


def _spread(text: str) -> str:
    """The text with each block that holds a list of calls as a block a call."""
    spread, place = [], 0
    for begin, end in _calls(text, 0):
        value = parse_loosely(text[begin + len(CALL) : end - len(END_CALL)])
        if isinstance(value, list) and all(isinstance(call, dict) for call in value):
            blocks = (json.dumps(call, ensure_ascii=False) for call in value)
            spread += [text[place:begin], *map(call_block, blocks)]
            place = end
    return "".join([*spread, text[place:]])


def _listed(result: str, count: int) -> list[str] | None:
    """The entries of a result that is a JSON list of so many; None for any other."""
    try:
        value = json.loads(_BLOCK.sub("", result))
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, list) or len(value) != count:
        return None
    texts = (x if isinstance(x, str) else json.dumps(x, ensure_ascii=False) for x in value)
    return [render_observation(text) for text in texts]


def _count(text: str) -> int:
    return len(_results(text))


def _results(text: str) -> list[str]:
    """The ``<tool_response>`` blocks of a message; one without them is one result."""
    inner = text.strip()
    if not (inner.startswith(RESPONSE) and inner.endswith(END_RESPONSE)):
        return [text]
    parts = _BETWEEN.split(inner[len(RESPONSE) : -len(END_RESPONSE)])
    return [text] if len(parts) == 1 else [f"{RESPONSE}{part}{END_RESPONSE}" for part in parts]
