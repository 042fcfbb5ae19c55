"""What a tool may return and do: anything, and the agent is told; ``step`` never raises."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from typing import Any

import gymnasium
import numpy as np
import pytest

import drv_env
from drv_env.errors import DrvError, ToolError
from drv_env.play import MAX_KEPT_REASON_CHARS
from drv_env.protocol import Answer, Search, render_turn
from drv_env.secrets import Secret
from drv_env.tasks import Task
from drv_env.testing import FakeTools
from drv_env.tools import Call, Status, ToolResult
from drv_env.tools.closing import close_tools
from drv_env.tools.layers import Cache, CostMeter, Metrics
from drv_env.tools.results import MAX_DATA_DEPTH, checked_result

SEARCH = render_turn("t", Search(("x",)))
ANSWER = render_turn("t", Answer("A"))
TASKS = [(f"Q{number}?", "A") for number in range(4)]


class Text(str):
    __slots__ = ()

    def __len__(self) -> int:
        return 10**12

    def __str__(self) -> str:
        raise OSError("no text")


class Number(float):
    def __float__(self) -> float:
        raise OSError("no number")


class Unprintable:
    def __repr__(self) -> str:
        raise OSError("no repr")

    __str__ = __repr__


class Mute(Exception):
    def __str__(self) -> str:
        raise OSError("nothing to say")


class Speechless(Exception):
    def __str__(self) -> Any:
        return 7


class Own(BaseException):
    pass


class Sub(ToolResult):
    __slots__ = ()

    @property
    def text(self) -> str:  # type: ignore[override]
        raise OSError("no text")


def cyclic() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def deep(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = [found]
    return found


def laughs() -> Any:
    found: Any = ["ha"] * 10
    for _ in range(12):
        found = [found] * 10
    return found


async def later() -> ToolResult:
    return ToolResult("late")


async def yields() -> Any:
    yield ToolResult("one of many")


class Gives(FakeTools):
    """Gives whatever it is told to for the task ``Q0?``, and raises what is an exception."""

    def __init__(self, given: Callable[[], Any], instant: bool) -> None:
        super().__init__()
        self._given = given
        self._instant = instant

    @property
    def instant(self) -> bool:
        return self._instant

    async def call(self, call: Call) -> Any:
        if not self._instant:
            await asyncio.sleep(0)
        if call.task.question != "Q0?":
            return ToolResult("fine")
        found = self._given()
        if isinstance(found, BaseException):
            raise found
        return found


RESULTS: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "a text": lambda: "text",
    "a mapping": lambda: {"text": "x"},
    "a coroutine": later,
    "an async generator": yields,
    "the class": lambda: ToolResult,
    "a subclass with a text that raises": lambda: Sub("x"),
    "bytes": lambda: ToolResult(b"x"),  # type: ignore[arg-type]
    "no text": lambda: ToolResult(None),  # type: ignore[arg-type]
    "a status that is a text": lambda: ToolResult("x", "ok"),  # type: ignore[arg-type]
    "an unknown status": lambda: ToolResult("x", "great"),  # type: ignore[arg-type]
    "no status": lambda: ToolResult("x", None),  # type: ignore[arg-type]
    **{
        f"{field} {value!r:.20}": lambda field=field, value=value: ToolResult("x", **{field: value})
        for field in ("cost", "latency")
        for value in (
            float("nan"),
            float("inf"),
            -0.01,
            -float("inf"),
            True,
            "1",
            None,
            Decimal("1"),
            1j,
            10**400,
            np.float32("nan"),
            np.array([1.0]),
        )
    },
    **{
        f"data {name}": lambda made=made: ToolResult("x", data=made())
        for name, made in {
            "a set": lambda: {1},
            "bytes": lambda: [b"x"],
            "an object": object,
            "without repr": Unprintable,
            "nan": lambda: {"a": float("nan")},
            "inf": lambda: [float("inf")],
            "numpy int": lambda: [np.int64(1)],
            "numpy array": lambda: np.zeros(3),
            "a cycle": cyclic,
            "a number as key": lambda: {1: 2},
            "too deep": lambda: deep(MAX_DATA_DEPTH + 1),
            "very deep": lambda: deep(100_000),
            "too many": laughs,
            "too long a number": lambda: 10**5_000,
            "an exception": lambda: [OSError("x")],
            "a function": lambda: {"f": print},
        }.items()
    },
}

ERRORS: dict[str, Callable[[], BaseException]] = {
    "plain": lambda: OSError("reset"),
    "mute": Mute,
    "speechless": Speechless,
    "a class of its own": lambda: Own("x"),
    "a group": lambda: ExceptionGroup("several", [OSError("a"), KeyError("b")]),
    "the end of a generator": lambda: GeneratorExit("enough"),
    "a base group": lambda: BaseExceptionGroup("several", [Own("a")]),
    "stop": lambda: StopIteration("over"),
    "async stop": lambda: StopAsyncIteration("over"),
    "cancelled": lambda: asyncio.CancelledError("by itself"),
    "a time-out of its own": lambda: TimeoutError("upstream"),
    "recursion": lambda: RecursionError("deep"),
    "memory": lambda: MemoryError("full"),
    "assertion": lambda: AssertionError("wrong"),
    "control characters": lambda: OSError("\x1b[2J\x00\r\u202e\ud800"),
    "10 MB": lambda: OSError("x" * 10_000_000),
    "an odd kind": lambda: ToolError("x", kind=object()),  # type: ignore[arg-type]
    "an odd message": lambda: ToolError(Unprintable()),  # type: ignore[arg-type]
    "another of ours": lambda: DrvError("x"),
}


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "drv_env.tools")
    return lambda: [item.getMessage() for item in caplog.records if item.name == "drv_env.tools"]


@pytest.mark.parametrize("instant", [True, False])
@pytest.mark.parametrize("name", [*RESULTS, *ERRORS])
def test_a_faulty_result_is_a_failed_call_of_its_env_alone(name: str, instant: bool) -> None:
    made = RESULTS.get(name) or ERRORS[name]
    env = gymnasium.make_vec(drv_env.ENV_ID, num_envs=4, tasks=TASKS, tools=Gives(made, instant))
    env.reset(options={"tasks": TASKS})
    shown, rewards, terminated, truncated, infos = env.step([SEARCH, SEARCH, ANSWER, SEARCH])
    assert list(infos["tool_status"]) == ["failed", "ok", None, "ok"]
    assert list(rewards) == [0.0, 0.0, 1.0, 0.0]
    assert list(terminated) == [False, False, True, False]
    assert not truncated.any()
    assert "The search call failed" in shown[0]
    assert "fine" in shown[1]
    assert len(shown[0]) < 1_500
    assert "\x1b" not in shown[0]
    assert infos["cost"][0] == 0.0
    assert np.isfinite(infos["latency"]).all()
    env.close()


def test_every_kind_of_number_and_plain_data_passes_as_plain_values() -> None:
    given = ToolResult(
        Text("x"),
        Status.EMPTY,
        data={Text("a"): (1, 2.5, Text("b"), Number(0.5), True, None, [{}]), "big": 2**63},
        cost=Fraction(1, 4),  # type: ignore[arg-type]
        latency=np.float32(0.5),  # type: ignore[arg-type]
    )
    found = checked_result(given)
    assert (found.text, found.status, found.cost, found.latency) == ("x", Status.EMPTY, 0.25, 0.5)
    assert found.data == {"a": [1, 2.5, "b", 0.5, True, None, [{}]], "big": 2**63}
    kinds = [type(found.text), type(found.cost), *map(type, found.data["a"])]
    assert kinds == [str, float, int, float, str, float, bool, type(None), list]
    assert checked_result(ToolResult("x", data=deep(MAX_DATA_DEPTH))).data == deep(MAX_DATA_DEPTH)


def test_a_key_in_an_exceptions_text_is_masked_also_where_the_text_is_cut() -> None:
    key = "sk-not-a-real-key-of-the-tool-faults"
    Secret(key)
    for before in (0, 990, 1_000 - len(key) // 2):
        message = "y" * before + key
        tools = FakeTools({"search": OSError(message)})
        env = gymnasium.make(drv_env.ENV_ID, tasks=TASKS[:1], tools=tools)
        env.reset()
        shown = env.step(SEARCH)[0]
        assert not any(key[:size] in shown for size in range(6, len(key) + 1))


def test_all_of_an_exceptions_text_is_kept_up_to_a_bound() -> None:
    tools = FakeTools({"search": OSError("x" * (MAX_KEPT_REASON_CHARS + 5))})
    env = gymnasium.make(drv_env.ENV_ID, tasks=TASKS[:1], tools=tools)
    env.reset()
    env.step(SEARCH)
    reason = env.unwrapped.episode.turns[0].result.data["reason"]  # type: ignore[attr-defined]
    assert MAX_KEPT_REASON_CHARS - 100 < len(reason) <= MAX_KEPT_REASON_CHARS
    assert reason.endswith(" …")


@pytest.mark.parametrize("clock", [lambda: float("nan"), lambda: "1", lambda: 1 / 0])
def test_a_clock_that_gives_no_number_is_a_fault_of_the_tool(clock: Callable[[], Any]) -> None:
    ticks = [0.0]

    class Odd(FakeTools):
        @property
        def clock(self) -> Any:
            return lambda: ticks.pop() if ticks else clock()

    for instant in (True, False):
        ticks[:] = [0.0] * 3
        tools = Odd(hold=None)
        env = gymnasium.make(drv_env.ENV_ID, tasks=TASKS[:1], tools=tools)
        env.reset()
        ticks.clear()
        info = env.step(SEARCH)[4]
        assert (info["tool_status"], info["latency"], instant) == ("failed", 0.0, instant)


def test_a_clock_that_goes_backwards_gives_no_latency_below_zero() -> None:
    times = iter(range(100, 0, -1))

    class Back(FakeTools):
        @property
        def clock(self) -> Any:
            return lambda: float(next(times))

    env = gymnasium.make(drv_env.ENV_ID, tasks=TASKS[:1], tools=Back())
    env.reset()
    assert env.step(SEARCH)[4]["latency"] == 0.0


@pytest.mark.parametrize("cost", [float("nan"), float("-inf"), -5.0, "3"])
def test_a_layer_counts_no_result_that_is_none(cost: Any) -> None:
    tools = FakeTools({"search": [ToolResult("x", cost=cost), ToolResult("y", cost=0.5)]})
    meter = CostMeter(tools, budget=1.0)
    cache, metrics = Cache(meter), Metrics(meter)
    call = Call(Search(("x",)), Task("Q?", ("A",)))
    with pytest.raises(ToolError, match="cost"):
        asyncio.run(cache.call(call))
    assert meter.spent == 0.0
    assert asyncio.run(metrics.call(call)).text == "y"
    assert (meter.spent, metrics.cost) == (0.5, 0.5)


# ---- time ---------------------------------------------------------------------------------


class Blocks(FakeTools):
    """Holds the event loop for the task ``Q0?`` until it is released."""

    instant = False

    def __init__(self, released: threading.Event, seconds: float | None) -> None:
        super().__init__()
        self.released, self.seconds = released, seconds

    async def call(self, call: Call) -> ToolResult:
        self.calls.append(call)
        if call.task.question == "Q0?":
            self.released.wait(self.seconds)
        else:
            for _ in range(20):
                await asyncio.sleep(0)
        return ToolResult("fine")


def vector(tools: Any, tool_timeout: float) -> Any:
    env = gymnasium.make_vec(
        drv_env.ENV_ID, num_envs=4, tasks=TASKS, tools=tools, tool_timeout=tool_timeout
    )
    env.reset(options={"tasks": TASKS})
    return env


def test_a_tool_that_blocks_the_loop_for_ever_costs_its_own_env_alone(
    warned: Callable[[], list[str]],
) -> None:
    released = threading.Event()
    env = vector(Blocks(released, None), 0.2)
    for _ in range(2):
        shown, _, _, _, infos = env.step([SEARCH] * 4)
        assert list(infos["tool_status"]) == ["failed", "ok", "ok", "ok"]
        assert "held up the event loop" in shown[0]
    (said,) = warned()
    assert "'search'" in said
    released.set()
    env.close()


def test_a_tool_that_blocks_past_its_time_has_failed_and_the_others_get_the_time_back(
    warned: Callable[[], list[str]],
) -> None:
    async def both(tools: Blocks) -> list[ToolResult]:
        tasks = [Task(question, (answer,)) for question, answer in TASKS]
        return await asyncio.gather(
            *(
                drv_env.play.run_call(tools, Call(Search(("x",)), task), 0.1)
                for task in (tasks[1], tasks[0], tasks[2])
            )
        )

    found = asyncio.run(both(Blocks(threading.Event(), 0.5)))
    assert [item.status for item in found] == [Status.OK, Status.FAILED, Status.OK]
    assert found[1].data["reason"].startswith("no reply within 0.1 seconds: it held up")
    assert len(warned()) == 1


def test_a_tool_that_swallows_its_cancellation_is_closed_and_named_once(
    warned: Callable[[], list[str]],
) -> None:
    closed = threading.Event()

    class Swallows(FakeTools):
        instant = False

        async def call(self, call: Call) -> ToolResult:
            try:
                while True:
                    with suppress(asyncio.CancelledError):
                        await asyncio.Event().wait()
            finally:
                closed.set()

    env = gymnasium.make(drv_env.ENV_ID, tasks=TASKS[:1], tools=Swallows(), tool_timeout=0.05)
    env.reset()
    for _ in range(2):
        info = env.step(SEARCH)[4]
        assert info["tool_status"] == "failed"
        assert closed.is_set()
    (said,) = warned()
    assert "'search'" in said
    assert "cancelled" in said
    env.close()


@pytest.mark.parametrize("how", ["returns", "raises", "goes on"])
def test_a_cancellation_from_outside_is_not_for_the_tool_to_swallow(how: str) -> None:
    begun = asyncio.Event()

    class Swallows(FakeTools):
        async def call(self, call: Call) -> ToolResult:
            begun.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            while how == "goes on":
                with suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()
            if how == "raises":
                raise OSError("reset")
            return ToolResult("x")

    async def outside() -> bool:
        call = Call(Search(("x",)), Task("Q?", ("A",)))
        work = asyncio.create_task(drv_env.play.run_call(Swallows(), call, 0.2))
        await begun.wait()
        work.cancel()
        await asyncio.wait([work])
        return work.cancelled()

    assert asyncio.run(outside())


def test_a_part_that_a_tool_cancels_by_itself_is_its_own_affair() -> None:
    class Hurries(FakeTools):
        async def call(self, call: Call) -> ToolResult:
            try:
                async with asyncio.timeout(0.01):
                    await asyncio.Event().wait()
            except TimeoutError:
                await asyncio.sleep(0.05)
            return ToolResult("late, but there")

    call = Call(Search(("x",)), Task("Q?", ("A",)))
    found = asyncio.run(drv_env.play.run_call(Hurries(), call, 30.0))
    assert (found.status, found.text) == (Status.OK, "late, but there")


def test_an_instant_tool_that_takes_its_time_has_failed(warned: Callable[[], list[str]]) -> None:
    class Slow(Blocks):
        instant = True

    env = vector(Slow(threading.Event(), 0.3), 0.1)
    infos = env.step([SEARCH] * 4)[4]
    assert infos["tool_status"][0] == "failed"
    assert any("instant" in said for said in warned())


# ---- closing ------------------------------------------------------------------------------


class Closes(FakeTools):
    def __init__(self, how: str, released: threading.Event) -> None:
        super().__init__()
        self.how, self.released = how, released

    async def close(self) -> None:
        self.closed += 1
        if self.how == "raises":
            raise OSError("the socket is gone")
        if self.how == "waits":
            await asyncio.Event().wait()
        if self.how == "swallows":
            while True:
                with suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()
        if self.how == "blocks":
            self.released.wait()


@pytest.mark.parametrize("how", ["raises", "waits", "swallows", "blocks"])
def test_closing_ends_and_warns(
    how: str, warned: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drv_env.tools.closing, "CLOSE_SECONDS", 0.1)
    released = threading.Event()
    tools = Closes(how, released)
    gymnasium.make(drv_env.ENV_ID, tasks=TASKS[:1], tools=tools).close()
    assert any("close()" in said for said in warned())
    if how != "blocks":
        asyncio.run(close_tools(tools))
        gymnasium.make_vec(drv_env.ENV_ID, num_envs=2, tasks=TASKS, tools=tools).close()
        assert tools.closed == 3
    released.set()


# ---- anything, at random ------------------------------------------------------------------


def odd_value(random: random.Random, depth: int = 0) -> Any:
    plain = [None, True, 0, -1, 2**70, 0.5, -0.5, float("nan"), float("inf"), "x", "\ud800", ""]
    odd = [b"x", {1}, object(), Unprintable(), Text("y"), Number(2.0), np.float32(1), cyclic()]
    if depth < 4 and random.random() < 0.4:
        items = [odd_value(random, depth + 1) for _ in range(random.randrange(3))]
        keys = [random.choice(["a", "b", "", 1, None, ("a",)]) for _ in items]
        return random.choice([items, tuple(items), dict(zip(keys, items, strict=True))])
    return random.choice(random.choice([plain, odd]))


def odd_result(random: random.Random) -> Any:
    if random.random() < 0.4:
        made = {name: make for name, make in (RESULTS | ERRORS).items() if name not in HEAVY}
        return random.choice([*made.values()])()
    return ToolResult(
        odd_value(random) if random.random() < 0.2 else "text",
        odd_value(random) if random.random() < 0.2 else random.choice([*Status]),
        odd_value(random),
        odd_value(random) if random.random() < 0.3 else 0.0,
        odd_value(random) if random.random() < 0.3 else 0.0,
    )


HEAVY = ("data too many", "10 MB", "data very deep")  # once each, above
FUZZED = 2_000


def test_whatever_a_tool_does_a_step_is_a_step() -> None:
    chosen = random.Random(7)
    for instant in (True, False):
        tools = Gives(lambda: odd_result(chosen), instant)
        env = gymnasium.make_vec(drv_env.ENV_ID, num_envs=2, tasks=TASKS, tools=tools)
        env.reset(options={"tasks": TASKS[:2]})
        for _ in range(FUZZED // 2):
            infos = env.step([SEARCH, SEARCH])[4]
            assert infos["tool_status"][1] == "ok"
            assert infos["tool_status"][0] in ("ok", "empty", "refused", "failed")
            assert infos["cost"][0] >= 0.0
            env.reset(options={"tasks": TASKS[:2]})
        env.close()
