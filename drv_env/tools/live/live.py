"""``search`` and ``visit`` on the live web.

A call's queries or urls are carried out at the same time, each tried again by itself,
and each is told of truthfully: what was found, that there is nothing, or that it failed
and why.  Nothing is raised for a service that fails: a call that failed in every part has
the status ``FAILED``, and what it cost is not lost.  A site that is down or slow, and a wall in
place of a page, are facts about that site: its part is ``REFUSED``.

Keys are masked in everything that leaves here.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from drv_env import prompts
from drv_env.chat import ChatClient
from drv_env.deadline import time_left
from drv_env.errors import SettingError, SiteError, ToolError, boundary
from drv_env.protocol import PAGE_SEPARATOR, Search, Visit, render_search, render_visit
from drv_env.retry import RetryPolicy
from drv_env.secrets import Keys, mask, mask_data
from drv_env.settings import above, checked_number
from drv_env.tools.base import (
    SEARCH_SCHEMA,
    VISIT_SCHEMA,
    Call,
    Clock,
    Status,
    ToolResult,
    ToolSchema,
)
from drv_env.tools.live.fetch import FetchReader
from drv_env.tools.live.jina import JinaReader
from drv_env.tools.live.network import Network
from drv_env.tools.live.pages import PageReader, ReadPage, is_direct
from drv_env.tools.live.serper import Found, SearchService, Serper
from drv_env.tools.live.summarise import Digest, Digester, PassageExtractor, Summariser
from drv_env.tools.parts import Part, is_passing, joined_status, page_status
from drv_env.tools.passages import WORDS_SHOWN
from drv_env.unicode_text import sound_text

T = TypeVar("T")

LONGEST_QUERY = 2_000
"""Characters of a query or goal that are sent, and repeated in the observation.

A url with more is refused: its beginning is another page's url."""

MOST_PARTS = 20
"""Queries or urls of one call that are carried out."""


class LiveTools:
    """Search and visit through services.

    Args:
        search: answers queries; None offers no ``search``.
        reader: brings pages; None offers no ``visit``.
        digester: reads pages for a goal; by default shows the page, or passages of a long one,
            without a model.
        retry: for each query and each page.
        deadline: seconds for a whole call; a part that is not done by then is told of as such,
            and the others all the same.  It is a little less than the env's ``tool_timeout``, or
            a :class:`~drv_env.tools.layers.TimeOut`'s seconds, where those are shorter.
        clock: measures latency.

    Raises:
        SettingError: when there is neither search nor reader, or no positive deadline.
    """

    def __init__(
        self,
        search: SearchService | None = None,
        reader: PageReader | None = None,
        digester: Digester | None = None,
        *,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008 - frozen
        deadline: float = 55.0,
        clock: Clock = time.monotonic,
    ) -> None:
        if search is None and reader is None:
            raise SettingError("there is neither a search nor a reader; pass at least one")
        checked_number("deadline", deadline, above(0, "seconds"))
        self._search = search
        self._reader = reader
        self._digester = PassageExtractor() if digester is None else digester
        self._retry = retry
        self._deadline = deadline
        self._clock = clock
        self._network = Network()

    @classmethod
    def from_env(
        cls,
        environ: Mapping[str, str] | None = None,
        dotenv: str | Path | None = ".env",
        *,
        evidence_words: int = WORDS_SHOWN,
        whole_pages: bool = False,
        **settings: Any,
    ) -> LiveTools:
        """The tools that the keys at hand allow.

        Serper searches (SERPER_KEY_ID is needed).  Jina reads pages where JINA_API_KEYS is
        set, else they are fetched directly.  The model SUMMARY_MODEL_NAME at API_BASE reads
        for the goal where both are set, else the page is shown, or passages of a long one.

        Args:
            environ: the variables; the process's own by default.
            dotenv: see :meth:`drv_env.secrets.Keys.from_env`.
            evidence_words: of a page, the most words that are shown where no model reads it.
            whole_pages: such pages are shown whole, however long.
            settings: as for the constructor.

        PROXY serves the search, the reader and direct fetches, not the model's endpoint.

        Raises:
            SettingError: without SERPER_KEY_ID.
        """
        keys = Keys.from_env(environ, dotenv)
        if keys.serper is None:
            raise SettingError(
                "SERPER_KEY_ID is not set: get a key at serper.dev and put it into the environment "
                "or .env; or make LiveTools(reader=FetchReader()) to visit pages without a search"
            )
        reader: PageReader = FetchReader(proxy=keys.proxy)
        if keys.jina:
            reader = JinaReader(keys.jina, proxy=keys.proxy)
        digester: Digester = PassageExtractor(evidence_words, whole_pages=whole_pages)
        if keys.api_base and keys.summary_model:
            chat = ChatClient(
                keys.api_base,
                keys.summary_model,
                keys.api_key,
                leave_out=keys.api_omit,
                max_tokens_field=keys.api_limit,
            )
            digester = Summariser(chat, fallback=digester)
        return cls(Serper(keys.serper, proxy=keys.proxy), reader, digester, **settings)

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """``search`` and ``visit``, as far as there is a service for them."""
        offered = []
        if self._search is not None:
            offered.append(SEARCH_SCHEMA)
        if self._reader is not None:
            offered.append(VISIT_SCHEMA)
        return tuple(offered)

    @property
    def clock(self) -> Clock:
        """Seconds."""
        return self._clock

    async def call(self, call: Call) -> ToolResult:
        """Carry out one call.

        The result's ``data`` is a list with a record for each part: of a search ``{"query",
        "pages", "status"}``; of a visit ``{"url", "found", "evidence", "summary", "status"}``;
        with ``error`` and ``kind`` where it failed, and ``retries``, a list of kinds.

        A call that failed in every part has status ``FAILED``.

        Raises:
            ToolError: for a tool that is not on offer.
        """
        match call.action:
            case Search(queries) if self._search is not None:
                return await self._run_search(self._search, queries)
            case Visit(urls, goal) if self._reader is not None:
                return await self._run_visit(self._reader, urls, goal)
        raise ToolError(f"there is no tool {call.name!r:.100} here", kind="unknown_tool")

    async def close(self) -> None:
        """Close the services; may be called twice."""
        for service in (self._search, self._reader, self._digester):
            if service is not None:
                await service.close()

    # ---- search ---------------------------------------------------------------------

    async def _run_search(self, service: SearchService, queries: Sequence[str]) -> ToolResult:
        async def one(part: Part[Found]) -> None:
            found = await self._retried(part, lambda: service.search(part.asked))
            self._network.answered()
            part.value, part.cost = found, found.cost
            part.status = Status.OK if found.hits else Status.EMPTY

        parts: list[Part[Found]] = await self._at_once(queries, one, lambda error: Status.FAILED)
        shown, notes, data = [], [], []
        for part in parts:
            hits = part.value.hits if part.value is not None else []
            data.append({"query": part.asked, "pages": hits, **part.record()})
            if part.error is not None:
                told = prompts.failed_query
                if part.status is Status.REFUSED:
                    told = prompts.refused_query
                notes.append(told(part.asked, str(part.error)))
                continue  # not in the list: an empty one would read as "no results"
            shown.append((part.asked, hits))
            if not hits:
                notes.append(prompts.nothing_found(part.asked))
        return _result("search", "\n".join([render_search(shown), *notes]), parts, data)

    # ---- visit ----------------------------------------------------------------------

    async def _run_visit(self, reader: PageReader, urls: Sequence[str], goal: str) -> ToolResult:
        goal = _readable(goal)

        async def one(part: Part[Digest]) -> None:
            part.at_site = is_direct(reader)
            page = await self._retried(part, lambda: reader.read(part.asked))
            part.at_site = False
            self._network.answered()
            part.cost = page.cost
            part.value = await self._digest(page, goal)
            part.cost += part.value.cost
            part.status = Status.OK if page.text.strip() else Status.EMPTY

        parts: list[Part[Digest]] = await self._at_once(urls, one, page_status, _check_url)
        shown, data = [], []
        for part in parts:
            digest = part.value if part.value is not None else Digest(_told(part))
            shown.append(render_visit(part.asked, goal, digest.evidence, digest.summary))
            record = {
                "url": part.asked,
                "found": part.status is Status.OK,
                "evidence": digest.evidence if part.value is not None else "",
                "summary": digest.summary,
                **part.record(),
            }
            retries = [*part.retries, *digest.retries]
            if retries:
                record["retries"] = retries
            if digest.failure is not None:
                record["summariser"] = digest.failure.kind
            data.append(record)
        return _result("visit", PAGE_SEPARATOR.join(shown), parts, data)

    async def _digest(self, page: ReadPage, goal: str) -> Digest:
        if not page.text.strip():
            return Digest(prompts.empty_page())
        with boundary(ToolError, "reading the page"):
            return await self._digester.digest(page, goal)

    # ---- parts ----------------------------------------------------------------------

    async def _at_once(
        self,
        asked: Sequence[str],
        one: Callable[[Part[T]], Awaitable[None]],
        status_of: Callable[[ToolError], Status],
        check: Callable[[str], None] = lambda asked: None,
    ) -> list[Part[T]]:
        """Carry out every part that ``check`` lets pass; what one raises becomes its own fate."""
        parts: list[Part[T]] = [Part(_readable(item)) for item in asked]

        async def run(part: Part[T], item: str) -> None:
            try:
                with boundary(ToolError, "the call"):
                    check(item)
                    await self._in_time(one(part), part)
            except ToolError as error:
                found = self._network.judged(error, item) if part.at_site else error
                part.cost += found.cost
                part.error, part.value, part.status = _masked(found), None, status_of(found)

        await asyncio.gather(*map(run, parts[:MOST_PARTS], asked))
        for part in parts[MOST_PARTS:]:
            message = f"one call carries out {MOST_PARTS} at most, and this one is beyond that"
            part.error, part.status = ToolError(message, kind="too_many"), Status.REFUSED
        return parts

    async def _in_time(self, work: Awaitable[None], part: Part[Any]) -> None:
        seconds = self._seconds()
        try:
            async with asyncio.timeout(seconds) as limit:
                await work
        except TimeoutError:
            if not limit.expired():
                raise
            kind = SiteError if part.at_site else ToolError
            raise kind(
                f"not done within {seconds:.3g} seconds", kind="timeout", retryable=True
            ) from None

    def _seconds(self) -> float:
        """The deadline, or a little less than there is until the call is given up."""
        left = time_left()
        if left is None:
            return self._deadline
        return min(self._deadline, max(0.0, left - min(1.0, left / 20)))

    async def _retried(self, part: Part[Any], work: Callable[[], Awaitable[T]]) -> T:
        return await self._retry.run(work, lambda error: part.retries.append(error.kind))


def _result(
    tool: str, text: str, parts: Sequence[Part[Any]], data: list[dict[str, Any]]
) -> ToolResult:
    status = joined_status(part.status for part in parts)
    if status is Status.FAILED:
        reasons = dict.fromkeys(str(part.error) for part in parts)
        text = prompts.failed_call(tool, "; ".join(reasons))
    return ToolResult(
        mask(text),
        status,
        data=mask_data(data),
        cost=sum(part.cost for part in parts),
    )


def _told(part: Part[Any]) -> str:
    reason = str(part.error)
    match part.status:
        case Status.EMPTY:
            return prompts.missing_page(reason)
        case Status.REFUSED if part.error is not None and is_passing(part.error):
            return prompts.unreached_page(reason)
        case Status.REFUSED:
            return prompts.refused_page(reason)
    return prompts.failed_page(reason)


def _masked(error: ToolError) -> ToolError:
    return error.said(mask(str(error)))


def _check_url(url: str) -> None:
    if len(url) > LONGEST_QUERY:
        message = f"the url has {len(url):,} characters, and {LONGEST_QUERY:,} at most are opened"
        raise ToolError(message, kind="bad_url")
    if _readable(url) != url:
        raise ToolError("the url holds characters that can't be sent", kind="bad_url")


def _readable(text: str) -> str:
    """The beginning of a text, with lone surrogates replaced, so that it can be sent."""
    return sound_text(text[:LONGEST_QUERY])
