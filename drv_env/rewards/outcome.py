"""Outcome of a final answer by its words: exact match and token F1.

``exact_match`` and ``token_f1`` are those of the DR-Venus release, on text in its plain form
(:func:`~drv_env.unicode_text.plain_text`: one normal form, ligatures and the like undone): lower
case, every ASCII punctuation mark a space, white space folded; several gold answers count by the
best.  What they call equal may differ in a sign: ``<5`` and ``>5`` do to no one else.
:func:`same_answer` is for who wants to be sure.

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
from drv_env.unicode_text import CJK, canonical_text, plain_text

_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation, " "))


def normalise(text: str) -> str:
    """Plain text in lower case, ASCII punctuation to spaces, white space folded.

    Example:
        >>> normalise("The  U.S., (１９１２)")
        'the u s 1912'
    """
    return " ".join(plain_text(text).lower().translate(_PUNCTUATION).split())


def same_answer(answer: str, gold: str) -> bool:
    """Whether two texts differ in nothing but case, white space, quotes and a final stop.

    Or in Unicode's normal form and width, or in Markdown's ``**`` around the whole.  Double
    quotes go in pairs, single ones around the whole; a curly one is a straight one.  Every
    other sign counts, and white space by being there.  Blank texts are the same as none.

    Example:
        >>> same_answer(" “new  york”. ", "New York"), same_answer("-5", "5")
        (True, False)
    """
    bare = _bare(answer)
    return bool(bare) and bare == _bare(gold)


_STRAIGHT = str.maketrans(dict.fromkeys("“”„‟", '"') | dict.fromkeys("‘’‚‛", "'"))
_STOPS = (".", "。", "।", "۔", "።")
_QUOTE_PAIRS = re.compile(
    r"""(?<![^\s(\[])"(?=\S)(?P<straight>[^"]*[^"\s])"(?!\w)"""  # not the inches of 5" by 6"
    "|«(?P<guillemets>[^«»]+)»|»(?P<inward>[^«»]+)«|‹(?P<single>[^‹›]+)›"
    "|「(?P<corner>[^「」]+)」|『(?P<white>[^『』]+)』"
)
_LAYERS = 8
"""Quotes, bold and stops around each other that are taken off; time stays linear."""
_AROUND = re.compile(r"'(?P<quoted>[^']+)'|\*\*(?P<bold>[^*\s](?:[^*]*[^*\s])?)\*\*")


def _bare(text: str) -> str:
    """The text without what may differ; quotes, bold and a stop are taken off layer by layer."""
    text = canonical_text(text).lower().translate(_STRAIGHT)
    for _ in range(_LAYERS):
        text = " ".join(text.split())
        shorter = _QUOTE_PAIRS.sub(lambda pair: pair[pair.lastgroup or 0], text)
        around = _AROUND.fullmatch(shorter)
        if around is not None:
            shorter = around[around.lastgroup or 0]
        elif shorter.endswith(_STOPS) and not shorter[:-1].endswith(_STOPS):
            shorter = shorter[:-1]
        if shorter == text:
            break
        text = shorter
    return text


def exact_match(answer: str, task: TaskLike) -> float:
    """1.0 when the normalised answer equals a normalised gold answer, else 0.0."""
    found = normalise(answer)
    return float(any(found == normalise(gold) for gold in task_from(task).answers))


def token_f1(answer: str, task: TaskLike) -> float:
    """The best F1 in [0, 1] between multisets of words, over the gold answers."""
    found = normalise(answer).split()
    return max(_f1(found, normalise(gold).split()) for gold in task_from(task).answers)


def exact_match_cjk(answer: str, task: TaskLike) -> float:
    """1.0 when the answer has a gold answer's :func:`signed_tokens`, in order, else 0.0.

    An answer of punctuation alone matches nothing.

    Example:
        >>> exact_match_cjk("《北京》。", ("Q", "北京"))
        1.0
    """
    found = signed_tokens(answer)
    return float(
        bool(found) and any(found == signed_tokens(gold) for gold in task_from(task).answers)
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


def signed_tokens(text: str) -> list[str]:
    """The same with the signs that make another number or name of a token.

    Before a number ``< > ≤ ≥ ≈ ≠ ~ ± + -``, a decimal point and currencies, behind it ``%``,
    ``‰``, ``°`` and currencies belong to it; a sign between two digits and ``!`` behind one
    are tokens of their own; ``#`` and ``+`` belong to the letters before them.

    Example:
        >>> signed_tokens("-5 °C, 1/2, C#, 2023年!")
        ['-5°', 'c', '1', '/', '2', 'c#', '2023', '年']
    """
    text = plain_text(text).lower().translate(_DASHES)
    text = _APART.sub("", text).translate(_marks(_MEANINGFUL))
    return _SIGNED.findall(text)


_MIXED = re.compile(rf"[{CJK}]|[^\s{CJK}]+")
_MEANINGFUL = "<>≤≥≈≠~±+-.,:/^*×÷=%‰°$€£¥₩₹#!"
_BEFORE, _BEHIND = "<>≤≥≈≠~±+.$€£¥₩₹-", "%‰°€£¥₩₹$"
_APART = re.compile(rf"(?<=\d)\s+(?=[{_BEHIND}])|(?<=[<>≤≥≈≠~±$€£¥₩₹])\s+(?=[\d.])")
"""White space between a number and its sign, which makes no difference."""
_WORD = f"[^\\s{CJK}{re.escape(_MEANINGFUL)}]+"
_SIGNED = re.compile(
    rf"[{CJK}]|(?:(?<![^\W_])[{_BEFORE}]+(?=\d))?{_WORD}(?:(?<=\d)[{_BEHIND}]+|(?<!\d)[#+]+(?![^\W_]))?"
    rf"|(?<=\d)[{re.escape(_MEANINGFUL)}]+(?=\d)|(?<=\d)!+"
)


@cache
def _marks(but: str = "") -> dict[int, str]:
    """Every character of categories P and S but some → a space; made at first use."""
    every = range(sys.maxunicode + 1)
    found = {code: " " for code in every if unicodedata.category(chr(code))[0] in "PS"}
    return {code: space for code, space in found.items() if chr(code) not in but}


_DASHES = str.maketrans(dict.fromkeys("‐‑‒–—−", "-"))


def _f1(found: list[str], gold: list[str]) -> float:
    common = sum((Counter(found) & Counter(gold)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(found), common / len(gold)
    return 2 * precision * recall / (precision + recall)
