"""An engine on any OpenAI-style chat server: messages in, the assistant's turn out.

Knows text and HTTP; no token ids, no templates and no episodes.  What the server sampled
is not known to the id, so what is learnt from its episodes is text alone.  A thought and
calls that the server takes out of the text are put back (:mod:`drv_env.chat_turns`).

A server ends a reply at a stop text wherever it stands.  Where that may have been inside a
thought, a call or an answer, the reply is asked for again without stop texts and cut here,
behind its call or answer (:mod:`agents.engines.turn_stops`).

Texts from the web are made harmless before they are sent, in a documented way
(:func:`agents.engines._chat_text.harmless`): a ``<`` that may begin a tag or a control
token is sent as ``‹``.  Failures that may pass are tried again; every other, and the last,
is an :class:`~drv_env.errors.EngineError` that says what to do.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agents.engines._chat_text import ODD_TOKENS, safe_messages
from agents.engines._gate import Gate
from agents.engines._remote import PATIENCE, ask
from agents.engines.base import Finish, Reply, Sampling
from agents.engines.turn_stops import is_cut, with_stop, without_stop
from drv_env.chat import ChatClient, ChatReply
from drv_env.chat_turns import whole_turn
from drv_env.errors import EngineError, SettingError
from drv_env.http import HttpClient
from drv_env.retry import RetryPolicy
from drv_env.secrets import Secret, mask
from drv_env.settings import above, at_least, checked_number, checked_whole

FIELDS = ("max_tokens", "temperature", "top_p", "top_k", "presence_penalty", "stop", "seed")
"""What of :class:`Sampling` is sent, by the names of the request's fields."""


_FINISHES: dict[str, Finish] = {
    **dict.fromkeys(("", "stop", "eos", "eos_token", "stop_sequence", "end_turn"), "stop"),
    **dict.fromkeys(("tool_calls", "function_call"), "stop"),
    **dict.fromkeys(("length", "max_tokens", "model_length"), "length"),
}
"""What servers say; "" is a server that says nothing."""


class OpenAIChatEngine:
    """A :class:`agents.engines.base.ChatEngine`.

    ``Sampling.stop_ids`` are not sent: such a server knows by itself where a turn ends.
    ``top_k`` and ``presence_penalty`` of 0, no ``stop`` and no ``seed`` are not sent
    either; a server whose own default is another can be told so with ``extra``.

    Args:
        base_url: such as ``https://host/v1``; ``/chat/completions`` is appended.
        model: the model's name there.
        api_key: sent as a bearer token; None sends none.
        http: a client to share; without one the engine has its own.
        timeout: seconds for one try of a request, the whole reply included.
        max_in_flight: requests that the server works on at a time; further ones wait.
        retry: which failures are tried again, and when.
        extra: further fields of every request's body; they win over the engine's own.
        leave_out: names of :data:`FIELDS` that the server doesn't take; never sent.  One that
            it refuses by name is left out as well, and that is said once.
        max_tokens_field: what the server calls the limit; newer models of OpenAI want
            ``max_completion_tokens``.
        control_tokens: further control tokens of the server's tokenizer that a text from
            the web must not spell; needed only for such as aren't in ``<…>`` or ``[…]``.

    Raises:
        SettingError: when a setting can't work.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        api_key: Secret | str | None = None,
        *,
        http: HttpClient | None = None,
        timeout: float = 600.0,
        max_in_flight: int = 64,
        retry: RetryPolicy = PATIENCE,
        extra: Mapping[str, Any] | None = None,
        leave_out: Collection[str] = (),
        max_tokens_field: str = "max_tokens",
        control_tokens: Collection[str] = (),
    ) -> None:
        checked_number("timeout", timeout, above(0, "seconds"))
        checked_whole("max_in_flight", max_in_flight, at_least(1))
        if isinstance(control_tokens, str) or any(len(token) < 2 for token in control_tokens):
            raise SettingError(
                f"control_tokens must be texts of two characters or more, got {control_tokens!r}"
            )
        self._own_http = HttpClient(limit=max_in_flight) if http is None else None
        self._chat = ChatClient(
            base_url,
            model,
            api_key,
            http=http or self._own_http,
            timeout=timeout,
            leave_out=leave_out,
            max_tokens_field=max_tokens_field,
        )
        self._name = f"the chat server at {mask(self._chat.base_url)}"
        self._gate = Gate(max_in_flight, self._name)
        self._retry = retry
        self._extra = dict(extra or {})
        self._tokens = (*ODD_TOKENS, *control_tokens)

    def __repr__(self) -> str:
        return f"OpenAIChatEngine({mask(self._chat.base_url)!r}, {self._chat.model!r})"

    async def reply(self, messages: Sequence[Mapping[str, str]], sampling: Sampling) -> Reply:
        """The next assistant turn; see :class:`agents.engines.base.ChatEngine`."""
        sent = safe_messages(messages, self._tokens)
        async with self._gate.request():
            reply, stopped_at = await self._reply(sent, sampling)
            stopped = "stop" in self._chat.fields.fitted(self._fields(sampling))
            if reply.finish != "stop" or not stopped:
                return reply
            text = with_stop(reply.text, sampling.stop)
            if stopped_at == "" or not is_cut(text):
                return replace(reply, text=text)
            whole, _ = await self._reply(sent, replace(sampling, stop=()))
            return replace(whole, text=without_stop(whole.text, sampling.stop))

    async def _reply(
        self, sent: Sequence[Mapping[str, str]], sampling: Sampling
    ) -> tuple[Reply, str | None]:
        """One request's reply, and the stop text that the server says it ended at."""
        fields = {**self._fields(sampling), **self._extra}
        said = await ask(
            self._gate,
            self._retry,
            self._name,
            lambda: self._chat.complete(sent, extra=fields),
        )
        return self._read(said), said.stopped_at

    def _read(self, said: ChatReply) -> Reply:
        finish = _FINISHES.get(said.finish_reason)
        there = said.reasoning.strip() or said.calls  # a thought that was cut has no text yet
        if said.absent and not there:
            ended = f", and it ended with {said.finish_reason!r:.60}" if finish is None else ""
            raise EngineError(f"{self._name} gave no text: {said.absent}{ended}")
        if finish is None:
            raise EngineError(f"{self._name} ended the reply with {said.finish_reason!r:.60}")
        return Reply(
            text=whole_turn(said.text, said.reasoning, finish == "length", said.calls),
            finish=finish,
            tokens=said.completion_tokens or None,
            prompt_tokens=said.prompt_tokens or None,
        )

    async def close(self) -> None:
        """End what is pending with :class:`EngineError`, close the connections."""
        self._gate.close()
        if self._own_http is not None:
            await self._own_http.close()

    def _fields(self, sampling: Sampling) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or None,
            "presence_penalty": sampling.presence_penalty or None,
            "stop": list(sampling.stop) or None,
            "seed": sampling.seed,
        }
        return {name: value for name, value in fields.items() if value is not None}
