"""An engine on vLLM in this process: the model in vLLM's own processes, full speed.

Knows token ids, and of text only the texts at which a completion stops.  vLLM's front
end runs on a thread with an event loop of its own, so the methods are coroutines of any
loop; cancelling one aborts its request in vLLM.  Making an engine takes half a minute and
blocks: in a coroutine use ``await asyncio.to_thread(VllmEngine, folder)``.  vLLM imports
the main script again in its processes, so a script needs ``if __name__ == "__main__":``.

Log-probs are raw: of the sampled ids under the softmax of the unscaled logits
(``logprobs_mode="raw_logprobs"``), as the trainer computes them, whatever the
temperature, top_p, top_k and penalty.

A score reads the history from the prefix cache and computes the rest only.  vLLM has
log-probs of what it computes alone; where the cache already holds ids that are to be
scored (the same ids scored twice), the whole sequence is computed again.

New weights are checked against the model folder's before anything is touched, loaded
between requests, and compared bit for bit with what then stands in the engine; the
prefix cache is emptied.  That works for models of plain dense layers, on one worker or
tensor parallel on one machine; others generate and score, but refuse
:meth:`VllmEngine.update_weights`.

Seeds: a request without one is seeded from the engine's seed and its number in order of
submission.  Given the logits, a request's randomness doesn't depend on what runs beside
it; the logits' last bits may, for vLLM batches as it likes.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from agents.engines import _vllm_requests as requests
from agents.engines._stopping import watch
from agents.engines._vllm_host import Host
from agents.engines._vllm_settings import check_arguments, check_installed, engine_arguments
from agents.engines._vllm_turns import Ticket, Turns
from agents.engines._vllm_weights import Checkpoint, carried, join_parts, room_for
from agents.engines.base import Completion, Ids, Sampling, Spans, WeightSource
from agents.engines.checkpoint_check import check_checkpoint, check_tokenizer
from agents.engines.checks import check_spans, checked_ids, room_after
from drv_env.errors import EngineError, SettingError, boundary
from drv_env.settings import at_least, checked_seed, checked_whole
from replay import model_folders
from replay.pieces import Pieces, read_tokenizer

T = TypeVar("T")


class VllmEngine:
    """See the module's text; the methods are :class:`agents.engines.base.Engine`'s.

    Args:
        model_folder: as ``save_pretrained`` writes it: ``config.json``, safetensors and
            ``tokenizer.json``.
        max_context: ids of prompt and completion; by default the model's own limit.
        seed: of the sampling.
        dtype: of weights and computing; ``auto`` is the folder's, but 16 bits where the
            folder has 32.
        vllm_arguments: further arguments of vLLM's ``AsyncEngineArgs``
            (``gpu_memory_utilization``, ``tensor_parallel_size``, ``max_num_seqs``, …).

    Attributes:
        max_context: as above.
        vocabulary: how many ids the model has.
        cached: prompt ids so far that vLLM found in its prefix cache.

    On a CPU the defaults are ``enforce_eager``, 1 GiB of cache (or the variable
    VLLM_CPU_KVCACHE_SPACE), blocks of 32 ids, and threads for all cores but one (or
    OMP_NUM_THREADS).

    Raises:
        SettingError: when vLLM isn't installed, the folder isn't a whole model with its
            tokenizer, or vLLM refuses an argument.
        EngineError: when vLLM doesn't start.
    """

    def __init__(
        self,
        model_folder: str | Path,
        *,
        max_context: int | None = None,
        seed: int = 0,
        dtype: str = "auto",
        **vllm_arguments: Any,
    ) -> None:
        folder = model_folders.model_folder(model_folder)
        check_arguments(vllm_arguments)
        seed = checked_seed(seed)
        if max_context is not None:
            max_context = checked_whole("max_context", max_context, at_least(2))
        check_installed()
        check_checkpoint(folder)
        self._checkpoint = Checkpoint.of(folder)
        self._shapes = {name: list(shape) for name, shape in self._checkpoint.shapes.items()}
        tokenizer = read_tokenizer(folder / "tokenizer.json")
        check_tokenizer(folder, tokenizer, str(folder))
        self._pieces = Pieces(tokenizer)
        self._seed = seed
        self._completions = itertools.count(1)
        self._names = itertools.count(1)
        self._turns = Turns()
        self._version = 0
        self.cached = 0

        def make() -> Any:
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.usage.usage_lib import UsageContext
            from vllm.v1.engine.async_llm import AsyncLLM

            with boundary(SettingError, "vLLM's arguments"):
                arguments = engine_arguments(folder, max_context, seed, dtype, vllm_arguments)
                context = UsageContext.ENGINE_CONTEXT
                config = AsyncEngineArgs(**arguments).create_engine_config(context)
            with boundary(EngineError, "vLLM didn't start; its log says why"):
                return AsyncLLM.from_vllm_config(config, disable_log_stats=True)

        self._host = Host(make)
        self._finalizer = weakref.finalize(self, self._host.stop)
        config = self._host.llm.model_config
        self.max_context = int(config.max_model_len)
        self.vocabulary = int(config.get_vocab_size())
        try:
            self._host.submit(self._call, "drv_end_with", os.getpid()).result()
            begun = self._host.submit(self._call, "drv_weights_begin", self._shapes).result()
        except BaseException:
            self._finalizer()
            raise
        self._no_updates: str = next((rank["problem"] for rank in begun if rank["problem"]), "")
        self._dtypes: dict[str, str] = begun[0]["dtypes"]

    # ---- the engine's face ----------------------------------------------------------

    @property
    def weight_version(self) -> int:
        """Number of weight updates so far."""
        return self._version

    async def generate(self, ids: Ids, sampling: Sampling) -> Completion:
        """Sample what comes after ``ids``; see :class:`agents.engines.base.Engine`."""
        given = self._checked(ids)
        room = room_after(given, self.max_context)
        requests.check_sampling(sampling)
        watch(self._pieces, sampling.stop)  # refuses texts that can't be found
        number = next(self._completions)
        limit = min(sampling.max_tokens, room)
        return await self._run(self._generate, given, sampling, limit, number)

    async def score(self, ids: Ids, spans: Spans) -> list[NDArray[np.float32]]:
        """Raw log-probs of spans of ``ids``; see :class:`agents.engines.base.Engine`."""
        given = self._checked(ids)
        if len(given) > self.max_context:
            raise EngineError(f"{len(given)} ids are more than a context of {self.max_context}")
        check_spans(spans, len(given))
        return await self._run(self._score, given, list(spans))

    async def update_weights(self, source: WeightSource) -> int:
        """Take new weights; see :class:`agents.engines.base.Engine`.

        ``source`` must not change until this returns.  Weights that don't fit raise
        :class:`EngineError` and leave the engine as it was.  Cancelling this doesn't stop an
        update.  Weights of another type are converted to the engine's.
        """
        return await self._run(self._update, source)

    async def save_weights(self, path: str | Path) -> None:
        """Write the weights as they stand in the engine to a safetensors file.

        Names are the model folder's; of tied weights the embedding's alone.
        """
        if self._no_updates:
            raise EngineError(f"this engine's weights can't be read: {self._no_updates}")
        target = os.path.abspath(path)  # noqa: ASYNC240 (looks at nothing on disk)
        await self._run(self._save, target)

    async def pause(self) -> None:
        """Begin no more requests; return when none is in flight."""
        await self._run(self._turns.pause)

    async def resume(self) -> None:
        """Undo :meth:`pause`."""

        async def resume() -> None:
            self._turns.resume()

        await self._run(resume)

    async def close(self) -> None:
        """Fail what is pending with :class:`EngineError`, end vLLM's processes."""
        self._host.begin_stop()
        await asyncio.shield(asyncio.wrap_future(self._host.ended))
        self._finalizer()

    def _checked(self, ids: Ids) -> list[int]:
        found: list[int] = checked_ids(ids, self.vocabulary).tolist()
        return found

    # ---- on the host's loop ---------------------------------------------------------

    async def _run(self, work: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        return await asyncio.wrap_future(self._host.submit(work, *args))

    async def _generate(
        self, ids: list[int], sampling: Sampling, limit: int, number: int
    ) -> Completion:
        params = requests.sampling_params(sampling, limit, self._seed, number)
        async with self._turns.request():
            version = self._version
            output = await self._ask(ids, params)
        return requests.completion(output, sampling, self._pieces, version)

    async def _score(self, ids: list[int], spans: Spans) -> list[NDArray[np.float32]]:
        wanted = [span for span in spans if span[1] > span[0]]
        if not wanted:
            return [np.zeros(0, np.float32) for _ in spans]
        ids = ids[: max(stop for _, stop in wanted)]
        more = min(start for start, _ in wanted) < len(ids) - 1
        async with self._turns.request():
            for fresh in (False, True):
                params = requests.scoring_params(ids[-1], more, fresh)
                found = requests.scores(await self._ask(ids[:-1], params), ids, spans)
                if found is not None:
                    return found
        raise EngineError("vLLM read its prefix cache where it was told not to")

    async def _ask(self, ids: list[int], params: Any) -> Any:
        from vllm.inputs import tokens_input

        name = str(next(self._names))
        answers = self._host.llm.generate(tokens_input(ids), params, name)
        with self._attributed("a request"):
            outputs = [output async for output in answers]
        self.cached += outputs[-1].num_cached_tokens or 0
        return outputs[-1]

    async def _update(self, source: WeightSource) -> int:
        if self._no_updates:
            raise EngineError(f"this engine can't take new weights: {self._no_updates}")
        place = self._turns.enter(alone=True)
        return await asyncio.shield(
            asyncio.wrap_future(self._host.submit(self._replace, source, place))
        )

    async def _replace(self, source: WeightSource, place: Ticket) -> int:
        try:
            with boundary(EngineError, "new weights"), ExitStack() as carrier:
                tensors = await asyncio.to_thread(self._checkpoint.fit, source)
                file = carried(tensors, self._dtypes)
                path = await asyncio.to_thread(carrier.enter_context, file)
                await place.granted
                await self._load(str(path))
            return self._version
        finally:
            self._turns.leave(place)

    async def _load(self, path: str) -> None:
        try:
            ranks = await self._call("drv_weights_load", path)
            wrong = sorted({name for names in ranks for name in names})
            if wrong:
                raise EngineError(f"{wrong[:5]} aren't what was sent ({len(wrong)} in all)")
            with self._attributed("emptying the prefix cache"):
                emptied = await self._alive(self._host.llm.reset_prefix_cache())
            if not emptied:
                raise EngineError("vLLM kept its prefix cache")
        except Exception as error:
            raise self._lost(f"in a weight update: {error}") from error
        self._version += 1

    async def _save(self, path: str) -> None:
        size = sum(4 * math.prod(shape) for shape in self._shapes.values())
        with room_for(size) as folder:
            parts = await self._call("drv_weights_save", str(folder), self._shapes)
            await asyncio.to_thread(join_parts, parts, self._shapes, path)

    async def _call(self, method: str, *args: Any) -> Any:
        """A method of the worker's extension."""
        with self._attributed(method):
            return await self._alive(self._host.llm.collective_rpc(method, args=args))

    async def _alive(self, work: Coroutine[Any, Any, T]) -> T:
        """``work``'s result; an error when vLLM dies before it answers."""
        answer = asyncio.ensure_future(work)
        pulse = self._host.llm.output_handler
        try:
            await asyncio.wait({answer, pulse}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise self._host.llm.dead_error
            return answer.result()
        finally:
            answer.cancel()

    @contextmanager
    def _attributed(self, what: str) -> Iterator[None]:
        """Whatever vLLM raises as EngineError; its death for good."""
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            with boundary(EngineError, what):
                yield
        except EngineError as error:
            cause: BaseException | None = error
            while cause is not None and not isinstance(cause, EngineDeadError):
                cause = cause.__cause__
            if cause is not None:
                raise self._lost("vLLM's process has ended; its log says why") from error
            raise

    def _lost(self, why: str) -> EngineError:
        reason = f"the engine is lost, make a new one ({why})"
        self._host.refuse(reason)
        return EngineError(reason)
