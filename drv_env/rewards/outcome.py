"""Outcome of a final answer by its words: exact match and token F1.

Normalisation and scores are those of the DR-Venus release: lower case, every ASCII
punctuation mark a space, white space folded; several gold answers count by the best.
"""

from __future__ import annotations

import string
from collections import Counter

from drv_env.tasks import Task

_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation, " "))


def normalise(text: str) -> str:
    """Lower case, ASCII punctuation to spaces, white space folded.

    Example:
        >>> normalise("The  U.S., (1912)")
        'the u s 1912'
    """
    return " ".join(text.lower().translate(_PUNCTUATION).split())


def exact_match(answer: str, task: Task) -> float:
    """1.0 when the normalised answer equals a normalised gold answer, else 0.0."""
    found = normalise(answer)
    return float(any(found == normalise(gold) for gold in task.answers))


def token_f1(answer: str, task: Task) -> float:
    """The best F1 in [0, 1] between multisets of words, over the gold answers."""
    found = normalise(answer).split()
    return max(_f1(found, normalise(gold).split()) for gold in task.answers)


def _f1(found: list[str], gold: list[str]) -> float:
    common = sum((Counter(found) & Counter(gold)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(found), common / len(gold)
    return 2 * precision * recall / (precision + recall)
