"""Pauses, cancelled requests, and the ends of vLLM's engine: nothing is left running."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from agents.engines import Sampling
from drv_env.errors import EngineError

GREEDY = Sampling(12, temperature=0)
LONG = Sampling(240, temperature=0)


def test_pause_keeps_requests_until_resume(untied, plain):
    engine = untied.engine
    version = engine.weight_version

    async def scenario():
        running = asyncio.create_task(engine.generate([1, 2], LONG))
        await engine.generate([5], GREEDY)  # begun after it, so that one has begun
        await engine.pause()
        assert running.done()
        held = asyncio.create_task(engine.generate([3, 4], GREEDY))
        assert await engine.update_weights(untied.model) == version + 1
        assert not held.done()
        await engine.resume()
        return await running, await held

    before, after = asyncio.run(scenario())
    assert (before.weight_version, len(before.ids)) == (version, 240)
    assert after.weight_version == version + 1
    assert after.ids.tolist() == plain.greedy(untied.model, [3, 4], 12)


def test_cancelling_aborts_the_request_in_vllm(untied, plain):
    engine = untied.engine

    async def scenario():
        task = asyncio.create_task(engine.generate([1, 2, 3], LONG))
        await engine.generate([5], GREEDY)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await engine.pause()  # returns only when nothing is worked on
        assert engine._host.llm.get_num_unfinished_requests() == 0
        await engine.resume()
        return await engine.generate([4, 5], GREEDY)

    done = asyncio.run(scenario())
    assert done.ids.tolist() == plain.greedy(untied.model, [4, 5], 12)


def test_cancelled_requests_that_wait_are_never_begun(untied):
    engine = untied.engine

    async def scenario():
        await engine.pause()
        tasks = [asyncio.create_task(engine.generate([1, i], GREEDY)) for i in range(5)]
        await asyncio.sleep(0)
        for task in tasks[1:]:
            task.cancel()
        results = await asyncio.gather(*tasks[1:], return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        await engine.resume()
        return await tasks[0]

    assert len(asyncio.run(scenario()).ids) == 12


# ---- the end ----------------------------------------------------------------------------


def shared_memory(processes):
    """Files in shared memory that these processes have open or mapped."""
    found = set()
    for process in processes:
        for line in Path(f"/proc/{process.pid}/maps").read_text().splitlines():
            name = line.split(maxsplit=5)[-1]
            if name.startswith("/dev/shm/"):
                found.add(Path(name.removesuffix(" (deleted)")))
    return {path for path in found if path.exists()}


def check_gone(processes, memory):
    gone, alive = psutil.wait_procs(processes, timeout=90)
    assert not alive, [(p.pid, p.name()) for p in alive]
    assert len(gone) == len(processes)
    assert not [path for path in memory if path.exists()]


def test_close_fails_what_is_pending_and_leaves_nothing(engine_to_close):
    engine = engine_to_close.engine
    memory = shared_memory(engine_to_close.processes)
    assert memory
    thread = engine._host._thread

    async def scenario():
        running = asyncio.create_task(engine.generate([1, 2], LONG))
        await engine.generate([5], GREEDY)
        await asyncio.gather(*(engine.generate([i], GREEDY) for i in range(4)))
        pausing = asyncio.create_task(engine.pause())
        await asyncio.sleep(0)
        held = asyncio.create_task(engine.generate([3], LONG))
        updating = asyncio.create_task(engine.update_weights(engine_to_close.model))
        await asyncio.sleep(0)
        await asyncio.gather(engine.close(), engine.close())
        results = await asyncio.gather(running, pausing, held, updating, return_exceptions=True)
        with pytest.raises(EngineError, match="closed"):
            await engine.generate([1], GREEDY)
        with pytest.raises(EngineError, match="closed"):
            await engine.update_weights({})
        await engine.close()
        return results

    results = asyncio.run(scenario())
    assert isinstance(results[2], EngineError)
    assert "closed while this request was pending" in str(results[2])
    check_gone(engine_to_close.processes, memory)
    assert thread not in threading.enumerate()


def test_requests_of_a_killed_engine_raise(engine_to_kill):
    engine = engine_to_kill.engine
    (core,) = [p for p in engine_to_kill.processes if "EngineCor" in p.name()]

    async def scenario():
        await engine.generate([5], GREEDY)
        core.suspend()  # so that what follows is pending when it is killed
        pending = [asyncio.create_task(engine.generate([1, i], LONG)) for i in range(3)]
        pending.append(asyncio.create_task(engine.score([1, 2, 3], [(1, 3)])))
        pending.append(asyncio.create_task(engine.update_weights(engine_to_kill.model)))
        await asyncio.sleep(0)
        core.kill()
        results = await asyncio.gather(*pending, return_exceptions=True)
        assert all(isinstance(result, EngineError) for result in results), results
        for later in (engine.generate([1], GREEDY), engine.update_weights({}), engine.pause()):
            with pytest.raises(EngineError, match="make a new one"):
                await later
        await engine.close()

    asyncio.run(scenario())
    # memory that a killed process had made goes when this one ends
    check_gone(engine_to_kill.processes, ())


SCRIPT = """
import asyncio, json, os, signal, sys

import psutil

from agents.engines import Sampling
from agents.engines.vllm import VllmEngine


async def use(engine, how):
    task = asyncio.create_task(engine.generate([1, 2], Sampling(240)))
    await engine.generate([3], Sampling(1))
    vllm = [p for p in psutil.Process().children(recursive=True) if "VLLM" in p.name()]
    print(json.dumps([p.pid for p in vllm]), flush=True)
    if how == "raise":
        sys.stdin.readline()
        raise ValueError("in the user's code")
    await asyncio.Event().wait()  # until a signal


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in background jobs
    engine = VllmEngine(sys.argv[1], dtype="float32")
    asyncio.run(use(engine, sys.argv[2]))
"""


def run_script(tmp_path, model_folder, how, level="ERROR"):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    return subprocess.Popen(
        [sys.executable, str(script), str(model_folder), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "VLLM_LOGGING_LEVEL": level, "VLLM_LOGGING_STREAM": "ext://sys.stderr"},
        start_new_session=True,  # Ctrl-C reaches a whole process group
    )


def test_nothing_is_left_after_an_exception_ctrl_c_or_a_kill(tmp_path, tied):
    scripts = {how: run_script(tmp_path, tied.folder, how) for how in ("raise", "ctrl-c", "kill")}
    left = {}
    try:
        for how, process in scripts.items():
            pids = next((json.loads(x) for x in process.stdout if x.startswith("[")), None)
            assert pids, process.stderr.read()
            processes = [psutil.Process(pid) for pid in pids]
            left[how] = (processes, shared_memory(processes))
        os.killpg(scripts["ctrl-c"].pid, signal.SIGINT)
        scripts["kill"].kill()  # that one alone, not its group
        said = {how: scripts[how].communicate("\n", timeout=120)[1] for how in ("raise", "ctrl-c")}
    finally:
        for process in scripts.values():
            process.kill()
    assert "in the user's code" in said["raise"]
    assert scripts["raise"].returncode == 1
    assert "KeyboardInterrupt" in said["ctrl-c"]
    for how in scripts:
        check_gone(*left[how])


def test_ctrl_c_ends_a_start(tmp_path, tied):
    process = run_script(tmp_path, tied.folder, "ctrl-c", level="INFO")
    try:
        assert any("EngineCore pid" in line for line in process.stderr)
        made = [p for p in psutil.Process(process.pid).children() if "VLLM" in p.name()]
        assert made
        os.killpg(process.pid, signal.SIGINT)
        said = process.communicate(timeout=120)[1]
    finally:
        process.kill()
    assert "KeyboardInterrupt" in said
    check_gone(made, ())
