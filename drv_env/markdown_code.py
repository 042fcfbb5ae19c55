"""Markdown's code in a text: what stands there is quoted."""

from __future__ import annotations

import re
from collections.abc import Iterator

_TICKS = re.compile(r"`+")
_FENCE = 3


def code_spans(text: str, start: int = 0) -> Iterator[tuple[int, int]]:
    """Where code stands behind ``start``, ticks included: spans in a line, and fenced blocks.

    What is opened and never closed is none.

    Example:
        >>> text = "a `b` c"
        >>> [text[slice(*span)] for span in code_spans(text)]
        ['`b`']
    """
    fence, opened = 0, 0
    position = start
    while position < len(text):
        end = text.find("\n", position)
        end = len(text) if end < 0 else end
        runs = list(_TICKS.finditer(text, position, end))
        leading = runs and not text[position : runs[0].start()].strip()
        if leading and len(runs[0][0]) >= _FENCE and len(runs) == 1:
            if fence and len(runs[0][0]) >= fence:
                yield opened, runs[0].end()
                fence = 0
            elif not fence:
                fence, opened = len(runs[0][0]), runs[0].start()
        elif not fence:
            yield from _line_spans(runs)
        position = end + 1


def _line_spans(runs: list[re.Match[str]]) -> Iterator[tuple[int, int]]:
    """Pairs of runs of the same length, from left to right."""
    following: dict[int, int] = {}
    closing: list[int] = [-1] * len(runs)
    for number in range(len(runs) - 1, -1, -1):
        length = len(runs[number][0])
        closing[number] = following.get(length, -1)
        following[length] = number
    number = 0
    while number < len(runs):
        if closing[number] < 0:
            number += 1
            continue
        yield runs[number].start(), runs[closing[number]].end()
        number = closing[number] + 1
