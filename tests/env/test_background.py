"""The one background loop of a process."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
import threading
import traceback

import pytest

from drv_env import background
from tests.patience import HANGS


async def name_of_thread() -> str:
    return threading.current_thread().name


def program(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=HANGS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_work_runs_on_one_loop_in_a_thread_of_its_own() -> None:
    assert background.run(name_of_thread()) == "drv-env-loop"
    assert background.loop() is background.loop()
    loops: list[asyncio.AbstractEventLoop] = []
    threads = [threading.Thread(target=lambda: loops.append(background.loop())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(loops) == {background.loop()}


def test_an_exception_reaches_the_caller() -> None:
    async def fails() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        background.run(fails())


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_exit_reaches_its_caller_and_the_loop_lives_on(error: BaseException) -> None:
    async def leaves() -> None:
        await asyncio.sleep(0)
        raise error

    async def all_leave() -> None:
        await asyncio.gather(leaves(), leaves())

    for work in (leaves, all_leave):
        with pytest.raises(type(error)):
            background.run(work())
        assert background.run(name_of_thread()) == "drv-env-loop"


def test_an_exit_does_not_end_the_work_of_others() -> None:
    begun, released = threading.Event(), asyncio.Event()
    found: list[int] = []

    async def waits() -> int:
        begun.set()
        await released.wait()
        return 7

    async def leaves() -> None:
        raise SystemExit

    thread = threading.Thread(target=lambda: found.append(background.run(waits())))
    thread.start()
    assert begun.wait(HANGS)
    with pytest.raises(SystemExit):
        background.run(leaves())
    background.loop().call_soon_threadsafe(released.set)
    thread.join()
    assert found == [7]


def test_a_call_from_the_loop_itself_raises() -> None:
    async def nested() -> str:
        return background.run(name_of_thread())

    with pytest.raises(RuntimeError, match="background event loop"):
        background.run(nested())


def test_it_works_inside_another_event_loop() -> None:
    async def notebook() -> str:
        return background.run(name_of_thread())

    assert asyncio.run(notebook()) == "drv-env-loop"


def test_a_forked_child_has_a_loop_of_its_own() -> None:
    assert (
        program(
            """
            import os
            from drv_env import background

            async def me():
                return os.getpid()

            parent = background.run(me())
            child = os.fork()
            if child == 0:
                os._exit(0 if background.run(me()) == os.getpid() != parent else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert background.run(me()) == parent
            print("both")
            """
        )
        == "both"
    )


def test_ctrl_c_cancels_the_work() -> None:
    cancelled = threading.Event()

    def caller_waits() -> bool:
        frame = sys._current_frames()[threading.main_thread().ident]  # type: ignore[index]
        return any(found.name == "result" for found in traceback.extract_stack(frame))

    async def work() -> None:
        try:
            while not caller_waits():  # noqa: ASYNC110 - a thread can't tell that it waits
                await asyncio.sleep(0)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)  # type: ignore[arg-type]
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(KeyboardInterrupt):
        background.run(work())
    assert cancelled.wait(HANGS)


def test_a_process_ends_with_envs_left_open() -> None:
    assert (
        program(
            """
            import gymnasium, drv_env
            from drv_env.testing import FakeTools

            env = gymnasium.make_vec(
                drv_env.ENV_ID, num_envs=2, tasks=[("Q", "A")], tools=FakeTools()
            )
            env.reset()
            env.step(["a", "b"])
            print("end")
            """
        )
        == "end"
    )


def test_an_env_that_is_forgotten_on_the_loops_own_thread_closes_its_tools():
    from drv_env.testing import FakeTools
    from drv_env.tools.closing import close_tools_now

    tools = FakeTools()

    async def collected() -> None:
        close_tools_now(tools)

    background.run(collected())
    background.run(asyncio.sleep(0))
    assert tools.closed == 1
