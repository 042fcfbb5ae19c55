"""The text of a page's bytes: HTML by trafilatura, PDF by pypdf, other text as it is.

Pure functions of bytes.  What they cost is in the hands of whoever wrote the page: they run
in a process that can be killed (:mod:`drv_env.tools.live.page_worker`), and leave out the
finer parts when half of the time they were given is gone.
"""

from __future__ import annotations

import html
import io
import re
import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from drv_env.charsets import decode_page, strict
from drv_env.errors import ToolError
from drv_env.http_reply import HttpReply
from drv_env.tools.live.walls import wall_in_html, wall_in_text

if TYPE_CHECKING:
    from pypdf import PdfReader

T = TypeVar("T")

HTML = ("text/html", "application/xhtml+xml")
PDF = ("application/pdf", "application/x-pdf")
MOST_TAGS = 60_000
"""Opening and closing tags of a page whose main part is looked for."""

MOST_MARKUP = 3_000_000
"""Characters of a page's HTML that are read."""

_TITLE = re.compile(r"<title[^>]{0,200}>(.{0,500}?)</title>", re.IGNORECASE | re.DOTALL)


def page_text(
    reply: HttpReply, *, max_chars: int, max_pdf_pages: int, seconds: float
) -> tuple[str, str, bool]:
    """Title and text of a page, and whether more follows.

    Args:
        reply: what the server sent.
        max_chars: the most characters of the text.
        max_pdf_pages: of a PDF, the pages that are read.
        seconds: of processor time that there are; about half of them are used up before
            something is left out.

    Raises:
        ToolError: of kind ``not_text`` when it can't be read, ``robot_wall`` for what a site
            sends in place of a page (:mod:`drv_env.tools.live.walls`).
    """
    kind = content_kind(reply)
    cut, wall = False, None
    if kind == "pdf":
        title, text, cut = read_pdf(reply.body, max_pdf_pages, max_chars, seconds / 2)
    elif kind == "html":
        source = decode_page(reply.body, reply.charset)
        cut = len(source) > MOST_MARKUP
        title, text = read_html(source[:MOST_MARKUP], seconds / 2)
        wall = wall_in_html(source, title, text)
    else:
        title, text = "", decode_page(reply.body, reply.charset)
        wall = wall_in_text(title, text)
    if wall is not None:
        raise ToolError(wall, kind="robot_wall")
    return title, text[:max_chars], cut or len(text) > max_chars


def content_kind(reply: HttpReply) -> str:
    """``"pdf"``, ``"html"`` or ``"text"``, by what the body is and what it is said to be.

    Raises:
        ToolError: of kind ``not_text`` for anything else.
    """
    body, kind = reply.body, reply.content_type
    if body[:1024].lstrip().startswith(b"%PDF-"):
        return "pdf"
    if kind in PDF:
        raise ToolError("it calls itself a PDF and is none", kind="not_text")
    wide = (reply.charset or "").startswith(("utf-16", "utf-32")) or body.startswith(
        (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
    )
    if b"\0" in body[:2048] and not wide:
        raise ToolError("its bytes are not text", kind="not_text")
    start = body[:2048].lower()
    if kind in HTML or (not kind and (b"<html" in start or b"<!doctype html" in start)):
        return "html"
    if kind == "application/octet-stream" and strict(body, reply.charset) is None:
        raise ToolError("its bytes are not text", kind="not_text")
    return "text"


_HEADING, _END_HEADING = re.compile(r"<h1(?=[\s>])[^<>]*>", re.I), re.compile(r"</h1\b", re.I)
_LONGEST_HEADING = 1_000
_TAG = re.compile(r"<[^<>]*>")
_FOLDED = re.compile(r"<(/?)(?:(details|figure)|summary|figcaption)\b[^<>]*>", re.I)


def _unfolded(source: str) -> str:
    """With what is behind a click or beneath a picture in plain blocks, where it is looked for."""
    return _FOLDED.sub(_plain_block, source)


def _plain_block(tag: re.Match[str]) -> str:
    end, block = tag[1], "div" if tag[2] else "p"
    following = "<p>" if end and block == "p" else ""  # trafilatura 2.0 drops bare text there
    return f"<{end}{block}>{following}"


def _heading(source: str) -> str:
    """The page's first heading of the first rank, or nothing."""
    start = _HEADING.search(source)
    end = None if start is None else _END_HEADING.search(source, start.end())
    if start is None or end is None or end.start() - start.end() > _LONGEST_HEADING:
        return ""
    return " ".join(html.unescape(_TAG.sub(" ", source[start.end() : end.start()])).split())


def read_html(source: str, seconds: float | None = None) -> tuple[str, str]:
    """Title and main text of a page, its heading included.

    The whole text where no main part is found, where the page has over ``MOST_TAGS`` tags (to
    find the main part takes some 50 microseconds a tag), and where looking for it takes over
    ``seconds`` of processor time.
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
        extract = trafilatura.extract
        text = _in_time(
            seconds,
            lambda: extract(
                _unfolded(source),
                output_format="txt",
                include_comments=False,
                include_tables=True,
                favor_recall=True,
            ),
        )
    text = text or trafilatura.html2txt(source) or ""
    heading = _heading(source)
    if heading and heading.casefold() not in " ".join(text.split()).casefold():
        text = f"{heading}\n{text}"  # which is left out where it stands outside of the main part
    return title, text


class _Late(BaseException):
    """Raised by a timer; no ``except Exception`` of a library holds it up."""


def _in_time(seconds: float | None, work: Callable[[], T]) -> T | None:
    """What ``work`` gives, or None where it takes over ``seconds`` of processor time.

    Only in a main thread; Python code alone is interrupted.
    """
    if seconds is None:
        return work()
    if seconds <= 0:
        return None

    waiting = True

    def ring(number: int, frame: Any) -> None:
        if waiting:
            raise _Late

    before = signal.signal(signal.SIGVTALRM, ring)
    try:
        try:
            # Again and again, for an exception in a destructor or a callback is lost.
            signal.setitimer(signal.ITIMER_VIRTUAL, seconds, 0.1)
            return work()
        finally:
            waiting = False
    except _Late:
        return None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def read_pdf(
    body: bytes, max_pages: int, max_chars: int, seconds: float | None = None
) -> tuple[str, str, bool]:
    """Title and text of a PDF, and whether more pages or text follow.

    A page that isn't done after ``seconds`` of processor time, and those after it, are left out.

    Raises:
        ToolError: of kind ``not_text`` when it can't be read, ``too_costly`` when that is so of
            the first page.
    """
    from pypdf import PdfReader

    end = None if seconds is None else time.process_time() + seconds
    try:
        return _pdf_text(PdfReader(io.BytesIO(body)), max_pages, max_chars, end)
    except (ToolError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - broken files raise everything there is
        raise ToolError(
            f"the PDF can't be read ({type(error).__name__})", kind="not_text"
        ) from None


def _pdf_text(
    reader: PdfReader, max_pages: int, max_chars: int, end: float | None
) -> tuple[str, str, bool]:
    if reader.is_encrypted and not reader.decrypt(""):
        raise ToolError("the PDF is locked with a password", kind="not_text")
    parts: list[str] = []
    size = 0
    for number, page in enumerate(reader.pages):
        if number >= max_pages or size > max_chars:
            return _pdf_title(reader), "\n".join(parts), True
        left = None if end is None else end - time.process_time()
        text = _in_time(left, page.extract_text)
        if text is None and not parts:
            raise ToolError("the text of its first page takes too long to find", kind="too_costly")
        if text is None:
            return _pdf_title(reader), "\n".join(parts), True
        parts.append(text)
        size += len(text)
    return _pdf_title(reader), "\n".join(parts), False


def _pdf_title(reader: PdfReader) -> str:
    title = reader.metadata.title if reader.metadata is not None else None
    return title.strip() if isinstance(title, str) else ""
