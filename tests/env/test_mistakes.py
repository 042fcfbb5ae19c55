"""Mistakes that a newcomer makes, each with one clear error."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from drv_env import (
    ENV_ID,
    InformationGainReward,
    SettingError,
    Task,
    VectorInformationGainReward,
)
from drv_env.env import DeepResearchEnv
from drv_env.protocol import (
    Search,
    Visit,
    render_observation,
    render_search,
    render_turn,
    search_hits,
)
from drv_env.testing import FakeScorer, FakeTools
from drv_env.tools.offline import OfflineTools
from drv_env.worlds import Page, WorldRecipe

TASKS = [("Who owns the mill?", "Salen")]
PAGE = Page("https://e.org/mill", "Mill", "The owner is Salen.")


def test_an_option_of_reset_that_nobody_reads_is_refused():
    env = DeepResearchEnv(TASKS, FakeTools())
    with pytest.raises(SettingError, match=r"no option 'tasks'; there are: task"):
        env.reset(options={"tasks": TASKS})
    envs = gymnasium.make_vec(ENV_ID, num_envs=2, tasks=TASKS, tools=FakeTools())
    with pytest.raises(
        SettingError, match=r"no option 'task'; there are: tasks, counters, max_turns, reset_mask"
    ):
        envs.reset(options={"task": TASKS[0]})
    envs.reset(options={"tasks": TASKS * 2, "reset_mask": np.array([True, True])})


def test_a_world_that_the_tools_do_not_have_is_named_at_once():
    tools = OfflineTools([WorldRecipe(0), WorldRecipe(1)])
    with pytest.raises(SettingError, match=r"'nowhere'.*world-0, world-1"):
        DeepResearchEnv([Task("Q?", ("A",), world="nowhere")], tools)
    with pytest.raises(SettingError, match="names no world"):
        DeepResearchEnv(TASKS, tools)
    DeepResearchEnv(TASKS, OfflineTools([WorldRecipe(0)]))


def test_pages_need_no_name_of_their_world():
    env = DeepResearchEnv(TASKS, OfflineTools.from_pages([PAGE]))
    env.reset(seed=0)
    observation, *_ = env.step(render_turn("I look.", Visit((PAGE.url,), "owner")))
    assert "Salen" in observation


def test_a_scorer_without_a_method_and_a_tool_without_a_name_are_refused():
    env = DeepResearchEnv(TASKS, FakeTools())
    with pytest.raises(SettingError, match="method score"):
        InformationGainReward(env, lambda messages, answer: 1.0)
    with pytest.raises(SettingError, match="no tool 'vist'"):
        InformationGainReward(env, FakeScorer([0.0]), tools=("vist",))
    envs = gymnasium.make_vec(ENV_ID, num_envs=2, tasks=TASKS, tools=FakeTools())
    with pytest.raises(SettingError, match="no tool 'vist'"):
        VectorInformationGainReward(envs, FakeScorer([0.0]), tools=("vist",))
    with pytest.raises(SettingError, match="at least one value"):
        FakeScorer([])


def test_a_strict_fake_fails_what_is_not_in_its_script():
    env = DeepResearchEnv(TASKS, FakeTools({"https://e.org/a": "found"}, strict=True))
    env.reset(seed=0)
    *_, info = env.step(render_turn("t", Visit(("https://e.org/a",), "x")))
    assert info["tool_status"] == "ok"
    observation, *_, info = env.step(render_turn("t", Visit(("https://e.org/typo",), "x")))
    assert info["tool_status"] == "failed"
    assert "typo" in observation


def test_hits_are_read_off_any_search_observation():
    env = DeepResearchEnv(TASKS, OfflineTools.from_pages([PAGE]))
    env.reset(seed=0)
    found, *_ = env.step(render_turn("t", Search(("mill", "zzz"))))
    assert [hit["url"] for hit in search_hits(found)] == [PAGE.url]
    missed, *_ = env.step(render_turn("t", Search(("zzz",))))
    assert search_hits(missed) == []
    visited, *_ = env.step(render_turn("t", Visit((PAGE.url,), "owner")))
    assert search_hits(visited) == []
    assert search_hits(render_observation(render_search([("x", [])]))) == []
    for odd in ("", "[1, 2]", '[{"web_page_info_list": 3}]', "[" * 100_000):
        assert search_hits(odd) == []
