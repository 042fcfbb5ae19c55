"""Stop texts in rollouts: they end a turn behind its action, and cut nothing of it."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agents.engines.base import Sampling
from agents.engines.scripted import ScriptedEngine
from agents.engines.turn_stops import is_cut, stop_end, with_stop, without_stop
from agents.rollout import rollout
from drv_env import Rules, Task
from drv_env.game import Game
from drv_env.protocol import Answer, Search, read_turn, render_turn
from drv_env.testing import FakeTools

TASKS = [Task("Who?", ("X",))]
INVENTED = "\n<tool_response>\nno\n</tool_response>\n<think>\nso\n</think>\n<answer>\nY\n</answer>"
QUOTING = "<think>\nThe <tool_response> holds </tool_call>, é and </answer>.\n</think>\n"
CALL = '<tool_call>\n{"name": "search", "arguments": {"query": ["%s"]}}\n</tool_call>'
STOPS = ("<tool_response>", "</tool_call>")


def played(template, turn, stops, stop_ids=(), **rules):
    """The first turn of an episode, and what the engine was asked."""
    engine = ScriptedEngine(lambda text: turn, template)
    game = Game(TASKS, FakeTools(), rules=Rules(system_prompt="", max_turns=1, **rules))
    sampling = Sampling(2000, stop_ids=stop_ids, stop=stops)
    (found,) = asyncio.run(rollout(game, engine, template, TASKS, sampling))
    first = [call.sampling for call in engine.calls if len(call.ids) == len(engine.calls[0].ids)]
    return found, first


@pytest.mark.parametrize("stops", [STOPS, STOPS[:1], STOPS[1:]])
@pytest.mark.parametrize(
    "turn",
    [
        "<think>\nI search.\n</think>\n" + CALL % "mill",
        QUOTING + CALL % "mill",
        "<think>\nI search.\n</think>\n" + CALL % "what is <tool_response> or </tool_call>",
        QUOTING + "<answer>\nthe <tool_response> tag\n</answer>",
    ],
)
def test_a_turn_is_cut_behind_its_action_alone(template, turn, stops):
    trajectory, asked = played(template, turn + INVENTED, stops)
    text = trajectory.turns[0].text
    action = read_turn(turn).action
    assert action is not None
    assert read_turn(text).action == action
    assert text.startswith(turn)
    ends = [stop for stop in stops if stop in INVENTED or turn.endswith(stop)]
    after = INVENTED if not ends else text.removeprefix(turn)
    assert text == turn + after
    assert not ends or after.strip() in ("", "<tool_response>")
    assert asked[0].stop == stops
    assert [sampling.stop for sampling in asked[1:]] in ([], [()])
    assert len({sampling.seed for sampling in asked}) == 1
    spans = [span for span in trajectory.transcript.spans if span.kind == "completion"]
    ids = trajectory.transcript.ids[spans[0].start : spans[0].stop]
    assert template.completion_text(ids) == text
    assert len(trajectory.transcript.log_probs[0]) == len(ids)


def test_a_turn_that_the_model_ended_itself_is_not_asked_for_again(template):
    """It has no action either, but no stop text cut it."""
    trajectory, asked = played(template, "<think>\nI stop here", STOPS, template.stop_ids)
    assert trajectory.turns[0].text == "<think>\nI stop here"
    assert len(asked) == 1


def test_the_released_reading_ends_a_turn_at_any_mention(template):
    trajectory, asked = played(template, QUOTING + CALL % "mill", STOPS, reading="released")
    assert trajectory.turns[0].text == "<think>\nThe <tool_response>"
    assert len(asked) == 1


WORDS = st.lists(
    st.sampled_from([*STOPS, "</think>", "<answer>", '"', "\\", "`", " ", "so", "\n", "{"]),
    max_size=5,
).map("".join)


@given(WORDS, WORDS, st.booleans(), st.sampled_from(["", INVENTED]))
@example("<tool_response>", "</tool_call>", True, INVENTED)
@settings(deadline=None, max_examples=200)
def test_stop_texts_never_cut_what_the_reader_would_have_read(thought, inside, calls, more):
    thought = thought.replace("</think>", "")
    action = Search((f"x{inside}x",)) if calls else Answer(f"x{inside}x")
    whole = render_turn(thought, action) + more
    want = read_turn(whole).action
    assert want is not None
    for stops in (STOPS, STOPS[:1], STOPS[1:]):
        found = [(whole.find(stop), stop) for stop in stops if stop in whole]
        at, stop = min(found, default=(len(whole), ""))
        sampled = whole[: at + len(stop)]  # as an engine ends it
        if stop and is_cut(sampled):
            sampled = whole[: stop_end(whole, stops)]
        assert read_turn(sampled).action == want
        said = with_stop(whole[:at], stops)  # as a server gives it
        if stop and is_cut(said):
            said = without_stop(whole, stops)
        assert read_turn(said).action == want
