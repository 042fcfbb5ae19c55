"""Pages through Jina Reader (https://jina.ai/reader): the service opens and extracts them.

With several keys, requests take turns; a key that is refused or out of credit is not
used again, and the request goes on with the next.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from drv_env.addresses import AddressGuard
from drv_env.errors import ToolError
from drv_env.http import HttpClient
from drv_env.http_errors import kind_of_status
from drv_env.secrets import Secret, get_logger, mask
from drv_env.service_address import service_address
from drv_env.settings import above, at_least, checked_number, checked_whole
from drv_env.tools.live.pages import ReadPage

ENDPOINT = "https://r.jina.ai/"

_LOG = get_logger(__name__)
_TARGET = re.compile(r"Target URL returned error (\d{3})")


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
        try:
            reply = await self._http.request(
                "POST", self._endpoint, headers=headers, json={"url": url}, timeout=self._timeout
            )
        except ToolError as error:
            raise _service_error(error) from None
        try:
            body = json.loads(reply.body)
        except (ValueError, RecursionError):
            body = None
        return self._read(url, body)

    def _read(self, url: str, body: Any) -> ReadPage:
        data = body.get("data") if isinstance(body, dict) else None
        if not isinstance(data, dict):
            code = body.get("code") if isinstance(body, dict) else None
            said = body.get("message") if isinstance(body, dict) else None
            if isinstance(code, int) and code >= 400 and isinstance(said, str):
                kind, retryable = kind_of_status(code, said)
                message = f"the reader answered with an error: {mask(said)[:300]}"
                raise _service_error(ToolError(message, kind=kind, retryable=retryable))
            raise ToolError(
                "the reader sent something else than a page", kind="bad_reply", retryable=True
            )
        warning = data.get("warning")
        target = _TARGET.search(warning) if isinstance(warning, str) else None
        if target is not None:
            status = int(target[1])
            kind, retryable = kind_of_status(status, "")
            raise ToolError(f"the site answered {status}", kind=kind, retryable=retryable)
        text = data.get("content")
        if not isinstance(text, str):
            raise ToolError("the reader sent no text", kind="bad_reply", retryable=True)
        title = data.get("title")
        usage = data.get("usage")
        tokens = usage.get("tokens", 0) if isinstance(usage, dict) else 0
        cost = tokens * self._price / 1e6 if isinstance(tokens, int) and tokens > 0 else 0.0
        return ReadPage(
            url,
            title.strip() if isinstance(title, str) else "",
            text[: self._max_chars],
            cost,
            len(text) > self._max_chars,
        )


def _service_error(error: ToolError) -> ToolError:
    """The service's own refusals have names of their own, apart from those of sites."""
    if error.kind == "unauthorised":
        return ToolError(f"the reader's key was refused ({error})", kind="bad_key")
    if error.kind == "not_found":
        return ToolError(f"the reader is not where it was ({error})", kind="failed")
    return error
