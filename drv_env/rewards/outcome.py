"""Outcome of a final answer by its words: exact match and token F1.

``exact_match`` and ``token_f1`` are those of the DR-Venus release: lower case, every ASCII
punctuation mark a space, white space folded; several gold answers count by the best.

They mislead where words are not set apart by spaces: ``北京。`` is not ``北京`` to them, and
a sentence is one word.  ``exact_match_cjk`` and ``token_f1_cjk`` score Chinese, Japanese
and Korean by characters and other text by words (:func:`mixed_tokens`).  Korean has spaces,
but its particles are joined to the words; KorQuAD 1.0 (arXiv 1909.07005) scores it by
characters too.
"""

from __future__ import annotations

import re
import string
import sys
import unicodedata
from collections import Counter
from functools import cache

from drv_env.tasks import TaskLike, task_from
from drv_env.unicode_text import CJK

_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation, " "))


def normalise(text: str) -> str:
    """Lower case, ASCII punctuation to spaces, white space folded.

    Example:
        >>> normalise("The  U.S., (1912)")
        'the u s 1912'
    """
    return " ".join(text.lower().translate(_PUNCTUATION).split())


def exact_match(answer: str, task: TaskLike) -> float:
    """1.0 when the normalised answer equals a normalised gold answer, else 0.0."""
    found = normalise(answer)
    return float(any(found == normalise(gold) for gold in task_from(task).answers))


def token_f1(answer: str, task: TaskLike) -> float:
    """The best F1 in [0, 1] between multisets of words, over the gold answers."""
    found = normalise(answer).split()
    return max(_f1(found, normalise(gold).split()) for gold in task_from(task).answers)


def exact_match_cjk(answer: str, task: TaskLike) -> float:
    """1.0 when the answer has a gold answer's :func:`mixed_tokens`, in order, else 0.0.

    An answer of punctuation alone matches nothing.

    Example:
        >>> exact_match_cjk("《北京》。", ("Q", "北京"))
        1.0
    """
    found = mixed_tokens(answer)
    return float(
        bool(found) and any(found == mixed_tokens(gold) for gold in task_from(task).answers)
    )


def token_f1_cjk(answer: str, task: TaskLike) -> float:
    """The best F1 in [0, 1] between multisets of :func:`mixed_tokens`, over the gold answers.

    Characters say less than words: two names that share a character share a score above 0.

    Example:
        >>> token_f1_cjk("北京市", ("Q", "北京"))
        0.8
    """
    found = mixed_tokens(answer)
    return max(_f1(found, mixed_tokens(gold)) for gold in task_from(task).answers)


def mixed_tokens(text: str) -> list[str]:
    """Each Chinese, Japanese or Korean character singly, other text by words.

    Full-width and half-width forms are folded (Unicode NFKC), letters are lower case,
    every character of Unicode's categories P (punctuation) and S (symbols) is a space.
    Traditional and simplified characters, and numbers in words, are left apart.

    Example:
        >>> mixed_tokens("ｉＰｈｏｎｅ１５手机，2023年")
        ['iphone15', '手', '机', '2023', '年']
    """
    folded = unicodedata.normalize("NFKC", text).lower()
    return _MIXED.findall(folded.translate(_marks()))


_MIXED = re.compile(rf"[{CJK}]|[^\s{CJK}]+")


@cache
def _marks() -> dict[int, str]:
    """Every character of categories P and S → a space; made at first use."""
    every = range(sys.maxunicode + 1)
    return {code: " " for code in every if unicodedata.category(chr(code))[0] in "PS"}


def _f1(found: list[str], gold: list[str]) -> float:
    common = sum((Counter(found) & Counter(gold)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(found), common / len(gold)
    return 2 * precision * recall / (precision + recall)
