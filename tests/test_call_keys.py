"""Calls that are one call: what is recorded, kept and counted as a repeat."""

import asyncio
import unicodedata

import pytest

from drv_env.call_keys import call_arguments, call_key, earlier_call_arguments
from drv_env.cassette import CassetteStore, Recorded
from drv_env.episode import Episode, Rules
from drv_env.protocol import Search, ToolCall, Visit, render_turn
from drv_env.tasks import Task
from drv_env.tools.base import Call, ToolResult
from drv_env.tools.cassette import CassetteTools
from drv_env.tools.fake import FakeTools
from drv_env.tools.layers import Cache

TASK = Task("Q?", ("A",))


def nfd(text):
    return unicodedata.normalize("NFD", text)


ONE_CALL = [
    (Search(("Gérard", "방앗간 １９１２")), Search((nfd("Gérard"), nfd(" 방앗간 1912")))),
    (Search(("ﾊﾞﾅﾅ",)), Search(("バナナ ",))),
    (
        Visit(("https://example.org/wiki/北京_Mill",), "gebaut für"),
        Visit(("HTTPS://Example.org:443/wiki/%e5%8c%97%e4%ba%ac_Mill#top",), nfd("gebaut für")),
    ),
    (
        Visit(("https://bücher.example", "u"), "g"),
        Visit(("https://xn--bcher-kva.example/", "u"), "g"),
    ),
]
OTHER_CALLS = [
    (Search(("p < 5",)), Search(("p > 5",))),
    (Search(("Lodz",)), Search(("Łódź",))),
    (Visit(("https://example.org/a",), "g"), Visit(("https://example.org/a/",), "g")),
    (ToolCall("python", {"code": "'é'"}), ToolCall("python", {"code": nfd("'é'")})),
    (ToolCall("python", {"code": "1"}), ToolCall("python", {"code": "１"})),
]


@pytest.mark.parametrize(("one", "other"), ONE_CALL)
def test_spellings_of_one_call(one, other):
    assert call_arguments(one) == call_arguments(other)
    assert call_key(one) == call_key(other)
    assert earlier_call_arguments(one) != earlier_call_arguments(other)


@pytest.mark.parametrize(("one", "other"), OTHER_CALLS)
def test_another_call_stays_another(one, other):
    assert call_arguments(one) != call_arguments(other)
    assert call_key(one) != call_key(other)


@pytest.mark.parametrize(("one", "other"), ONE_CALL)
def test_an_episode_knows_a_repeat_in_any_spelling(one, other):
    episode = Episode(TASK, Rules())
    first = episode.take(render_turn("t", one))
    episode.give(ToolResult("found"))
    assert episode.has_called(other)
    again = episode.take(render_turn("t", other))
    assert (first.duplicate, again.duplicate) == (False, True)


@pytest.mark.parametrize(("one", "other"), ONE_CALL)
def test_what_is_kept_in_memory_is_found_in_any_spelling(one, other):
    async def main():
        cache = Cache(FakeTools({"search": ["1", "2"], "visit": ["1", "2"]}))
        return [(await cache.call(Call(action, TASK))).text for action in (one, other)]

    assert asyncio.run(main()) == ["1", "1"]


@pytest.mark.parametrize(("one", "other"), OTHER_CALLS)
def test_another_call_is_made_anew(one, other):
    async def main():
        cache = Cache(FakeTools({name: ["1", "2"] for name in ("search", "visit", "python")}))
        return [(await cache.call(Call(action, TASK))).text for action in (one, other)]

    assert asyncio.run(main()) == ["1", "2"]


@pytest.mark.parametrize(("one", "other"), ONE_CALL)
def test_a_recording_is_found_in_any_spelling(tmp_path, one, other):
    async def main():
        recorder = CassetteTools(FakeTools({"search": "1", "visit": "1"}), tmp_path / "c")
        await recorder.call(Call(one, TASK))
        await recorder.close()
        tools = CassetteTools(None, tmp_path / "c", "replay")
        results = [await tools.call(Call(action, TASK)) for action in (one, other)]
        await tools.close()
        return [result.text for result in results]

    assert asyncio.run(main()) == ["1", "1"]
    with CassetteStore(tmp_path / "c", read_only=True) as store:
        assert [entry.key for entry in store.entries()] == [call_arguments(one)]


def older_cassette(path, action, text):
    """A cassette whose recording stands under the call's own spelling."""
    with CassetteStore(path) as store:
        store.put("visit", earlier_call_arguments(action), Recorded(text, recorded_at=0.0))


def test_an_older_recording_is_found_under_its_own_spelling(tmp_path):
    action = Visit(("https://Example.org/Łódź#mills",), "g")
    older_cassette(tmp_path / "c", action, "old")

    async def main():
        replay = CassetteTools(None, tmp_path / "c", "replay")
        found = [(await replay.call(Call(action, TASK))).text]
        await replay.close()
        inner = FakeTools({"visit": "new"})
        tools = CassetteTools(inner, tmp_path / "c")
        found.append((await tools.call(Call(action, TASK))).text)
        await tools.close()
        return found, inner.calls

    assert asyncio.run(main()) == (["old", "old"], [])


def test_what_is_recorded_anew_stands_before_an_older_recording(tmp_path):
    action = Visit(("https://Example.org/Łódź#mills",), "g")
    older_cassette(tmp_path / "c", action, "old")

    async def main():
        recorder = CassetteTools(FakeTools({"visit": "new"}), tmp_path / "c", "record")
        await recorder.call(Call(action, TASK))
        await recorder.close()
        replay = CassetteTools(None, tmp_path / "c", "replay")
        found = (await replay.call(Call(action, TASK))).text
        await replay.close()
        return found

    assert asyncio.run(main()) == "new"
