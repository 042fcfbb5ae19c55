"""What a server sent back: bodies unpacked within a limit.

Pure functions of bytes; no sockets.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from drv_env.charsets import decode
from drv_env.errors import ToolError

ACCEPT_ENCODING = "gzip, deflate"
"""What :class:`Unpacker` can unpack."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A whole reply.

    Attributes:
        status: 100 to 599.
        headers: names in lower case.
        body: unpacked.
        url: where it came from, after redirects.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    url: str

    @property
    def content_type(self) -> str:
        """Such as ``text/html``, in lower case, without parameters; may be empty."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def charset(self) -> str | None:
        """The encoding that the Content-Type header declares, in lower case."""
        kind = self.headers.get("content-type", "")
        found = re.search(r"charset\s*=\s*[\"']?([\w.:-]{1,40})", kind, re.IGNORECASE)
        return found[1].lower() if found else None

    def text(self) -> str:
        """The body as text, see :func:`drv_env.charsets.decode`."""
        return decode(self.body, self.charset)


class Unpacker:
    """Unpacks a body piece by piece and never makes more than a limit of it.

    The header is read as sites write it.  Codings are undone from the last to the first.
    What is no coding's name (``none``, ``UTF-8``, ``binary``) is none, and a body that does
    not begin as its coding does is not packed.

    Args:
        encoding: the Content-Encoding header, its lines joined by commas; may be empty.
        limit: the most bytes, as sent and after each coding.
    """

    MOST_MEMBERS = 1_000
    """Of a gzip body; each has a start that costs, and honest ones hold kilobytes."""

    MOST_CODINGS = 5
    """One after another; each costs as much as the first."""

    def __init__(self, encoding: str, limit: int) -> None:
        self._limit = limit
        self._sent = 0
        self._size = 0
        self._parts: list[bytes] = []
        self._stages = [_STAGES[coding](limit) for coding in reversed(codings(encoding))]

    def feed(self, data: bytes) -> None:
        """Take the next piece.

        Raises:
            ToolError: of kind ``too_large`` over the limit, ``too_costly`` for too many parts
                or codings, ``bad_reply`` for damaged data or a coding that is not known here.
        """
        self._sent += len(data)
        if self._sent > self._limit:
            raise too_large(self._limit)
        if len(self._stages) > self.MOST_CODINGS:
            raise ToolError(
                f"the reply is packed over {self.MOST_CODINGS} times", kind="too_costly"
            )
        self._pass_on(data, self._stages)

    def finish(self) -> bytes:
        """The whole body.

        Raises:
            ToolError: when packed data broke off before its end, and as :meth:`feed`.
        """
        for number, stage in enumerate(self._stages):
            for piece in stage.finish():
                self._pass_on(piece, self._stages[number + 1 :])
        return b"".join(self._parts)

    def taken(self) -> bytes:
        """What there is so far."""
        return b"".join(self._parts)

    def _pass_on(self, data: bytes, stages: Sequence[_Stage]) -> None:
        if not data:
            return
        if stages:
            for piece in stages[0].feed(data):
                self._pass_on(piece, stages[1:])
            return
        self._size += len(data)
        if self._size > self._limit:
            raise too_large(self._limit)
        self._parts.append(data)


def codings(encoding: str) -> list[str]:
    """The codings that a Content-Encoding header names, in order; what is none is left out.

    Example:
        >>> codings('"X-GZIP", identity, utf-8')
        ['gzip']
    """
    named = (part.partition(";")[0].strip(" \t\"'").lower() for part in encoding.split(","))
    names = (name.removeprefix("x-") for name in named)
    return [name for name in names if name in _STAGES]


class _Stage:
    """Undoes one coding; what doesn't begin as that coding does passes as it is."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._made = 0
        self._members = 0
        self._head: bytes | None = b""
        self._engine: zlib._Decompress | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._head is not None:
            self._head += data
            if len(self._head) < _HEAD:
                return
            data = self._begun()
        yield from self._undone(data)

    def finish(self) -> Iterator[bytes]:
        if self._head:
            yield from self._undone(self._begun())
        if self._engine is not None and not self._engine.eof:
            raise ToolError("the packed reply breaks off", kind="bad_reply", retryable=True)

    def _begun(self) -> bytes:
        """Decide what the body is, by its beginning, which is given back."""
        head, self._head = self._head or b"", None
        self._engine = self.engine(head)
        return head

    def engine(self, data: bytes) -> zlib._Decompress | None:
        """What unpacks a body that begins so; None where it is not packed.

        Raises:
            ToolError: where nothing here can unpack it.
        """
        if not _is_text(data):
            raise ToolError("the reply is packed in a way that was not asked for", kind="bad_reply")
        return None

    def following(self, data: bytes) -> zlib._Decompress | None:
        """What unpacks the data behind an end; None where that is padding."""
        return None

    def _undone(self, data: bytes) -> Iterator[bytes]:
        if self._engine is None:
            yield self._counted(data)
            return
        try:
            yield from self._inflated(data)
        except zlib.error as error:
            raise ToolError(
                f"the packed reply is damaged ({error})", kind="bad_reply", retryable=True
            ) from None

    def _inflated(self, data: bytes) -> Iterator[bytes]:
        while data:
            assert self._engine is not None
            if self._engine.eof:
                following = self.following(data)
                if following is None:
                    return
                self._members += 1
                if self._members > Unpacker.MOST_MEMBERS:
                    raise ToolError(
                        f"the packed reply has over {Unpacker.MOST_MEMBERS:,} parts",
                        kind="too_costly",
                    )
                self._engine = following
            yield self._counted(self._engine.decompress(data, self._limit - self._made + 1))
            data = self._engine.unconsumed_tail or self._engine.unused_data

    def _counted(self, data: bytes) -> bytes:
        self._made += len(data)
        if self._made > self._limit:
            raise too_large(self._limit)
        return data


class _Gzip(_Stage):
    def engine(self, data: bytes) -> zlib._Decompress | None:
        return zlib.decompressobj(31) if data.startswith(b"\x1f\x8b") else None

    def following(self, data: bytes) -> zlib._Decompress | None:
        return zlib.decompressobj(31) if data.startswith(b"\x1f") else None


class _Deflate(_Stage):
    """With zlib's header, as it should be, or without, as some servers send it."""

    def engine(self, data: bytes) -> zlib._Decompress | None:
        if data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0:
            return zlib.decompressobj(15)
        return None if _is_text(data) else zlib.decompressobj(-15)


_STAGES: Mapping[str, type[_Stage]] = {
    "gzip": _Gzip,
    "deflate": _Deflate,
    **dict.fromkeys(("br", "zstd", "compress", "dcb", "dcz", "exi", "pack200-gzip"), _Stage),
}
"""The codings that are registered, but the one that does nothing
(https://www.iana.org/assignments/http-parameters)."""

_HEAD = 512
"""Bytes by which it is decided whether a body is packed at all."""

_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


def _is_text(body: bytes) -> bool:
    """Whether a body is plain, by its beginning: the bytes of packed ones are of every kind."""
    start = body[:_HEAD]
    if _CONTROL.search(start):
        return False
    if start.lstrip().startswith(b"<"):
        return True
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(start)
    except UnicodeDecodeError:
        return False
    return True


def too_large(limit: int) -> ToolError:
    """The error for a body over the limit of ``limit`` bytes."""
    return ToolError(f"the reply is larger than {limit:,} bytes", kind="too_large")
