"""What a server sent back: bodies unpacked within a limit.

Pure functions of bytes; no sockets.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
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
