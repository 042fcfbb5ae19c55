"""Recorded trajectories replay byte for byte, and their pages can be searched."""

import asyncio
import os
import pickle
import unicodedata
from pathlib import Path

import numpy as np
import pytest

from drv_env import Rules, SettingError, Task, ToolError
from drv_env.call_keys import earlier_call_arguments
from drv_env.env import DeepResearchEnv
from drv_env.protocol import Search, Visit, render_turn, search_hits
from drv_env.testing import FakeTools
from drv_env.tools.base import Call, Status
from drv_env.tools.cassette import CassetteTools
from drv_env.tools.layers.cost import CostMeter
from replay.chat_templates import CHATML, QWEN3_THINKING
from replay.recorded import from_messages
from replay.replay_check import check_replay, replay_trajectory
from replay.sft_rows import transcribe
from replay.sources import open_trajectories
from replay.template import ChatTemplate
from replay.trajectory import Trajectory
from replay.web import RecordedWeb, build_web
from tests.replay import recordings as made


def ask(tools, action, world=None):
    return asyncio.run(tools.call(Call(action, Task("Q?", ("A",), world=world))))


def exact(web):
    return RecordedWeb(web, corpus=False, recorded_tools=True)


@pytest.fixture
def both():
    return [from_messages(made.spaced()), from_messages(made.tight())]


@pytest.fixture
def web(tmp_path, both):
    build_web(both, tmp_path / "web")
    return tmp_path / "web"


def test_every_turn_of_every_kind_matches(web, both):
    check = check_replay(both, exact(web))
    assert (check.turns, check.matched, check.whole, check.first) == (6, 6, 2, None)
    assert check.passed


@pytest.mark.parametrize("source", [CHATML, QWEN3_THINKING], ids=["chatml", "qwen3"])
def test_cloning_from_replay_is_cloning_from_the_messages(web, both, bpe, source):
    template = ChatTemplate(bpe, source)
    for trajectory in both:
        recorded = transcribe(trajectory, template)
        replayed = transcribe(replay_trajectory(trajectory, exact(web)).trajectory, template)
        np.testing.assert_array_equal(replayed.ids, recorded.ids)
        np.testing.assert_array_equal(replayed.mask(), recorded.mask())
        assert replayed.spans == recorded.spans


def test_anyone_gets_the_first_result_and_no_failure(web, both):
    tools = RecordedWeb(web)
    first = ask(tools, Search(("founder of Ur",)))
    assert first.text == both[0].turns[0].observation
    read = ask(tools, Visit(("https://e.org/x",), "read"))
    assert read.status is Status.OK
    assert read.text == both[1].turns[3].observation
    plain = CassetteTools(None, web / "cassette", mode="replay")
    assert ask(plain, Search(("founder of Ur",))).text == first.text


def test_what_was_never_asked_is_searched(web):
    tools = RecordedWeb(web)
    found = ask(tools, Search(("Enki founded",)))
    assert "https://e.org/ur" in found.text
    page = ask(tools, Visit(("https://e.org/ur",), "who founded it"))
    assert "Ur was founded by Enki." in page.text
    nowhere = ask(tools, Visit(("https://e.org/none",), "read"))
    assert nowhere.status is Status.EMPTY
    with pytest.raises(ToolError, match="never recorded in web; the nearest"):
        ask(exact(web), Search(("founder of Uruk",)))


def test_a_copy_answers_alike(web):
    tools = RecordedWeb(web, results=1)
    data = pickle.dumps(tools)
    assert len(data) < 1_000
    copy = pickle.loads(data)
    query = Search(("Enki founded",))
    assert ask(copy, query) == ask(tools, query)


MILL = "https://e.org/wiki/Młyn"
SPELLINGS = (
    MILL,
    f"HTTPS://E.org:443/wiki/{unicodedata.normalize('NFD', 'Młyn')}",
    "https://e.org/wiki/M%c5%82yn#history",
)


def visiting(url, goal, text):
    return from_messages(
        made.chat(
            made.call("visit", url=[url], goal=goal),
            made.visit_result(url, goal, text),
            made.answer(),
        )
    )


def test_a_page_in_several_spellings_is_one(tmp_path):
    trajectories = [visiting(url, "who", f"Owner {n}.") for n, url in enumerate(SPELLINGS)]
    stats = build_web(trajectories, tmp_path / "web")
    assert (stats.shared, stats.own, stats.pages) == (1, 2, 1)
    assert check_replay(trajectories, exact(tmp_path / "web")).passed, "each as it was recorded"
    tools = RecordedWeb(tmp_path / "web")
    for url in SPELLINGS:
        assert ask(tools, Visit((url,), "who")).text == trajectories[0].turns[0].observation
        whole = ask(tools, Visit((url,), "owner"))
        assert [f"Owner {n}." in whole.text for n in range(3)] == [True] * 3
    searched = ask(tools, Search((unicodedata.normalize("NFD", "owner młyn"),)))
    assert [hit["url"] for hit in search_hits(searched.text)] == [MILL]


def test_a_web_from_before_calls_had_one_spelling_replays_and_grows(tmp_path, monkeypatch):
    trajectories = [visiting(url, "who", f"Owner {n}.") for n, url in enumerate(SPELLINGS)]
    with monkeypatch.context() as patch:
        patch.setattr("replay.web.call_arguments", earlier_call_arguments)
        build_web(trajectories[1:], tmp_path / "web")
    assert check_replay(trajectories[1:], exact(tmp_path / "web")).passed
    build_web(trajectories, tmp_path / "web")
    assert check_replay(trajectories, exact(tmp_path / "web")).passed


def test_adding_the_same_again_changes_nothing(web, both):
    before = {path.name for path in web.iterdir()}
    stats = build_web(both, web)
    assert stats.shared == 0
    assert {path.name for path in web.iterdir()} == before
    assert check_replay(both, exact(web)).passed


def test_worlds_stay_apart(tmp_path):
    here, there = (
        from_messages(
            made.chat(
                made.call("search", query=["capital"]),
                made.search_result("capital", f"https://{name}.org"),
                made.answer(),
            ),
            world=name,
        )
        for name in ("here", "there")
    )
    build_web([here, there], tmp_path / "web")
    tools = RecordedWeb(tmp_path / "web")
    assert check_replay([here, there], exact(tmp_path / "web")).passed
    assert "https://there.org" in ask(tools, Search(("capital",)), "there").text
    assert "https://here.org" not in ask(tools, Search(("the capital",)), "there").text


def test_other_tools_replay_too(tmp_path):
    messages = made.chat(made.call("calculator", formula="1+1"), "2", made.answer("2"), system=None)
    trajectory = from_messages(messages)
    build_web([trajectory], tmp_path / "web")
    assert check_replay([trajectory], exact(tmp_path / "web")).passed
    offered = [schema.name for schema in RecordedWeb(tmp_path / "web").schemas]
    assert offered == ["search", "visit"]


def test_another_environments_request_to_answer_stays_with_its_trajectory(tmp_path):
    said = "You have reached the maximum context length. Answer now."
    trajectory = from_messages(made.chat(made.call("search", query=["x"]), said, made.answer()))
    build_web([trajectory], tmp_path / "web")
    assert check_replay([trajectory], exact(tmp_path / "web")).passed
    with pytest.raises(ToolError, match="never recorded"):
        ask(RecordedWeb(tmp_path / "web"), Search(("x",)))


def test_results_in_a_form_of_their_own_are_met_again_the_last_before_the_answer_too(tmp_path):
    def story(last):
        turns = (
            made.call("search", query=["mill"]),
            "Doc 1: The mill stands in Ur.",
            made.call("search", query=["Ur"]),
            last,
            made.answer(),
        )
        return [from_messages(made.chat(*turns)), from_messages(made.chat(*turns[2:]))]

    asked = "No tokens are left. Give your final answer."
    found = build_web(story("Doc 1: Ur is a city."), tmp_path / "results")
    tools = RecordedWeb(tmp_path / "results")
    assert ask(tools, Search(("Ur",))).text == "Doc 1: Ur is a city."
    assert (found.calls, found.shared, found.own, found.repeated) == (3, 2, 0, 1)
    found = build_web(story(asked), tmp_path / "asked")
    assert (found.calls, found.shared, found.own, found.repeated) == (3, 1, 2, 0)
    with pytest.raises(ToolError, match="never recorded"):
        ask(RecordedWeb(tmp_path / "asked"), Search(("Ur",)))
    known = (made.call("search", query=["mill"]), made.search_result("mill", "https://e.org"))
    mixed = made.chat(*known, made.call("search", query=["Ur"]), "Stop now.", made.answer())
    build_web([from_messages(mixed)], tmp_path / "known")
    with pytest.raises(ToolError, match="never recorded"):
        ask(RecordedWeb(tmp_path / "known", corpus=False), Search(("Ur",)))


@pytest.mark.parametrize(
    "rules",
    [
        {"max_turns": 3},
        {"max_seconds": 2.0},
        {"max_context": 900},
        {"max_cost": 0.5},
        {"max_unreadable": 1},
        {"max_turns": 3, "reading": "thought_optional"},
        {"max_unreadable": 1, "reading": "thought_optional"},
    ],
)
def test_our_own_episodes_replay_with_errors_and_budgets(tmp_path, rules):
    class Counter:
        def opening(self, messages):
            return 10

        def turn(self, text):
            return 100

        def observation(self, message):
            return 100

    ticks = iter(range(100))
    env = DeepResearchEnv(
        [Task("Who?", ("Ada",))],
        CostMeter(FakeTools(), budget=0) if "max_cost" in rules else FakeTools(),
        rules=Rules(max_turn_tokens=50, **rules),
        counter=Counter(),
        clock=lambda: next(ticks) / 2,
    )
    env.reset(seed=0)
    rewards = []
    turns = ["nonsense", *[render_turn("Look.", Search((f"x{n}",))) for n in range(40)]]
    for turn in turns:
        rewards.append(env.step(turn)[4]["turn_reward"])
        if env.episode.forced is not None:
            break
    rewards.append(env.step(made.answer("Ada"))[4]["turn_reward"])
    trajectory = Trajectory.of(env.episode, rewards)
    assert "budget" in [turn.observation_kind for turn in trajectory.turns]
    build_web([trajectory], tmp_path / "web")
    replay = replay_trajectory(trajectory, exact(tmp_path / "web"))
    assert replay.first is None
    assert replay.trajectory.ending is trajectory.ending
    assert replay.trajectory.outcome == trajectory.outcome == 1.0


def test_the_first_difference_is_told(tmp_path, both):
    messages = made.spaced()
    messages[5]["content"] = messages[5]["content"].replace("Enki", "Anu")
    build_web(both, tmp_path / "web")
    check = check_replay([both[0], from_messages(messages)], exact(tmp_path / "web"))
    assert (check.matched, check.turns, check.whole) == (3, 4, 1)
    assert (check.first.trajectory, check.first.turn) == (1, 2)
    assert "Anu" in check.first.describe()
    assert not check.passed


def test_an_answer_of_the_env_in_other_words_is_told(tmp_path):
    trajectory = from_messages(made.chat("no call at all", "Error: bad format", made.answer()))
    build_web([trajectory], tmp_path / "web")
    check = check_replay([trajectory], exact(tmp_path / "web"))
    assert check.first.reason == "malformed"
    assert check.matched == 0


def test_an_unfinished_web_is_refused(web):
    (web / "web.json").unlink()
    with pytest.raises(SettingError, match="no finished recorded web"):
        RecordedWeb(web)


@pytest.mark.skipif("DRV_DATA" not in os.environ, reason="set DRV_DATA to real trajectories")
@pytest.mark.parametrize("name", ["trajectories_sft", "trajectories_rl_rollout"])
def test_real_trajectories_replay_and_clone_alike(tmp_path, bpe, name):
    file = Path(os.environ["DRV_DATA"]) / f"{name}.parquet"
    trajectories = list(open_trajectories([file]))
    stats = build_web(trajectories, tmp_path / "web")
    tools = exact(tmp_path / "web")
    template = ChatTemplate(bpe, QWEN3_THINKING)
    turns = 0
    for trajectory in trajectories:
        replay = replay_trajectory(trajectory, tools)
        assert replay.first is None
        turns += replay.matched
        recorded = transcribe(trajectory, template)
        replayed = transcribe(replay.trajectory, template)
        np.testing.assert_array_equal(replayed.ids, recorded.ids)
        np.testing.assert_array_equal(replayed.mask(), recorded.mask())
    assert turns == stats.calls > 100
    assert stats.pages > 500
