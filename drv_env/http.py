"""One HTTP client for everything that asks a server: bounded, and honest about failures.

Every request has a total deadline and a limit on the body, as sent and as unpacked.
Whatever goes wrong leaves as a :class:`~drv_env.errors.ToolError` that says what kind of
failure it was and whether a later try may succeed; keys are masked in its text.  There
is one session per event loop, made at the first request.

This module knows nothing of search, pages or models.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver
from yarl import URL

from drv_env.addresses import AddressGuard
from drv_env.errors import DrvError, ToolError
from drv_env.http_errors import attribute, status_error
from drv_env.http_reply import ACCEPT_ENCODING, HttpReply, Unpacker, too_large
from drv_env.secrets import Secret, proxy_secret
from drv_env.settings import above, checked_number, checked_whole

USER_AGENT = "Mozilla/5.0 (compatible; drv-env)"
_ERROR_BODY = 65_536
_REDIRECTS = frozenset({301, 302, 303, 307, 308})


class HttpClient:
    """Requests with a deadline and a size limit.

    Pickling carries the settings, never a session.

    Args:
        limit: connections open at a time, at least 1; further requests wait, within
            their deadline.
        timeout: seconds for a whole request, redirects and body included.
        connect_timeout: seconds for making a connection.
        max_bytes: the most bytes of a body, as sent and unpacked.
        proxy: address of an HTTP proxy.  The proxy then resolves names itself; a
            ``guard`` still checks what they resolve to here.
        user_agent: sent with every request.
        guard: where connections may go; None for anywhere (a service of the user's own).

    Raises:
        SettingError: naming a value that can't work.
    """

    def __init__(
        self,
        *,
        limit: int = 100,
        timeout: float = 30.0,
        connect_timeout: float = 10.0,
        max_bytes: int = 10_000_000,
        proxy: Secret | str | None = None,
        user_agent: str = USER_AGENT,
        guard: AddressGuard | None = None,
    ) -> None:
        checked_whole("limit", limit, above(0))
        checked_number("timeout", timeout, above(0))
        checked_number("connect_timeout", connect_timeout, above(0))
        checked_whole("max_bytes", max_bytes, above(0))
        self._limit = limit
        self._timeout = timeout
        self._connect_timeout = connect_timeout
        self._max_bytes = max_bytes
        self._proxy = proxy_secret(proxy)
        self._user_agent = user_agent
        self._guard = guard
        self._lock = threading.Lock()
        self._sessions: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, aiohttp.ClientSession
        ] = weakref.WeakKeyDictionary()

    def __reduce__(self) -> tuple[Any, ...]:
        settings: dict[str, Any] = {
            "limit": self._limit,
            "timeout": self._timeout,
            "connect_timeout": self._connect_timeout,
            "max_bytes": self._max_bytes,
            "proxy": self._proxy,
            "user_agent": self._user_agent,
            "guard": self._guard,
        }
        return partial(HttpClient, **settings), ()

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str | Secret] | None = None,
        json: Any = None,
        params: Mapping[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - covers several steps
        max_bytes: int | None = None,
        redirects: int = 0,
        raise_for_status: bool = True,
        check_headers: Callable[[Mapping[str, str]], None] | None = None,
    ) -> HttpReply:
        """Ask, and read the whole reply.

        Args:
            method: such as ``"GET"``.
            url: http or https.
            headers: further headers; left behind when a redirect leads to another origin.
            json: body, sent as JSON; None for no body.
            params: query parameters.
            timeout: seconds for everything, in place of the client's.
            max_bytes: the most bytes of the body, in place of the client's.
            redirects: how many to follow, each checked like the first url; with 0 a
                redirect is a reply like any other.
            raise_for_status: raise for a status of 400 and above; of such bodies no more
                than 64 KiB are read.
            check_headers: called with the headers of a reply below 400 that is no redirect,
                names in lower case, before its body is read; may raise ToolError.

        Raises:
            ToolError: for everything that goes wrong; see docs/tools.md for the kinds.
        """
        seconds = self._timeout if timeout is None else timeout
        most = self._max_bytes if max_bytes is None else max_bytes
        failure: ToolError
        try:
            async with asyncio.timeout(seconds):
                return await self._follow(
                    method,
                    url,
                    headers or {},
                    json,
                    params,
                    _Reading(most, raise_for_status, check_headers),
                    redirects,
                )
        except DrvError:
            raise
        except Exception as error:  # noqa: BLE001 - attributed, every one of them
            failure = attribute(error, seconds)
        # Raised out here so that the original, which may hold headers, does not hang on it.
        raise failure

    async def close(self) -> None:
        """Close the sessions of every loop; may be called twice, and used again after."""
        with self._lock:
            sessions = list(self._sessions.items())
            self._sessions.clear()
        here = asyncio.get_running_loop()
        for loop, session in sessions:
            if loop is here:
                await session.close()
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(session.close(), loop)
                await asyncio.wrap_future(closing)
            else:
                with suppress(RuntimeError):  # its loop is gone, and its sockets with it
                    await session.close()
        if sessions:
            await asyncio.sleep(0)  # lets transports call back that they are closed

    def _session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        with self._lock:
            session = self._sessions.get(loop)
            if session is None or session.closed:
                # Behind a proxy every connection goes to the proxy, which is the user's choice.
                guard = None if self._proxy else self._guard
                session = aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(
                        limit=self._limit,
                        resolver=_Resolver(guard),
                        socket_factory=guard.open_socket if guard is not None else None,
                    ),
                    cookie_jar=aiohttp.DummyCookieJar(),
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_timeout),
                    auto_decompress=False,
                    headers={"User-Agent": self._user_agent, "Accept-Encoding": ACCEPT_ENCODING},
                )
                self._sessions[loop] = session
            return session

    async def _follow(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str | Secret],
        json: Any,
        params: Mapping[str, str] | None,
        reading: _Reading,
        redirects: int,
    ) -> HttpReply:
        plain = {
            name: value.reveal() if isinstance(value, Secret) else value
            for name, value in headers.items()
        }
        target, left = self._parsed(url), redirects
        while True:
            await self._check(target)
            reply = await self._once(method, target, plain, json, params, reading)
            location = reply.headers.get("location")
            if not redirects or reply.status not in _REDIRECTS or not location:
                return reply
            if not left:
                raise ToolError(f"more than {redirects} redirects", kind="redirects")
            left -= 1
            following = self._parsed(location, target)
            if (following.scheme, following.authority) != (target.scheme, target.authority):
                plain = {}
            target, params = following, None
            if reply.status == 303:
                method, json = "GET", None

    def _parsed(self, text: str, base: URL | None = None) -> URL:
        if self._guard is not None:
            return self._guard.parse(text, base)
        return URL(text) if base is None else base.join(URL(text))

    async def _check(self, url: URL) -> None:
        """Behind a proxy, judge what the name resolves to here: the proxy asks again."""
        if self._guard is not None and self._proxy:
            host, port = url.raw_host or "", url.port or 0
            found = await ThreadedResolver().resolve(host, port, socket.AF_UNSPEC)
            self._guard.check(host, port, [item["host"] for item in found])

    async def _once(
        self,
        method: str,
        url: URL,
        headers: Mapping[str, str],
        json: Any,
        params: Mapping[str, str] | None,
        reading: _Reading,
    ) -> HttpReply:
        response = await self._session().request(
            method,
            url,
            headers=headers,
            json=json,
            params=params,
            allow_redirects=False,
            proxy=self._proxy.reveal() if self._proxy else None,
        )
        try:
            headers = {name.lower(): value for name, value in response.headers.items()}
            bad = reading.raise_for_status and response.status >= 400
            if reading.check_headers is not None and response.status < 300:
                reading.check_headers(headers)
            body = await _read_start(response) if bad else await _read(response, reading.most)
            reply = HttpReply(response.status, headers, body, str(response.url))
        finally:
            # A connection whose reply was read to its end went back to the pool already;
            # any other is not fit for another request.
            response.close()
        if bad:
            raise status_error(reply)
        return reply


@dataclass(frozen=True, slots=True)
class _Reading:
    """How a reply is read: see the arguments of :meth:`HttpClient.request`."""

    most: int
    raise_for_status: bool
    check_headers: Callable[[Mapping[str, str]], None] | None


class _Resolver(AbstractResolver):
    """Resolves names, and hands out only addresses that the guard lets pass."""

    def __init__(self, guard: AddressGuard | None) -> None:
        self._guard = guard
        self._inner = ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        if self._guard is not None:
            self._guard.check(host, port, [item["host"] for item in found])
        return found

    async def close(self) -> None:
        await self._inner.close()


async def _read(response: aiohttp.ClientResponse, most: int) -> bytes:
    if response.content_length is not None and response.content_length > most:
        raise too_large(most)
    unpacker = _unpacker(response, most)
    async for piece in response.content.iter_any():
        unpacker.feed(piece)
    return unpacker.finish()


async def _read_start(response: aiohttp.ClientResponse) -> bytes:
    """The beginning of an error's body, as far as it can be had."""
    unpacker = _unpacker(response, _ERROR_BODY)
    with suppress(ToolError, aiohttp.ClientError):
        async for piece in response.content.iter_any():
            unpacker.feed(piece)
        unpacker.finish()
    return unpacker.taken()


def _unpacker(response: aiohttp.ClientResponse, most: int) -> Unpacker:
    return Unpacker(", ".join(response.headers.getall("Content-Encoding", ())), most)
