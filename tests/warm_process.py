"""Processes of their own for tests, which have imported torch and the product already.

Each is forked from a process that has done nothing but import (multiprocessing's fork server), so
it is as fresh as ``python -c`` makes one, six seconds of imports sooner.  What a test finds in it
may be killed, interrupted or forked on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing import get_context
from pathlib import Path

from tests.patience import HANGS

ROOT = Path(__file__).parents[1]
IMPORTED = (
    "torch",
    "transformers",
    "agents.engines.transformers",
    "trainers.commands.train",
    "trainers.rl",
    "trainers.sft",
)
"""What the first process of a suite imports, once for all that are forked from it."""

_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload(list(IMPORTED))


def run(
    code: str, *arguments: str, cwd: Path = ROOT, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What ``python -c code arguments…`` gives, in a folder, with these variables besides.

    Modules are found as in this process, not in the folder.
    """
    with tempfile.TemporaryDirectory(prefix="drv-process-") as folder:
        streams = [Path(folder, name) for name in ("out", "err")]
        variables = {**os.environ, "OMP_NUM_THREADS": "1", **(env or {})}
        given = (code, arguments, str(cwd), variables, *map(str, streams))
        process = _CONTEXT.Process(target=_work, args=given)
        process.start()
        process.join(HANGS)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise TimeoutError(f"{code!r} hangs; it said: {streams[1].read_text('utf-8')}")
        out, err = (path.read_bytes().decode("utf-8", "replace") for path in streams)
        return subprocess.CompletedProcess(["python"], process.exitcode, out, err)


def _work(
    code: str,
    arguments: tuple[str, ...],
    cwd: str,
    variables: dict[str, str],
    out: str,
    err: str,
) -> None:
    for stream, path in ((1, out), (2, err)):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(opened, stream)
        os.close(opened)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = ["-c", *arguments]
    exec(compile(code, "<the test's code>", "exec"), {"__name__": "__main__"})
