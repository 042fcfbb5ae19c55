"""Testing an agent against scripted tools: copy this file into your own tests.

The fixtures ``fake_tools`` and ``research_env`` come with drv-env's pytest plugin.  No
keys, no network, no waiting: tools answer from a script and clocks move when told to.
"""

import pytest

from drv_env import FormatPenalty, InformationGainReward
from drv_env.protocol import Answer, Search, Visit, render_turn
from drv_env.testing import FakeScorer, FakeTools, ManualClock, failing

SEARCH = render_turn("I look it up.", Search(("capital of France",)))
VISIT = render_turn("I open the page.", Visit(("https://e.org/france",), "capital"))
ANSWER = render_turn("The page says so.", Answer("Paris"))


def test_an_answer_that_is_right_earns_one(research_env):
    env = research_env(tools=FakeTools({"https://e.org/france": "Paris is the capital."}))
    env.reset(seed=0)
    observation, reward, *_ = env.step(VISIT)
    assert "Paris is the capital." in observation
    assert reward == 0.0
    _, reward, terminated, truncated, info = env.step(ANSWER)
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert info["ending"] == "answered"


def test_what_the_agent_asked_can_be_checked(research_env, fake_tools):
    env = research_env(tools=fake_tools)
    env.reset(seed=0)
    env.step(SEARCH)
    assert [call.action for call in fake_tools.calls] == [Search(("capital of France",))]


def test_a_failing_search_is_told_to_the_agent_and_may_recover(research_env):
    env = research_env(tools=FakeTools({"search": [failing("quota"), "[]"]}))
    env.reset(seed=0)
    observation, *_, info = env.step(SEARCH)
    assert "quota" in observation
    assert info["tool_status"] == "failed"
    *_, info = env.step(SEARCH)
    assert info["tool_status"] == "ok"


def test_an_outage_breaks_the_episode_and_earns_no_zero(research_env):
    env = research_env(tools=FakeTools({"search": OSError("connection reset")}))
    env.reset(seed=0)
    for _ in range(3):
        *_, truncated, info = env.step(SEARCH)
    assert truncated
    assert info["ending"] == "broken"
    assert info["turn_reward"].outcome is None


def test_slow_tools_use_up_the_time_without_taking_any(research_env, fake_tools):
    from drv_env import Rules

    tools = FakeTools(latency=40.0, clock=ManualClock())
    env = research_env(tools=tools, rules=Rules(max_seconds=60.0))
    env.reset(seed=0)
    *_, info = env.step(SEARCH)
    assert info["latency"] == pytest.approx(40.0)
    *_, info = env.step(VISIT)
    assert info["observation_kind"] == "budget"
    *_, info = env.step(ANSWER)
    assert info["ending"] == "forced_time"


def test_rewards_per_turn_with_a_scripted_scorer(research_env):
    env = research_env()
    env = InformationGainReward(env, FakeScorer([-4.0, -1.5]))
    env = FormatPenalty(env, penalty=1.0)
    env.reset(seed=0)
    assert env.step(SEARCH)[1] == 0.0
    assert env.step(VISIT)[1] == pytest.approx(2.5)
    assert env.step("no tags at all")[1] == -1.0
