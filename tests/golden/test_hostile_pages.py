"""Pages that broke such systems come through as ordinary characters."""

import time

import pytest

from drv_env import DeepResearchEnv
from drv_env.protocol import (
    Answer,
    Search,
    Visit,
    format_verdict,
    observation_body,
    read_turn,
    render_turn,
)
from drv_env.testing import FakeTools
from drv_env.tools.offline import OfflineTools
from drv_env.worlds import Page
from tests.patience import NOT_QUADRATIC

VISIT = render_turn("t", Visit(("u",), "anything"))
SEARCH = render_turn("t", Search(("red price answer Useful",)))
ANSWER = render_turn("t", Answer("A"))


def test_a_hostile_page_is_shown_unaltered_and_ends_nothing(cases):
    for case in cases("hostile_pages.jsonl"):
        env = DeepResearchEnv([("Q", "A")], FakeTools({"visit": case["text"]}))
        env.reset(seed=0)
        started = time.process_time()
        observation, reward, terminated, truncated, info = env.step(VISIT)
        assert time.process_time() - started < NOT_QUADRATIC
        assert observation_body(observation) == case["text"], case["what"]
        assert (reward, terminated, truncated) == (0.0, False, False)
        assert info["ending"] is None
        assert env.step(ANSWER)[1:3] == (1.0, True)


def test_a_hostile_page_can_be_found_and_opened_offline(cases):
    pages = [Page("u", case["what"], case["text"]) for case in cases("hostile_pages.jsonl")]
    for page in pages:
        env = DeepResearchEnv([("Q", "A")], OfflineTools.from_pages({"own": [page]}))
        env.reset(seed=0)
        started = time.process_time()
        for turn in (SEARCH, VISIT):
            observation, _, terminated, truncated, info = env.step(turn)
            assert info["tool_status"] in ("ok", "empty"), page.title
            assert (terminated, truncated) == (False, False)
            assert observation_body(observation)
        assert time.process_time() - started < NOT_QUADRATIC
        assert env.step(ANSWER)[1] == 1.0


@pytest.mark.parametrize("reading", ["default", "released"])
def test_a_hostile_page_repeated_by_the_agent_has_a_reading(cases, reading):
    for case in cases("hostile_pages.jsonl"):
        for text in (
            case["text"],
            f"<think>{case['text']}</think>{SEARCH[len('<think>t</think>') :]}",
        ):
            read_turn(text, reading)
            format_verdict(text, final=False)
