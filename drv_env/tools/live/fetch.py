"""Pages fetched directly: opened from here, their main text extracted here.

Only public addresses are reached, also after every redirect, and only text is read:
HTML by trafilatura, PDF by pypdf, and what calls itself plain text, JSON or XML.
Extraction is processor work and runs in a thread; what it may cost is bounded by the
limit on the body.
"""

from __future__ import annotations

import asyncio
import html
import io
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from drv_env.addresses import AddressGuard
from drv_env.errors import ToolError
from drv_env.http import HttpClient
from drv_env.http_reply import HttpReply, decode, strict
from drv_env.secrets import Secret
from drv_env.tools.live.pages import ReadPage

if TYPE_CHECKING:
    from pypdf import PdfReader

_HTML = ("text/html", "application/xhtml+xml")
_PDF = ("application/pdf", "application/x-pdf")
_TEXT = ("application/json", "application/xml", "application/javascript", "application/yaml")
MOST_TAGS = 60_000
"""Opening and closing tags of a page whose main part is looked for."""

MOST_MARKUP = 3_000_000
"""Characters of a page's HTML that are read."""

_TITLE = re.compile(r"<title[^>]{0,200}>(.{0,500}?)</title>", re.IGNORECASE | re.DOTALL)
_ACCEPT = "text/html,application/xhtml+xml,application/pdf,text/plain;q=0.9,*/*;q=0.5"


class FetchReader:
    """Opens pages itself.

    Args:
        allow_private: addresses off the public internet that may be reached all the same,
            each ``"address:port"``; for tests.
        proxy: see :class:`~drv_env.http.HttpClient`.
        timeout: seconds for a page, redirects included.
        max_bytes: the most bytes of a page.
        max_chars: of a page's text, the most characters that are kept.
        max_pdf_pages: of a PDF, the pages that are read.
        redirects: how many to follow.
        limit: connections open at a time.
    """

    def __init__(
        self,
        *,
        allow_private: tuple[str, ...] = (),
        proxy: Secret | str | None = None,
        timeout: float = 30.0,
        max_bytes: int = 10_000_000,
        max_chars: int = 2_000_000,
        max_pdf_pages: int = 200,
        redirects: int = 5,
        limit: int = 100,
    ) -> None:
        self._http = HttpClient(
            limit=limit,
            timeout=timeout,
            max_bytes=max_bytes,
            proxy=proxy,
            guard=AddressGuard(tuple(allow_private)),
        )
        self._max_chars = max_chars
        self._max_pdf_pages = max_pdf_pages
        self._redirects = redirects

    async def read(self, url: str) -> ReadPage:
        """See :class:`~drv_env.tools.live.pages.PageReader`."""
        try:
            reply = await self._http.request(
                "GET",
                url,
                headers={"Accept": _ACCEPT},
                redirects=self._redirects,
                check_headers=check_is_text,
            )
        except ToolError as error:
            if error.kind == "no_credit":  # the site wants to be paid: it refuses, like a 403
                raise ToolError(str(error), kind="unauthorised") from None
            raise
        return await asyncio.to_thread(self._extract, reply)

    async def close(self) -> None:
        """Close the connections; may be called twice."""
        await self._http.close()

    def _extract(self, reply: HttpReply) -> ReadPage:
        kind = content_kind(reply)
        cut = False
        if kind == "pdf":
            title, text, cut = read_pdf(reply.body, self._max_pdf_pages, self._max_chars)
        elif kind == "html":
            source = readable(reply)
            cut = len(source) > MOST_MARKUP
            title, text = read_html(source[:MOST_MARKUP])
        else:
            title, text = "", readable(reply)
        cut = cut or len(text) > self._max_chars
        return ReadPage(reply.url, title, text[: self._max_chars], cut=cut)


def check_is_text(headers: Mapping[str, str]) -> None:
    """Refuse a reply that says it is no text.

    Raises:
        ToolError: of kind ``not_text``.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind and not _is_readable(kind):
        raise ToolError(f"it is {kind[:60]}, not text", kind="not_text")


def _is_readable(kind: str) -> bool:
    return (
        kind.startswith("text/")
        or kind in (*_HTML, *_PDF, *_TEXT, "application/octet-stream")
        or kind.endswith(("+xml", "+json"))
    )


def content_kind(reply: HttpReply) -> str:
    """``"pdf"``, ``"html"`` or ``"text"``, by what the body is and what it is said to be.

    Raises:
        ToolError: of kind ``not_text`` for anything else.
    """
    body, kind = reply.body, reply.content_type
    if body[:1024].lstrip().startswith(b"%PDF-"):
        return "pdf"
    if kind in _PDF:
        raise ToolError("it calls itself a PDF and is none", kind="not_text")
    wide = (reply.charset or "").startswith(("utf-16", "utf-32")) or body.startswith(
        (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
    )
    if b"\0" in body[:2048] and not wide:
        raise ToolError("its bytes are not text", kind="not_text")
    start = body[:2048].lower()
    if kind in _HTML or (not kind and (b"<html" in start or b"<!doctype html" in start)):
        return "html"
    if kind == "application/octet-stream" and strict(body, reply.charset) is None:
        raise ToolError("its bytes are not text", kind="not_text")
    return "text"


def readable(reply: HttpReply) -> str:
    """The body as text; where no encoding that it names fits, the likeliest one is used."""
    text = strict(reply.body, reply.charset)
    if text is None:
        from charset_normalizer import from_bytes

        best = from_bytes(reply.body[:200_000]).best()
        text = decode(reply.body, best.encoding if best is not None else reply.charset)
    return text


def read_html(source: str) -> tuple[str, str]:
    """Title and main text of a page.

    The whole text where no main part is found, and where the page has over ``MOST_TAGS``
    tags: to find the main part takes some 50 microseconds a tag.
    """
    import trafilatura

    found = _TITLE.search(source[:200_000])
    title = " ".join(html.unescape(found[1]).split()) if found else ""
    if not source.strip():
        return title, ""
    if "<html" not in source[:10_000].lower():
        source = f"<html><body>{source}</body></html>"  # a bare fragment is read as nothing
    text = None
    if source.count("<") <= MOST_TAGS:
        text = trafilatura.extract(
            source,
            output_format="txt",
            include_comments=False,
            include_tables=True,
            favor_recall=True,
        )
    return title, text or trafilatura.html2txt(source) or ""


def read_pdf(body: bytes, max_pages: int, max_chars: int) -> tuple[str, str, bool]:
    """Title and text of a PDF, and whether more pages or text follow.

    Raises:
        ToolError: of kind ``not_text`` when it can't be read.
    """
    from pypdf import PdfReader

    try:
        return _pdf_text(PdfReader(io.BytesIO(body)), max_pages, max_chars)
    except ToolError:
        raise
    except Exception as error:  # noqa: BLE001 - broken files raise everything there is
        raise ToolError(
            f"the PDF can't be read ({type(error).__name__})", kind="not_text"
        ) from None


def _pdf_text(reader: PdfReader, max_pages: int, max_chars: int) -> tuple[str, str, bool]:
    if reader.is_encrypted and not reader.decrypt(""):
        raise ToolError("the PDF is locked with a password", kind="not_text")
    parts: list[str] = []
    size = 0
    for number, page in enumerate(reader.pages):
        if number >= max_pages or size > max_chars:
            return _pdf_title(reader), "\n".join(parts), True
        text = page.extract_text()
        parts.append(text)
        size += len(text)
    return _pdf_title(reader), "\n".join(parts), False


def _pdf_title(reader: PdfReader) -> str:
    title = reader.metadata.title if reader.metadata is not None else None
    return title.strip() if isinstance(title, str) else ""
