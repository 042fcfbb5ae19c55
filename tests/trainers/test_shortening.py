"""The warning that episodes grow shorter while none succeeds."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from trainers.commands.train_screen import TrainScreen, figures
from trainers.credit import GRPO, IGPO, Credit
from trainers.rl import RLConfig, RLStep
from trainers.run_folder import RunFolder
from trainers.runs.rl_run import _Around
from trainers.runs.run_config import RLRun
from trainers.shortening import ShorteningWatch


def said(turns, success, credit=IGPO) -> list[int]:
    """The steps, from 1, at which something is said."""
    watch = ShorteningWatch(credit)
    found = [
        watch.step({"turns": own, "success": right, "loss": 1.0})
        for own, right in zip(turns, success, strict=True)
    ]
    return [step for step, text in enumerate(found, 1) if text is not None]


def test_it_is_said_once_at_the_first_step_that_shows_it():
    """Means of five steps: 10, then 9, 8, 7, of which 7 is seven tenths."""
    turns = [10.0] * 5 + [5.0] * 6
    # the last five of step 10 are 5, of step 8 (3 · 5 + 2 · 10) / 5 = 7, but two windows are needed
    assert said(turns, [0.0] * 11) == [10]
    slow = [10.0] * 6 + [8.0, 8.0, 7.0, 7.0, 7.0, 7.0, 6.0]
    # steps 7 to 11: (8 + 8 + 7 + 7 + 7) / 5 = 7.4; 8 to 12: 7.2; 9 to 13: 6.8
    assert said(slow, [0.0] * 13) == [13]


def test_the_edges_belong_to_the_warning():
    assert said([10.0] * 5 + [7.0] * 5, [0.05] * 10) == [10]
    assert said([10.0] * 5 + [7.1] * 5, [0.0] * 10) == []
    assert said([10.0] * 5 + [7.0] * 5, [0.05] * 9 + [0.06]) == []


def test_success_at_the_start_does_not_matter():
    assert said([10.0] * 5 + [5.0] * 5, [0.9] * 5 + [0.0] * 5) == [10]


@pytest.mark.parametrize("credit", [GRPO, Credit(normalisation="raw_ig")])
def test_only_centred_gains_are_watched(credit):
    assert said([10.0] * 5 + [5.0] * 5, [0.0] * 10, credit) == []


@pytest.mark.parametrize("mode", ["joint", "separate", "scaled_separate"])
def test_gains_are_centred_in_all_other_modes(mode):
    assert said([10.0] * 5 + [5.0] * 5, [0.0] * 10, Credit(normalisation=mode)) == [10]


def test_a_step_without_the_figures_is_none():
    watch = ShorteningWatch(IGPO)
    for turns in [10.0] * 5 + [5.0] * 4:
        assert watch.step({"turns": turns, "success": 0.0}) is None
    assert watch.step({"turns": 5.0}) is None
    assert watch.step({"success": 0.0}) is None
    assert watch.step({"turns": 5.0, "success": 0.0}) is not None


def test_the_warning_has_figures_and_the_remedy():
    watch = ShorteningWatch(IGPO)
    texts = [watch.step({"turns": turns, "success": 0.004}) for turns in [10.0] * 5 + [6.0] * 5]
    assert "10.0 turns at first and 6.0 over the last 5 steps, and 0.4% succeed" in texts[-1]
    remedy = "Set rl.credit.normalisation to raw_ig and rl.credit.penalty_alone to true, or"
    assert remedy in texts[-1]


@pytest.mark.parametrize("credit", [Credit(penalty_alone=True), Credit(format_penalty=None)])
def test_the_remedy_names_the_penalty_only_where_it_stands_among_the_gains(credit):
    watch = ShorteningWatch(credit)
    texts = [watch.step({"turns": turns, "success": 0.0}) for turns in [10.0] * 5 + [6.0] * 5]
    assert "Set rl.credit.normalisation to raw_ig, or" in texts[-1]


def test_turns_are_in_the_progress_line_and_in_the_bar():
    metrics = {
        "success": 0.25,
        "turns": 6.54,
        "loss": 0.5,
        "information_gain": 0.1,
        "well_formed": 1.0,
    }
    assert figures(metrics) == "success 25% · 6.5 turns · loss 0.5 · gain +0.100 · well formed 100%"
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    with TrainScreen("igpo", 3, console=console) as shown:
        shown.step(1, metrics)
        shown._progress.refresh()
    assert "success 25% · 6.5 turns · loss 0.5" in screen.getvalue()


def test_a_run_says_it_once_over_all_its_lives(tmp_path):
    """Steps with these metrics, the run stopped after step 7 and after step 12."""
    turns = [10.0] * 5 + [5.0] * 9
    metrics = [{"turns": own, "success": 0.0, "loss": 1.0} for own in turns]
    run = RLRun(out=tmp_path, rl=RLConfig(credit=IGPO))
    job = SimpleNamespace(config=run, playing=SimpleNamespace(described=lambda: None))
    lives = []
    for done, last in ((None, 7), (7, 12), (12, 14)):
        screen = io.StringIO()
        folder = RunFolder(tmp_path, {}, done)
        with TrainScreen("igpo", 14, done or 0, console=Console(file=screen)) as shown:
            around = _Around(job, SimpleNamespace(model=None), folder, shown)
            for step in range((done or 0) + 1, last + 1):
                around.step(RLStep(step, [], metrics[step - 1]))
        folder.close()
        lives.append(screen.getvalue().count("rl.credit.normalisation"))
    assert lives == [0, 1, 0]
