"""The layers, each over scripted tools."""

import asyncio
import pickle

import pytest

from drv_env.errors import SettingError, ToolError
from drv_env.play import run_call
from drv_env.protocol import Search, ToolCall, Visit
from drv_env.retry import RetryPolicy
from drv_env.tasks import Task
from drv_env.tools.base import Call, Status, ToolResult
from drv_env.tools.fake import FakeTools, ManualClock, failing
from drv_env.tools.layers import (
    BudgetSpent,
    Cache,
    CostMeter,
    InFlight,
    Metrics,
    RateLimit,
    Retry,
    TimeOut,
)

TASK = Task("Q?", ("A",))
SEARCH = Call(Search(("x",)), TASK)


def busy(after=None):
    return ToolError("busy", kind="rate_limited", retryable=True, retry_after=after)


class Waits(list):
    async def __call__(self, seconds):
        self.append(seconds)


def policy(waits, **settings):
    return RetryPolicy(sleep=waits, random=lambda: 1.0, **settings)


# ---- time-out ---------------------------------------------------------------------------


def test_what_takes_too_long_has_failed_and_is_cancelled():
    class Hanging(FakeTools):
        cancelled = False

        async def call(self, call):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise

    async def main():
        inner = Hanging()
        with pytest.raises(ToolError, match=r"no reply within 0\.01 seconds") as caught:
            await TimeOut(inner, 0.01).call(SEARCH)
        return inner.cancelled, caught.value

    cancelled, error = asyncio.run(main())
    assert cancelled
    assert (error.kind, error.retryable) == ("timeout", True)


def test_a_time_out_of_the_tools_own_passes_as_it_is():
    with pytest.raises(TimeoutError, match="theirs"):
        asyncio.run(TimeOut(FakeTools({"search": TimeoutError("theirs")}), 5).call(SEARCH))


# ---- retry ------------------------------------------------------------------------------


def test_a_retryable_failure_is_tried_again_with_growing_waits():
    waits = Waits()
    tools = FakeTools({"search": [busy(), busy(), "found"]})
    layer = Retry(tools, policy(waits))
    assert asyncio.run(layer.call(SEARCH)).text == "found"
    assert waits == [0.5, 1.0]
    assert layer.retried == {("search", "rate_limited"): 2}


def test_the_last_failure_is_raised():
    waits = Waits()
    tools = FakeTools({"search": [busy(), ToolError("second", retryable=True)]})
    with pytest.raises(ToolError, match="second"):
        asyncio.run(Retry(tools, policy(waits, attempts=2)).call(SEARCH))
    assert len(tools.calls) == 2


@pytest.mark.parametrize("error", [ToolError("no"), ValueError("no"), failing()])
def test_anything_else_is_not_tried_again(error):
    tools = FakeTools({"search": error})
    result = asyncio.run(run_call(Retry(tools, policy(Waits())), SEARCH, 5))
    assert result.status is Status.FAILED
    assert len(tools.calls) == 1


@pytest.mark.parametrize(("asked", "tries"), [(3.0, 3), (20.0, 3), (21.0, 1)])
def test_the_time_asked_for_is_waited_within_a_bound(asked, tries):
    waits = Waits()
    tools = FakeTools({"search": busy(asked)})
    with pytest.raises(ToolError):
        asyncio.run(Retry(tools, policy(waits)).call(SEARCH))
    assert len(tools.calls) == tries
    assert waits == ([asked + 0.5, asked + 1.0] if tries == 3 else [])


def test_waits_are_bounded_and_jittered():
    waits = Waits()
    layer = Retry(
        FakeTools({"search": busy()}),
        RetryPolicy(attempts=100, sleep=waits, longest_wait=4.0),
    )
    with pytest.raises(ToolError):
        asyncio.run(layer.call(SEARCH))
    assert len(waits) == 99
    assert all(0.25 <= wait <= 4.0 for wait in waits)
    assert len(set(waits)) > 50


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attempts": 0}, "attempts must be at least 1, got 0"),
        ({"first_wait": 0}, "first_wait must be above 0"),
        ({"first_wait": 9, "longest_wait": 8}, "at most longest_wait=8"),
        ({"longest_retry_after": -1}, "longest_retry_after must be at least 0"),
    ],
)
def test_policies_that_can_not_work_are_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        RetryPolicy(**settings)


# ---- limits -----------------------------------------------------------------------------


def test_at_most_so_many_calls_are_in_flight():
    async def main():
        hold = asyncio.Event()
        tools = FakeTools(hold=hold)
        layer = InFlight(tools, 2)
        calls = [asyncio.create_task(layer.call(SEARCH)) for _ in range(5)]
        for _ in range(5):
            await asyncio.sleep(0)
        waiting = len(tools.calls)
        calls[4].cancel()
        hold.set()
        await asyncio.gather(*calls, return_exceptions=True)
        return waiting, len(tools.calls)

    assert asyncio.run(main()) == (2, 4)


def test_a_rate_counts_queries_and_urls():
    """The bucket is emptied by six queries; a seventh has to wait."""

    async def main():
        tools = FakeTools()
        layer = RateLimit(tools, 6, per=3600.0)
        await layer.call(Call(Search(("a", "b", "c", "d")), TASK))
        await layer.call(Call(Visit(("u",), "g"), TASK))
        await layer.call(Call(ToolCall("own", {}), TASK))
        late = asyncio.create_task(layer.call(SEARCH))
        for _ in range(5):
            await asyncio.sleep(0)
        done = len(tools.calls)
        late.cancel()
        await asyncio.gather(late, return_exceptions=True)
        return done

    assert asyncio.run(main()) == 3


# ---- cache ------------------------------------------------------------------------------


def test_the_same_call_is_answered_from_memory_for_a_while():
    async def main():
        clock = ManualClock()
        tools = FakeTools({"search": ToolResult("found", latency=3.0, cost=0.5)})
        cache = Cache(tools, ttl=10, now=clock)
        found = []
        for seconds in (0, 9, 1, 1):
            clock.advance(seconds)
            result = await cache.call(SEARCH)
            found.append((result.latency, result.cost))
        return found, len(tools.calls), (cache.hits, cache.misses)

    # after ten seconds it is asked for again
    paid, kept = (3.0, 0.5), (0.0, 0.0)
    assert asyncio.run(main()) == ([paid, kept, paid, kept], 2, (2, 2))


PARTLY = ToolResult("x", data=[{"status": "ok"}, {"status": "failed", "kind": "timeout"}])


@pytest.mark.parametrize(
    "reply", [failing(), ToolResult("no", Status.REFUSED), PARTLY, ToolError("down")]
)
def test_failures_are_never_kept_not_even_in_part(reply):
    tools = FakeTools({"search": reply})
    cache = Cache(tools)
    for _ in range(2):
        asyncio.run(run_call(cache, SEARCH, 5))
    assert len(tools.calls) == 2


def test_an_empty_result_is_a_result():
    tools = FakeTools({"search": ToolResult("nothing", Status.EMPTY)})
    cache = Cache(tools)
    for _ in range(2):
        asyncio.run(cache.call(SEARCH))
    assert len(tools.calls) == 1


def test_other_arguments_and_other_worlds_are_other_calls():
    tools = FakeTools()
    cache = Cache(tools, size=3)
    other = Task("Q?", ("A",), world="other")
    calls = [
        SEARCH,
        Call(Search(("x",)), other),
        Call(ToolCall("own", {"a": 1, "b": 2}), TASK),
        Call(ToolCall("own", {"b": 2, "a": 1}), TASK),
        Call(Visit(("x",), ""), TASK),
        SEARCH,
    ]
    for call in calls:
        asyncio.run(cache.call(call))
    assert len(tools.calls) == 5, "one was kept, and the first had to make way"


# ---- cost -------------------------------------------------------------------------------


def test_costs_add_up_and_a_budget_ends_them():
    tools = FakeTools({"search": ToolResult("found", cost=0.4)})
    meter = CostMeter(tools, budget=1.0)

    async def main():
        for _ in range(3):
            await meter.call(SEARCH)
        with pytest.raises(BudgetSpent) as caught:
            await meter.call(SEARCH)
        return caught.value

    error = asyncio.run(main())
    assert (error.kind, error.retryable) == ("budget", False)
    assert meter.spent == pytest.approx(1.2)
    assert meter.by_task[TASK.id] == pytest.approx(1.2)
    assert meter.by_tool["search"] == pytest.approx(1.2)
    assert len(tools.calls) == 3
    copy = pickle.loads(pickle.dumps(error))
    assert isinstance(copy, BudgetSpent)
    told = asyncio.run(run_call(meter, SEARCH, 5))
    assert told.status is Status.FAILED
    assert "budget for tool calls is used up" in told.text


def test_what_failed_counts_with_what_it_cost():
    meter = CostMeter(FakeTools({"search": ToolResult("no", Status.FAILED, cost=0.1)}))
    asyncio.run(meter.call(SEARCH))
    assert meter.spent == pytest.approx(0.1)


# ---- metrics ----------------------------------------------------------------------------


def test_calls_are_counted_by_how_they_went():
    clock = ManualClock()
    tools = FakeTools(
        {
            "search": [
                ToolResult("found", cost=0.25),
                ToolResult("none", Status.EMPTY),
                busy(),
                ValueError("bug"),
                failing(),
                PARTLY,
            ]
        },
        latency=2.0,
        clock=clock,
    )
    metrics = Metrics(tools)
    for _ in range(6):
        asyncio.run(run_call(metrics, SEARCH, 5))
    assert metrics.calls == {
        ("search", "ok", ""): 2,
        ("search", "empty", ""): 1,
        ("search", "failed", "rate_limited"): 1,
        ("search", "failed", "failed"): 2,
    }
    assert metrics.parts == {("search", "ok", ""): 1, ("search", "failed", "timeout"): 1}
    snapshot = metrics.snapshot()
    assert snapshot["tools/search/ok"] == 2
    assert snapshot["tools/search/failed/rate_limited"] == 1
    assert snapshot["tool_parts/search/failed/timeout"] == 1
    assert snapshot["tools/search/seconds_mean"] == 2.0
    assert snapshot["tools/cost"] == 0.25
    assert snapshot["tools/in_flight"] == 0


# ---- together ---------------------------------------------------------------------------


def stack(tools, waits):
    limited = InFlight(RateLimit(TimeOut(tools, 5), 1000), 100)
    return Metrics(Cache(CostMeter(Retry(limited, policy(waits)), budget=10)))


def test_the_layers_compose_and_keep_the_tools_face():
    tools = FakeTools({"search": [busy(), ToolResult("found", cost=0.5)]})
    layers = stack(tools, Waits())
    assert layers.schemas == tools.schemas
    assert layers.clock is tools.clock
    assert not hasattr(layers, "instant")

    async def main():
        return [(await layers.call(SEARCH)).text for _ in range(2)]

    assert asyncio.run(main()) == ["found", "found"]
    assert layers.calls == {("search", "ok", ""): 2}
    assert layers.cost == 0.5
    asyncio.run(layers.close())
    assert tools.closed == 1


def test_layers_work_in_one_loop_after_another_and_in_pickles():
    layers = InFlight(RateLimit(TimeOut(FakeTools(), 5), 5), 2)
    for _ in range(2):
        assert asyncio.run(layers.call(SEARCH)).status is Status.OK
    copy = pickle.loads(pickle.dumps(layers))
    assert asyncio.run(copy.call(SEARCH)).status is Status.OK


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda tools: TimeOut(tools, 0), "seconds must be above 0, got 0"),
        (lambda tools: RateLimit(tools, 0), "rate must be at least 1, got 0"),
        (lambda tools: RateLimit(tools, 1, 0), "per must be above 0 seconds, got 0"),
        (lambda tools: InFlight(tools, 0), "limit must be at least 1, got 0"),
        (lambda tools: Cache(tools, ttl=0), "ttl must be above 0 seconds, got 0"),
        (lambda tools: Cache(tools, size=0), "size must be at least 1, got 0"),
        (lambda tools: CostMeter(tools, -1), "budget must be at least 0"),
    ],
)
def test_layers_that_can_not_work_are_refused(make, message):
    with pytest.raises(SettingError, match=message):
        make(FakeTools())
