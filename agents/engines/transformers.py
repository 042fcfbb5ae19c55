"""An engine on a Transformers model in this process: continuous batching, prefix reuse.

Knows the model and token ids; no episodes, and of text only the texts at which a
completion stops, which a tokenizer passed to it finds.  One worker thread owns the
model; coroutines hand it jobs and wait.  Each request in flight has a slot of the
key-value cache, and each decoding step advances all of them by one id; new requests
join between steps.  A finished request leaves its keys and values in the slot, so that
the episode's next turn, whose ids begin with them, computes only what is new.

Scores are computed beside the slots: they read a slot's prefix and write elsewhere.

Randomness is drawn per request, keyed by ``Sampling.seed`` or else by the engine's seed
and the request's number in order of submission, so it doesn't depend on what else is in
the batch.  Requests submitted in one turn of the event loop (``asyncio.gather``) are
taken together.  Where requests come in an order that depends on timing, set
``Sampling.seed`` to have the same result again.

How many threads torch uses is the caller's choice, made before the engine is.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from agents.engines._forward import Forward
from agents.engines._jobs import Generate, Job, Pause, Score, Update, settle
from agents.engines._presence import PresencePenalties
from agents.engines._reading import read_prompts
from agents.engines._sampling import BatchSampler, uniforms
from agents.engines._scoring import score_batch, split_scores
from agents.engines._slots import Place, SlotTable
from agents.engines._stopping import watch
from agents.engines._weights import load_weights
from agents.engines.base import Completion, Finish, Ids, Sampling, Spans, WeightSource
from agents.engines.checkpoint_check import check_finite
from agents.engines.checks import check_spans, checked_ids, room_after
from drv_env.errors import EngineError, boundary
from drv_env.settings import at_least, between, checked_seed, checked_whole
from replay.pieces import Pieces


class _Closing(Exception):
    """Leaves the worker's loop between two passes."""


class TransformersEngine:
    """See the module's text; the methods are :class:`agents.engines.base.Engine`'s.

    Args:
        model: a causal language model with full attention in every layer, its
            ``attn_implementation`` ``sdpa`` or ``eager``.  The engine owns it from now on.
        slots: requests in flight at once, and episodes remembered.
        max_context: ids in one slot; by default the model's own limit, at most 4096.
            The cache takes ``slots * max_context`` positions of memory.
        device: where to move the model; None leaves it.
        seed: of the sampling.
        chunk_tokens: ids computed in one pass when prompts are read.
        pieces: the model's tokenizer; needed for ``Sampling.stop`` alone.

    Attributes:
        computed: number of prompt ids that were computed rather than found in a slot.

    Raises:
        SettingError: when the model can't be driven, its weights are NaN or infinite, or a
            number makes no sense.
    """

    def __init__(
        self,
        model: nn.Module,
        slots: int = 64,
        max_context: int | None = None,
        device: str | torch.device | None = None,
        seed: int = 0,
        chunk_tokens: int = 2048,
        pieces: Pieces | None = None,
    ) -> None:
        slots = checked_whole("slots", slots, at_least(1))
        chunk_tokens = checked_whole("chunk_tokens", chunk_tokens, at_least(1))
        seed = checked_seed(seed)
        check_finite(model.state_dict().items(), "the model")
        self._forward = Forward(model if device is None else model.to(device))
        limit = self._forward.positions
        if max_context is None:
            max_context = min(limit, 4096)
        self.max_context = checked_whole("max_context", max_context, between(2, limit))
        self.computed = 0
        self._seed = seed
        self._chunk = chunk_tokens
        self._pieces = pieces
        self._store = self._forward.store(slots, self.max_context)
        self._table = SlotTable(slots, self.max_context)
        self._presence = PresencePenalties(slots, self._forward.vocabulary, self._forward.device)
        self._active: list[Generate] = []
        self._sampler: BatchSampler | None = None
        self._scoring: list[Score] = []
        self._queue: deque[Job] = deque()
        self._held: deque[Job] = deque()
        self._pausing: list[Pause] = []
        self._paused = False
        self._version = 0
        self._requests = 0
        # Shared with other threads, under the lock:
        self._wake = threading.Condition()
        self._inbox: list[Job] = []
        self._gathering: dict[asyncio.AbstractEventLoop, list[Job]] = {}
        self._lost: str | None = None
        self._closing = False
        self._cancelled = False
        self._ended: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    # ---- the engine's face ----------------------------------------------------------

    @property
    def takes_stop_texts(self) -> bool:
        """Whether ``Sampling.stop`` can be honoured: the tokenizer's pieces are known."""
        return self._pieces is not None

    @property
    def vocabulary(self) -> int:
        """How many ids the model has embeddings for."""
        return self._forward.vocabulary

    @property
    def weight_version(self) -> int:
        """Number of weight updates so far."""
        return self._version

    async def generate(self, ids: Ids, sampling: Sampling) -> Completion:
        """Sample what comes after ``ids``; see :class:`agents.engines.base.Engine`."""
        given = self._checked(ids)
        room = room_after(given, self.max_context)
        stop_texts = watch(self._pieces, sampling.stop)
        self._requests += 1
        limit = min(sampling.max_tokens, room)
        job = Generate(given, sampling, limit, self._requests, stop_texts)
        result: Completion = await self._submit(job)
        return result

    async def score(self, ids: Ids, spans: Spans) -> list[NDArray[np.float32]]:
        """Raw log-probs of spans of ``ids``; see :class:`agents.engines.base.Engine`."""
        given = self._checked(ids)
        if len(given) > self._forward.positions:
            raise EngineError(f"{len(given)} ids are more than the model's positions")
        check_spans(spans, len(given))
        result: list[NDArray[np.float32]] = await self._submit(Score(given, list(spans)))
        return result

    async def update_weights(self, source: WeightSource) -> int:
        """Take new weights; see :class:`agents.engines.base.Engine`.

        ``source`` must not change until this returns.  Weights that don't fit raise
        :class:`EngineError` and leave the engine as it was.
        """
        version: int = await self._submit(Update(source))
        return version

    async def pause(self) -> None:
        """Begin no more requests; return when none is in flight."""
        await self._submit(Pause(True))

    async def resume(self) -> None:
        """Undo :meth:`pause`."""
        await self._submit(Pause(False))

    async def close(self) -> None:
        """Fail what is pending with :class:`EngineError`, end the thread, free the cache."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        await asyncio.shield(asyncio.wrap_future(self._ended))
        self._thread.join()

    # ---- handing over jobs ----------------------------------------------------------

    def _checked(self, ids: Ids) -> NDArray[np.int32]:
        return checked_ids(ids, self._forward.vocabulary).astype(np.int32)

    async def _submit(self, job: Job) -> Any:
        """Jobs of one turn of the event loop reach the worker together."""
        loop = asyncio.get_running_loop()
        with self._wake:
            self._refuse_if_gone()
            if loop not in self._gathering:
                self._gathering[loop] = []
                loop.call_soon(self._hand_over, loop)
            self._gathering[loop].append(job)
        try:
            return await asyncio.wrap_future(job.future)
        except asyncio.CancelledError:
            job.future.cancel()
            self._cancelled = True  # the worker looks for cancelled requests at its next step
            raise

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        with self._wake:
            self._inbox += self._gathering.pop(loop, [])
            self._wake.notify()

    def _refuse_if_gone(self) -> None:
        if self._lost is not None:
            raise EngineError(self._lost)
        if self._closing:
            raise EngineError("the engine is closed")

    # ---- the worker -----------------------------------------------------------------

    def _run(self) -> None:
        reason = "the engine was closed while this request was pending"
        cause: BaseException | None = None
        try:
            with torch.inference_mode():
                while True:
                    self._collect()
                    self._round()
        except _Closing:
            pass
        except BaseException as error:  # noqa: BLE001 (every caller is told)
            reason = f"the engine is lost, make a new one ({type(error).__name__}: {error})"
            cause = error
        with self._wake:
            self._lost = reason if cause is not None else "the engine is closed"
            jobs: list[Job] = [*self._inbox, *self._queue, *self._held, *self._pausing]
            jobs += [*self._active, *self._scoring]
            jobs += [job for gathered in self._gathering.values() for job in gathered]
            self._inbox, self._active, self._scoring, self._pausing = [], [], [], []
            self._queue.clear()
            self._held.clear()
            self._gathering.clear()
        for job in jobs:
            failure = EngineError(reason)
            failure.__cause__ = cause
            settle(job, failure)
        self._store.keys.clear()
        self._store.values.clear()
        self._ended.set_result(None)

    def _collect(self) -> None:
        """Wait for something to do and sort what came in."""
        with self._wake:
            while not (self._inbox or self._active or self._queue or self._closing):
                self._wake.wait()
            self._stop_if_closing()
            jobs, self._inbox = self._inbox, []
        for job in jobs:
            if not isinstance(job, Pause):
                target = self._held if self._paused and not isinstance(job, Update) else self._queue
                target.append(job)
            elif job.on:
                self._paused = True
                self._pausing.append(job)
                self._held.extend(j for j in self._queue if not isinstance(j, Update))
                self._queue = deque(j for j in self._queue if isinstance(j, Update))
            else:
                self._paused = False
                self._queue.extend(self._held)
                self._held.clear()
                settle(job, None)

    def _stop_if_closing(self) -> None:
        if self._closing:
            raise _Closing

    def _round(self) -> None:
        """Start what can start, then advance everything in flight by one id."""
        if self._cancelled:
            self._cancelled = False
            for request in [r for r in self._active if r.future.cancelled()]:
                self._leave(request)
        self._start()
        if self._active:
            self._step()
        if not self._active:
            for pause in self._pausing:
                settle(pause, None)
            self._pausing.clear()

    def _start(self) -> None:
        """Take jobs in order until one has to wait."""
        placed: list[tuple[Generate, Place]] = []
        scores: list[Score] = []
        self._table.begin_round()
        while self._queue:
            job = self._queue[0]
            if job.future.cancelled():
                pass
            elif isinstance(job, Generate):
                place = self._table.place(job.ids[:-1])
                if place is None:
                    break
                job.slot = place.slot
                generator = uniforms(self._seed, job.number, job.sampling)
                job.randoms = generator.random(job.limit)
                self._presence.begin(place.slot, job.sampling.presence_penalty)
                placed.append((job, place))
            elif isinstance(job, Score):
                scores.append(job)
            elif isinstance(job, Update):
                if self._active or placed or scores:
                    break
                self._update(job)
            self._queue.popleft()
        if placed:
            # in flight from here on, so that a failure reaches them
            self._active += [job for job, _ in placed]
            self._active.sort(key=lambda request: request.slot)
            self._sampler = None
            self.computed += read_prompts(
                self._forward, self._store, placed, self._chunk, self._stop_if_closing
            )
        self._scoring = scores
        for batch in split_scores(scores, max(self.max_context, 16_384)):
            results = score_batch(
                self._forward,
                self._store,
                self._table,
                batch,
                self._chunk,
                self._stop_if_closing,
            )
            for job, result in zip(batch, results, strict=True):
                settle(job, result)
        self._scoring = []

    def _update(self, job: Update) -> None:
        try:
            with torch.inference_mode(False), boundary(EngineError, "new weights"):
                load_weights(self._forward.model, job.source)
        except EngineError as error:
            settle(job, error)
            return
        self._table.clear()
        self._version += 1
        settle(job, self._version)

    # ---- decoding -------------------------------------------------------------------

    def _step(self) -> None:
        active = self._active
        slots = np.array([request.slot for request in active])
        if self._sampler is None:
            settings = [request.sampling for request in active]
            self._sampler = BatchSampler(settings, self._forward.device)
        last = [r.sampled[-1] if r.sampled else int(r.ids[-1]) for r in active]
        fed = np.array(last, np.int64)
        low, high = int(slots[0]), int(slots[-1]) + 1
        if high - low <= 2 * len(active):
            # a contiguous range of slots is read without a copy; idle ones ride along
            rows = np.arange(low, high)
            at = slots - low
        else:
            rows, at = slots, np.arange(len(slots))
        starts, counts = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        tokens = np.zeros((len(rows), 1), np.int64)
        starts[at], counts[at], tokens[at, 0] = self._table.lengths[slots], 1, fed
        hidden = self._forward(self._store, rows, starts, counts, tokens)[:, 0]
        if len(rows) > len(slots):
            hidden = hidden[torch.from_numpy(at).to(hidden.device)]
        numbers = np.array([request.randoms[len(request.sampled)] for request in active])
        logits = self._forward.head(hidden)
        penalties = self._sampler.penalties
        if penalties is None:
            ids, log_probs = self._sampler(logits, numbers)
        else:
            at_slots = torch.from_numpy(slots).to(logits.device)
            ids, log_probs = self._sampler(logits, numbers, self._presence.of(at_slots))
            self._presence.add(at_slots, ids, penalties)
        self._table.extend(slots, fed)
        sampled = zip(list(active), ids.tolist(), log_probs.tolist(), strict=True)
        for request, id_, log_prob in sampled:
            finish = request.take(id_, log_prob)
            if finish is not None:
                self._finish(request, finish)

    def _finish(self, request: Generate, finish: Finish) -> None:
        self._leave(request)
        completion = Completion(
            np.array(request.sampled, np.int32),
            np.array(request.log_probs, np.float32),
            finish,
            self._version,
        )
        settle(request, completion)

    def _leave(self, request: Generate) -> None:
        self._active.remove(request)
        self._table.free(request.slot)
        self._sampler = None
