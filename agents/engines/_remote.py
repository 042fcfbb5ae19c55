"""What engines behind a server share: patience with it, and its failures in plain words."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from agents.engines._gate import Gate
from drv_env.chat import is_too_long
from drv_env.errors import EngineError, SettingError, ToolError
from drv_env.http import HttpClient
from drv_env.retry import RetryPolicy
from drv_env.secrets import Secret, as_secret
from drv_env.service_address import service_address

T = TypeVar("T")

PATIENCE = RetryPolicy(attempts=5, first_wait=1.0, longest_wait=30.0, longest_retry_after=120.0)
"""Of the engines by default: waits 8 to 15 seconds in all, or what the server asks for."""

_ADVICE = {
    "unauthorised": "pass the server's api_key",
    "not_found": "check base_url, which mostly ends in /v1, and the model's name",
    "bad_reply": "check base_url, which mostly ends in /v1",
    "no_credit": "the account has no credit left",
    "timeout": "raise timeout, or lower max_in_flight",
    "rate_limited": "lower max_in_flight, or pass a more patient retry",
    "connection": "check that the server runs at base_url",
    "no_such_host": "check base_url",
    "too_long": "give the episode a smaller context budget (max_context) or shorter turns "
    "(max_turn_tokens), or the server a longer context",
    "too_large": "pass http=HttpClient(max_bytes=…) that takes larger replies",
}


async def ask(gate: Gate, retry: RetryPolicy, name: str, once: Callable[[], Awaitable[T]]) -> T:
    """What ``once`` gives, tried again as ``retry`` says; every try takes a turn of ``gate``.

    Raises:
        EngineError: for everything that goes wrong.
    """

    tries = 0

    async def one_turn() -> T:
        nonlocal tries
        async with gate.turn():
            tries += 1
            return await once()

    try:
        return await retry.run(one_turn)
    except ToolError as error:
        advice = _ADVICE.get(error.kind)
        message = f"{name}: {error}" + (f", after {tries} tries" if tries > 1 else "")
        raise EngineError(message + (f"; {advice}" if advice else "")) from error


class JsonServer:
    """Asks a server for JSON.

    Args:
        base_url: such as ``http://host:8000/v1``.
        api_key: sent as a bearer token; None sends none.
        http: asks.
        timeout: seconds for a whole request.

    Raises:
        SettingError: for an address that is no http url, or holds credentials.
    """

    def __init__(
        self, base_url: str, api_key: Secret | str | None, http: HttpClient, timeout: float
    ) -> None:
        base = service_address(base_url)
        if not timeout > 0:
            raise SettingError(f"timeout must be above 0 seconds, got {timeout}")
        self.base_url = base
        self.http = http
        key = as_secret(api_key)
        self._headers = {"Authorization": Secret(f"Bearer {key.reveal()}")} if key else {}
        self._timeout = timeout

    async def get(self, path: str) -> Any:
        """The JSON at ``path``."""
        return await self._ask("GET", path, None)

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON that ``body`` is answered with.

        Raises:
            ToolError: for everything that goes wrong.
        """
        return await self._ask("POST", path, body)

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None) -> Any:
        try:
            reply = await self.http.request(
                method,
                f"{self.base_url}{path}",
                headers=self._headers,
                json=body,
                timeout=self._timeout,
            )
        except ToolError as error:
            if is_too_long(error):
                raise ToolError(str(error), kind="too_long") from None
            raise
        try:
            return json.loads(reply.body)
        except (ValueError, RecursionError):
            raise ToolError(
                "the server's reply is not JSON", kind="bad_reply", retryable=True
            ) from None
