"""The layer that records and replays tool calls."""

import asyncio
import json
import pickle
from pathlib import Path

import pytest

from drv_env import DeepResearchEnv
from drv_env.cassette import CassetteError, CassetteStore, Recorded
from drv_env.errors import SettingError, ToolError
from drv_env.play import run_call
from drv_env.protocol import Search, ToolCall, Visit
from drv_env.secrets import Secret
from drv_env.tasks import Task
from drv_env.testing import FakeTools, ManualClock, failing
from drv_env.tools import Call, Status, ToolResult, Tools, ToolSchema, still_clock
from drv_env.tools.cassette import CassetteTools, call_arguments
from drv_env.tools.offline import OfflineTools
from drv_env.worlds import WorldRecipe, questions

TASK = Task("What?", ("that",))
SEARCH = Call(Search(("lighthouse",)), TASK)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cassette.sqlite"


def ask(tools: Tools, *calls: Call, through: bool = False) -> list[ToolResult]:
    """Make calls one after another, and close."""

    async def play() -> list[ToolResult]:
        try:
            if through:
                return [await run_call(tools, call, 30) for call in calls]
            return [await tools.call(call) for call in calls]
        finally:
            await tools.close()

    return asyncio.run(play())


def recordings(path: Path) -> list[str]:
    with CassetteStore(path, read_only=True) as store:
        return [entry.value.text for entry in store.entries()]


def test_it_has_the_face_of_tools(path):
    inner = FakeTools(clock=ManualClock())
    tools = CassetteTools(inner, path)
    assert isinstance(tools, Tools)
    assert tools.schemas == inner.schemas
    assert tools.clock is inner.clock
    assert not getattr(tools, "instant", False)
    ask(tools, SEARCH)
    assert inner.closed == 1
    replay = CassetteTools(inner, path, "replay")
    assert replay.clock is still_clock
    own = (ToolSchema("python", "Run code.", {"type": "object"}),)
    assert CassetteTools(None, path, "replay", schemas=own).schemas == own
    assert [schema.name for schema in CassetteTools(None, path, "replay").schemas] == [
        "search",
        "visit",
    ]


def test_what_was_recorded_is_replayed_without_a_call(path):
    calls = [
        SEARCH,
        Call(Visit(("https://a", "https://b"), "goal"), TASK),
        Call(ToolCall("python", {"code": "1 + 1"}), TASK),
    ]
    inner = FakeTools(
        {
            "search": ToolResult("nothing", Status.EMPTY, {"pages": []}),
            "visit": ToolResult("page", data=[1]),
        }
    )
    live = ask(CassetteTools(inner, path, "record"), *calls)
    replayed = ask(CassetteTools(None, path, "replay"), *calls)
    assert replayed == live
    assert [result.data for result in replayed] == [{"pages": []}, [1], None]
    assert len(inner.calls) == 3


def test_tools_of_ones_own_are_on_offer_again_in_replay(path):
    parameters = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
    schemas = [ToolSchema(name, f"Does {name}.", parameters) for name in ("calc", "never", "zeta")]
    calls = [
        SEARCH,
        *(Call(ToolCall(name, {"x": "1"}), TASK) for name in ("calc", "zeta")),
    ]
    ask(CassetteTools(FakeTools({}, schemas=[*FakeTools({}).schemas, *schemas]), path), *calls)
    with CassetteStore(path) as store:  # and what is no tool
        store.put("verdict", {"question": "Q"}, Recorded("correct"))
    again = CassetteTools(None, path, mode="replay")
    assert [schema.name for schema in again.schemas] == ["search", "visit", "calc", "zeta"]
    assert again.schemas[2] == schemas[0]
    assert [result.status for result in ask(again, *calls)] == [Status.OK] * 3


def test_record_makes_every_call_and_the_newest_stands(path):
    inner = FakeTools({"search": ["one", "two", "three"]})
    live = ask(CassetteTools(inner, path, "record"), SEARCH, SEARCH, SEARCH)
    assert [result.text for result in live] == ["one", "two", "three"]
    assert recordings(path) == ["three"]


def test_replay_or_record_makes_only_the_calls_that_are_missing(path):
    inner = FakeTools({"search": ["one", "two"], "visit": "page"})
    visit = Call(Visit(("https://a",), "goal"), TASK)
    results = ask(CassetteTools(inner, path), SEARCH, SEARCH, visit, SEARCH)
    assert [result.text for result in results] == ["one", "one", "page", "one"]
    assert len(inner.calls) == 2


def test_the_originals_time_and_cost_are_kept_and_not_charged_again(path):
    clock = ManualClock()
    inner = FakeTools({"search": ToolResult("hits", cost=0.25)}, latency=2.0, clock=clock)
    store = CassetteStore(path, clock=ManualClock(1_000.0))
    tools = CassetteTools(inner, store)
    first, again = ask(tools, SEARCH, SEARCH, through=True)
    assert (first.cost, first.latency) == (0.25, 2.0)
    assert (again.cost, again.latency) == (0.0, 0.0)
    original = asyncio.run(tools.recorded(SEARCH))
    assert (original.cost, original.latency, original.recorded_at) == (0.25, 2.0, 1_000.0)
    assert original.provenance == {"task": TASK.id, "turn": 1}
    store.close()
    (direct,) = ask(CassetteTools(None, path, "replay"), SEARCH)
    assert (direct.cost, direct.latency) == (0.0, 2.0)


@pytest.mark.parametrize("mode", ["record", "replay_or_record"])
def test_failures_and_refusals_are_passed_on_and_never_recorded(path, mode):
    refused = ToolResult("not there", Status.REFUSED)
    inner = FakeTools({"search": [failing(), OSError("reset"), refused, "found"]})
    tools = CassetteTools(inner, path, mode)
    results = ask(tools, SEARCH, SEARCH, SEARCH, through=True)
    assert [result.status for result in results] == ["failed", "failed", "refused"]
    assert "reset" in results[1].text
    assert recordings_or_none(path) == []
    assert ask(tools, SEARCH)[0].text == "found"
    assert recordings(path) == ["found"]


def recordings_or_none(path: Path) -> list[str]:
    return recordings(path) if path.exists() else []


@pytest.mark.parametrize("mode", ["record", "replay_or_record"])
def test_a_call_that_took_too_long_is_ended_and_not_recorded(path, mode):
    ended: list[str] = []

    class Hanging(FakeTools):
        async def call(self, call: Call) -> ToolResult:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise
            raise AssertionError

    async def play() -> ToolResult:
        tools = CassetteTools(Hanging(), path, mode)
        result = await run_call(tools, SEARCH, 0.2)
        await tools.close()
        return result

    result = asyncio.run(play())
    assert result.status is Status.FAILED
    assert "within 0.2 seconds" in result.text
    assert ended == ["cancelled"]
    assert recordings_or_none(path) == []


def test_a_missing_recording_is_an_error_that_shows_the_nearest(path):
    tools = CassetteTools(FakeTools(), path)
    ask(tools, *(Call(Search((f"mayor of {name}",)), TASK) for name in ("Oslo", "Lima")))
    replay = CassetteTools(None, path, "replay")
    with pytest.raises(ToolError) as raised:
        ask(replay, Call(Search(("the mayor of Oslo",)), TASK))
    assert str(raised.value) == (
        '{"query":["the mayor of Oslo"]} is not recorded in cassette.sqlite; the nearest recorded '
        'search is {"query":["mayor of Oslo"]} (87% alike)'
    )
    with pytest.raises(ToolError, match="nor is any other visit call"):
        ask(replay, Call(Visit(("https://a",), "mayor"), TASK))
    with pytest.raises(ToolError, match=r"for 'world-1'; .* \(100% alike\)"):
        ask(replay, Call(Search(("mayor of Oslo",)), Task("Q?", ("A",), world="world-1")))
    (result,) = ask(replay, Call(Search(("x" * 5_000 + "\ud800",)), TASK), through=True)
    assert result.status is Status.FAILED
    assert len(result.text) < 1_500
    result.text.encode()


def test_an_expired_recording_is_made_again_and_replaced(path):
    clock = ManualClock(1_000.0)
    inner = FakeTools({"search": ["old", "new", "newer"]})
    store = CassetteStore(path, clock=clock)
    tools = CassetteTools(inner, store, ttl=60)

    async def text() -> str:
        return (await tools.call(SEARCH)).text

    async def play() -> list[str]:
        seen = [await text()]
        for seconds in (60, 1, 60, 1):
            clock.advance(seconds)
            seen.append(await text())
        return seen

    assert asyncio.run(play()) == ["old", "old", "new", "new", "newer"]
    store.close()
    assert recordings(path) == ["newer"]


class Held(FakeTools):
    """Tools that say when they are called, and answer when told to."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)
        self.entered, self.go = asyncio.Event(), asyncio.Event()

    async def call(self, call: Call) -> ToolResult:
        self.entered.set()
        await self.go.wait()
        return await super().call(call)


def test_equal_calls_at_the_same_time_are_made_once(path):
    async def play() -> None:
        inner = Held({"search": [ToolResult("one", cost=0.5), ToolResult("two", cost=0.5)]})
        tools = CassetteTools(inner, path)
        tasks = [asyncio.create_task(tools.call(SEARCH)) for _ in range(5)]
        await inner.entered.wait()
        tasks[0].cancel()
        inner.go.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError)
        assert [result.text for result in results[1:]] == ["one"] * 4
        assert sum(result.cost for result in results[1:]) == 0.5
        assert len(inner.calls) == 1
        await tools.close()

    asyncio.run(play())


def test_equal_calls_share_a_failure_and_the_next_one_tries_again(path):
    async def play() -> None:
        inner = Held({"search": [OSError("reset"), "found"]})
        tools = CassetteTools(inner, path)
        tasks = [asyncio.create_task(tools.call(SEARCH)) for _ in range(3)]
        await inner.entered.wait()
        inner.go.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [str(result) for result in results] == ["reset"] * 3
        assert (await tools.call(SEARCH)).text == "found"
        await tools.close()

    asyncio.run(play())


def test_closing_ends_the_calls_under_way(path):
    async def play() -> ToolResult:
        inner = Held()
        tools = CassetteTools(inner, path)
        waiting = asyncio.create_task(run_call(tools, SEARCH, 30))
        await inner.entered.wait()
        await tools.close()
        await tools.close()
        assert inner.closed == 2
        return await waiting

    assert asyncio.run(play()).status is Status.FAILED
    assert recordings_or_none(path) == []


def test_two_that_record_the_same_give_the_result_that_stands(path):
    async def play() -> None:
        first, second = Held({"search": "mine"}), Held({"search": ToolResult("other", cost=0.5)})
        one, two = CassetteTools(first, path), CassetteTools(second, path)
        tasks = [asyncio.create_task(tools.call(SEARCH)) for tools in (one, two)]
        await first.entered.wait()
        await second.entered.wait()
        first.go.set()
        assert (await tasks[0]).text == "mine"
        second.go.set()
        late = await tasks[1]
        assert (late.text, late.cost) == ("mine", 0.5)
        await one.close()
        await two.close()

    asyncio.run(play())


def test_a_calls_world_keeps_it_apart_unless_a_namespace_is_given(path):
    calls = [Call(Search(("x",)), Task("Q?", ("A",), world=world)) for world in ("a", "b", None)]
    script = {"search": ["one", "two", "three"]}
    results = ask(CassetteTools(FakeTools(script), path), *calls)
    assert [result.text for result in results] == ["one", "two", "three"]
    results = ask(CassetteTools(FakeTools(script), path, namespace="web"), *calls)
    assert [result.text for result in results] == ["one"] * 3


def test_what_makes_two_calls_the_same():
    assert call_arguments(Search((" a", "b"))) == call_arguments(Search(("a", "b ")))
    assert call_arguments(Search(("a", "b"))) != call_arguments(Search(("b", "a")))
    assert call_arguments(Visit(("u", "v"), "g")) != call_arguments(Visit(("v", "u"), "g"))
    assert call_arguments(Visit(("u",), "g")) != call_arguments(Visit(("u",), "h"))
    assert call_arguments(ToolCall("python", {"code": " 1"})) == {"code": " 1"}


@pytest.mark.parametrize("mode", ["record", "replay", "replay_or_record"])
def test_a_pickled_copy_works_alike(path, mode):
    ask(CassetteTools(OfflineTools([WorldRecipe(1)]), path, "record"), SEARCH)
    tools = CassetteTools(OfflineTools([WorldRecipe(1)]), path, mode)
    copy = pickle.loads(pickle.dumps(tools))
    assert copy.mode == mode
    assert ask(copy, SEARCH) == ask(tools, SEARCH)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"mode": "reply"}, "'reply'"),
        ({"tools": None}, "pass tools"),
        ({"tools": None, "mode": "record"}, "pass tools"),
        ({"ttl": 0}, "ttl"),
        ({"ttl": 5, "mode": "replay"}, "replay_or_record"),
    ],
)
def test_settings_that_cannot_work_are_named(path, arguments, named):
    with pytest.raises(SettingError, match=named):
        CassetteTools(**{"tools": FakeTools(), "cassette": path, **arguments})


def test_a_replay_without_its_cassette_says_so_at_once(path):
    with pytest.raises(CassetteError, match=r"no cassette at .*cassette\.sqlite"):
        CassetteTools(None, path, "replay")
    path.write_text("not a cassette, but long enough to be looked at as one" * 20)
    with pytest.raises(CassetteError, match="no SQLite file"):
        CassetteTools(None, path, "replay")


def test_a_cassette_that_cannot_be_written_fails_the_call(path):
    with CassetteStore(path) as store:
        store.put("a", {}, Recorded("t"))
    store = CassetteStore(path, read_only=True)
    (result,) = ask(CassetteTools(FakeTools(), store, "record"), SEARCH, through=True)
    assert result.status is Status.FAILED
    assert "cassette.sqlite" in result.text
    store.close()


def test_an_episode_replays_byte_for_byte_without_its_tools(path):
    recipe = WorldRecipe(3)
    task = questions(recipe.build(), hops=(2,))[0]
    start = task.metadata["entities"][0]
    page = next(page for page in recipe.build().pages.values() if page.title == start)
    turns = [
        _turn("search", {"query": [start, "zzzz"]}),
        _turn("visit", {"url": [page.url, "https://dead"], "goal": task.question}),
        "no call at all",
        _turn("search", {"query": "zzzz"}),
        _turn("search", {"query": [start, "zzzz"]}),
        f"<think>Enough.</think><answer>{task.answers[0]}</answer>",
    ]

    def play(tools: Tools) -> list[object]:
        env = DeepResearchEnv([task], tools)
        try:
            return [env.reset(seed=0), *map(env.step, turns)]
        finally:
            env.close()

    recorded = play(CassetteTools(OfflineTools([recipe], links=2), path, "record"))
    assert play(CassetteTools(None, path, "replay")) == recorded
    assert recorded[-1][1:4] == (1.0, True, False)


def _turn(name: str, arguments: dict[str, object]) -> str:
    call = json.dumps({"name": name, "arguments": arguments})
    return f"<think>Go on.</think><tool_call>{call}</tool_call>"


def test_keys_that_a_tool_gives_back_are_not_recorded(path):
    key = Secret("key-that-comes-back").reveal()
    found = ToolResult(f"page with {key}", data=[{"snippet": f"and {key}", "n": 1}])
    ask(CassetteTools(FakeTools({"search": [found]}), path), SEARCH)
    with CassetteStore(path, read_only=True) as store:
        (entry,) = store.entries()
    assert entry.value.text == "page with ***"
    assert entry.value.data == [{"snippet": "and ***", "n": 1}]


def test_a_call_that_everybody_gave_up_is_not_joined_but_made_anew(path):
    async def play() -> None:
        inner = Held({"search": ["found"]})
        tools = CassetteTools(inner, path)
        given_up = asyncio.create_task(tools.call(SEARCH))
        await inner.entered.wait()
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        inner.go.set()
        assert (await tools.call(SEARCH)).text == "found"
        await tools.close()

    asyncio.run(play())


def test_the_last_of_several_to_give_up_ends_the_call(path):
    async def play() -> None:
        inner = Held({"search": ["found"]})
        tools = CassetteTools(inner, path)
        first, second = (asyncio.create_task(tools.call(SEARCH)) for _ in range(2))
        await inner.entered.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        inner.go.set()
        assert (await second).text == "found"
        assert len(inner.calls) == 1
        await tools.close()

    asyncio.run(play())
