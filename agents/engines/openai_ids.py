"""An engine on vLLM's OpenAI server, token ids in and token ids out.

Knows ``/v1/completions`` with token ids; no text, no templates and no episodes.  The ids
are those that were sampled, never ids of decoded text, and a server that doesn't send
them is refused.  Before the first request the server is asked for its models, for how
long a context it takes, and for one id that shows whether its log-probs are raw.

The server finds what it has computed of an episode by itself: leave its prefix cache on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.engines._completions import (
    check_probe,
    generate_body,
    probe_body,
    read_choice,
    read_completion,
    read_scores,
    score_body,
)
from agents.engines._gate import Gate
from agents.engines._remote import PATIENCE, JsonServer, ask
from agents.engines.base import Completion, Ids, Sampling, Spans, WeightSource
from agents.engines.checks import check_spans, checked_ids
from drv_env.errors import EngineError, SettingError
from drv_env.http import HttpClient
from drv_env.request_fields import RequestFields
from drv_env.retry import RetryPolicy
from drv_env.secrets import Secret, mask
from drv_env.settings import above, at_least, checked_number, checked_whole
from drv_env.tools.layers.base import PerLoop

_LARGEST = 1_000_000_000
"""Bytes of a reply; log-probs of a prompt take about 70 bytes each."""


@dataclass(frozen=True, slots=True)
class _Server:
    """What is known of the server; ``context`` is None where it doesn't say."""

    context: int | None


class OpenAIServerEngine:
    """A remote :class:`agents.engines.base.Engine`, whose weights stay as they are.

    ``pause`` holds requests here; the server may serve others meanwhile.  A request that
    is cancelled, or that a close ends, closes its connection, and the server drops it.

    Args:
        base_url: such as ``http://host:8000/v1``; ``/completions`` is appended.
        model: the model's name there.
        api_key: sent as a bearer token; None sends none.
        http: a client to share; without one the engine has its own.
        timeout: seconds for one try of a request, the whole reply included.
        max_in_flight: requests that the server works on at a time; further ones wait.
        retry: which failures are tried again, and when.
        extra: further fields of every request to generate or score; they win over the
            engine's own.
        leave_out: optional fields that the server doesn't take, as for
            :class:`~drv_env.request_fields.RequestFields`; what it refuses is left out anyway.
        max_tokens_field: what the server calls the limit of a reply's tokens.
        vocabulary: how many ids the model has; a request or an answer with others is
            refused.  None where that isn't known; whoever plays on the engine knows the
            tokenizer's.

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
        timeout: float = 1800.0,
        max_in_flight: int = 256,
        retry: RetryPolicy = PATIENCE,
        extra: Mapping[str, Any] | None = None,
        leave_out: Collection[str] = (),
        max_tokens_field: str = "max_tokens",
        vocabulary: int | None = None,
    ) -> None:
        if vocabulary is not None and vocabulary < 1:
            raise SettingError(f"vocabulary must be at least 1, got {vocabulary}")
        if not model.strip():
            raise SettingError("model is blank; give the model's name at the server")
        checked_number("timeout", timeout, above(0, "seconds"))
        checked_whole("max_in_flight", max_in_flight, at_least(1))
        self.vocabulary = vocabulary
        self._own_http = http is None
        if http is None:
            http = HttpClient(limit=max_in_flight, max_bytes=_LARGEST)
        base = base_url.strip().rstrip("/").removesuffix("/completions")
        self._json = JsonServer(base, api_key, http, timeout)
        self._model = model.strip()
        self._name = f"the server at {mask(self._json.base_url)}"
        self._gate = Gate(max_in_flight, self._name)
        self._retry = retry
        self._extra = dict(extra or {})
        self._fields = RequestFields(leave_out, max_tokens_field)
        self._known: _Server | None = None
        self._asking: PerLoop[asyncio.Lock] = PerLoop(asyncio.Lock)

    def __repr__(self) -> str:
        return f"OpenAIServerEngine({mask(self._json.base_url)!r}, {self._model!r})"

    @property
    def weight_version(self) -> int:
        """0: the server's weights are not changed from here."""
        return 0

    async def generate(self, ids: Ids, sampling: Sampling) -> Completion:
        """Sample what comes after ``ids``; see :class:`agents.engines.base.Engine`."""
        given = self._checked(ids)
        async with self._gate.request():
            server = await self._met(given[0])
            limit = sampling.max_tokens
            if server.context is not None:
                limit = min(limit, server.context - len(given))
                if limit < 1:
                    raise EngineError(
                        f"a prompt of {len(given)} ids leaves no room in the server's context "
                        f"of {server.context}"
                    )
            body = generate_body(self._model, given, sampling, limit)
            choice = await self._complete(body)
            return read_completion(choice, self.weight_version, limit, self.vocabulary)

    async def score(self, ids: Ids, spans: Spans) -> list[NDArray[np.float32]]:
        """Raw log-probs of spans of ``ids``; see :class:`agents.engines.base.Engine`."""
        given = self._checked(ids)
        check_spans(spans, len(given))
        given = given[: max((stop for start, stop in spans if stop > start), default=0)]
        async with self._gate.request():
            if not given:
                return [np.zeros(0, np.float32) for _ in spans]
            server = await self._met(given[0])
            if server.context is not None and len(given) >= server.context:
                raise EngineError(
                    f"{len(given)} ids are too many to score: the server takes "
                    f"{server.context - 1}, one less than its context"
                )
            choice = await self._complete(score_body(self._model, given))
            return read_scores(choice, given, spans)

    async def update_weights(self, source: WeightSource) -> int:
        """Refused: a server's weights can't be changed from here."""
        raise EngineError(
            f"{self._name} keeps its weights: nothing here can change them.  Train with an engine "
            "in this process, or start the server again on the new weights and make a new engine"
        )

    async def pause(self) -> None:
        """Send no more requests; return when none is in flight."""
        await self._gate.pause()

    async def resume(self) -> None:
        """Undo :meth:`pause`."""
        self._gate.resume()

    async def close(self) -> None:
        """End what is pending with :class:`EngineError`, close the connections."""
        self._gate.close()
        if self._own_http:
            await self._json.http.close()

    def _checked(self, ids: Ids) -> list[int]:
        found: list[int] = checked_ids(ids, self.vocabulary).tolist()
        return found

    async def _complete(self, body: dict[str, Any]) -> dict[str, Any]:
        body = {**body, **self._extra}

        async def post(sent: dict[str, Any]) -> Any:
            return await self._json.post("/completions", sent)

        answer = await ask(
            self._gate, self._retry, self._name, lambda: self._fields.send(body, post, self._name)
        )
        return read_choice(answer, body["prompt"])

    async def _met(self, id_: int) -> _Server:
        """The server's facts, asked for once; ``id_`` is any of the vocabulary."""
        if self._known is None:
            async with self._asking.get():
                if self._known is None:
                    self._known = await self._meet(id_)
        return self._known

    async def _meet(self, id_: int) -> _Server:
        answer = await ask(self._gate, self._retry, self._name, lambda: self._json.get("/models"))
        listed = answer.get("data") if isinstance(answer, dict) else None
        cards = {
            card["id"]: card
            for card in (listed if isinstance(listed, list) else [])
            if isinstance(card, dict) and isinstance(card.get("id"), str)
        }
        if self._model not in cards:
            raise EngineError(f"{self._name} has no model {self._model!r}; it has {sorted(cards)}")
        context = cards[self._model].get("max_model_len")
        check_probe(await self._complete(probe_body(self._model, id_)))
        return _Server(context if type(context) is int and context > 0 else None)
