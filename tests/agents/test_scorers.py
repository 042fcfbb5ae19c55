"""Scorers of engines and of a model's folder, against log-softmaxes taken by hand."""

from __future__ import annotations

import asyncio
import dataclasses
import runpy
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from agents.engines.base import Ids, Spans
from agents.engines.scripted import ScriptedEngine
from agents.scorers import EngineScorer, TransformersScorer, with_scored_gains
from drv_env import ENV_ID, Ending, InformationGainReward, Rules
from drv_env.errors import EngineError, SettingError
from drv_env.protocol import Answer, Search, Visit, render_turn
from drv_env.testing import FakeScorer, FakeTools
from replay.probe import answer_probe
from replay.sft_rows import transcribe, transcribe_messages
from replay.template import ChatTemplate
from replay.trajectory import Trajectory
from replay.transcript import Transcript

PAGES = {"https://e.org/mill": ["Salen owns the mill."], "https://e.org/inn": ["It is shut."]}
BARE = Rules(system_prompt="")
TURNS = [
    render_turn("I search.", Search(("mill",))),
    render_turn("I open it.", Visit(("https://e.org/mill",), "owner")),
    render_turn("And the inn.", Visit(("https://e.org/inn",), "owner")),
    render_turn("Known.", Answer("Salen")),
]


class TellingEngine(ScriptedEngine):
    """Scores an id by how many came before it: log-prob -1 / (1 + position)."""

    async def score(self, ids: Ids, spans: Spans) -> list[np.ndarray]:
        return [-1 / (1 + np.arange(start, stop, dtype=np.float32)) for start, stop in spans]


def played(scorer: Any, answer: Any = "Salen") -> tuple[list[Any], Trajectory, list[float]]:
    """Gains of the turns, the trajectory without them, and the rewards that were paid."""
    env = gymnasium.make(
        ENV_ID, tasks=[("Who owns the mill?", answer)], tools=FakeTools(PAGES), rules=BARE
    )
    env = InformationGainReward(env, scorer)
    env.reset(seed=0)
    steps = [env.step(turn) for turn in TURNS]
    records = [step[4]["turn_reward"] for step in steps]
    episode = env.unwrapped.episode
    bare = [dataclasses.replace(record, information_gain=None) for record in records]
    gains = [record.information_gain for record in records]
    return gains, Trajectory.of(episode, bare), [float(step[1]) for step in steps]


def test_a_score_is_the_mean_over_the_answers_own_ids(template: ChatTemplate) -> None:
    scorer = EngineScorer(TellingEngine(lambda text: "", template), template)
    messages = [{"role": "user", "content": "Who owns the mill?"}]
    history, probe = template.prompt(messages), answer_probe(template, "Salen")
    places = range(len(history) + probe.answer_start, len(history) + len(probe.ids))
    assert len(places) > 1
    expected = sum(-1 / (1 + at) for at in places) / len(places)
    assert scorer.score(messages, "Salen") == pytest.approx(expected, rel=1e-6)
    assert asyncio.run(scorer.ascore(messages, "Salen")) == pytest.approx(expected, rel=1e-6)


def test_the_history_is_what_a_transcript_of_the_episode_holds(template: ChatTemplate) -> None:
    _, trajectory, _ = played(FakeScorer([-1.0]))
    whole = transcribe(trajectory, template)
    env = gymnasium.make(
        ENV_ID, tasks=[("Who owns the mill?", "Salen")], tools=FakeTools(PAGES), rules=BARE
    )
    env.reset(seed=0)
    for number, turn in enumerate(TURNS[:-1], start=1):
        env.step(turn)
        found = transcribe_messages(env.unwrapped.episode.messages, template)
        np.testing.assert_array_equal(found.ids, whole.ids[: whole.history_end(number)])
        assert found.spans == whole.spans[: 2 * number + 1]


def test_a_transcript_that_is_given_is_taken_as_it_is(template: ChatTemplate) -> None:
    scorer = EngineScorer(TellingEngine(lambda text: "", template), template)
    longer = Transcript(template)
    longer.prompt([{"role": "user", "content": "Who owns the mill, and since when?"}])
    short = [{"role": "user", "content": "Who owns the mill?"}]
    assert scorer.score(short, "Salen", longer) > scorer.score(short, "Salen")


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "Q?"}, {"role": "assistant", "content": "a"}] * 2,
        [
            {"role": "user", "content": "Q?"},
            {"role": "assistant", "content": "a"},
            {"role": "assistant", "content": "b"},
        ],
        [
            {"role": "user", "content": "Q?"},
            {"role": "assistant", "content": "a"},
            {"role": "user", "content": "no wrapper"},
        ],
    ],
)
def test_messages_that_are_no_episode_are_refused(
    template: ChatTemplate, messages: Sequence[Any]
) -> None:
    scorer = EngineScorer(TellingEngine(lambda text: "", template), template)
    with pytest.raises(EngineError, match="scorer"):
        scorer.score(messages, "Salen")


def test_what_can_not_score_is_refused() -> None:
    with pytest.raises(SettingError, match="score"):
        EngineScorer(object(), None)  # type: ignore[arg-type]


def test_a_lost_engine_breaks_the_episode(template: ChatTemplate) -> None:
    engine = ScriptedEngine(lambda text: "", template)
    env = gymnasium.make(
        ENV_ID, tasks=[("Who owns the mill?", "Salen")], tools=FakeTools(PAGES), rules=BARE
    )
    env = InformationGainReward(env, EngineScorer(engine, template))
    env.reset(seed=0)
    asyncio.run(engine.close())
    *_, info = env.step(TURNS[1])
    assert info["ending"] == "broken"
    assert "closed" in info["error"]


# ---- afterwards ---------------------------------------------------------------------------


def test_gains_afterwards_are_those_that_the_wrapper_paid(template: ChatTemplate) -> None:
    scorer = EngineScorer(TellingEngine(lambda text: "", template), template)
    gains, trajectory, paid = played(scorer)
    assert [gain is None for gain in gains] == [True, False, False, True]
    assert paid == [0.0, gains[1], gains[2], 1.0]
    assert [
        each.information_gain for each in with_scored_gains(trajectory, scorer).rewards
    ] == gains


def test_values_of_a_scripted_scorer_become_gains() -> None:
    _, trajectory, _ = played(FakeScorer([-1.0]))
    scorer = FakeScorer([-4.0, -1.5, -2.0])
    found = with_scored_gains(trajectory, scorer)
    assert [each.information_gain for each in found.rewards] == [None, 2.5, -0.5, None]
    assert [each.outcome for each in found.rewards] == [None, None, None, 1.0]
    assert [count for count, _ in scorer.scored] == [
        1,
        5,
        7,
    ]  # messages: the question, then two a turn
    probability = with_scored_gains(trajectory, FakeScorer([-4.0, 0.0, 0.0]), kind="prob_diff")
    assert probability.rewards[1].information_gain == pytest.approx(1 - np.exp(-4))


@pytest.mark.parametrize("bad", ["text", None, OSError("gone")])
def test_a_scorer_that_gives_no_number_breaks_the_trajectory(bad: Any) -> None:
    _, trajectory, _ = played(FakeScorer([-1.0]))

    def score(messages: Any, answer: str) -> Any:
        if isinstance(bad, Exception):
            raise bad
        return bad

    found = with_scored_gains(trajectory, FakeScorer(score))
    assert found.ending is Ending.BROKEN
    assert "scorer" in str(found.error)
    assert with_scored_gains(found, FakeScorer([-1.0])) == found  # stays as it is


# ---- a real model -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.small_agent import save_small_agent

    return save_small_agent(tmp_path_factory.mktemp("scorer") / "model")


@pytest.fixture(scope="module")
def scorer(folder: Path) -> Iterator[TransformersScorer]:
    with TransformersScorer(folder, device="cpu") as made:
        yield made


def by_hand(folder: Path, template: ChatTemplate, ids: Any, answer: str) -> float:
    """Mean log-prob of the answer's ids behind a history, from one whole forward pass."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    probe = answer_probe(template, answer)
    whole = torch.tensor([[*ids, *probe.ids]])
    with torch.no_grad():
        log_probs = model(whole).logits[0].double().log_softmax(-1)
    first = len(ids) + probe.answer_start
    own = [float(log_probs[at - 1, whole[0, at]]) for at in range(first, whole.shape[1])]
    return sum(own) / len(own)


def test_the_gains_of_a_models_folder_are_those_of_whole_passes(
    scorer: TransformersScorer, folder: Path
) -> None:
    tokenizer = ChatTemplate.from_folder(folder)
    gains, trajectory, _ = played(scorer)
    whole = transcribe(trajectory, tokenizer)
    values = [
        by_hand(folder, tokenizer, whole.ids[: whole.history_end(turn)], "Salen")
        for turn in (0, 2, 3)  # the opening, and after the two visits
    ]
    assert gains[0] is None
    assert gains[3] is None
    assert gains[1:3] == pytest.approx([values[1] - values[0], values[2] - values[1]], abs=1e-5)


def test_the_best_of_several_answers_is_scored(scorer: TransformersScorer) -> None:
    messages = [{"role": "user", "content": "Who owns the mill?"}]
    one, other = (scorer.score(messages, answer) for answer in ("Salen", "the mill"))
    env = gymnasium.make(
        ENV_ID,
        tasks=[("Who owns the mill?", ["Salen", "the mill"])],
        tools=FakeTools(PAGES),
        rules=BARE,
    )
    env = InformationGainReward(env, scorer, answers="best", kind="prob_diff")
    env.reset(seed=0)
    assert env._gains._last == pytest.approx(max(one, other))


def test_a_folder_without_a_model_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=str(tmp_path)):
        TransformersScorer(tmp_path)


def test_torch_is_imported_only_where_a_folder_is_loaded() -> None:
    code = "import sys, agents.scorers as s; print(*({'torch', 'transformers'} & {*sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_example_pays_each_visit_of_its_episode(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = Path(__file__).parents[2] / "examples" / "model_scorer.py"
    gains = runpy.run_path(str(example))["main"]([str(folder)])
    assert gains[0] is None
    assert gains[-1] is None
    assert len(gains) == 4  # a search, the two pages of the chain, the answer
    assert all(isinstance(gain, float) for gain in gains[1:-1])
    assert capsys.readouterr().out.count("information gain") == len(gains) - 2
