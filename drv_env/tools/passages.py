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
from functools import lru_cache
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
    if words is None:
        return Excerpt((whole,) if whole else ())
    page = (_kept_page if len(text) <= _LONGEST_KEPT else _Page)(text, words)
    if page.fits:
        return Excerpt((whole,) if whole else ())
    chosen = _Choice(page, goal).spans()
    if not chosen:
        return Excerpt((beginning(text, words),), ends=False, matched=False)
    first, last = chosen[0][0], chosen[-1][1]
    return Excerpt(
        tuple(text[start:end] for start, end in chosen),
        begins=not text[:first].strip(),
        ends=not text[last:].strip(),
    )


class _Page:
    """A page taken apart, whatever the goal.

    Attributes:
        text: the page's.
        words: the limit on what is shown.
        fits: it has no more words; the rest is left out.
        language: that it is written in, or None.
        spans: of its sentences; of the longest, of pieces.
        sizes: their words.
        headings: for each the number of the heading that it stands under.
        stems: of the terms of each.
    """

    def __init__(self, text: str, words: int) -> None:
        self.text = text
        self.words = words
        self._starts = [match.start() for match in _WORD.finditer(text)]
        self.fits = len(self._starts) <= words
        self.language = None if self.fits else language_of(text)
        self.spans = [] if self.fits else self._sentences()
        self.sizes = [self._size(start, end) for start, end in self.spans]
        self.headings = self._sections()
        self.stems = [
            frozenset(stem(term, self.language) for term in terms(text[start:end]))
            for start, end in self.spans
        ]

    def _size(self, start: int, end: int) -> int:
        return bisect_left(self._starts, end) - bisect_left(self._starts, start)

    def _sentences(self) -> list[tuple[int, int]]:
        found = []
        for match in _SENTENCE.finditer(self.text):
            stripped = match[0].strip()
            if stripped:
                start = match.start() + match[0].index(stripped[0])
                found += self._pieces(start, start + len(stripped))
        return found

    def _pieces(self, start: int, end: int) -> list[tuple[int, int]]:
        step = self.words // 4
        if step < _LEAST_PIECE or self._size(start, end) <= 2 * step:
            return [(start, end)]
        first, last = bisect_left(self._starts, start), bisect_left(self._starts, end)
        marks = [*self._starts[first + step : last : step], end]
        return [
            (begin, begin + len(self.text[begin:stop].rstrip()))
            for begin, stop in zip([start, *marks], marks, strict=False)
        ]

    def _sections(self) -> list[int | None]:
        found: list[int | None] = []
        heading = None
        for number in range(len(self.spans)):
            if self._is_heading(number):
                heading = number
                found.append(None)
            else:
                found.append(heading)
        return found

    def _is_heading(self, number: int) -> bool:
        """A line of its own, marked as one, or short, without a stop, and with prose below."""
        start, end = self.spans[number]
        line_before = self.text[max(0, start - 2) : start]
        if (start and "\n" not in line_before) or self.text[end : end + 1] not in ("", "\n"):
            return False
        if self.text.startswith("#", start):
            return True
        size = self.sizes[number]
        prose = number + 1 < len(self.sizes) and self.sizes[number + 1] > max(size, 7)
        return size <= 12 and prose and self.text[end - 1] not in ".!?。！？:;,"


_LONGEST_KEPT = 2_000
"""Characters of a page that is kept taken apart: an agent, or many, come back to it."""

_kept_page = lru_cache(4_096)(_Page)


class _Choice:
    """What is shown of a page that doesn't fit.

    Args:
        page: taken apart.
        goal: what is looked for.
    """

    def __init__(self, page: _Page, goal: str) -> None:
        self._page = page
        language = page.language
        self._wanted = {
            stem(term, language)
            for term in query_terms(goal)
            if term not in COMMON and not is_common(term, language)
        }

    def spans(self) -> list[tuple[int, int]]:
        """Of the passages, in order; none when the goal has no term on the page."""
        page = self._page
        ranked = sorted((-score, number) for number, score in self._scores().items())
        taken: set[int] = set()
        left = page.words
        for _, number in ranked:
            size = page.sizes[number]
            if number in taken or size > left:
                if not taken and size > left:
                    return [self._within(number)]
                continue
            taken.add(number)
            left = self._around(number, taken, left - size)
            if left <= 0:
                break
        return self._joined(self._filled(taken, left))

    def _scores(self) -> dict[int, float]:
        """By the number of each sentence that has, or stands under, a term of the goal."""
        page = self._page
        shared = [self._wanted & stems for stems in page.stems]
        counts = Counter(term for found in shared for term in found)
        weights = {term: log1p(len(page.spans) / count) for term, count in counts.items()}
        scores = {}
        for number, found in enumerate(shared):
            heading = page.headings[number]
            above = shared[heading] - found if heading is not None else ()
            if found or above:
                own = sum(weights[term] for term in sorted(found))
                scores[number] = own + sum(weights[term] for term in sorted(above)) / 2
        return scores

    def _around(self, number: int, taken: set[int], left: int) -> int:
        """Take what stands right around a sentence; the words that are left."""
        near = [number + 1, number - 1, number + 2]
        heading = self._page.headings[number]
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
        page = self._page
        if number in taken or not 0 <= number < len(page.spans):
            return left
        size = page.sizes[number]
        if size > left or 3 * size > page.words:
            return left
        taken.add(number)
        return left - size

    def _joined(self, taken: set[int]) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        before = -2
        for number in sorted(taken):
            start, end = self._page.spans[number]
            if number == before + 1:
                start = found.pop()[0]
            found.append((start, end))
            before = number
        return found

    def _within(self, number: int) -> tuple[int, int]:
        """The best stretch of a sentence that is longer than the limit."""
        page = self._page
        start, end = page.spans[number]
        sentence = page.text[start:end]
        wanted = {term for term in terms(sentence) if stem(term, page.language) in self._wanted}
        cut = snippet(sentence, wanted, page.words)
        at = start + sentence.index(cut)
        return at, at + len(cut)


def beginning(text: str, words: int) -> str:
    """The first ``words`` words of a text."""
    end = 0
    for number, match in enumerate(_WORD.finditer(text)):
        if number == words:
            break
        end = match.end()
    return text[:end].strip()
