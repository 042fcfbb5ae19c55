"""Text from anywhere, as it may be shown: no character moves a terminal's cursor or hides."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text with control characters, other than tab and newline, written out.

    Example:
        >>> printable("a\\x1b[31mb")
        'a\\\\x1b[31mb'
    """
    return _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)
