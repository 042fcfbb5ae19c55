"""A client for OpenAI-compatible chat completions: one request, one reply.

For the services around the environment, the summariser and the judge; policies are
played by engines.  Trying again is the caller's choice (:mod:`drv_env.retry`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from drv_env.chat_turns import calls_of, content_text, is_thought, thought_of
from drv_env.errors import SettingError, ToolError
from drv_env.http import HttpClient
from drv_env.request_fields import RequestFields
from drv_env.secrets import Secret, as_secret, get_logger, mask
from drv_env.service_address import service_address
from drv_env.settings import above, at_least, checked_number, checked_whole

_ABSURD = 2**31
"""No server has counted so many tokens: what says so has counted nothing."""

_LOG = get_logger(__name__)

_FORMAT_WORDS = ("response_format", "json_schema", "json_object", "grammar", "guided", "structured")
"""In a server's words about an error of its own that ``response_format`` led to."""

_TOO_LONG = ("context length", "context window", "maximum context", "too long", "max_model_len")


@dataclass(frozen=True, slots=True)
class ChatReply:
    """What the model wrote.

    Attributes:
        text: the reply's content, without a separate reasoning field; may be empty.
        finish_reason: ``"stop"``, ``"length"`` or what else the server says; may be empty.
        prompt_tokens: as the server counts them; 0 where it doesn't say.
        completion_tokens: likewise.
        cost: US dollars: what the server says, else tokens times prices.
        reasoning: of the field ``reasoning_content`` or ``reasoning``; mostly empty.
        absent: where the message has no text of its own, what it has in its place, such as
            ``content is null``; else "".
        calls: whether the server took calls of tools out of the text.
        formatted: whether it was asked for with ``response_format``.
    """

    text: str
    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    reasoning: str = ""
    absent: str = ""
    calls: tuple[str, ...] = ()
    stopped_at: str | None = None
    formatted: bool = False


class ChatClient:
    """Asks one model at one endpoint.

    Pickling carries the settings; the key shows as ``***`` wherever the client is printed.

    Args:
        base_url: such as ``https://host/v1``; ``/chat/completions`` is appended.
        model: the model's name there.
        api_key: sent as a bearer token; None sends none.
        http: a client to share; without one the chat client has its own.
        timeout: seconds for a whole request.
        temperature: of sampling; None leaves it to the server.
        max_tokens: the most tokens of a reply; None leaves it to the server.
        prices: US dollars per million prompt and completion tokens.
        extra: further fields of every request's body.
        leave_out: optional fields that the server doesn't take, as for
            :class:`~drv_env.request_fields.RequestFields`; what it refuses is left out anyway.
        max_tokens_field: what the server calls the limit of a reply's tokens.

    Raises:
        SettingError: for an endpoint that is no http url or holds credentials, or a blank model.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: Secret | str | None = None,
        *,
        http: HttpClient | None = None,
        timeout: float = 120.0,
        temperature: float | None = None,
        max_tokens: int | None = None,
        prices: tuple[float, float] = (0.0, 0.0),
        extra: Mapping[str, Any] | None = None,
        leave_out: Collection[str] = (),
        max_tokens_field: str = "max_tokens",
    ) -> None:
        base = service_address(base_url).removesuffix("/chat/completions")
        if not model.strip():
            raise SettingError("model is blank; give the model's name at the endpoint")
        checked_number("timeout", timeout, above(0, "seconds"))
        if temperature is not None:
            checked_number("temperature", temperature, at_least(0))
        if max_tokens is not None:
            checked_whole("max_tokens", max_tokens, at_least(1))
        for number, price in enumerate(prices):
            checked_number(f"prices[{number}]", price, at_least(0))
        self.base_url = base
        self.model = model.strip()
        self._key = as_secret(api_key)
        self._own_http = http is None
        self._http = HttpClient() if http is None else http
        self._timeout = timeout
        self._temperature = temperature
        self._max_tokens = max_tokens
        self._prices = prices
        self._extra = dict(extra or {})
        self.fields = RequestFields(leave_out, max_tokens_field)
        self.takes_format: bool = True
        """False once the server has failed with ``response_format`` and not without."""

    def __repr__(self) -> str:
        return f"ChatClient({mask(self.base_url)!r}, {self.model!r}, api_key={self._key!r})"

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        response_format: Mapping[str, Any] | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - handed on
        extra: Mapping[str, Any] | None = None,
    ) -> ChatReply:
        """Send the conversation and give the model's reply.

        Args:
            messages: ``role`` and ``content`` of each.
            response_format: what the reply must look like, as the API defines it.  A server
                that fails with it and not without is asked without from then on.
            temperature: in place of the client's.
            max_tokens: in place of the client's.
            timeout: seconds, in place of the client's.
            extra: further fields of this request's body.

        Raises:
            ToolError: for everything that goes wrong; ``too_long`` when the conversation does
                not fit into the model's context.
        """
        body: dict[str, Any] = {"model": self.model, "messages": [dict(item) for item in messages]}
        chosen = {
            "temperature": self._temperature if temperature is None else temperature,
            "max_tokens": self._max_tokens if max_tokens is None else max_tokens,
        }
        body.update({name: value for name, value in chosen.items() if value is not None})
        body.update(self._extra)
        body.update(extra or {})
        seconds = self._timeout if timeout is None else timeout
        if response_format is None or not self.takes_format:
            return await self._fitted(body, seconds)
        try:
            reply = await self._fitted({**body, "response_format": dict(response_format)}, seconds)
            return replace(reply, formatted=True)
        except ToolError as error:
            if error.kind not in ("rejected", "bad_reply") and not _is_about_format(error):
                raise
        reply = await self._fitted(body, seconds)
        self.drop_format("fails with it")  # only now: without it, the same request was accepted
        return reply

    def drop_format(self, reason: str) -> None:
        """Ask without ``response_format`` from now on, and say so, once.

        For whoever reads replies, and could read none with it and one without.

        Args:
            reason: what the service does with it, such as "fails with it".
        """
        if self.takes_format:
            self.takes_format = False
            _LOG.warning(
                "%s is asked without response_format from now on: it %s", self.model, reason
            )

    async def close(self) -> None:
        """Close the client's own connections; may be called twice."""
        if self._own_http:
            await self._http.close()

    async def _fitted(self, body: Mapping[str, Any], seconds: float) -> ChatReply:
        server = f"the chat server at {mask(self.base_url)}"
        return await self.fields.send(body, lambda sent: self._ask(sent, seconds), server)

    async def _ask(self, body: Mapping[str, Any], seconds: float) -> ChatReply:
        headers = {"Authorization": Secret(f"Bearer {self._key.reveal()}")} if self._key else {}
        try:
            reply = await self._http.request(
                "POST",
                f"{self.base_url}/chat/completions",
                headers=headers,
                json=body,
                timeout=seconds,
            )
        except ToolError as error:
            if is_too_long(error):
                raise ToolError(str(error), kind="too_long") from None
            raise
        return self._read(reply.body)

    def _read(self, body: bytes) -> ChatReply:
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict) and value.get("error"):
            said = value["error"]
            said = said.get("message", said) if isinstance(said, dict) else said
            complaint = f"the endpoint answered with an error: {mask(str(said))[:300]}"
            raise ToolError(complaint, kind="server_error", retryable=True)
        try:
            choice = value["choices"][0]  # type: ignore[index]
            message = choice["message"]
            content = message.get("content")
            text = content_text(content)
            calls = tuple(mask(call) for call in calls_of(message))
            usage = value.get("usage") or {}  # type: ignore[union-attr]
            reason = choice.get("finish_reason") or ""
            if not isinstance(usage, dict) or not isinstance(reason, str):
                raise TypeError
            prompt, completion = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
        except (TypeError, KeyError, IndexError, AttributeError):
            raise ToolError(
                "the endpoint's reply is not a chat completion", kind="bad_reply", retryable=True
            ) from None
        cost = usage.get("cost")
        if (
            isinstance(cost, bool)
            or not isinstance(cost, int | float)
            or not 0 <= cost < float("inf")
        ):
            cost = (prompt * self._prices[0] + completion * self._prices[1]) / 1e6
        return ChatReply(
            mask(text),
            reason,
            prompt,
            completion,
            float(cost),
            mask(thought_of(message)),
            mask(_absent(message, content)),
            calls,
            _stopped_at(choice),
        )


def is_too_long(error: ToolError) -> bool:
    """Whether a server refused a request because it doesn't fit into the model's context."""
    return error.kind == "rejected" and any(word in str(error).lower() for word in _TOO_LONG)


def _is_about_format(error: ToolError) -> bool:
    """Whether a server failed because of ``response_format``, by its own words."""
    said = str(error).lower()
    return error.kind == "server_error" and any(word in said for word in _FORMAT_WORDS)


def _stopped_at(choice: Mapping[str, Any]) -> str | None:
    for name in ("stop_reason", "matched_stop"):  # vLLM's and SGLang's
        if name in choice:
            return choice[name] if isinstance(choice[name], str) else ""
    return None


def _absent(message: Mapping[str, Any], content: Any) -> str:
    """What a message has in place of a text, or ""."""
    refusal = message.get("refusal")
    if isinstance(refusal, str) and refusal.strip() and not content:
        return f"the model refused: {refusal.strip()[:300]}"
    if content is None:
        return "content is null" if "content" in message else "there is no content"
    if isinstance(content, str):
        return ""
    if not isinstance(content, list):
        return f"content is of the type {type(content).__name__}"
    texts = [part for part in content if not is_thought(part)]
    whole = all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in texts)
    return "" if whole and content else "content is a list of something else than texts"


def _count(usage: Mapping[str, Any], name: str) -> int:
    """Tokens, 0 where the server doesn't say.

    Raises:
        TypeError: when it is no count.
    """
    value = usage.get(name)
    if value is None:
        return 0
    if type(value) is not int or value < 0:
        raise TypeError(f"{name} is no count")
    return value if value < _ABSURD else 0
