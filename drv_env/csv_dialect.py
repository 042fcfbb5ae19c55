"""The lines of a CSV file, and by what its fields are separated, told from its beginning.

Spreadsheets write the list separator of the computer's language, which is a semicolon where the
comma is the decimal sign, and a tab in what they call Unicode text; Excel may say so in a line
of its own before the header, ``sep=;``.
"""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

_KNOWN = (",", ";", "\t", "|")
_SAID = re.compile(r'\ufeff?"?sep=(.)"?\s*', re.IGNORECASE | re.DOTALL)


class Lines:
    """The lines of a file, counted, the last record's kept so that they can be read again."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._again: deque[str] = deque()
        self._record: list[str] = []
        self.number = 0
        self._ended = False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        try:
            line = self._again.popleft() if self._again else next(self._lines)
        except StopIteration:
            self._ended = True
            raise
        self.number += 1
        self._record.append(line)
        return line

    def first(self) -> str:
        """The next line with something in it, "" without one; it stays to be read."""
        for line in self._again:
            if line.strip():
                return line
        for line in self._lines:
            self._again.append(line)
            if line.strip():
                return line
        return ""

    def begin(self) -> int:
        """Start a record; the number of its first line."""
        self._record.clear()
        return self.number + 1

    def give_back(self) -> bool:
        """When an open quote swallowed the file to its end, read the lines after it again.

        Only when they have no quote themselves: then none of them can be the inside of a
        quoted text.
        """
        after = self._record[1:]
        if not self._ended or any('"' in line for line in after):
            return False
        self._again.extend(after)
        self.number -= len(after)
        self._ended = False
        return True


def said_delimiter(line: str) -> str | None:
    """The delimiter that a line before the header names, None for any other line.

    Example:
        >>> said_delimiter("sep=;\\r\\n"), said_delimiter("question;answer")
        (';', None)
    """
    found = _SAID.fullmatch(line)
    return None if found is None or found[1] in '"\r\n' else found[1]


def delimiter_of(header: str, fits: Callable[[Sequence[str]], bool], usual: str = ",") -> str:
    """The delimiter under which a header names the columns that are wanted.

    Where none does, the one that gives the most columns, so that what there is can be told; of
    several the usual one.

    Args:
        header: the first line of the header.
        fits: whether these are names of a table that can be used.
        usual: what is tried first.

    Example:
        >>> delimiter_of("Id;Question, short;Answer", lambda names: "Answer" in names)
        ';'
    """
    names = {each: _names(header, each) for each in dict.fromkeys((usual, *_KNOWN))}
    for delimiter, found in names.items():
        if fits(found):
            return delimiter
    return max(names, key=lambda each: len(names[each]))


def _names(header: str, delimiter: str) -> list[str]:
    try:
        return [name.strip() for name in next(csv.reader([header], delimiter=delimiter), [])]
    except csv.Error:
        return []
