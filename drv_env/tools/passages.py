"""Cutting pages: snippets around a match, sentences for a goal.

Pure functions of text.  Text is only ever cut, never altered.  What a term is says
:mod:`drv_env.unicode_text`; a word, for limits, is a run of up to 64 characters other than
white space, or one Chinese or Japanese character.
Time is linear in the text: a few tenths of a second for a million characters.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection

from drv_env.unicode_text import located_terms, query_terms, terms

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
_WORD = re.compile(rf"[{_CJK}]|[^\s{_CJK}]{{1,64}}")
_SENTENCE = re.compile(r"[^.!?。！？\n]*(?:[.!?](?!\s|$)[^.!?。！？\n]*)*(?:[.!?。！？]+|\n|$)")

_COMMON = (
    "a an and are as at be by did do does for from has have how in is it its of on or s that the "
    "their this to was were what when where which who whom whose why with"
)
COMMON = frozenset(_COMMON.split())
"""Words that say nothing about what a goal is after."""


def snippet(text: str, wanted: Collection[str], words: int) -> str:
    """Up to ``words`` words of ``text`` around where most of the wanted terms stand.

    Of equally good places the first is taken; without a match, the beginning.

    Example:
        >>> snippet("Morvane is a city. The mayor is Tavelin.", {"mayor"}, 3)
        'The mayor is'
    """
    spans = [match.span() for match in _WORD.finditer(text)]
    if len(spans) <= words:
        return text.strip()
    starts = [start for start, _ in spans]
    hits = [
        (bisect_right(starts, start) - 1, term)
        for term, start in located_terms(text)
        if term in wanted
    ]
    first, last = _densest(hits, words, len(wanted))
    start = first - (words - (last - first + 1)) // 2
    start = max(0, min(start, len(spans) - words))
    return text[spans[start][0] : spans[start + words - 1][1]]


def _densest(hits: list[tuple[int, str]], words: int, most: int) -> tuple[int, int]:
    """The first window of ``words`` words, from a hit on, that holds most different terms.

    Args:
        hits: number of the word and its term, in order.
        words: of a window.
        most: different terms that there can be.

    Returns:
        Numbers of the words in which the window's first and last new terms stand; zeros
        without a hit.
    """
    best = place = end = 0
    inside: Counter[str] = Counter()
    for start, (number, term) in enumerate(hits):
        while end < len(hits) and hits[end][0] < number + words:
            inside[hits[end][1]] += 1
            end += 1
        if len(inside) > best:
            best, place = len(inside), start
            if best == most:
                break
        inside[term] -= 1
        if not inside[term]:
            del inside[term]
    if not hits:
        return 0, 0
    first = last = hits[place][0]
    seen: set[str] = set()
    for number, term in hits[place:]:
        if number >= first + words:
            break
        if term not in seen:
            seen.add(term)
            last = number
    return first, last


def sentences(text: str) -> list[str]:
    """The sentences of a text, stripped, blank ones left out.

    Example:
        >>> sentences("It costs 3.5 crowns. Who pays?")
        ['It costs 3.5 crowns.', 'Who pays?']
    """
    parts = (match[0].strip() for match in _SENTENCE.finditer(text))
    return [part for part in parts if part]


def evidence(text: str, goal: str, words: int) -> list[str]:
    """The sentences that bear on a goal, those that share most terms with it first.

    Args:
        text: the page.
        goal: what is looked for; its common words are not counted.
        words: limit on all of them together, at least 1.  A sentence that does not fit
            is passed over; the first is cut around its match instead.

    Returns:
        Sentences; empty when none shares a term with the goal.

    Example:
        >>> evidence("Tavelin is a person. The mentor is Salen.", "her mentor", 10)
        ['The mentor is Salen.']
    """
    wanted = frozenset(query_terms(goal)) - COMMON
    scored = []
    if wanted:
        for number, sentence in enumerate(sentences(text)):
            shared = len(wanted.intersection(terms(sentence)))
            if shared:
                scored.append((-shared, number, sentence))
    scored.sort()
    found: list[str] = []
    left = words
    for _, _, sentence in scored:
        size = sum(1 for _ in _WORD.finditer(sentence))
        if size <= left:
            found.append(sentence)
            left -= size
        elif not found:
            return [snippet(sentence, wanted, words)]
        if left <= 0:
            break
    return found


def beginning(text: str, words: int) -> str:
    """The first ``words`` words of a text."""
    end = 0
    for number, match in enumerate(_WORD.finditer(text)):
        if number == words:
            break
        end = match.end()
    return text[:end].strip()
