"""What failed requests mean: statuses and exceptions as kinds of failure.

The kinds are listed, with what follows from them, in docs/tools.md.
"""

from __future__ import annotations

import email.utils
import errno
import json as jsonlib
import socket
import time
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import aiohttp

from drv_env.addresses import RefusedPeer, refused_url
from drv_env.errors import ToolError
from drv_env.http_reply import HttpReply
from drv_env.secrets import mask

_OWN = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors of the system that are no fault of the far side."""

_NO_CREDIT = ("credit", "quota", "insufficient", "balance", "billing", "payment")


def status_error(reply: HttpReply) -> ToolError:
    """The failure that a reply with a status of 400 or above stands for."""
    try:
        phrase = HTTPStatus(reply.status).phrase
    except ValueError:
        phrase = "no standard status"
    said = _said(reply)
    message = f"the server answered {reply.status} ({phrase})" + (f": {said}" if said else "")
    kind, retryable = kind_of_status(reply.status, said)
    after = retry_after(reply.headers.get("retry-after")) if retryable else None
    return ToolError(mask(message), kind=kind, retryable=retryable, retry_after=after)


def kind_of_status(status: int, said: str) -> tuple[str, bool]:
    """The kind of failure and whether to try again, from a status and what was said with it."""
    said = said.lower()
    if status == 402 or (status in (400, 403, 429) and any(word in said for word in _NO_CREDIT)):
        return "no_credit", False
    if status in (401, 403, 407):
        return "unauthorised", False
    if status in (404, 410):
        return "not_found", False
    if status == 429:
        return "rate_limited", True
    if status in (408, 425):
        return "timeout", True
    if status >= 500:
        return "server_error", status not in (501, 505)
    return "rejected", False


def _said(reply: HttpReply) -> str:
    """What an error's body says, shortened: the message of JSON, or plain text.

    Nothing of any other body.
    """
    try:
        value = jsonlib.loads(reply.body)
    except (ValueError, RecursionError):
        plain = reply.headers.get("content-type", "").partition(";")[0].strip() == "text/plain"
        value = reply.body.decode("utf-8", "replace") if plain else ""
    return " ".join(_message(value).split())[:300]


def _message(value: Any, depth: int = 0) -> str:
    """The message in an error's JSON, after the names of the fields that it is about."""
    if isinstance(value, str):
        return value
    if depth > 3:
        return ""
    if isinstance(value, list):  # such as pydantic's, one entry a field
        return "; ".join(filter(None, (_message(item, depth + 1) for item in value[:5])))
    if not isinstance(value, dict):
        return ""
    names = ("message", "error", "detail", "readableMessage", "msg", "errors")
    said = next((_message(value[name], depth + 1) for name in names if value.get(name)), "")
    place = value.get("param") or value.get("loc")
    last = place[-1] if isinstance(place, list) and place else place
    return f"{last}: {said}" if isinstance(last, str) and last not in said else said


def retry_after(value: str | None) -> float | None:
    """Seconds to wait, from a number or a date."""
    if value is None:
        return None
    with suppress(ValueError):
        seconds = float(value)
        return max(0.0, seconds) if seconds == seconds else None
    with suppress(ValueError, TypeError, OverflowError):
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    return None


def attribute(error: Exception, seconds: float) -> ToolError:
    """What an exception of the HTTP library means."""
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return ToolError("no connection could be made in time", kind="connection", retryable=True)
    if isinstance(error, TimeoutError):
        return ToolError(
            f"no full reply within {seconds:g} seconds", kind="timeout", retryable=True
        )
    if isinstance(getattr(error, "os_error", None), RefusedPeer):
        return refused_url(str(error.os_error))  # type: ignore[attr-defined]
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        again = getattr(error.os_error, "errno", None) == socket.EAI_AGAIN
        host = mask(str(error.host))[:100]
        return ToolError(f"the host {host} was not found", kind="no_such_host", retryable=again)
    if isinstance(error, socket.gaierror):
        again = error.errno == socket.EAI_AGAIN
        return ToolError("the host was not found", kind="no_such_host", retryable=again)
    if isinstance(error, aiohttp.ClientSSLError):
        return ToolError("no secure connection could be made", kind="tls")
    if isinstance(error, aiohttp.ClientHttpProxyError):
        message = f"the proxy answered {error.status}"
        if error.status >= 500:  # it stands for the host, which it could not reach
            return ToolError(message, kind="connection", retryable=True)
        return ToolError(message, kind="proxy")
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return ToolError("the proxy was not reached", kind="proxy", retryable=True)
    if isinstance(error, aiohttp.InvalidURL | ValueError):
        return ToolError("this is not a valid url or request", kind="bad_url")
    if isinstance(error, aiohttp.ClientResponseError):
        return ToolError("the reply is not valid HTTP", kind="bad_reply", retryable=True)
    name = type(error).__name__
    if getattr(error, "errno", None) in _OWN:
        return ToolError(f"this machine has nothing left to ask with ({name})", kind="resources")
    if isinstance(error, aiohttp.ClientError | OSError):
        return ToolError(f"the connection failed ({name})", kind="connection", retryable=True)
    return ToolError(mask(f"{name}: {error}"))
