"""Unicode of text: its canonical form, its terms, and what can be written as UTF-8.

The one owner of these rules.  Texts are compared and keyed by :func:`canonical_text`;
indexed by :func:`terms` and sought by :func:`query_terms`, whose terms a text that holds
the query's words always has; and written where only sound Unicode is taken after
:func:`sound_text`.

A term is

* a run of letters, digits and their marks, up to 64 of them, without case.  Folded are
  full-width and half-width forms, presentation forms, ligatures, units in one square and
  digits of other scripts.  Left out are characters without a look of their own (soft
  hyphens, joiners, directions, variation selectors) and what Arabic and Hebrew may leave
  out (vowel points, the tatweel).  A Turkish dotted or dotless i, of either case, is an i.
  Diacritics otherwise count: ``Lodz`` is not ``Łódź``.
* in scripts whose words are not set apart, or joined to their particles (Chinese, Japanese,
  Korean, Thai, Lao, Khmer, Burmese), a pair of neighbouring characters.  A text has its
  single characters for terms too, so that a query of one finds it.

Time is linear in the text: a few tenths of a second for a million characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache

CJK = (
    "\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c"
    "\u3041-\u309f\u30a1-\u30fa\u30fc-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U0001aff0-\U0001b16f\U00020000-\U0003ffff"
)
"""Han, kana, bopomofo and Hangul with their iteration marks, by Unicode 15's blocks; for a
class of characters in a regular expression."""

_UNSPACED = CJK + (
    "\u0e01-\u0e3a\u0e40-\u0e4e"  # Thai
    "\u0e81-\u0ece\u0edc-\u0edf"  # Lao
    "\u1000-\u103f\u1050-\u108f\u109a-\u109d"  # Burmese
    "\u1780-\u17d3\u17d7\u17dc\u17dd"  # Khmer
)
_LONGEST_TERM = 64

_ASCII_TERM = re.compile("[0-9a-z]+")
_WIDE = re.compile("[\u3000\uff01-\uffee]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_CHUNK = re.compile(r"\S+")

_OPTIONAL = re.compile(
    "[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"  # Hebrew points
    "\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed]"  # Arabic
)
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Without a look of their own, besides the category Cf."""
_ZERO_WIDTH_SPACE = "\u200b"
_FORMS = ("wide", "narrow", "font", "initial", "medial", "final", "isolated", "vertical", "square")
_PLAIN_FORMS = tuple(f"<{form}>" for form in (*_FORMS, "sub"))


def canonical_text(text: str) -> str:
    """The text in the one form in which texts are compared and keyed.

    Unicode's normal form C, with full-width and half-width forms folded.  Case, white
    space and every sign stay.

    Example:
        >>> canonical_text("Ge\\u0301rard，１９１２") == "Gérard,1912"
        True
    """
    if text.isascii():
        return text
    text = unicodedata.normalize("NFC", text)
    if _WIDE.search(text):
        folded = _WIDE.sub(lambda match: unicodedata.normalize("NFKC", match[0]), text)
        text = unicodedata.normalize("NFC", folded)
    return text


def caseless_text(text: str) -> str:
    """The canonical form without letter case and with white space folded, as for questions.

    Example:
        >>> caseless_text("Who  Built ＩＴ?")
        'who built it?'
    """
    return " ".join(canonical_text(canonical_text(text).casefold()).split())


def plain_text(text: str) -> str:
    """The canonical form with every other form of a letter or digit as the usual one.

    Ligatures, Roman numerals in one character, units in one square, presentation forms and
    digits of other scripts; characters without a look are left out.  Superscripts, fractions
    and digits in circles stay: ``10²`` is not ``102``.

    Example:
        >>> plain_text("ﬁve ㎏, Ⅳ, ١٢, 10²")
        'five kg, IV, 12, 10²'
    """
    if text.isascii():
        return text
    text = unicodedata.normalize("NFC", text).translate(_forms())
    return unicodedata.normalize("NFC", text)


def terms(text: str) -> list[str]:
    """The terms by which a text is found, in order, with repetitions.

    Example:
        >>> terms("Tavelin's founder?")
        ['tavelin', 's', 'founder']
        >>> terms("강은 ２本")
        ['강', '강은', '은', '2', '本']
    """
    return [term for term, _, _ in _cut(_folded(text), singles=True)]


def query_terms(text: str, most: int | None = None) -> list[str]:
    """The terms that a query asks for, in order, with repetitions.

    Single characters of a script without spaces only where they stand alone.

    Args:
        text: any text.
        most: stop after this many; None for all.

    Example:
        >>> query_terms("나루의 강")
        ['나루', '루의', '강']
    """
    found: list[str] = []
    for term, _, _ in _cut(_folded(text), singles=False):
        if len(found) == most:
            break
        found.append(term)
    return found


def located_terms(text: str) -> Iterator[tuple[str, int]]:
    """The terms of :func:`terms`, each with the index in ``text`` where it begins.

    Where folding changes the length of a stretch without white space, the index is near
    the beginning and never beyond that stretch.

    Example:
        >>> list(located_terms("In Łódź."))
        [('in', 0), ('łódź', 3)]
    """
    if text.isascii():
        for term, start, _ in _cut(text.lower(), singles=True):
            yield term, start
        return
    for chunk in _CHUNK.finditer(text):
        folded = _folded(chunk[0])
        for term, start, _ in _cut(folded, singles=True):
            yield term, chunk.start() + start * len(chunk[0]) // len(folded)


def sound_text(text: str) -> str:
    """The text with halves of a surrogate pair joined, and lone ones become U+FFFD.

    What is no Unicode can't be written as UTF-8, sent, or taken by a tokenizer.

    Example:
        >>> sound_text("a\\ud83d\\ude00b\\ud83d") == "a\\U0001f600b\\ufffd"
        True
    """
    if _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _folded(text: str) -> str:
    """The text of which terms are cut."""
    if text.isascii():
        return text.lower()
    text = unicodedata.normalize("NFC", text).translate(_folds())
    return unicodedata.normalize("NFC", text.casefold())


def _cut(folded: str, *, singles: bool) -> Iterator[tuple[str, int, int]]:
    """(term, start, end) in a folded text."""
    if folded.isascii():
        for match in _ASCII_TERM.finditer(folded):
            if match.end() - match.start() <= _LONGEST_TERM:
                yield match[0], match.start(), match.end()
        return
    for match in _term().finditer(folded):
        start, end = match.span()
        if match.lastgroup is None:
            if end - start <= _LONGEST_TERM:
                yield match[0], start, end
            continue
        for at in range(start, end):
            if singles or end - start == 1:
                yield folded[at], at, at + 1
            if at + 1 < end:
                yield folded[at : at + 2], at, at + 2


@cache
def _term() -> re.Pattern[str]:
    """A run of an unspaced script, as the group ``unspaced``, or a run of anything else."""
    codes = (*range(0x300, 0x20000),)
    marks = _ranges([code for code in codes if unicodedata.category(chr(code))[0] == "M"])
    letter = rf"[^\W_{_UNSPACED}]"
    return re.compile(rf"(?P<unspaced>[{_UNSPACED}]+)|{letter}+(?:[{marks}]+{letter}*)*")


def _ranges(codes: list[int]) -> str:
    """Code points in rising order as the inside of a class of characters."""
    parts, first = [], codes[0]
    for code, after in zip(codes, [*codes[1:], -1], strict=True):
        if after != code + 1:
            parts.append(f"{chr(first)}-{chr(code)}")
            first = after
    return "".join(parts)


@cache
def _forms() -> dict[int, str | None]:
    """What becomes of characters that are another form of others, or have no look; made at
    first use."""
    forms: dict[int, str | None] = {}
    for code in (*range(0x80, 0xD800), *range(0xE000, 0x20000), *range(0xE0000, 0xE0200)):
        char = chr(code)
        category = unicodedata.category(char)
        if category == "Cf" or _UNSEEN.match(char):
            forms[code] = None
        elif category == "Nd":
            forms[code] = str(unicodedata.decimal(char))
        else:
            form = unicodedata.decomposition(char)
            letter = form.startswith("<compat>") and category[0] in "LN"
            if letter or form.startswith(_PLAIN_FORMS):
                forms[code] = _UNSEEN.sub("", unicodedata.normalize("NFKC", char))
    return forms | {ord(_ZERO_WIDTH_SPACE): " "}


@cache
def _folds() -> dict[int, str | None]:
    """The same for terms, which say less: no optional marks, one i."""
    folds = {code: form and _OPTIONAL.sub("", form) for code, form in _forms().items()}
    for code in range(0x590, 0x700):
        if _OPTIONAL.match(chr(code)):
            folds[code] = None
    return folds | {ord("İ"): "i", ord("ı"): "i"}
