"""Gains and old log-probs of played episodes: the model's one pass, and the engine's probes."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from agents.engines.scripted import ScriptedEngine
from agents.engines.transformers import TransformersEngine
from drv_env import background
from drv_env.episode import Ending
from replay.chat_templates import CHATML
from replay.probe import answer_probe
from replay.sft_rows import transcribe
from replay.template import ChatTemplate
from replay.transcript import Transcript
from tests.replay.test_probe import qwen_like
from trainers.information_gain import (
    GainSettings,
    ModelScores,
    best_values,
    score_item,
    score_with_model,
    with_gains,
)
from trainers.log_probs import token_log_probs
from trainers.tiny import IM_END


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """The model is too small to be shared out."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model(tiny_game):
    """Random, with weights large enough for what stands before to matter."""
    found = tiny_game.model()
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in found.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.2)
    return found


@pytest.fixture(scope="module", params=["opens think", "does not"])
def template(request, tiny_game) -> ChatTemplate:
    if request.param == "opens think":
        assert tiny_game.template.opens_think
        return tiny_game.template
    found = ChatTemplate(tiny_game.template.pieces.tokenizer, CHATML, {"eos_token": IM_END})
    assert not found.opens_think
    return found


@pytest.fixture(scope="module")
def played(tiny_game, template):
    """Ragged episodes, the expert's, with a second gold answer each."""
    found = [
        dataclasses.replace(
            item,
            transcript=transcribe(item, template),
            task=dataclasses.replace(item.task, answers=(*item.task.answers, "nobody knows")),
        )
        for item in tiny_game.expert[:5]
    ]
    assert len({len(item.transcript) for item in found}) > 1
    assert sum(len(item.scored_turns(("visit",))) for item in found) >= 5
    return found


def gains_of(trajectories) -> list[float | None]:
    return [reward.information_gain for item in trajectories for reward in item.rewards]


def assert_same(found, expected):
    assert [value is None for value in found] == [value is None for value in expected]
    np.testing.assert_allclose(
        [value for value in found if value is not None],
        [value for value in expected if value is not None],
        atol=1e-5,
        rtol=0,
    )


def value_by_hand(model, template, ids, answer) -> float:
    """Mean log-prob of the answer's ids behind the history, from one whole forward."""
    probe = answer_probe(template, answer)
    whole = np.concatenate([ids, probe.ids]).astype(np.int64)
    with torch.no_grad():
        logits = model(input_ids=torch.from_numpy(whole)[None]).logits[0].double()
    first = len(ids) + probe.answer_start
    log_probs = logits.log_softmax(-1)
    return float(np.mean([log_probs[at - 1, whole[at]] for at in range(first, len(whole))]))


@pytest.mark.parametrize("answers", ["first", "best"])
def test_gains_are_those_of_whole_forwards(model, template, played, answers):
    expected: list[float | None] = []
    for item in played:
        gold = item.task.answers if answers == "best" else item.task.answers[:1]
        before = None
        own: dict[int, float] = {}
        for turn in (0, *item.scored_turns(("visit",))):
            ids = item.transcript.ids[: item.transcript.history_end(turn)]
            value = max(value_by_hand(model, template, ids, answer) for answer in gold)
            if before is not None:
                own[turn] = value - before
            before = value
        expected += [own.get(turn) for turn in range(1, len(item.turns) + 1)]
    assert sum(value is not None and abs(value) > 1e-3 for value in expected) >= 4
    for method in ("packed", "sequential", "plain", "auto"):
        found = score_with_model(
            played, model, template, GainSettings(answers=answers), method=method
        )
        assert_same(gains_of(found.trajectories), expected)


def test_a_failed_call_is_scored_where_the_settings_say_so(model, template, played):
    item = played[0]
    turn = item.scored_turns(("visit",))[0]
    turns = list(item.turns)
    turns[turn - 1] = dataclasses.replace(turns[turn - 1], tool_status="failed")
    failed = dataclasses.replace(item, turns=tuple(turns))
    without, withal = (
        score_with_model([failed], model, template, GainSettings(failed=each)).trajectories[0]
        for each in (False, True)
    )
    assert without.rewards[turn - 1].information_gain is None
    assert withal.rewards[turn - 1].information_gain is not None
    assert_same(
        gains_of([withal]), gains_of(score_with_model([item], model, template).trajectories)
    )


@pytest.mark.parametrize(("closed", "last"), [(False, "."), (True, ".\n")])
def test_the_answers_last_token_is_as_the_settings_say(tiny_game, closed, last):
    template, asked = qwen_like(), []

    class Recording(ScriptedEngine):
        async def score(self, ids, spans):
            asked.append(ids)
            return await super().score(ids, spans)

    item = tiny_game.expert[0]
    task = dataclasses.replace(item.task, answers=("J.K.",))
    item = dataclasses.replace(item, task=task, transcript=transcribe(item, template))
    engine = Recording(lambda text: text, template)
    with_gains([item], engine, template, GainSettings(closed=closed, probe="<answer>\n"))
    assert len(asked) == 1 + len(item.scored_turns(("visit",)))
    for ids in asked:
        assert template.pieces.decode(ids[-1:]) == last
        assert template.pieces.decode(ids).endswith(f"<answer>\nJ.K{last}")


def test_the_engine_finds_the_same_gains(model, template, played):
    engine = TransformersEngine(model, slots=8, max_context=512)
    try:
        asked = with_gains(played, engine, template, GainSettings(answers="best"))
    finally:
        background.run(engine.close())
    found = score_with_model(played, model, template, GainSettings(answers="best"))
    assert_same(gains_of(found.trajectories), gains_of(asked))


@pytest.mark.parametrize("tools", [("visit",), ("search",), ("search", "visit")])
def test_gains_of_probabilities_behind_the_tools_that_are_named(model, template, played, tools):
    expected: list[float | None] = []
    for item in played:
        own: dict[int, float] = {}
        before = None
        for turn in (0, *item.scored_turns(tools)):
            ids = item.transcript.ids[: item.transcript.history_end(turn)]
            value = math.exp(value_by_hand(model, template, ids, item.task.answers[0]))
            if before is not None:
                own[turn] = value - before
            before = value
        expected += [own.get(turn) for turn in range(1, len(item.turns) + 1)]
        called = {turn for turn, each in enumerate(item.turns, 1) if each.action in tools}
        assert own.keys() == called - {len(item.turns)}
    settings = GainSettings(tools=tools, kind="prob_diff")
    assert_same(
        gains_of(score_with_model(played, model, template, settings).trajectories), expected
    )
    engine = TransformersEngine(model, slots=8, max_context=512)
    try:
        assert_same(gains_of(with_gains(played, engine, template, settings)), expected)
    finally:
        background.run(engine.close())


def test_log_probs_are_those_of_the_update_turn_by_turn(model, template, played):
    found = score_with_model(played, model, template)
    for item, log_probs in zip(played, found.log_probs, strict=True):
        spans = [span for span in item.transcript.spans if span.kind == "completion"]
        assert [len(turn) for turn in log_probs] == [span.stop - span.start for span in spans]
        ids = torch.from_numpy(item.transcript.ids.astype(np.int64))[None]
        with torch.no_grad():
            wanted, _ = token_log_probs(model, ids, torch.from_numpy(item.transcript.mask())[None])
        np.testing.assert_allclose(np.concatenate(log_probs), wanted.numpy(), atol=1e-5)


def test_an_episode_of_one_turn_has_log_probs_and_no_gain(model, template, played):
    first = played[0]
    span = first.transcript.spans[1]
    short = Transcript(template)
    short.prompt(first.opening)
    short.completion(first.transcript.ids[span.start : span.stop])
    single = dataclasses.replace(
        first, turns=first.turns[:1], rewards=first.rewards[:1], transcript=short
    )
    found = score_with_model([single, played[1]], model, template)
    assert gains_of(found.trajectories[:1]) == [None]
    assert len(found.log_probs[0]) == 1
    together = score_with_model(played[:2], model, template)
    np.testing.assert_allclose(found.log_probs[0][0], together.log_probs[0][0], atol=1e-5)


def test_broken_episodes_come_back_as_they_are(model, template, played):
    broken = dataclasses.replace(played[0], ending=Ending.BROKEN, transcript=None)
    found = score_with_model([broken, played[1]], model, template)
    assert found.trajectories[0] is broken
    assert found.log_probs[0] is None
    assert_same(
        gains_of(found.trajectories[1:]),
        gains_of(score_with_model(played[1:2], model, template).trajectories),
    )
    with pytest.raises(ValueError, match="no transcript"):
        score_with_model([dataclasses.replace(played[0], transcript=None)], model, template)


def test_a_model_that_has_blown_up_gives_no_gains(model, template, played):
    with torch.no_grad():
        kept = model.model.norm.weight.clone()
        model.model.norm.weight.fill_(math.nan)
        try:
            found = score_with_model(played[:2], model, template)
        finally:
            model.model.norm.weight.copy_(kept)
    assert set(gains_of(found.trajectories)) == {None}


def test_an_item_has_every_probe_behind_every_history(template, played):
    transcript = played[0].transcript
    probes = [answer_probe(template, answer) for answer in ("one", "some more words")]
    ends = [transcript.history_end(0), transcript.history_end(1)]
    item = score_item(transcript, ends, probes)
    assert [branch.end for branch in item.branches] == [ends[0], ends[0], ends[1], ends[1]]
    for branch, probe in zip(item.branches, probes * 2, strict=True):
        np.testing.assert_array_equal(branch.ids, probe.ids)
        assert np.flatnonzero(branch.scored).tolist() == list(
            range(probe.answer_start, len(probe.ids))
        )


def test_the_best_of_values_that_are_there():
    assert best_values([-1.0, -2.0], 1) == [-1.0, -2.0]
    assert best_values([-1.0, None, None, None], 2) == [-1.0, None]


def test_log_probs_of_those_that_are_chosen_are_turn_behind_turn():
    turns = [np.array(values, np.float32) for values in ([-1.0, -2.0], [-3.0])]
    scores = ModelScores([], [turns, None, []])
    assert [found.tolist() for found in scores.of([2, 0])] == [[], [-1.0, -2.0, -3.0]]
    with pytest.raises(ValueError, match="trajectory 1 broke"):
        scores.of([1])
