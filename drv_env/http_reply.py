"""What a server sent back: bodies unpacked within a limit, bytes read as text.

Pure functions of bytes; no sockets.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from drv_env.errors import ToolError

ACCEPT_ENCODING = "gzip, deflate"
"""What :class:`Unpacker` can unpack."""

_META = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_NEVER = {"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "utf-7"}
"""Codecs that no page is honestly written in, some of them slow."""
_TRUSTED = ("utf-16", "utf-32", "iso2022", "hz")
"""Declared encodings that can pass for UTF-8 and are therefore tried before it."""


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
        found = re.search(r"charset\s*=\s*[\"']?([\w.:-]+)", self.headers.get("content-type", ""))
        return found[1].lower() if found else None

    def text(self) -> str:
        """The body as text, see :func:`decode`."""
        return decode(self.body, self.charset)


def decode(body: bytes, declared: str | None = None) -> str:
    """Read bytes as text, whatever they claim to be.

    The order: a byte order mark; UTF-8 if the bytes are valid UTF-8; the declared
    encoding; the one an HTML ``meta`` names.  Where none fits without error, the declared
    one (else UTF-8) with replacement characters.  Use :func:`strict` to know whether one
    fitted.

    Example:
        >>> decode("Zürich".encode(), "iso-8859-1"), decode("Zürich".encode("latin-1"), "latin-1")
        ('Zürich', 'Zürich')
    """
    text = strict(body, declared)
    if text is not None:
        return text
    return body.decode(_codec(declared) or "utf-8", errors="replace")


def strict(body: bytes, declared: str | None = None) -> str | None:
    """The body in the first encoding that fits without error, see :func:`decode`, or None."""
    for mark, name in _BOMS:
        if body.startswith(mark):
            return _try(body, name)
    declared = _codec(declared)
    meta = _META.search(body[:4096])
    named = _codec(meta[1].decode("ascii", "replace")) if meta else None
    order: list[str | None] = ["utf-8", declared, named]
    if declared is not None and declared.startswith(_TRUSTED):
        order.insert(0, declared)
    for candidate in order:
        if candidate is not None:
            text = _try(body, candidate)
            if text is not None:
                return text
    return None


def _try(body: bytes, name: str) -> str | None:
    try:
        return body.decode(name)
    except (UnicodeError, LookupError):
        return None


def _codec(name: str | None) -> str | None:
    if not name:
        return None
    try:
        found = codecs.lookup(name).name
        b"".decode(found)
    except (LookupError, UnicodeError, ValueError):
        return None
    if found in _NEVER:
        return None
    # As browsers do: pages that declare these mean their supersets.
    return {"iso8859-1": "cp1252", "ascii": "cp1252", "gb2312": "gb18030", "gbk": "gb18030"}.get(
        found, found
    )


class Unpacker:
    """Unpacks a body piece by piece and never makes more than a limit of it.

    Args:
        encoding: the Content-Encoding header; may be empty.
        limit: the most bytes, both as sent and unpacked.

    Raises:
        ToolError: for an encoding that was not offered.
    """

    MOST_MEMBERS = 1_000
    """Of a gzip body; each has a start that costs, and honest ones hold kilobytes."""

    def __init__(self, encoding: str, limit: int) -> None:
        self._encoding = encoding.strip().lower().removeprefix("x-")
        if self._encoding not in ("", "identity", "gzip", "deflate"):
            raise ToolError(
                f"the reply is packed as {encoding[:40]!r}, which was not asked for",
                kind="bad_reply",
            )
        self._limit = limit
        self._sent = 0
        self._parts: list[bytes] = []
        self._size = 0
        self._members = 0
        self._engine = self._new() if self._encoding in ("gzip", "deflate") else None

    def feed(self, data: bytes) -> None:
        """Take the next piece.

        Raises:
            ToolError: of kind ``too_large`` over the limit, ``bad_reply`` for damaged data.
        """
        self._sent += len(data)
        if self._sent > self._limit:
            raise too_large(self._limit)
        if self._engine is None:
            self._keep(data)
            return
        try:
            self._unpack(data)
        except zlib.error as error:
            raise ToolError(
                f"the packed reply is damaged ({error})", kind="bad_reply", retryable=True
            ) from None

    def finish(self) -> bytes:
        """The whole body.

        Raises:
            ToolError: when packed data broke off before its end.
        """
        if self._engine is not None and self._sent and not self._engine.eof:
            raise ToolError("the packed reply breaks off", kind="bad_reply", retryable=True)
        return b"".join(self._parts)

    def taken(self) -> bytes:
        """What there is so far."""
        return b"".join(self._parts)

    def _new(self, window: int | None = None) -> zlib._Decompress:
        if window is None:
            window = 31 if self._encoding == "gzip" else 15
        return zlib.decompressobj(window)

    def _unpack(self, data: bytes) -> None:
        assert self._engine is not None
        first = self._encoding == "deflate" and self._sent == len(data)
        if first and data and (data[0] & 0x0F) != 8:
            self._engine = self._new(-15)  # some servers mean raw deflate, without a header
        while data:
            if self._engine.eof:
                self._members += 1
                if self._members > self.MOST_MEMBERS:
                    raise ToolError(
                        f"the packed reply has over {self.MOST_MEMBERS:,} parts", kind="too_costly"
                    )
                if not data.startswith(b"\x1f") or self._encoding != "gzip":
                    return  # padding after the end
                self._engine = self._new()
            self._keep(self._engine.decompress(data, self._limit - self._size + 1))
            data = self._engine.unconsumed_tail or self._engine.unused_data

    def _keep(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._limit:
            raise too_large(self._limit)
        self._parts.append(data)


def too_large(limit: int) -> ToolError:
    """The error for a body over the limit of ``limit`` bytes."""
    return ToolError(f"the reply is larger than {limit:,} bytes", kind="too_large")
