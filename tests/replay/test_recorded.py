"""Recorded chat messages become trajectories and tokens, to the byte."""

import os
from pathlib import Path
from typing import get_args

import pytest

from drv_env import Ending, Rules, Task, TaskDataError
from drv_env.env import DeepResearchEnv
from drv_env.episode import Budget
from drv_env.prompts import answer_request, malformed
from drv_env.protocol import Search, render_turn
from drv_env.testing import FakeTools
from replay.chat_templates import CHATML, QWEN3_THINKING
from replay.recorded import (
    NO_GOLD,
    body_of,
    calls_of,
    from_messages,
    recording_id,
    rule_of,
    to_messages,
)
from replay.sft_rows import transcribe
from replay.sources import open_trajectories
from replay.template import ChatTemplate
from replay.trajectory import Trajectory
from tests.replay import recordings as made


def completions(transcript):
    return [span for span in transcript.spans if span.kind == "completion"]


def check_mask(trajectory, template):
    """The masked ids decode to the assistant's texts and their end tokens, and to no more."""
    transcript = transcribe(trajectory, template)
    mask = transcript.mask()
    spans = completions(transcript)
    assert len(spans) == len(trajectory.turns)
    assert mask.sum() == sum(span.stop - span.start for span in spans)
    prefix = template.generation_prefix
    for span, turn in zip(spans, trajectory.turns, strict=True):
        assert mask[span.start : span.stop].all()
        assert transcript.ids[span.stop - 1] == template.end_of_turn
        text = template.pieces.decode(transcript.ids[span.start : span.stop - 1])
        # The template has opened the thought, in its own spacing; the rest is the turn's.
        assert turn.text in (prefix + text, prefix.rstrip() + text)
    return transcript


@pytest.mark.parametrize("messages", [made.spaced(), made.tight()], ids=["spaced", "tight"])
def test_messages_come_back(messages):
    trajectory = from_messages(messages, ["Enki"])
    assert to_messages(trajectory) == messages
    assert trajectory.ending is Ending.ANSWERED
    assert trajectory.rewards[-1].outcome is None


@pytest.mark.parametrize("source", [CHATML, QWEN3_THINKING], ids=["chatml", "qwen3"])
@pytest.mark.parametrize("messages", [made.spaced(), made.tight()], ids=["spaced", "tight"])
def test_the_mask_is_the_agents_tokens(bpe, source, messages):
    check_mask(from_messages(messages), ChatTemplate(bpe, source))


def test_without_a_generation_prefix_the_masked_text_is_the_turn(bpe):
    template = ChatTemplate(bpe, CHATML)
    trajectory = from_messages(made.tight())
    transcript = transcribe(trajectory, template)
    texts = [
        template.completion_text(transcript.ids[span.start : span.stop])
        for span in completions(transcript)
    ]
    assert texts == [turn.text for turn in trajectory.turns]


def test_statuses_are_judged_by_the_observations():
    trajectory = from_messages(made.tight())
    statuses = [turn.tool_status for turn in trajectory.turns]
    assert statuses == ["ok", "failed", "ok", "ok", None]
    assert [turn.duplicate for turn in trajectory.turns] == [False, False, True, True, False]
    nothing = made.chat(made.call("search", query=["x"]), made.search_result("x"), made.answer())
    assert from_messages(nothing).turns[0].tool_status == "empty"


def test_turns_of_the_env_read_alike_from_messages():
    env = DeepResearchEnv(
        [Task("Who?", ("Ada",))], FakeTools(), rules=Rules(max_turns=4, system_prompt="S")
    )
    env.reset(seed=0)
    search = render_turn("Look.", Search(("x",)))
    refused = '<think>t</think><tool_call>{"name": "visit", "arguments": {}}</tool_call>'
    rewards = [
        env.step(turn)[4]["turn_reward"]
        for turn in (search, "nonsense", refused, search, made.answer("Ada"))
    ]
    played = Trajectory.of(env.episode, rewards)
    again = from_messages(to_messages(played), ["Ada"])
    assert again.ending is played.ending is Ending.FORCED_TURNS
    assert again.answer == played.answer
    for mine, theirs in zip(again.turns, played.turns, strict=True):
        for name in ("text", "action", "problem", "well_formed", "observation_kind"):
            assert getattr(mine, name) == getattr(theirs, name), name


def test_a_request_for_the_answer_is_recognised():
    messages = made.chat(made.call("search", query=["x"]), answer_request("context"), made.answer())
    trajectory = from_messages(messages)
    assert trajectory.ending is Ending.FORCED_CONTEXT
    assert trajectory.turns[0].observation_kind == "budget"
    assert trajectory.turns[0].tool is None


def test_a_recording_may_stop_anywhere():
    messages = made.spaced()
    assert from_messages(messages[:-1]).ending is Ending.NO_ANSWER
    assert from_messages(messages[:-2]).turns[-1].observation is None


def test_gold_answers_may_be_unknown():
    assert from_messages(made.spaced()).task.answers == (NO_GOLD,)


def test_observations_without_their_wrapper_keep_their_text():
    assert body_of("<tool_response>x</tool_response>") == "x"
    assert body_of("bare\ntext ") == "bare\ntext "


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "a question and a turn"),
        (made.chat(), "a question and a turn"),
        ([{"role": "user", "content": "q"}, {"role": "tool", "content": "x"}], "role 'tool'"),
        ([{"role": "user", "content": None}], "no role and text"),
        (made.chat(made.answer(), question=" "), "blank"),
        ([*made.chat(), *made.chat()], "expected 'assistant'"),
    ],
)
def test_what_is_no_recording_is_refused(messages, said):
    with pytest.raises(TaskDataError, match=said):
        from_messages(messages)


def test_an_id_is_of_what_was_said():
    one, other = from_messages(made.spaced()), from_messages(made.tight())
    assert recording_id(one) == recording_id(from_messages(made.spaced(), provenance={"row": 3}))
    assert recording_id(one) != recording_id(other)


@pytest.mark.skipif("DRV_DATA" not in os.environ, reason="set DRV_DATA to real trajectories")
@pytest.mark.parametrize("name", ["trajectories_sft", "trajectories_rl_rollout"])
def test_the_mask_is_right_on_real_trajectories(bpe, name):
    file = Path(os.environ["DRV_DATA"]) / f"{name}.parquet"
    exact, opened = ChatTemplate(bpe, CHATML), ChatTemplate(bpe, QWEN3_THINKING)
    for trajectory in open_trajectories([file]):
        transcript = check_mask(trajectory, exact)
        for span, turn in zip(completions(transcript), trajectory.turns, strict=True):
            ids = transcript.ids[span.start : span.stop]
            assert exact.completion_text(ids) == turn.text
        check_mask(trajectory, opened)


BARE = '<tool_call>\n{"name": "search", "arguments": {"query": ["x"]}}\n</tool_call>'


@pytest.mark.parametrize("thought_optional", [False, True])
@pytest.mark.parametrize("budget", get_args(Budget))
def test_every_budgets_request_is_known_again(budget, thought_optional):
    request = answer_request(budget, thought_optional)
    turn = "hello" if budget == "unreadable" else made.call("search", query=["x"])
    ending = Ending(f"forced_{budget}")
    assert from_messages(made.chat(turn, request, made.answer("A"))).ending is ending
    unanswered = from_messages(made.chat(turn, request, "no")).ending
    assert unanswered is (ending if budget == "unreadable" else Ending.NO_ANSWER)
    assert from_messages(made.chat(turn, request, made.answer("A"))).turns[0].observation_kind == (
        "budget"
    )


def test_turns_without_a_thought_are_read_where_they_were_carried_out():
    played = from_messages(made.chat(BARE, "found", "<answer>A</answer>"))
    assert (played.turns[0].tool, played.answer, played.ending) == ("search", "A", Ending.ANSWERED)
    assert [turn.well_formed for turn in played.turns] == [True, True]
    assert [action for _, action, _ in calls_of(played)] == [Search(("x",))]
    at_once = from_messages(made.chat("<answer>A</answer>"))
    assert (at_once.ending, rule_of(at_once)) == (Ending.ANSWERED, "thought_optional")
    for said in (malformed("no"), answer_request("turns")):
        refused = from_messages(made.chat(BARE, said, "<answer>A</answer>"))
        assert refused.turns[0].tool is None
    assert refused.ending is Ending.NO_ANSWER
    for said in (malformed("no", True), answer_request("turns", True)):
        assert rule_of(from_messages(made.chat("no", said, BARE))) == "thought_optional"
    assert rule_of(from_messages(made.spaced())) == "default"
