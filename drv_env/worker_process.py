"""The other end of :mod:`drv_env.workers`: the loop of a process that works under limits.

The process ends when its parent closes the pipe or is gone, even in the middle of work.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from drv_env.errors import ToolError
from drv_env.workers import FRAME

Task: TypeAlias = "Callable[[Mapping[str, Any], bytes], tuple[dict[str, Any], bytes]]"
"""From a request's header and body to the reply's.  What it raises becomes an error reply."""

MOST_REQUESTS = 500
"""Requests after which a process makes room for a fresh one."""

MOST_KEPT = 200_000_000
"""Bytes by which a process may have grown and still be kept for the next request."""


def serve(tasks: Mapping[str, Task]) -> None:
    """Work until the parent closes the pipe.

    Args:
        tasks: by the name in the requests' ``"task"``.
    """
    end_with_parent(int(sys.argv[1]))
    requests, replies = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):  # what a library prints must not get between the replies
        os.dup2(nowhere, stream)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    kept = _resident() + MOST_KEPT
    _send(replies, {}, b"")  # ready
    for number in range(1, MOST_REQUESTS + 1):
        frame = _exactly(requests, FRAME.size)
        if frame is None:
            return
        sizes = FRAME.unpack(frame)
        header, body = _exactly(requests, sizes[0]), _exactly(requests, sizes[1])
        if header is None or body is None:
            return
        reply, rest = _work(tasks, json.loads(header), body)
        if number == MOST_REQUESTS or _resident() > kept:
            reply["last"] = True
        _send(replies, reply, rest)
        del body, rest


def end_with_parent(pipe: int) -> None:
    """Have the kernel end this process when the other end of a pipe is closed.

    Works while C code holds the interpreter, and whichever thread started the process.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)  # which ends a process
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGIO, signal.SIGXCPU})
    with suppress(OSError):  # some sandboxes' kernels can't; the end of the requests serves too
        fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    os.set_blocking(pipe, False)
    try:
        if not os.read(pipe, 1):
            sys.exit(1)  # it was closed before
    except BlockingIOError:
        return


def _work(
    tasks: Mapping[str, Task], header: Mapping[str, Any], body: bytes
) -> tuple[dict[str, Any], bytes]:
    memory = int(header["memory"])
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = used.ru_utime + used.ru_stime + float(header["seconds"])
    _limit(resource.RLIMIT_CPU, int(cpu) + 1)
    _limit(resource.RLIMIT_AS, _virtual() + memory)
    try:
        return tasks[header["task"]](header, body)
    except ToolError as error:
        return {"error": str(error), "kind": error.kind}, b""
    except MemoryError:
        message = f"finding its text takes over {memory // 1_000_000:,} MB of memory"
        return {"error": message, "kind": "too_costly", "last": True}, b""
    except Exception as error:  # noqa: BLE001 - whatever strange bytes lead to
        return {"error": f"it can't be read ({type(error).__name__})", "kind": "not_text"}, b""
    finally:
        _limit(resource.RLIMIT_AS, resource.RLIM_INFINITY)


def _limit(kind: int, value: int) -> None:
    """Set a limit, no higher than the machine's own."""
    highest = resource.getrlimit(kind)[1]
    if value == resource.RLIM_INFINITY or (highest != resource.RLIM_INFINITY and value > highest):
        value = highest
    resource.setrlimit(kind, (value, highest))


def _exactly(pipe: int, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        piece = os.read(pipe, min(size - len(parts), 1 << 20))
        if not piece:
            return None
        parts += piece
    return bytes(parts)


def _send(pipe: int, header: Mapping[str, Any], body: bytes) -> None:
    packed = json.dumps(header).encode()
    rest = memoryview(FRAME.pack(len(packed), len(body)) + packed + body)
    while rest:
        rest = rest[os.write(pipe, rest) :]


def _virtual() -> int:
    """Bytes of address space in use."""
    return _pages(0)


def _resident() -> int:
    """Bytes of memory in use."""
    return _pages(1)


def _pages(column: int) -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[column]) * resource.getpagesize()
