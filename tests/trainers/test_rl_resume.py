"""A killed run of reinforcement, taken up again, ends as one that was not killed."""

import copy
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from agents.engines.base import Sampling
from agents.engines.transformers import TransformersEngine
from agents.rollout import RolloutSettings
from drv_env import SettingError, background
from tests.patience import HANGS
from trainers.credit import Credit
from trainers.rl import RLConfig, train_rl

KILLED = """
import os, signal, sys

from tests.trainers.conftest import make_tiny_game
from tests.trainers.test_rl_resume import play

where, state = sys.argv[1:]


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


game = make_tiny_game()
if where == "rollout":  # of the second step: the first takes at most six turns
    steps, step = [0], game.envs.unwrapped.step

    def counted(actions):
        steps[0] += 1
        return die() if steps[0] == 9 else step(actions)

    game.envs.unwrapped.step = counted
renames = [0]


def watch(event, arguments):
    if where == "writing" and event == "os.rename" and state in str(arguments[0]):
        renames[0] += 1
        if renames[0] == 2:
            die()


sys.addaudithook(watch)
play(game, state, on_step=lambda step: die() if (where, step.step) == ("updated", 2) else None)
"""


def config(game) -> RLConfig:
    return RLConfig(
        steps=3,
        tasks_per_step=2,
        group_size=4,
        learning_rate=1e-2,
        schedule="cosine",
        warmup_share=0.4,
        weight_decay=0.01,
        sampling=Sampling(24, stop_ids=game.template.stop_ids),
        rollout=RolloutSettings(seed=1),
    )


def play(game, state, on_step=lambda step: None, **changes):
    """Parameters after training, and the steps that were taken."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = game.model()
    engine = TransformersEngine(copy.deepcopy(model), slots=16, max_context=512)
    try:
        done = train_rl(
            model,
            engine,
            game.envs,
            game.template,
            game.tasks,
            replace(config(game), **changes),
            on_step,
            state=state,
        )
    finally:
        background.run(engine.close())
    flat = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    return flat, [step.step for step in done]


@pytest.fixture(scope="module")
def whole(tiny_game):
    threads = torch.get_num_threads()
    yield play(tiny_game, None)[0]
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("where", "rest"), [("rollout", {2, 3}), ("updated", {2, 3}), ("writing", {2, 3})]
)
def test_a_killed_run_goes_on_to_the_very_same_parameters(tiny_game, whole, tmp_path, where, rest):
    root = Path(__file__).parents[2]
    state = tmp_path / "state"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, where, str(state)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=HANGS,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    found, steps = play(tiny_game, state)
    assert set(steps) <= {1, 2, 3}
    assert steps[-1] == 3
    if where != "rollout":
        assert set(steps) == rest
    assert torch.equal(found, whole)


def test_ctrl_c_finishes_the_step_saves_and_leaves(tiny_game, whole, tmp_path):
    seen = []

    def press(step):
        seen.append(step.step)
        if step.step == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        play(tiny_game, tmp_path, press)
    found, steps = play(tiny_game, tmp_path)
    assert (seen, steps) == ([1], [2, 3])
    assert torch.equal(found, whole)


def test_a_run_that_is_over_has_nothing_left(tiny_game, whole, tmp_path):
    found, _ = play(tiny_game, tmp_path)
    assert torch.equal(found, whole)
    again, steps = play(tiny_game, tmp_path)
    assert steps == []
    assert torch.equal(again, whole)


def test_a_run_can_be_made_longer_where_the_rate_does_not_follow_its_steps(tiny_game, tmp_path):
    constant = {"schedule": "constant", "warmup_share": None}
    play(tiny_game, tmp_path / "constant", steps=1, **constant)
    assert play(tiny_game, tmp_path / "constant", steps=2, **constant)[1] == [2]
    play(tiny_game, tmp_path / "cosine", steps=1)
    with pytest.raises(SettingError, match="steps: 1 there, 2 here"):
        play(tiny_game, tmp_path / "cosine", steps=2)


def test_a_run_whose_weights_move_over_its_steps_keeps_their_number(tiny_game, tmp_path):
    moving = {
        "schedule": "constant",
        "warmup_share": None,
        "credit": Credit(ig_weight=1.0, ig_weight_final=0.0),
    }
    metrics = []
    play(tiny_game, tmp_path, steps=2, on_step=lambda step: metrics.append(step.metrics), **moving)
    assert [step["ig_weight"] for step in metrics] == [0.5, 0.0]
    assert [step["outcome_weight"] for step in metrics] == [1.0, 1.0]
    with pytest.raises(SettingError, match="steps: 2 there, 3 here"):
        play(tiny_game, tmp_path, steps=3, **moving)


def test_the_steps_rates_are_the_schedules(tiny_game, tmp_path):
    rates = []
    play(tiny_game, None, on_step=lambda step: rates.append(step.metrics["learning_rate"]))
    # a warm-up of int(0.4 · 3) = 1 step, then two and one steps left of three
    assert rates == pytest.approx([1e-2, 0.75e-2, 0.25e-2])


def test_the_state_of_another_run_is_refused(tiny_game, tmp_path):
    play(tiny_game, tmp_path, steps=1)
    with pytest.raises(SettingError, match="learning_rate"):
        play(tiny_game, tmp_path, learning_rate=1e-3)
    with pytest.raises(SettingError, match=r"rollout\.seed"):
        play(tiny_game, tmp_path, rollout=RolloutSettings(seed=None))
