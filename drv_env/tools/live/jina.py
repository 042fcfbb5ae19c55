"""Pages through Jina Reader (https://jina.ai/reader): the service opens and extracts them.

With several keys, requests take turns; a key that is refused or out of credit is not
used again, and the request goes on with the next.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from drv_env.addresses import AddressGuard
from drv_env.errors import SiteError, ToolError
from drv_env.http import HttpClient
from drv_env.http_errors import kind_of_status, status_error
from drv_env.secrets import Secret, get_logger, mask
from drv_env.service_address import service_address
from drv_env.settings import above, at_least, checked_number, checked_whole
from drv_env.tools.live.pages import ReadPage
from drv_env.tools.live.walls import wall_in_text

ENDPOINT = "https://r.jina.ai/"

_LOG = get_logger(__name__)
_TARGET = re.compile(r"Target URL returned error (\d{3})")
_ABOUT_THE_KEY = (401, 402, 407, 429)
_SITE_FAULT = re.compile(
    r"failed to (?:access|go ?to|load|fetch|navigate)|remote server|target url|net::err_"
    r"|navigation timeout|could not be resolved|no content available|consecutive error detected on",
    re.IGNORECASE,
)
"""How the service says that it was the site (its ``src/api/crawler.ts`` and ``src/services``)."""

_SITE_KINDS = tuple(
    (kind, retryable, re.compile(words, re.IGNORECASE))
    for kind, retryable, words in (
        ("no_such_host", False, r"could not be resolved|name_not_resolved|enotfound"),
        ("timeout", True, r"time-?d? ?-?out"),
        ("tls", False, r"err_cert|err_ssl|certificate"),
        ("redirects", False, r"too many redirect"),
        ("connection", True, r"err_connection|err_address|err_empty|econn|socket hang up|reset"),
    )
)


class JinaReader:
    """Reads pages through the service.

    Args:
        keys: JINA_API_KEYS; without any the service is asked without a key, which it
            serves at a low rate.
        http: a client to share; without one the reader has its own.
        price: US dollars per million tokens, by your plan.
        max_chars: of a page's text, the most characters that are kept.
        endpoint: where to ask.
        timeout: seconds for a request.
        proxy: of its own client, see :class:`~drv_env.http.HttpClient`.
    """

    def __init__(
        self,
        keys: Sequence[Secret | str] = (),
        *,
        http: HttpClient | None = None,
        price: float = 0.0,
        max_chars: int = 2_000_000,
        endpoint: str = ENDPOINT,
        timeout: float = 45.0,
        proxy: Secret | str | None = None,
    ) -> None:
        self._keys = [key if isinstance(key, Secret) else Secret(key) for key in keys]
        self._spent: dict[int, ToolError] = {}
        self._next = 0
        self._own_http = http is None
        self._http = HttpClient(proxy=proxy) if http is None else http
        self._price = checked_number("price", price, at_least(0, "US dollars"))
        self._max_chars = checked_whole("max_chars", max_chars, at_least(1))
        self._endpoint = service_address(endpoint, "endpoint", "pass the key as keys")
        self._timeout = checked_number("timeout", timeout, above(0, "seconds"))

    async def read(self, url: str) -> ReadPage:
        """See :class:`~drv_env.tools.live.pages.PageReader`."""
        AddressGuard().parse(url)
        if not self._keys:
            return await self._ask(url, None)
        for _ in self._keys:
            number = self._take_turn()
            if number is None:
                break
            try:
                return await self._ask(url, self._keys[number])
            except ToolError as error:
                if error.kind not in ("bad_key", "no_credit"):
                    raise
                self._spent[number] = error
                _LOG.warning("Jina key %d of %d is out: %s", number + 1, len(self._keys), error)
        last = next(iter(self._spent.values()))
        raise ToolError(str(last), kind=last.kind)

    async def close(self) -> None:
        """Close the reader's own connections; may be called twice."""
        if self._own_http:
            await self._http.close()

    def _take_turn(self) -> int | None:
        """Number of the next key that works, or None."""
        for _ in self._keys:
            number, self._next = self._next, (self._next + 1) % len(self._keys)
            if number not in self._spent:
                return number
        return None

    async def _ask(self, url: str, key: Secret | None) -> ReadPage:
        headers: dict[str, str | Secret] = {"Accept": "application/json"}
        if key is not None:
            headers["Authorization"] = Secret(f"Bearer {key.reveal()}")
        reply = await self._http.request(
            "POST",
            self._endpoint,
            headers=headers,
            json={"url": url},
            timeout=self._timeout,
            raise_for_status=False,
        )
        try:
            body = json.loads(reply.body)
        except (ValueError, RecursionError):
            body = None
        if reply.status >= 400:
            raise _failure(_message(body), reply.status, status_error(reply))
        return self._read(url, body)

    def _read(self, url: str, body: Any) -> ReadPage:
        data = body.get("data") if isinstance(body, dict) else None
        if not isinstance(data, dict):
            code = body.get("code") if isinstance(body, dict) else None
            said = _message(body)
            if isinstance(code, int) and code >= 400 and said:
                kind, retryable = kind_of_status(code, said)
                message = f"the reader answered with an error: {mask(said)[:300]}"
                raise _failure(said, code, ToolError(message, kind=kind, retryable=retryable))
            raise ToolError(
                "the reader sent something else than a page", kind="bad_reply", retryable=True
            )
        warning = _warning(data)
        cost = self._cost(data)
        target = _TARGET.search(warning)
        if target is not None and int(target[1]) >= 400:
            raise _site_status(int(target[1]), cost)
        text = data.get("content")
        if not isinstance(text, str):
            raise ToolError("the reader sent no text", kind="bad_reply", retryable=True, cost=cost)
        title = data.get("title")
        title = title.strip() if isinstance(title, str) else ""
        wall = wall_in_text(title, text, warned="captcha" in warning.lower())
        if wall is not None:
            raise SiteError(wall, kind="robot_wall", cost=cost)
        return ReadPage(url, title, text[: self._max_chars], cost, len(text) > self._max_chars)

    def _cost(self, data: Mapping[str, Any]) -> float:
        usage = data.get("usage")
        tokens = usage.get("tokens", 0) if isinstance(usage, dict) else 0
        return tokens * self._price / 1e6 if isinstance(tokens, int) and tokens > 0 else 0.0


def _message(body: Any) -> str:
    """What the service says went wrong; may be empty."""
    if not isinstance(body, dict):
        return ""
    said = body.get("readableMessage") or body.get("message")
    return said if isinstance(said, str) else ""


def _warning(data: Mapping[str, Any]) -> str:
    """What the service warns of, a line each; may be empty."""
    warning = data.get("warning")
    lines = warning if isinstance(warning, list) else [warning]
    return "\n".join(line for line in lines if isinstance(line, str))


def _site_status(status: int, cost: float) -> ToolError:
    kind, retryable = kind_of_status(status, "")
    if kind == "no_credit":  # the site wants to be paid: it refuses, like a 403
        kind = "unauthorised"
    return SiteError(f"the site answered {status}", kind=kind, retryable=retryable, cost=cost)


def _failure(said: str, code: int, error: ToolError) -> ToolError:
    """The failure of a request: the site's, where the service says that it is, or its own."""
    if code in _ABOUT_THE_KEY or _SITE_FAULT.search(said) is None:
        return _service_error(error)
    for kind, retryable, words in _SITE_KINDS:
        if words.search(said):
            return SiteError(str(error), kind=kind, retryable=retryable)
    return SiteError(str(error), kind="server_error" if code >= 500 else "rejected")


def _service_error(error: ToolError) -> ToolError:
    """The service's own refusals have names of their own, apart from those of sites."""
    if error.kind == "unauthorised":
        return ToolError(f"the reader's key was refused ({error})", kind="bad_key")
    if error.kind == "not_found":
        return ToolError(f"the reader is not where it was ({error})", kind="failed")
    return error
