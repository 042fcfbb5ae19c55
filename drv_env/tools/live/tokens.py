"""Counting tokens and cutting texts by them, with or without a tokenizer."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from drv_env.errors import ToolError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Tokens: TypeAlias = "Callable[[str], int] | Tokenizer"
"""Counts a text's tokens."""

_WIDE = re.compile(
    "[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7af\uf900-\ufaff\uff00-\uffef]"
)
_MOST_CHARS_PER_TOKEN = 16


def estimate(text: str) -> int:
    """About how many tokens a text has, without a tokenizer.

    One for every Chinese, Japanese or Korean character and one for every four other
    characters.  English prose is met within some 15 %; numbers, code and rare scripts
    take up to twice as many tokens as this says.

    Example:
        >>> estimate("twelve chars"), estimate("北京")
        (3, 2)
    """
    wide = sum(1 for _ in _WIDE.finditer(text))
    return wide + (len(text) - wide + 3) // 4


def parts_of(
    text: str, count: Tokens, most: int, size: int, stop: threading.Event | None = None
) -> tuple[list[str], bool]:
    """The first ``most`` tokens of a text in parts of up to ``size``, and whether more follows.

    Parts end at a line's or word's end where one is near.

    Args:
        text: any text.
        count: how tokens are counted; for a function, counts must not fall as texts grow.
        most: tokens in all.
        size: tokens of one part, at least 1.
        stop: once it is set nothing is counted any more.

    Raises:
        ToolError: when it was stopped.
    """
    counted = count if callable(count) else _by_tokenizer(count)

    def counting(part: str) -> int:
        if stop is not None and stop.is_set():
            raise ToolError("nobody waits for the page any more")
        return counted(part)

    parts: list[str] = []
    at, left = 0, most
    # What is left of the limit after cutting at a word's end is not worth a part of its own.
    while at < len(text) and (not parts or left > size // 10):
        room = min(size, left)
        end = _fitting(text, at, room, counting)
        if end < len(text):
            end = _near_boundary(text, at, end)
        parts.append(text[at:end])
        left -= counting(text[at:end])
        at = end
    return parts or [""], at < len(text)


def _by_tokenizer(tokenizer: Tokenizer) -> Callable[[str], int]:
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


def _fitting(text: str, start: int, room: int, count: Callable[[str], int]) -> int:
    """The furthest end such that text[start:end] has no more than ``room`` tokens."""
    low = start + 1  # a part takes something, or there would be no end
    high = min(len(text), start + room * _MOST_CHARS_PER_TOKEN)
    if count(text[start:high]) <= room:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if count(text[start:middle]) <= room:
            low = middle
        else:
            high = middle - 1
    return low


def _near_boundary(text: str, start: int, end: int) -> int:
    least = start + (end - start) * 9 // 10
    for mark in ("\n", "。", ". ", " "):
        found = text.rfind(mark, least, end)
        if found > start:
            return found + len(mark)
    return end
