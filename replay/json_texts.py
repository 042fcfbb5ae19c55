"""The JSON texts of the rows of a file, one by one, without reading any of them whole.

JSON lines are cut at line breaks; a JSON list (or objects one after another) is cut by its
brackets and quotes, so that a damaged row doesn't hide the others.  Memory is bounded by the
longest row, and that by :data:`MAX_ROW_BYTES`.
"""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Iterator
from typing import IO, cast

from drv_env.errors import TaskDataError

MAX_ROW_BYTES = 2**26
"""The longest row that is read, 64 MiB."""

UNPACKING = (OSError, EOFError, zlib.error)
"""What reading a gzipped file may raise in its middle."""

_BLOCK = 2**20
_TOKEN = re.compile(rb'"(?>[^"\\]*(?:\\.[^"\\]*)*)"|[][{}"]', re.DOTALL)
_BOM = b"\xef\xbb\xbf"

Numbered = tuple[int, bytes | None]
"""A row's number and its text; None where it is too long or was cut off."""


def json_lines(stream: IO[bytes]) -> Iterator[Numbered]:
    """Lines that are not blank, numbered from 1.

    Raises:
        TaskDataError: when the file is UTF-16.
    """
    number = 0
    while line := stream.readline(MAX_ROW_BYTES + 1):
        number += 1
        if number == 1:
            line = _without_mark(line)
        if len(line) > MAX_ROW_BYTES and not line.endswith(b"\n"):
            while (more := stream.readline(_BLOCK)) and not more.endswith(b"\n"):
                pass
            yield number, None
        elif line.strip():
            yield number, line


def json_objects(stream: IO[bytes]) -> Iterator[Numbered]:
    """Objects of a list, or objects one after another, numbered from 0.

    Raises:
        TaskDataError: when the file is UTF-16, its brackets don't match, or a row is too
            long; what comes after can't be told apart.
    """
    blocks = _Blocks(stream)
    buffer = _without_mark(blocks.read(_BLOCK)).lstrip()
    in_list = buffer.startswith(b"[")
    base = depth = int(in_list)
    place = base
    start: int | None = None
    number = 0
    while True:
        for token in _TOKEN.finditer(buffer, place):
            kind = token[0]
            if kind == b'"':  # not closed within the buffer
                place = token.start()
                break
            place = token.end()
            if kind in b"[{":
                if depth == base:
                    start = token.start()
                depth += 1
            elif kind in b"]}":
                depth -= 1
                if depth < base:
                    if in_list:
                        return
                    raise TaskDataError(f"after row {number - 1} brackets don't match")
                if depth == base and start is not None:
                    yield number, buffer[start:place]
                    number += 1
                    start = None
        else:
            place = len(buffer)
        kept = place if start is None else start
        buffer, place = buffer[kept:], place - kept
        start = None if start is None else 0
        if len(buffer) > MAX_ROW_BYTES:
            raise TaskDataError(
                f"row {number} is longer than {MAX_ROW_BYTES >> 20} MiB, or a quote is not closed"
            )
        more = blocks.read(max(_BLOCK, len(buffer)))
        if not more:
            break
        buffer += more
    if start is not None or buffer.strip():
        yield number, None


class _Blocks:
    """A stream's bytes in large pieces, up to its damage, which is raised after them."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = cast(io.BufferedReader, stream)
        self._error: Exception | None = None

    def read(self, size: int) -> bytes:
        if self._error is not None:
            raise self._error
        parts: list[bytes] = []
        try:
            while size > 0 and (part := self._stream.read1(size)):
                parts.append(part)
                size -= len(part)
        except UNPACKING as error:
            if not parts:
                raise
            self._error = error
        return b"".join(parts)


def _without_mark(beginning: bytes) -> bytes:
    if beginning.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise TaskDataError("not UTF-8 but UTF-16; write it as UTF-8")
    return beginning.removeprefix(_BOM)
