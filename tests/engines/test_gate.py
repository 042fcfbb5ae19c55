"""The gate in front of a server: limits, pauses and closes, over loops and threads."""

from __future__ import annotations

import asyncio
import threading

import pytest

from agents.engines._gate import Gate
from drv_env.errors import EngineError, SettingError


async def waiting_for_a_turn(gate, tasks):
    """One round of the loop takes new tasks to where they wait."""
    await asyncio.sleep(0)
    assert len(gate._waiting) == len(tasks)


def test_no_more_turns_than_the_limit_first_come_first_served():
    async def main():
        gate, order = Gate(2, "it"), []
        free = [asyncio.Event() for _ in range(6)]
        begun = [asyncio.Event() for _ in range(6)]

        async def ask(number):
            async with gate.request(), gate.turn():
                order.append(number)
                begun[number].set()
                await free[number].wait()

        tasks = [asyncio.create_task(ask(number)) for number in range(6)]
        await begun[1].wait()
        assert order == [0, 1]
        for number in range(4):
            free[number].set()
            await begun[number + 2].wait()
            assert order == list(range(number + 3))
        free[4].set()
        free[5].set()
        await asyncio.gather(*tasks)

    asyncio.run(main())


def test_a_pause_waits_for_turns_and_holds_others():
    async def main():
        gate, free, begun = Gate(5, "it"), asyncio.Event(), asyncio.Event()

        async def ask():
            async with gate.request(), gate.turn():
                begun.set()
                await free.wait()

        first = asyncio.create_task(ask())
        await begun.wait()
        pausing = asyncio.create_task(gate.pause())
        held = asyncio.create_task(ask())
        await waiting_for_a_turn(gate, [held])
        assert not pausing.done()
        free.set()
        await pausing
        await first
        assert not held.done()
        await gate.pause()
        gate.resume()
        await held

    asyncio.run(main())


def test_cancelling_a_request_that_waits_takes_no_turn():
    async def main():
        gate, free, begun = Gate(1, "it"), asyncio.Event(), asyncio.Event()

        async def ask():
            async with gate.request(), gate.turn():
                begun.set()
                await free.wait()

        first = asyncio.create_task(ask())
        await begun.wait()
        waiting = [asyncio.create_task(ask()) for _ in range(3)]
        await waiting_for_a_turn(gate, waiting)
        waiting[0].cancel()
        waiting[1].cancel()
        free.set()
        results = await asyncio.gather(first, *waiting, return_exceptions=True)
        assert [type(result) for result in results[1:3]] == [asyncio.CancelledError] * 2
        assert results[3] is None
        await ask()
        assert gate._running == 0

    asyncio.run(main())


def test_a_request_cancelled_just_as_it_is_let_in_gives_its_turn_back():
    async def main():
        gate, begun, free = Gate(1, "it"), asyncio.Event(), asyncio.Event()

        async def ask():
            async with gate.request(), gate.turn():
                begun.set()
                await free.wait()

        first = asyncio.create_task(ask())
        await begun.wait()
        second = asyncio.create_task(ask())
        await waiting_for_a_turn(gate, [second])
        gate._leave()  # lets the second in ...
        second.cancel()  # ... before its task has run
        with pytest.raises(asyncio.CancelledError):
            await second
        gate._running += 1  # the first's, whose turn was ended above
        free.set()
        await first
        assert gate._running == 0

    asyncio.run(main())


def test_a_close_ends_what_waits_and_what_runs():
    async def main():
        gate, begun = Gate(1, "the engine"), asyncio.Event()

        async def ask():
            async with gate.request(), gate.turn():
                begun.set()
                await asyncio.Event().wait()

        tasks = [asyncio.create_task(ask()) for _ in range(3)]
        await begun.wait()
        gate.close()
        gate.close()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(result, EngineError)
            assert "the engine was closed while this request was pending" in str(result)
        with pytest.raises(EngineError, match="the engine is closed"):
            await ask()
        with pytest.raises(EngineError, match="closed"):
            await gate.pause()

    asyncio.run(main())


def test_a_time_out_inside_is_not_taken_for_a_close():
    async def main():
        gate = Gate(1, "it")
        with pytest.raises(TimeoutError):
            async with gate.request(), gate.turn():
                raise TimeoutError
        async with gate.request(), gate.turn():
            pass

    asyncio.run(main())


def test_loops_in_several_threads_share_the_limit():
    gate, working, most = Gate(2, "it"), [0], [0]
    lock = threading.Lock()

    async def ask():
        async with gate.request(), gate.turn():
            with lock:
                working[0] += 1
                most[0] = max(most[0], working[0])
            for _ in range(20):
                await asyncio.sleep(0)
            with lock:
                working[0] -= 1

    async def many():
        await asyncio.gather(*(ask() for _ in range(50)))

    threads = [threading.Thread(target=lambda: asyncio.run(many())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (working[0], most[0], gate._running) == (0, 2, 0)


def test_a_limit_that_lets_nothing_through_is_refused():
    with pytest.raises(SettingError, match="max_in_flight must be at least 1"):
        Gate(0, "it")
