"""Work on bytes of strangers in processes that can be killed.

A :class:`WorkerPool` runs ``python -m MODULE`` for a module that calls
:func:`drv_env.worker_process.serve`, hands it one request at a time over pipes, and keeps it
for the next.  A request has limits of processor time and memory; one that passes them, is
cancelled, or brings its process down costs that process and nothing else.  The main module
of the program is not run again, nothing is forked from a process with threads, and the
workers get neither its environment, which may hold keys, nor its open files.

A pool serves every event loop and thread of the process.  It starts a worker when one is
needed, and ends them all when the last of those who lease it is closed or gone.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from drv_env.errors import ToolError

FRAME = struct.Struct(">IQ")
"""Before every message: bytes of its JSON header, bytes of its body."""

LARGEST_REPLY = 100_000_000
"""Bytes; no honest worker says more."""

_WALL = 3.0
"""Seconds on the clock for each second of processor time, on a machine with other work."""

_START = 120.0
_HANDED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONHOME")


class WorkerPool:
    """Processes of one module.

    Args:
        module: what is run; see :func:`drv_env.worker_process.serve`.
        size: requests that are worked on at a time, and processes kept; the number of
            processors by default, 8 at most.
    """

    def __init__(self, module: str, size: int | None = None) -> None:
        self._module = module
        self._lock = threading.RLock()
        self._idle: list[_Worker] = []
        self._users = 0
        self._size = size or max(1, min(8, len(os.sched_getaffinity(0))))
        self._turns = _Turns(self._size)
        pool = weakref.ref(self)
        os.register_at_fork(after_in_child=lambda: _forget(pool()))

    def lease(self, user: object) -> Callable[[], object]:
        """Say that ``user`` will ask; gives what is called when it won't any more.

        It counts as called when ``user`` is garbage, and at the end of the program.
        """
        with self._lock:
            self._users += 1
        return weakref.finalize(user, self._leave)

    async def ask(
        self, header: Mapping[str, Any], body: bytes = b"", *, seconds: float, memory: int
    ) -> tuple[dict[str, Any], bytes]:
        """What a worker says to one request.

        Args:
            header: the request, plain JSON; ``"task"`` names the work.
            body: bytes that belong to it.
            seconds: of processor time, above 0; three times as many may pass on the clock.
            memory: bytes that the work may take.

        Raises:
            ToolError: of kind ``too_costly`` when a limit was passed or the process ended;
                otherwise of the kind that the worker gives.
        """
        await self._turns.take()
        try:
            worker = self._take()
            try:
                reply, rest = await worker.ask(
                    {**header, "seconds": seconds, "memory": memory}, body, seconds
                )
            except BaseException:
                worker.kill()
                raise
            if reply.pop("last", False):
                worker.kill()
            else:
                self._keep(worker)
        finally:
            self._turns.give()
        if "error" in reply:
            raise ToolError(str(reply["error"]), kind=str(reply.get("kind", "failed")))
        return reply, rest

    def _take(self) -> _Worker:
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if worker.alive():
                    return worker
                worker.kill()
        return _Worker(self._module)

    def _keep(self, worker: _Worker) -> None:
        with self._lock:
            if self._users > 0:
                self._idle.append(worker)
                return
        worker.kill()

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            ended = [] if self._users > 0 else self._idle
            if ended:
                self._idle = []
        for worker in ended:
            worker.kill()

    def forget(self) -> None:
        """Leave the workers to the process that this one was forked from."""
        self._lock = threading.RLock()
        for worker in self._idle:
            worker.forget()
        self._idle = []
        self._turns = _Turns(self._size)


def _forget(pool: WorkerPool | None) -> None:
    if pool is not None:
        pool.forget()


class _Turns:
    """So many at a time, from any loops."""

    def __init__(self, free: int) -> None:
        self._lock = threading.Lock()
        self._free = free
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    async def take(self) -> None:
        """Wait for a turn."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._free:
                self._free -= 1
                return
            waiter = (loop, loop.create_future())
            self._waiting.append(waiter)
        try:
            await waiter[1]
        except BaseException:
            with self._lock:
                given = waiter not in self._waiting
                if not given:
                    self._waiting.remove(waiter)
            if given:
                self.give()
            raise

    def give(self) -> None:
        """Give a turn back."""
        with self._lock:
            while self._waiting:
                loop, turn = self._waiting.popleft()
                with suppress(RuntimeError):  # its loop is closed
                    loop.call_soon_threadsafe(_grant, turn)
                    return
            self._free += 1


def _grant(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


class _Worker:
    """One process, in a group of its own, and the pipes to it.

    Into the third pipe nothing is ever written: the kernel tells the worker when its end here
    is gone.
    """

    def __init__(self, module: str) -> None:
        ends: list[int] = []
        try:
            for _ in range(3):
                ends.extend(os.pipe())
            requests, self._requests, self._replies, replies, life, self._life = ends
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(life)],
                stdin=requests,
                stdout=replies,
                stderr=subprocess.DEVNULL,
                pass_fds=(life,),
                start_new_session=True,
                cwd="/",
                env=_environment(),
            )
        except OSError as error:
            for end in ends:
                os.close(end)
            raise ToolError(f"no process could be started to read pages ({error})") from None
        for end in (requests, replies, life):
            os.close(end)
        os.set_blocking(self._requests, False)
        os.set_blocking(self._replies, False)
        self._open = True
        self._ready = False

    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    async def ask(
        self, header: Mapping[str, Any], body: bytes, seconds: float
    ) -> tuple[dict[str, Any], bytes]:
        """One request; afterwards the worker is fit for another only if nothing was raised."""
        if not self._ready:
            await self._start()
        packed = json.dumps(header).encode()
        try:
            async with asyncio.timeout(_WALL * seconds) as limit:
                await self._write(FRAME.pack(len(packed), len(body)) + packed)
                await self._write(body)
                return await self._read()
        except TimeoutError:
            if not limit.expired():
                raise
            raise _too_slow(seconds) from None
        except (EOFError, BrokenPipeError):
            self.kill()
            code = self._process.returncode
            if code == -signal.SIGXCPU:
                raise _too_slow(seconds) from None
            how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
            message = f"the process that read it did not survive it ({how})"
            raise ToolError(message, kind="too_costly") from None

    async def _start(self) -> None:
        try:
            async with asyncio.timeout(_START) as limit:
                await self._read()
        except TimeoutError:
            if not limit.expired():
                raise
            message = f"the process that reads pages was not ready in {_START:g} seconds"
            raise ToolError(message, retryable=True) from None
        except EOFError:
            self.kill()
            code = self._process.returncode
            raise ToolError(f"the process that reads pages did not start ({code})") from None
        self._ready = True

    async def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._requests, rest) :]
            except BlockingIOError:
                loop = asyncio.get_running_loop()
                await _until(loop.add_writer, loop.remove_writer, self._requests)

    async def _read(self) -> tuple[dict[str, Any], bytes]:
        header, body = FRAME.unpack(await self._exactly(FRAME.size))
        if header + body > LARGEST_REPLY:
            raise ToolError("the process that reads pages went astray", kind="too_costly")
        try:
            # JSON, for what a worker says is no more to be trusted than what it has read.
            said = json.loads(await self._exactly(header))
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            raise ToolError("the process that reads pages went astray", kind="too_costly")
        return said, await self._exactly(body)

    async def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            try:
                piece = os.read(self._replies, min(size - len(parts), 1 << 20))
            except BlockingIOError:
                loop = asyncio.get_running_loop()
                await _until(loop.add_reader, loop.remove_reader, self._replies)
                continue
            if not piece:
                raise EOFError
            parts += piece
        return bytes(parts)

    def kill(self) -> None:
        """End the process and its group, and wait for its end; may be called twice."""
        if self.alive():
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._close()

    def forget(self) -> None:
        """In a forked child: it is not this process's worker."""
        self._process.returncode = 0  # nothing to wait for here
        self._close()

    def _close(self) -> None:
        if self._open:
            self._open = False
            for end in (self._requests, self._replies, self._life):
                os.close(end)


async def _until(add: Callable[..., Any], remove: Callable[[int], Any], file: int) -> None:
    """Wait until a pipe can be written to or read from."""
    able = asyncio.get_running_loop().create_future()
    add(file, _grant, able)
    try:
        await able
    finally:
        remove(file)


def _too_slow(seconds: float) -> ToolError:
    message = f"finding its text takes over {seconds:g} seconds"
    return ToolError(message, kind="too_costly")


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _HANDED_ON if name in os.environ}
    kept["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in sys.path)
    # One thread, and results that don't hang on the order of hashes.
    return {**kept, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
