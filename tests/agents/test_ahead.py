"""Rollouts ahead of training: order, bound, errors, cleaning up."""

import asyncio
import threading

import pytest

from agents.ahead import Ahead
from drv_env import SettingError
from tests.patience import HANGS


class Played:
    """Notes when batches begin; each ends at once, or waits."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.first = threading.Event()

    async def __call__(self, batch: int) -> int:
        self.begun.append(batch)
        return 10 * batch

    async def wait(self, batch: int) -> int:
        self.begun.append(batch)
        self.first.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.append(batch)
        return batch


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_batches_come_in_order_and_begin_no_earlier_than_the_bound_allows(bound):
    played = Played()
    begun_by_then = []
    with Ahead(range(6), played, bound) as ahead:
        results = []
        for batch, result in ahead:
            begun_by_then.append(len(played.begun))
            results.append((batch, result))
            ahead.updated()
    assert results == [(batch, 10 * batch) for batch in range(6)]
    # when batch b is trained on, b updates are done: at most b + bound + 1 batches have begun
    assert all(count <= b + bound + 1 for b, count in enumerate(begun_by_then))
    assert begun_by_then[0] >= 1


def test_a_batch_runs_while_the_caller_works():
    played = Played()

    async def play(batch: int) -> int:
        return await (played.wait(batch) if batch == 1 else played(batch))

    with Ahead(range(2), play, 1) as ahead:
        assert next(ahead) == (0, 0)
        assert played.first.wait(HANGS)  # the caller has done nothing for batch 1 yet
    assert played.ended == [1]


def test_without_updates_the_bound_is_told():
    with Ahead(range(3), Played(), 0) as ahead:
        next(ahead)
        with pytest.raises(RuntimeError, match="updated"):
            next(ahead)
        ahead.updated()
        assert next(ahead) == (1, 10)


def test_batches_are_drawn_only_as_far_as_the_bound_allows():
    drawn = []

    def batches():
        for number in range(10):
            drawn.append(number)
            yield number

    with Ahead(batches(), Played(), 1) as ahead:
        next(ahead)
        assert drawn == [0, 1]


def test_what_a_batch_raises_reaches_the_caller_in_its_place():
    async def play(batch: int) -> int:
        if batch == 1:
            raise ValueError("out of memory")
        return batch

    with Ahead(range(3), play, 2) as ahead:
        assert next(ahead) == (0, 0)
        with pytest.raises(ValueError, match="out of memory"):
            next(ahead)


def test_a_failure_is_told_once_and_the_next_batch_follows():
    async def play(batch: int) -> int:
        if batch == 1:
            raise ValueError("out of memory")
        return batch

    with Ahead(range(3), play, 2) as ahead:
        next(ahead)
        with pytest.raises(ValueError, match="out of memory"):
            next(ahead)
        assert next(ahead) == (2, 2)


def test_nothing_begins_after_the_end():
    played = Played()
    ahead = Ahead(range(9), played, 1)
    next(ahead)
    ahead.close()
    ahead.updated()
    with pytest.raises(RuntimeError, match="closed"):
        next(ahead)
    assert played.begun == [0, 1]


def test_closing_cancels_what_runs_and_waits_for_its_end():
    played = Played()

    async def play(batch: int) -> int:
        return await (played.wait(batch) if batch else played(batch))

    ahead = Ahead(range(3), play, 2)
    next(ahead)
    assert played.first.wait(HANGS)
    ahead.close()
    ahead.close()
    assert sorted(played.ended) == sorted(played.begun)[1:]


def test_closing_waits_for_those_that_take_their_time_to_end():
    begun, ended = threading.Event(), []

    async def play(batch: int) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(2_000):  # turns of the loop, as closing a connection takes
                await asyncio.sleep(0)
            ended.append(batch)

    with Ahead(range(1), play, 0) as ahead:
        ahead.updated()  # a batch that nobody asks for
        assert begun.wait(HANGS)
    assert ended == [0]


def test_a_bound_below_zero_is_refused():
    with pytest.raises(SettingError, match="max_staleness"):
        Ahead([], Played(), -1)
