"""Google's results through Serper (https://serper.dev).

One query, one request.  What the service sends is read with care: an error is never
taken for "no results", and a hole in an entry never loses the others.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from drv_env.errors import SettingError, ToolError
from drv_env.http import HttpClient
from drv_env.http_errors import kind_of_status
from drv_env.secrets import Secret, as_secret, mask
from drv_env.service_address import service_address
from drv_env.settings import above, at_least, between, checked_number, checked_whole
from drv_env.unicode_text import canonical_text
from drv_env.urls import canonical_url

ENDPOINT = "https://google.serper.dev/search"

Hit = dict[str, str]
"""``title``, ``url``, ``snippet`` and, where known, ``date``."""


@dataclass(frozen=True, slots=True)
class Locale:
    """Where and in what language Google is asked: its ``gl`` and ``hl`` parameters."""

    country: str
    language: str


DEFAULT_LOCALE = Locale("us", "en")
CHINESE = Locale("cn", "zh-cn")
JAPANESE = Locale("jp", "ja")
KOREAN = Locale("kr", "ko")

_KANA = re.compile("[\u3040-\u30ff]")
_HANGUL = re.compile("[\u1100-\u11ff\uac00-\ud7af]")
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")


def locale_by_script(query: str) -> Locale:
    """Japanese for kana, Korean for Hangul, Chinese for other Han characters, else US English.

    Example:
        >>> locale_by_script("北京大学的校长")
        Locale(country='cn', language='zh-cn')
    """
    query = canonical_text(query)
    if _KANA.search(query):
        return JAPANESE
    if _HANGUL.search(query):
        return KOREAN
    return CHINESE if _HAN.search(query) else DEFAULT_LOCALE


@dataclass(frozen=True, slots=True)
class Found:
    """What one query brought: hits, best first, and its price in US dollars."""

    hits: list[Hit]
    cost: float = 0.0


class SearchService(Protocol):
    """Answers one query at a time."""

    async def search(self, query: str) -> Found:
        """The hits; none when the engine says that there are none.

        Raises:
            ToolError: for everything else.
        """
        ...

    async def close(self) -> None:
        """Give back what the service holds; may be called twice."""
        ...


class Serper:
    """Searches Google.

    Args:
        key: SERPER_KEY_ID.
        http: a client to share; without one the service has its own.
        results: most hits a query, boxes apart, 1 to 100.
        locale: country and language for all queries, or a function of the query.
        price: US dollars a credit, by your plan.
        endpoint: where to ask.
        timeout: seconds for a request.
        proxy: of its own client, see :class:`~drv_env.http.HttpClient`.

    Raises:
        SettingError: naming a value that can't work.
    """

    def __init__(
        self,
        key: Secret | str,
        *,
        http: HttpClient | None = None,
        results: int = 10,
        locale: Locale | Callable[[str], Locale] = locale_by_script,
        price: float = 0.001,
        endpoint: str = ENDPOINT,
        timeout: float = 20.0,
        proxy: Secret | str | None = None,
    ) -> None:
        secret = as_secret(key)
        if secret is None:
            raise SettingError("the search key is blank; set SERPER_KEY_ID or pass key")
        checked_whole("results", results, between(1, 100))
        self._key = secret
        self._own_http = http is None
        self._http = HttpClient(proxy=proxy) if http is None else http
        self._results = results
        self._locale = locale
        self._price = checked_number("price", price, at_least(0, "US dollars"))
        self._endpoint = service_address(endpoint, "endpoint", "pass the key as key")
        self._timeout = checked_number("timeout", timeout, above(0, "seconds"))

    async def search(self, query: str) -> Found:
        """See :class:`SearchService`."""
        locale = self._locale(query) if callable(self._locale) else self._locale
        reply = await self._http.request(
            "POST",
            self._endpoint,
            headers={"X-API-KEY": self._key},
            json={
                "q": query,
                "gl": locale.country,
                "hl": locale.language,
                "num": self._results,
            },
            timeout=self._timeout,
            max_bytes=4_000_000,
        )
        try:
            body = json.loads(reply.body)
        except (ValueError, RecursionError):
            body = None
        hits = read_hits(body, self._results)
        credits = body.get("credits", 1)
        if not isinstance(credits, int | float) or not 0 <= credits < 1e6:
            credits = 1
        return Found(hits, credits * self._price)

    async def close(self) -> None:
        """Close the service's own connections; may be called twice."""
        if self._own_http:
            await self._http.close()


def read_hits(body: Any, most: int = 10) -> list[Hit]:
    """The hits in a reply of Serper's, parsed from JSON.

    The content of the answer box and the knowledge panel comes first, as hits; their
    url is ``""`` where they have none.  Then the results that have an http(s) link, in
    order, a page once; ``most`` of them.  A reply without ``organic`` is one without results:
    the service leaves the field out, or sends null, where Google has none.

    Raises:
        ToolError: when the reply is an error, or no reply to a search.
    """
    if not isinstance(body, dict):
        raise ToolError(
            "the search service sent something else than JSON", kind="bad_reply", retryable=True
        )
    organic = body.get("organic")
    if organic is None:
        error = _error_in(body)
        if error is not None:
            raise error
        organic = []
    if not isinstance(organic, list):
        # The request was paid for, and a second one would bring the same.
        raise ToolError("the search service sent results that are no list", kind="bad_reply")
    boxes = [
        hit
        for hit in (_answer_box(body.get("answerBox")), _panel(body.get("knowledgeGraph")))
        if hit is not None
    ]
    hits, seen = boxes, set()
    for entry in organic:
        hit = _organic(entry)
        if hit is None:
            continue
        page = canonical_url(hit["url"])
        if page in seen:
            continue
        seen.add(page)
        hits.append(hit)
        if len(seen) == most:
            break
    return hits


def _error_in(body: Mapping[str, Any]) -> ToolError | None:
    """The failure that a reply without results tells of, or None where it tells of none.

    Whether a later try may help is told by its code; where there is none, it isn't tried.
    """
    said = next((text for text in map(_said, map(body.get, ("message", "error"))) if text), "")
    status = body.get("statusCode")
    if isinstance(status, str) and status.isdecimal():
        status = int(status[:5])
    coded = isinstance(status, int) and status >= 400
    if not said and not coded:
        return None
    kind, retryable = kind_of_status(status if coded and isinstance(status, int) else 400, said)
    message = f"the search service answered with an error: {mask(said or str(status))[:300]}"
    return ToolError(message, kind=kind, retryable=retryable)


def _said(value: Any) -> str:
    """An error's text: as it is, or inside an object of its own."""
    if isinstance(value, dict):
        value = value.get("message")
    return value.strip() if isinstance(value, str) else ""


def _organic(entry: Any) -> Hit | None:
    if not isinstance(entry, dict):
        return None
    url = _link(entry, "link")
    if not url:
        return None
    hit = {"title": _string(entry, "title"), "url": url, "snippet": _string(entry, "snippet")}
    date = _string(entry, "date")
    return {**hit, "date": date} if date else hit


def _answer_box(box: Any) -> Hit | None:
    if not isinstance(box, dict):
        return None
    answer, snippet = _string(box, "answer"), _string(box, "snippet")
    text = " ".join(dict.fromkeys(part for part in (answer, snippet) if part))
    if not text:
        return None
    return {"title": _string(box, "title"), "url": _link(box, "link"), "snippet": text}


def _panel(panel: Any) -> Hit | None:
    if not isinstance(panel, dict):
        return None
    parts = [_string(panel, "type"), _string(panel, "description")]
    attributes = panel.get("attributes")
    if isinstance(attributes, dict):
        parts += [f"{name}: {value}" for name, value in attributes.items() if _is_plain(value)]
    text = ". ".join(part for part in parts if part)
    if not text:
        return None
    url = _link(panel, "descriptionLink") or _link(panel, "website")
    return {"title": _string(panel, "title"), "url": url, "snippet": text}


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _string(entry: Mapping[str, Any], name: str) -> str:
    value = entry.get(name)
    return str(value).strip() if _is_plain(value) else ""


def _link(entry: Mapping[str, Any], name: str) -> str:
    url = _string(entry, name)
    return url if url.lower().startswith(("http://", "https://")) else ""
