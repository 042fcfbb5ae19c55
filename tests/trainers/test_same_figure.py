"""``drv eval`` of a checkpoint without further options gives the figure of its own run."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agents.evaluate import evaluate
from drv_env import background
from drv_env.errors import SettingError
from drv_env.protocol import Answer, Search, render_turn
from replay.chat_templates import QWEN3_THINKING
from replay.store import read_trajectories
from tests.trainers.decided_engine import DecidedEngine, play_decided
from trainers.agent_file import NAME, checked_agent, read_agent
from trainers.checkpoint import save_model
from trainers.cli import main
from trainers.commands.agent_options import RuleOptions
from trainers.runs.playing import plan_playing
from trainers.runs.run_config import ModelSection, RLRun, TaskSection, ToolSection
from trainers.small_world import ModelGame, SmallWorld
from trainers.small_world_config import WorldSettings
from trainers.world_questions import asked_of_worlds, drawn, game_random, world_parts

SEED, COUNT = 2, 12


@pytest.fixture(scope="module")
def game() -> ModelGame:
    world = SmallWorld(WorldSettings(seed=SEED, worlds=1))
    return world.played_with(world.tokenizer_for(world.expert_trajectories(20)))


@pytest.fixture(scope="module")
def checkpoint(game: ModelGame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    described = game.described(count=COUNT, part="test")
    folder = tmp_path_factory.mktemp("run") / "final"
    return save_model(folder, game.new_model(0), game.tokenizer, QWEN3_THINKING, described)


def script_of(game: ModelGame) -> Any:
    """Searches once, then answers rightly where the request's number falls so."""
    held = game.world._parts["test"]
    answers = {task.question: task.answers[0] for task in held}

    def script(seen: str, number: int) -> str:
        question = re.findall(r"<\|im_start\|>user\n(.*?)<\|im_end\|>", seen, re.DOTALL)[0]
        if "<tool_response>" not in seen:
            return render_turn("", Search((question.split()[2].removesuffix("'s"),)))
        right = random.Random(number).random() < 0.5
        return render_turn("", Answer(answers[question] if right else "nobody"))

    return script


@pytest.fixture
def own(game: ModelGame) -> Any:
    """The episodes of the game's own evaluation, as the demo plays it."""
    model = game.new_model(0)
    engine = DecidedEngine(
        model, script=script_of(game), template=game.template, slots=8, max_context=640
    )
    held = game.world.held_out("test", COUNT)
    found = game.play(engine, held, 1.0, seed=SEED)
    background.run(engine.close())
    return found


def evaluated(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["eval", "world", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_figure_is_the_runs_own(
    game: ModelGame,
    own: Any,
    checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    figures = evaluate(own)
    assert 0 < figures.success < 1
    play_decided(monkeypatch, script_of(game), game.template)
    out = tmp_path / "eval"
    told = evaluated(capsys, "--model", str(checkpoint), "--out", str(out))
    assert (told["tasks"], told["success"]) == (COUNT, figures.success)
    kept = {item.task.question: item for item in read_trajectories(out / "trajectories")}
    assert {item.task.question for item in own} == set(kept)
    for item in own:
        assert [turn.text for turn in kept[item.task.question].turns] == [
            turn.text for turn in item.turns
        ]
    settings = told["settings"]
    assert (settings["seed"], settings["max_turns"], settings["max_context"]) == (SEED, 12, 640)


def test_what_the_command_line_says_wins(
    game: ModelGame,
    checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    play_decided(monkeypatch, script_of(game), game.template)
    out = tmp_path / "eval"
    more = ["--hops", "2", "--questions", "5", "--seed", "7", "--max-turns", "3"]
    told = evaluated(capsys, "--model", str(checkpoint), "--out", str(out), *more)
    assert (told["tasks"], told["settings"]["seed"], told["settings"]["max_turns"]) == (5, 7, 3)
    kept = [item.task for item in read_trajectories(out / "trajectories")]
    assert {task.metadata["hops"] for task in kept} == {2}
    expected = drawn(world_parts([1000 * SEED], (2,), game_random(SEED))["test"], 5, 7)
    assert {task.question for task in kept} == {task.question for task in expected}


# ---- questions ------------------------------------------------------------------------------


def test_balanced_questions_have_as_many_of_each_number_of_hops() -> None:
    parts = world_parts([5], (1, 2, 3), game_random(0))
    for tasks in parts.values():
        counts = Counter(task.metadata["hops"] for task in tasks)
        assert set(counts) == {1, 2, 3}
        assert len(set(counts.values())) == 1
    every = Counter(task.metadata["hops"] for task in world_parts([5], (1, 2, 3))["train"])
    assert counts[1] <= min(every.values())


def test_options_go_before_the_checkpoints_words() -> None:
    own = {"hops": (2, 3), "balanced": True, "seed": 4}
    hops, balance = asked_of_worlds(own)
    assert hops == (2, 3)
    assert balance is not None
    assert balance.random() == game_random(4).random()
    assert asked_of_worlds(own, (1,), False) == ((1,), None)
    assert asked_of_worlds({}) == ((), None)


@pytest.mark.parametrize("count", [0, 4, -1])
def test_no_more_can_be_drawn_than_there_are(count: int) -> None:
    with pytest.raises(SettingError, match="--questions must be from 1 to the 3 there are"):
        drawn(world_parts([5], (1,))["train"][:3], count, 0, "--questions")


# ---- agent.json -----------------------------------------------------------------------------


def test_a_checkpoint_says_which_questions_it_was_measured_on(checkpoint: Path) -> None:
    found = read_agent(checkpoint)
    assert found is not None
    assert found["questions"] == {
        "hops": (2, 3, 4),
        "balanced": True,
        "seed": SEED,
        "count": COUNT,
        "part": "test",
    }
    assert found["offline"]["worlds"] == (1000 * SEED,)


@pytest.mark.parametrize(
    ("questions", "says"),
    [
        ({"hops": [0]}, "questions.hops must be at least 1"),
        ({"hops": "2"}, "questions.hops can't be '2'"),
        ({"count": 0}, "questions.count must be at least 1"),
        ({"part": "exam"}, "questions.part must be one of train"),
        ({"seed": -1}, "seed"),
        ({"balanced": 1}, "questions.balanced can't be 1"),
        ({"hop": [2]}, "questions has 'hop'"),
    ],
)
def test_what_can_not_work_is_refused_by_name(questions: Any, says: str) -> None:
    with pytest.raises(SettingError, match=says):
        checked_agent({"questions": questions})


def test_an_earlier_file_without_questions_is_read(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text('{"rules": {"max_turns": 3, "max_seconds": 9.5}}')
    found = read_agent(tmp_path)
    assert found is not None
    assert found["questions"] == {}
    assert found["rules"] == {"max_turns": 3, "max_seconds": 9.5}


def test_a_run_of_training_hands_the_game_on(checkpoint: Path, tmp_path: Path) -> None:
    """What the configuration says, and beneath it what the model's own file said."""

    def described(**settings: Any) -> dict[str, dict[str, Any]]:
        run = RLRun(model=ModelSection(folder=str(checkpoint)), out=tmp_path / "run", **settings)
        playing = plan_playing(run, lambda line: None)
        hops = {task.metadata["hops"] for task in playing.tasks}
        assert hops == set(playing.described()["questions"]["hops"])
        return checked_agent(playing.described())

    own = read_agent(checkpoint)
    assert own is not None
    kept = described()
    assert kept["questions"] == own["questions"]
    assert kept["offline"] == own["offline"]
    assert kept["rules"]["max_turns"] == own["rules"]["max_turns"]
    asked = described(
        tasks=TaskSection(hops=(2,), balanced=False),
        tools=ToolSection(world=(5,)),
        rules=RuleOptions(reading="thought_optional", max_seconds=9.0, max_turns=4),
    )
    assert asked["questions"] == {"hops": (2,), "count": COUNT, "part": "test", "seed": SEED}
    assert asked["offline"]["worlds"] == (5,)
    rules = asked["rules"]
    assert (rules["reading"], rules["max_seconds"], rules["max_turns"]) == (
        "thought_optional",
        9.0,
        4,
    )
