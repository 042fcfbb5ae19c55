"""Work in processes that can be killed: limits, ends, and nothing left behind."""

import asyncio
import gc
import json
import os
import resource
import select
import signal
import subprocess
import sys
import textwrap
import threading
import warnings

import pytest

from drv_env.errors import SettingError, ToolError
from drv_env.tools.live import FetchReader
from drv_env.workers import WorkerPool

MEMORY = 300_000_000
WORKER = """
    import os, signal, sys
    from drv_env.errors import ToolError

    def echo(header, body):
        print("a library that prints")
        os.write(1, b"to where the replies go")
        return {"pid": os.getpid(), "said": header.get("said")}, body

    def burn(header, body):
        while True:
            pass

    def tell_and_burn(header, body):
        with open(header["to"], "w") as file:
            file.write(str(os.getpid()))
        burn(header, body)

    def eat(header, body):
        eaten = []
        while True:
            eaten.append(bytearray(10_000_000))

    def crash(header, body):
        os.kill(os.getpid(), signal.SIGSEGV)

    def leave(header, body):
        os._exit(3)

    def refuse(header, body):
        raise ToolError("not this", kind="not_text")

    def fail(header, body):
        raise KeyError("x")

    def environ(header, body):
        return {"environ": dict(os.environ), "cwd": os.getcwd(), "main": sys.argv[0]}, b""

    def babble(header, body):
        for pipe in range(3, 10):
            try:
                os.write(pipe, b"x" * 1000)
            except OSError:
                pass
        os._exit(0)

    if __name__ == "__main__":
        from drv_env.worker_process import serve

        serve({name: value for name, value in globals().items() if callable(value)})
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module that works for strangers."""
    (tmp_path / "worker_for_tests.py").write_text(textwrap.dedent(WORKER))
    monkeypatch.syspath_prepend(tmp_path)
    return "worker_for_tests"


@pytest.fixture
def leased(module):
    """A pool of one, leased."""

    class User:
        """Whoever leases it."""

    user = User()
    pool = WorkerPool(module, 1)
    release = pool.lease(user)
    yield pool
    release()


async def ask(pool, task, body=b"", seconds=60.0, memory=MEMORY, **more):
    return await pool.ask({"task": task, **more}, body, seconds=seconds, memory=memory)


async def failing(pool, task, **settings):
    with pytest.raises(ToolError) as caught:
        await ask(pool, task, **settings)
    return caught.value


def is_gone(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_worker_is_kept_for_the_next_request_and_the_next_loop(leased):
    body = os.urandom(3_000_000)
    said = [asyncio.run(ask(leased, "echo", body, said=n)) for n in range(3)]
    assert len({header["pid"] for header, _ in said}) == 1
    assert [header["said"] for header, _ in said] == [0, 1, 2]
    assert all(rest == body for _, rest in said)


@pytest.mark.parametrize(
    ("task", "seconds", "kind", "words"),
    [
        ("burn", 0.5, "too_costly", "takes over 0.5 seconds"),
        ("eat", 60.0, "too_costly", "takes over 300 MB of memory"),
        ("crash", 60.0, "too_costly", "did not survive it (SIGSEGV)"),
        ("leave", 60.0, "too_costly", "did not survive it (exit status 3)"),
        ("babble", 60.0, "too_costly", "went astray"),
        ("refuse", 60.0, "not_text", "not this"),
        ("fail", 60.0, "not_text", "it can't be read (KeyError)"),
        ("no such task", 60.0, "not_text", "it can't be read (KeyError)"),
    ],
)
def test_a_request_that_fails_costs_no_later_one(leased, task, seconds, kind, words):
    async def main():
        error = await failing(leased, task, seconds=seconds)
        return error, await ask(leased, "echo", b"later")

    error, (_, rest) = asyncio.run(main())
    assert error.kind == kind
    assert words in str(error)
    assert rest == b"later"


def test_a_cancelled_request_leaves_nothing_working(leased, tmp_path):
    os.mkfifo(tmp_path / "pid")

    async def main():
        burning = asyncio.create_task(ask(leased, "tell_and_burn", to=str(tmp_path / "pid")))
        pid = int(await asyncio.to_thread((tmp_path / "pid").read_text))
        assert not is_gone(pid)
        burning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await burning
        assert is_gone(pid)
        assert (await ask(leased, "echo", b"later"))[1] == b"later"

    asyncio.run(main())


def test_requests_take_turns_and_a_cancelled_one_gives_its_turn_back(leased, tmp_path):
    os.mkfifo(tmp_path / "pid")

    async def main():
        burning = asyncio.create_task(ask(leased, "tell_and_burn", to=str(tmp_path / "pid")))
        await asyncio.to_thread((tmp_path / "pid").read_text)
        waiting = [asyncio.create_task(ask(leased, "echo", said=n)) for n in range(4)]
        await asyncio.sleep(0)  # lets them reach the queue
        waiting[1].cancel()
        burning.cancel()
        said = await asyncio.gather(burning, *waiting, return_exceptions=True)
        assert isinstance(said[0], asyncio.CancelledError)
        assert isinstance(said[2], asyncio.CancelledError)
        return [said[n][0] for n in (1, 3, 4)]

    said = asyncio.run(main())
    assert [header["said"] for header in said] == [0, 2, 3]
    assert len({header["pid"] for header in said}) == 1


def test_loops_on_several_threads_share_a_pool(leased):
    said = []

    def elsewhere(number):
        async def main():
            return [await ask(leased, "echo", said=(number, n)) for n in range(5)]

        said.extend(asyncio.run(main()))

    threads = [threading.Thread(target=elsewhere, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({header["pid"] for header, _ in said}) == 1
    assert len(said) == 20


def test_the_last_to_close_ends_the_workers(module):
    class User:
        """Whoever leases it."""

    first, second = User(), User()
    pool = WorkerPool(module, 1)
    files = len(os.listdir("/proc/self/fd"))
    releases = [pool.lease(first), pool.lease(second)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pid = asyncio.run(ask(pool, "echo"))[0]["pid"]
        releases[0]()
        releases[0]()
        assert asyncio.run(ask(pool, "echo"))[0]["pid"] == pid
        del second  # without a word
        gc.collect()
        assert is_gone(pid)
        assert len(os.listdir("/proc/self/fd")) == files
        # Whoever asks without a lease leaves nothing either.
        assert is_gone(asyncio.run(ask(pool, "echo"))[0]["pid"])
        gc.collect()
    assert len(os.listdir("/proc/self/fd")) == files


def test_a_worker_that_died_while_idle_is_replaced(leased):
    pid = asyncio.run(ask(leased, "echo"))[0]["pid"]
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert asyncio.run(ask(leased, "echo"))[0]["pid"] != pid


def test_a_forked_child_has_no_part_in_the_workers(leased):
    pid = asyncio.run(ask(leased, "echo"))[0]["pid"]
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if not leased._idle else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert asyncio.run(ask(leased, "echo"))[0]["pid"] == pid


def test_a_worker_has_no_keys_and_no_folder(leased, monkeypatch):
    monkeypatch.setenv("SERPER_KEY_ID", "a-key-for-no-page")
    said = asyncio.run(ask(leased, "environ"))[0]
    assert "a-key-for-no-page" not in json.dumps(said)
    assert said["cwd"] == "/"


def test_a_module_that_does_not_run_is_told_of(tmp_path, monkeypatch):
    (tmp_path / "broken_for_tests.py").write_text("raise SystemExit(5)")
    monkeypatch.syspath_prepend(tmp_path)
    error = asyncio.run(failing(WorkerPool("broken_for_tests", 1), "echo"))
    assert error.kind == "failed"
    assert "did not start (5)" in str(error)


def test_no_process_to_be_had_is_told_of(leased):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def main():
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # those that are open stay open
        try:
            return await failing(leased, "echo")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert "no process could be started" in str(asyncio.run(main()))
    assert asyncio.run(ask(leased, "echo"))[0]["pid"]


SCRIPT = """
    import asyncio, sys
    print("main runs")
    from drv_env.workers import WorkerPool

    class User: pass
    user = User()
    pool = WorkerPool("worker_for_tests", 1)
    pool.lease(user)

    async def ask(task, **more):
        return await pool.ask({"task": task, **more}, seconds=600, memory=300_000_000)

    print(asyncio.run(ask("echo"))[0]["pid"], flush=True)
    if len(sys.argv) > 1:
        asyncio.run(ask("tell_and_burn", to=sys.argv[1]))
"""


@pytest.fixture
def script(module, tmp_path):
    """A program without a guard around its main part, as a command."""
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    return [sys.executable, "-W", "error", str(tmp_path / "script.py")]


def here():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def test_the_main_module_is_not_run_again_and_the_end_leaves_nothing(script):
    done = subprocess.run(script, capture_output=True, text=True, env=here(), check=True)
    first, pid = done.stdout.split("\n")[:2]
    assert first == "main runs"
    assert done.stdout.count("main runs") == 1
    assert done.stderr == ""
    assert is_gone(int(pid))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_their_parent_however_it_ends(script, tmp_path, number):
    os.mkfifo(tmp_path / "pid")
    command = [*script, str(tmp_path / "pid")]
    # Its SIGINT is as in a terminal, whatever it is here.
    starter = (
        "import os, signal, sys;"
        "signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", starter, *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=here(),
    )
    worker = os.pidfd_open(int((tmp_path / "pid").read_text()))
    try:
        parent.send_signal(number)
        assert parent.wait() != 0
        poll = select.poll()
        poll.register(worker, select.POLLIN)
        assert poll.poll(60_000), "it still works"
    finally:
        os.close(worker)


def test_nothing_is_imported_or_started_before_the_first_page():
    program = """
import sys
from drv_env.tools.live import FetchReader, LiveTools
from drv_env.tools.live.page_worker import WORKERS
LiveTools(reader=FetchReader())
heavy = {"trafilatura", "lxml", "pypdf", "charset_normalizer"} & set(sys.modules)
assert not heavy, heavy
assert not WORKERS._idle
"""
    subprocess.run([sys.executable, "-c", program], env=here(), check=True)


@pytest.mark.parametrize(
    ("settings", "word"), [({"parse_seconds": 0}, "seconds"), ({"parse_memory": 0}, "memory")]
)
def test_limits_that_can_not_work_are_refused(settings, word):
    with pytest.raises(SettingError, match=f"parse_{word} must be above 0"):
        FetchReader(**settings)
