"""Telling encrypted cells from text: published question sets often hide their plain text.

They do it by XOR with a key, written as base64, with the key's words in a column ``canary``
(BrowseComp, BrowseComp-ZH, xbench).  Read as questions, such cells give an evaluation of
nothing.  Base64 of readable text, such as a puzzle has it, is no ciphertext.
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


def looks_encrypted(text: str, shortest: int = _SHORTEST) -> bool:
    """Whether a cell looks like ciphertext: base64 of bytes that are no text.

    Args:
        text: the cell.
        shortest: characters below which any cell passes for text.

    Example:
        >>> looks_encrypted("TWG4Sb8wHwcD4n9SgVKDYqXQ"), looks_encrypted("SGVsbG8gd29ybGQsIGhlbGxv")
        (True, False)
    """
    text = "".join(text.split("\n")).strip()
    if len(text) < shortest or len(text) % 4 or not _ALPHABET.fullmatch(text):
        return False
    if shortest >= _SHORTEST and not (
        any(character.isdigit() or character in "+/-_" for character in text)
        and any(character.isupper() for character in text)
    ):
        return False  # one long word
    try:
        data = base64.b64decode(text, altchars=b"-_" if {*"-_"} & {*text} else None, validate=True)
        return bool(_CONTROL.search(data.decode("utf-8")))
    except UnicodeDecodeError:
        return True
    except (ValueError, binascii.Error):
        return False


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
        return "the questions are base64 of bytes that are no text, beside a column 'canary'"
    if hidden * 2 > len(rows):
        return "the questions are base64 of bytes that are no text"
    if len(marked) >= _FEWEST_ANSWERS and all(
        answers and all(looks_encrypted(answer, _SHORTEST_BY_CANARY) for answer in answers)
        for _, answers, _ in marked
    ):
        return "the answers are base64 of bytes that are no text, beside a column 'canary'"
    return None
