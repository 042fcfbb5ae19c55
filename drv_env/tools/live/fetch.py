"""Pages fetched directly: opened from here, their main text extracted here.

Only public addresses are reached, also after every redirect, and only text is read:
HTML by trafilatura, PDF by pypdf, and what calls itself plain text, JSON or XML.
A page's text is found in a process of its own (:mod:`drv_env.tools.live.page_worker`): a
page that costs too much, or brings that process down, can't be read, and that is all.
"""

from __future__ import annotations

from collections.abc import Mapping

from drv_env.addresses import AddressGuard
from drv_env.errors import SiteError, ToolError
from drv_env.http import HttpClient
from drv_env.secrets import Secret
from drv_env.settings import at_least, checked_whole
from drv_env.tools.live.extraction import HTML, PDF
from drv_env.tools.live.page_worker import PageWorkers
from drv_env.tools.live.pages import ReadPage

_TEXT = ("application/json", "application/xml", "application/javascript", "application/yaml")
_ACCEPT = "text/html,application/xhtml+xml,application/pdf,text/plain;q=0.9,*/*;q=0.5"


class FetchReader:
    """Opens pages itself.

    What goes wrong between here and the site is the site's, and leaves as a
    :class:`~drv_env.errors.SiteError`.

    Args:
        allow_private: addresses off the public internet that may be reached all the same,
            each ``"address:port"``; for tests.
        proxy: see :class:`~drv_env.http.HttpClient`.
        timeout: seconds for a page, redirects included.
        max_bytes: the most bytes of a page.
        max_chars: of a page's text, the most characters that are kept.
        max_pdf_pages: of a PDF, the pages that are read.
        parse_seconds: of processor time that finding a page's text may take.
        parse_memory: bytes of memory that it may take.
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
        parse_seconds: float = 10.0,
        parse_memory: int = 1_000_000_000,
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
        self._pages = PageWorkers(parse_seconds, parse_memory)
        self._max_chars = checked_whole("max_chars", max_chars, at_least(1))
        self._max_pdf_pages = checked_whole("max_pdf_pages", max_pdf_pages, at_least(1))
        self._redirects = checked_whole("redirects", redirects, at_least(0))

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
            return await self._pages.read(reply, self._max_chars, self._max_pdf_pages)
        except ToolError as error:
            raise _of_the_site(error) from None

    @property
    def direct(self) -> bool:
        """Pages come from their sites, without a service between: see
        :func:`drv_env.tools.live.pages.is_direct`."""
        return True

    async def close(self) -> None:
        """Close the connections, and the processes that nobody else uses; may be called twice."""
        self._pages.close()
        await self._http.close()


def _of_the_site(error: ToolError) -> ToolError:
    """A request's failure as what it says of the site; the proxy's and our own stay such."""
    if error.kind in ("proxy", "resources"):
        return error
    # A site that wants to be paid refuses, like a 403.
    kind = "unauthorised" if error.kind == "no_credit" else error.kind
    return SiteError(
        str(error), kind=kind, retryable=error.retryable, retry_after=error.retry_after
    )


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
        or kind in (*HTML, *PDF, *_TEXT, "application/octet-stream")
        or kind.endswith(("+xml", "+json"))
    )
