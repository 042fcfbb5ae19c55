"""Telling encrypted cells from text: published question sets often hide their plain text.

They do it by XOR with a key, written as base64, with the key's words in a column ``canary``
(BrowseComp, BrowseComp-Plus, BrowseComp-ZH, xbench).  Others write hex, base32, Python's bytes or
the bytes themselves, or use what encrypts files: OpenSSL, Fernet, age, PGP.  Read as questions,
such cells give an evaluation of nothing.  A code of readable text, such as a puzzle has it, is no
ciphertext; hex as an answer may be a checksum.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from typing import Any

from drv_env.column_names import folded

_ALPHABET = re.compile(r"[A-Za-z0-9+/_-]{4,}={0,2}")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_SHORTEST = 16
"""Characters of a cell that looks encrypted by itself, 12 bytes."""
_SHORTEST_BY_CANARY = 8
_FEWEST_ANSWERS = 3


_MARKED = re.compile(
    r"-----BEGIN PGP MESSAGE|age-encryption\.org/|U2FsdGVkX1|gAAAAA[\w-]{60}|ENC\[[\w+/=]{16}"
)
"""How the output of a known tool begins."""
_BEFORE = re.compile(r"data:[\w/+.;-]*base64,|base64:|0x", re.I)
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){16,}")
_BASE32 = re.compile(r"(?=[A-Z]*[2-7])[A-Z2-7]{24,}={0,6}")
_ESCAPED = re.compile(r"\\x[0-9a-fA-F]{2}")
_BYTES = re.compile(r"\[(?:\d{1,3}, ?){15,}\d{1,3}\]")
_FEWEST_UNSEEN = 3


def looks_encrypted(text: str, shortest: int = _SHORTEST) -> bool:
    """Whether a cell looks like ciphertext: a code of bytes that are no text, or such bytes.

    Args:
        text: the cell.
        shortest: characters below which any cell passes for text.

    Example:
        >>> looks_encrypted("TWG4Sb8wHwcD4n9SgVKDYqXQ"), looks_encrypted("SGVsbG8gd29ybGQsIGhlbGxv")
        (True, False)
    """
    text = "".join(text.split("\n")).strip()
    if len(text) < shortest:
        return False
    if _MARKED.match(text) or _BYTES.fullmatch(text):
        return True
    if len(_CONTROL.findall(text)) >= max(_FEWEST_UNSEEN, len(text) // 20):
        return True
    if text[:2] in ("b'", 'b"') and 4 * len(_ESCAPED.findall(text)) > len(text) // 4:
        return True
    text = _BEFORE.sub("", text, count=1) if _BEFORE.match(text) else text
    try:
        return not _is_text(_decoded(text, shortest))
    except (ValueError, binascii.Error):
        return False


def _decoded(text: str, shortest: int) -> bytes:
    """What a code of bytes stands for.

    Raises:
        ValueError: when it is no code.
    """
    if _HEX.fullmatch(text):
        return bytes.fromhex(text)
    if _BASE32.fullmatch(text):
        return base64.b32decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 8))
    if not _ALPHABET.fullmatch(text):
        raise ValueError("no code")
    if shortest < _SHORTEST:
        if len(text) % 4:
            raise ValueError("no code")
    elif not (
        any(character.isdigit() or character in "+/-_" for character in text)
        and any(character.isupper() for character in text)
    ):
        raise ValueError("one long word")
    bare = text.rstrip("=")
    altchars = b"-_" if {*"-_"} & {*text} else None
    return base64.b64decode(bare + "=" * (-len(bare) % 4), altchars=altchars, validate=True)


def _is_text(data: bytes) -> bool:
    try:
        return not _CONTROL.search(data.decode("utf-8"))
    except UnicodeDecodeError:
        return False


def _is_hidden_answer(answer: str) -> bool:
    """Beside a canary, where shorter ones count too; a checksum is an answer like any other."""
    return not _CHECKSUM.fullmatch(answer) and looks_encrypted(answer, _SHORTEST_BY_CANARY)


def _is_motley(text: str) -> bool:
    """Whether characters of every kind stand in it, unlike in names and sequences of DNA."""
    kinds = (str.isupper, str.islower, lambda character: not character.isalpha())
    return all(any(map(kind, text)) for kind in kinds)


_CHECKSUM = re.compile(r"(?:0x)?[0-9a-fA-F]+")


def is_canary(name: str) -> bool:
    """Whether a column of this name holds the words of a key."""
    return "canary" in folded(name)


def encrypted_rows(rows: Sequence[tuple[str, Sequence[str], Mapping[str, Any]]]) -> str | None:
    """Why some rows of a question file look encrypted, or None.

    Most of the questions must look so, where beside a canary shorter ones count too; or,
    beside canaries, all the answers, of three rows at least.

    Args:
        rows: the first rows of a file: the question, its gold answers, and all columns.
    """
    hidden = sum(looks_encrypted(question) for question, _, _ in rows)
    marked = [row for row in rows if any(is_canary(name) for name in row[2])]
    beside = sum(looks_encrypted(question, _SHORTEST_BY_CANARY) for question, _, _ in marked)
    if beside * 2 > len(marked):
        return (
            "the questions are base64 or such of bytes that are no text, beside a column 'canary'"
        )
    if hidden * 2 > len(rows):
        return "the questions are base64 or such of bytes that are no text"
    if rows and all(answers and all(map(_MARKED.match, answers)) for _, answers, _ in rows):
        return "the answers are what a program that encrypts has written"
    beside_marks = [answer for _, answers, _ in marked for answer in answers]
    if (
        len(marked) >= _FEWEST_ANSWERS
        and all(answers for _, answers, _ in marked)
        and all(map(_is_hidden_answer, beside_marks))
        and _is_motley("".join(beside_marks))
    ):
        return "the answers are base64 of bytes that are no text, beside a column 'canary'"
    return None
