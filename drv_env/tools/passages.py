"""Cutting pages: snippets around a match, passages for a goal.

A page that fits is shown whole.  Of a longer one passages are: the sentences that share terms with
the goal, by their stems, together with what stands around them, for an answer is seldom in the
sentence that has the question's words.  What is left out is marked.

Pure functions of text.  Text is only ever cut, never altered.  What a term is says
:mod:`drv_env.unicode_text`; a word, for limits, is a run of up to 64 characters other than
white space, or one Chinese or Japanese character.
Time is linear in the text: a few tenths of a second for a million characters.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from math import log1p

from drv_env.stems import is_common, language_of, stem
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

GAP = "…"
"""Stands for what is left out."""

WORDS_SHOWN = 400
"""Of a page, the most words that are shown where nothing else is set: some 550 tokens."""

_LEAST_PIECE = 10
"""Words of the pieces into which very long sentences are cut, where the limit allows for it."""


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


@dataclass(frozen=True, slots=True)
class Excerpt:
    """What is shown of a page.

    Attributes:
        passages: slices of its text, in order, without blanks around them.
        begins: the first is the beginning of the page.
        ends: the last is its end.
        matched: they were chosen for the goal; False for a page's mere beginning.
    """

    passages: tuple[str, ...]
    begins: bool = True
    ends: bool = True
    matched: bool = True

    @property
    def text(self) -> str:
        """The passages, with a mark for each stretch that is left out.

        Example:
            >>> Excerpt(("The mill is old.", "Its owner is Salen."), ends=False).text
            'The mill is old. … Its owner is Salen. …'
        """
        before, after = "" if self.begins else f"{GAP} ", "" if self.ends else f" {GAP}"
        return before + f" {GAP} ".join(self.passages) + after


def excerpt(text: str, goal: str, words: int | None) -> Excerpt:
    """What is shown of a page to somebody with a goal.

    Args:
        text: the page's.
        goal: what is looked for; its common words are not counted.
        words: limit on all passages together, at least 1; None for the whole page.

    Returns:
        The whole page where it fits.  Otherwise the passages in which most of the goal's terms
        stand, rare ones counting more, with the sentences around them and the heading above;
        the page's beginning where it has no term of the goal.

    Example:
        >>> page = "Ada is a person. " * 9 + "Her mentor was the smith. He is called Salen."
        >>> excerpt(page, "who mentored her", 12).text
        '… Her mentor was the smith. He is called Salen.'
    """
    whole = text.strip()
    starts = [] if words is None else [match.start() for match in _WORD.finditer(text)]
    if words is None or len(starts) <= words:
        return Excerpt((whole,) if whole else ())
    chosen = _Page(text, starts, goal, words).chosen()
    if not chosen:
        return Excerpt((beginning(text, words),), ends=False, matched=False)
    first, last = chosen[0][0], chosen[-1][1]
    return Excerpt(
        tuple(text[start:end] for start, end in chosen),
        begins=not text[:first].strip(),
        ends=not text[last:].strip(),
    )


class _Page:
    """A page that is too long, cut for a goal.

    Args:
        text: the page's.
        starts: where its words begin.
        goal: what is looked for.
        words: the limit.
    """

    def __init__(self, text: str, starts: list[int], goal: str, words: int) -> None:
        self._text = text
        self._starts = starts
        self._words = words
        self._language = language_of(text)
        self._wanted = {
            stem(term, self._language)
            for term in query_terms(goal)
            if term not in COMMON and not is_common(term, self._language)
        }
        self._spans = self._sentences() if self._wanted else []
        self._headings = self._sections()

    def chosen(self) -> list[tuple[int, int]]:
        """Spans of the passages, in order; none when the goal has no term on the page."""
        scores = self._scores()
        ranked = sorted((-score, number) for number, score in enumerate(scores) if score > 0)
        taken: set[int] = set()
        left = self._words
        for _, number in ranked:
            size = self._size(number)
            if number in taken or size > left:
                if not taken and size > left:
                    return [self._within(number)]
                continue
            taken.add(number)
            left = self._around(number, taken, left - size)
            if left <= 0:
                break
        return self._joined(self._filled(taken, left))

    def _around(self, number: int, taken: set[int], left: int) -> int:
        """Take what stands right around a sentence; the words that are left."""
        near = [number + 1, number - 1, number + 2]
        heading = self._headings[number]
        if heading is not None:
            near.append(heading)
        for other in near:
            left = self._take(other, taken, left)
        return left

    def _filled(self, taken: set[int], left: int) -> set[int]:
        """Let every passage grow at both ends, a sentence at a time, while words are left."""
        edges = [(number, step) for number in sorted(taken) for step in (1, -1)]
        while edges and left > 0:
            going = []
            for number, step in edges:
                number += step
                if number in taken:
                    continue
                before = left
                left = self._take(number, taken, left)
                if left < before:
                    going.append((number, step))
            edges = going
        return taken

    def _take(self, number: int, taken: set[int], left: int) -> int:
        """Take a sentence as context, if it is there and short beside the limit."""
        if number in taken or not 0 <= number < len(self._spans):
            return left
        size = self._size(number)
        if size > left or 3 * size > self._words:
            return left
        taken.add(number)
        return left - size

    def _joined(self, taken: set[int]) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        before = -2
        for number in sorted(taken):
            start, end = self._spans[number]
            if number == before + 1:
                start = found.pop()[0]
            found.append((start, end))
            before = number
        return found

    def _within(self, number: int) -> tuple[int, int]:
        """The best stretch of a sentence that is longer than the limit."""
        start, end = self._spans[number]
        sentence = self._text[start:end]
        language = self._language
        wanted = {term for term in terms(sentence) if stem(term, language) in self._wanted}
        cut = snippet(sentence, wanted, self._words)
        at = start + sentence.index(cut)
        return at, at + len(cut)

    def _size(self, number: int) -> int:
        start, end = self._spans[number]
        return bisect_left(self._starts, end) - bisect_left(self._starts, start)

    def _sentences(self) -> list[tuple[int, int]]:
        """Spans of the sentences; of the longest, pieces."""
        found = []
        for match in _SENTENCE.finditer(self._text):
            stripped = match[0].strip()
            if stripped:
                start = match.start() + match[0].index(stripped[0])
                found += self._pieces(start, start + len(stripped))
        return found

    def _pieces(self, start: int, end: int) -> list[tuple[int, int]]:
        first, last = bisect_left(self._starts, start), bisect_left(self._starts, end)
        step = self._words // 4
        if step < _LEAST_PIECE or last - first <= 2 * step:
            return [(start, end)]
        marks = [*self._starts[first + step : last : step], end]
        return [
            (begin, begin + len(self._text[begin:stop].rstrip()))
            for begin, stop in zip([start, *marks], marks, strict=False)
        ]

    def _sections(self) -> list[int | None]:
        """For each sentence the number of the heading that it stands under."""
        found: list[int | None] = []
        heading = None
        for number in range(len(self._spans)):
            if self._is_heading(number):
                heading = number
                found.append(None)
            else:
                found.append(heading)
        return found

    def _is_heading(self, number: int) -> bool:
        """A line of its own, marked as one, or short, without a stop, and with prose below."""
        start, end = self._spans[number]
        line_before = self._text[max(0, start - 2) : start]
        if (start and "\n" not in line_before) or self._text[end : end + 1] not in ("", "\n"):
            return False
        if self._text.startswith("#", start):
            return True
        size = self._size(number)
        following = number + 1 < len(self._spans) and self._size(number + 1) > max(size, 7)
        return size <= 12 and following and self._text[end - 1] not in ".!?。！？:;,"

    def _scores(self) -> list[float]:
        language, wanted = self._language, self._wanted
        shared = [
            wanted.intersection(stem(term, language) for term in terms(self._text[start:end]))
            for start, end in self._spans
        ]
        counts = Counter(term for found in shared for term in found)
        weights = {term: log1p(len(self._spans) / count) for term, count in counts.items()}
        scores = []
        for found, heading in zip(shared, self._headings, strict=True):
            above = shared[heading] - found if heading is not None else ()
            own = sum(weights[term] for term in sorted(found))
            scores.append(own + sum(weights[term] for term in sorted(above)) / 2)
        return scores


def beginning(text: str, words: int) -> str:
    """The first ``words`` words of a text."""
    end = 0
    for number, match in enumerate(_WORD.finditer(text)):
        if number == words:
            break
        end = match.end()
    return text[:end].strip()
