"""Real servers on this machine that speak as model servers do, and fail on demand."""

from __future__ import annotations

import asyncio
import json

import numpy as np
from aiohttp import web

from agents.engines import Sampling


class Waits(list):
    """A sleep that doesn't, and remembers how long it should have."""

    async def __call__(self, seconds):
        self.append(seconds)


class ModelServer:
    """A server in the running loop: ``async with server``.

    Attributes:
        url: of its ``/v1``.
        seen: the JSON bodies of requests, with their path under ``"path"`` and their
            headers under ``"headers"``.
        faults: given in turn instead of an answer, each ``(status, body, headers)``.
        gate: requests wait for it where it is set to an event.
        entered: set when a request waits there.
        dropped: set when a client has gone while its request waited.
        most: requests that were worked on at one time.
    """

    def __init__(self):
        self.seen = []
        self.faults = []
        self.gate = None
        self.entered = asyncio.Event()
        self.dropped = asyncio.Event()
        self.working = self.most = 0

    async def __aenter__(self):
        app = web.Application(client_max_size=100_000_000)
        for method, path, handler in self.routes():
            app.router.add_route(method, f"/v1{path}", self._guarded(handler))
        self._runner = web.AppRunner(
            app, shutdown_timeout=0.05, handler_cancellation=True, access_log=None
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/v1"
        return self

    async def __aexit__(self, *_):
        await self._runner.cleanup()

    def _guarded(self, handler):
        async def handle(request):
            body = await request.json() if request.can_read_body else {}
            self.seen.append({**body, "path": request.path, "headers": dict(request.headers)})
            self.working += 1
            self.most = max(self.most, self.working)
            try:
                if self.gate is not None:
                    self.entered.set()
                    await self.gate.wait()
                if self.faults:
                    status, fault, headers = self.faults.pop(0)
                    text = fault if isinstance(fault, str) else json.dumps(fault)
                    return web.Response(
                        status=status, text=text, headers=headers, content_type="application/json"
                    )
                return web.json_response(await handler(body))
            except asyncio.CancelledError:
                self.dropped.set()
                raise
            finally:
                self.working -= 1

        return handle


class ChatServer(ModelServer):
    """Gives ``replies`` in turn, the last one for ever: messages, or whole answers."""

    def __init__(self, *replies):
        super().__init__()
        self.replies = list(replies)

    def routes(self):
        return [("POST", "/chat/completions", self._chat)]

    async def _chat(self, body):
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, str):
            reply = {"content": reply}
        if "choices" in reply:
            return reply
        return {"choices": [{"message": reply, "finish_reason": "stop"}]}


class CompletionServer(ModelServer):
    """Speaks ``/v1/completions`` as vLLM does, with a real engine's ids and log-probs.

    Args:
        engine: samples and scores.
        model: for the log-probs of ids that were not sampled.
        eos: ends a completion unless the request says ``ignore_eos``.
        raw: whether log-probs are of the distribution before its processing.
        edit: changes an answer before it is sent.
    """

    def __init__(self, engine, model, *, eos=1, raw=True, edit=lambda answer: None):
        super().__init__()
        self.engine, self.model, self.eos, self.raw, self.edit = engine, model, eos, raw, edit
        self.defaults = {"temperature": 0.3, "top_p": 0.5, "top_k": 2}  # of the model's own file

    def routes(self):
        return [("GET", "/models", self._models), ("POST", "/completions", self._complete)]

    async def _models(self, body):
        return {"data": [{"id": "tiny", "max_model_len": self.engine.max_context}]}

    async def _complete(self, body):
        prompt, count = body["prompt"], body["max_tokens"]
        context = self.engine.max_context
        if len(prompt) + count > context:
            said = f"This model's maximum context length is {context} tokens."
            raise web.HTTPBadRequest(text=json.dumps({"error": {"message": said}}))
        if body.get("echo") and count == 0:
            choice = await self._scored(prompt)
        else:
            choice = await self._sampled(body, prompt, count)
        choice["prompt_token_ids"] = prompt if body.get("return_token_ids") else None
        answer = {"object": "text_completion", "choices": [{"index": 0, "text": "", **choice}]}
        self.edit(answer)
        return answer

    async def _scored(self, prompt):
        (values,) = await self.engine.score(prompt, [(1, len(prompt))])
        entries = zip(prompt[1:], values.tolist(), strict=True)
        scored = [None, *({str(i): {"logprob": v, "rank": 1}} for i, v in entries)]
        return {"prompt_logprobs": scored, "finish_reason": "length", "token_ids": [0]}

    async def _sampled(self, body, prompt, count):
        asked = self.defaults | {k: body[k] for k in self.defaults if body.get(k) is not None}
        ends = list(body.get("stop_token_ids") or [])
        done = await self.engine.generate(
            prompt,
            Sampling(
                count,
                **asked,
                presence_penalty=body.get("presence_penalty", 0.0),
                stop_ids=tuple(ends if body.get("ignore_eos") else [*ends, self.eos]),
                stop=tuple(body.get("stop") or ()),
                seed=body.get("seed"),
            ),
        )
        ids = done.ids.tolist()
        log_probs = {
            "tokens": [f"token_id:{id_}" for id_ in ids],
            "token_logprobs": done.log_probs.tolist(),
            "top_logprobs": [{} for _ in ids],
        }
        if body.get("logprobs"):
            log_probs["top_logprobs"] = [self._likeliest(prompt, body)]
        return {
            "token_ids": ids if body.get("return_token_ids") else None,
            "logprobs": log_probs,
            "finish_reason": done.finish,
        }

    def _likeliest(self, prompt, body):
        """The likeliest ids after the prompt, for a completion of one id."""
        import torch

        with torch.no_grad():
            logits = self.model(input_ids=torch.tensor([prompt])).logits[0, -1]
        values, ids = logits.log_softmax(-1).topk(body["logprobs"])
        if not self.raw:
            values[body["top_k"] :] = -np.inf
            values = values.log_softmax(-1)
        pairs = zip(ids.tolist(), values.tolist(), strict=True)
        return {f"token_id:{id_}": max(value, -9999.0) for id_, value in pairs}
