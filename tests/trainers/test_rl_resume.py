"""A killed run of reinforcement, taken up again, ends as one that was not killed."""

from dataclasses import replace

import pytest
import torch

from agents.engines.base import Sampling
from agents.rollout import RolloutSettings
from drv_env import SettingError, background
from tests import warm_process
from trainers.credit import Credit
from trainers.rl import RLConfig, train_rl

KILLED_AND_RESUMED = """
import json, os, signal, sys

import torch

torch.set_num_threads(1)
from tests import logit_noise
from tests.trainers.conftest import make_tiny_game
from tests.trainers.test_rl_resume import play

logit_noise.install_if_asked()
folder = sys.argv[1]
game = make_tiny_game()


def child(work):
    number = os.fork()
    if not number:
        work()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def killed(where, state):
    if where == "rollout":  # of the second step: the first takes five turns at most
        steps, step = [0], game.envs.unwrapped.step

        def counted(actions):
            steps[0] += 1
            return die() if steps[0] == 7 else step(actions)

        game.envs.unwrapped.step = counted
    renames = [0]

    def watch(event, arguments):
        if where == "writing" and event == "os.rename" and state in str(arguments[0]):
            renames[0] += 1
            if renames[0] == 2:
                die()

    sys.addaudithook(watch)
    play(game, state, on_step=lambda step: die() if (where, step.step) == ("updated", 2) else None)


def kept(state, name):
    torch.save(play(game, state), f"{folder}/{name}")


assert child(lambda: kept(None, "whole")) == 0
for where in ("rollout", "updated", "writing"):
    state = f"{folder}/state-{where}"
    assert child(lambda: killed(where, state)) == -signal.SIGKILL, where
    assert child(lambda: kept(state, where)) == 0, where
"""
"""Everything in forked children of one process, which run the very same code."""


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
    model = game.telling_model()
    engine = game.engine(model)
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


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Parameters and steps of a run that nobody killed, and of those that went on."""
    folder = tmp_path_factory.mktemp("runs")
    done = warm_process.run(KILLED_AND_RESUMED, str(folder))
    assert done.returncode == 0, done.stderr
    return {name: torch.load(folder / name) for name in ("whole", "rollout", "updated", "writing")}


@pytest.mark.parametrize("where", ["rollout", "updated", "writing"])
def test_a_killed_run_goes_on_to_the_very_same_parameters(tiny_game, runs, where):
    whole, steps = runs["whole"]
    assert steps == [1, 2, 3]
    start = torch.cat([each.detach().flatten() for each in tiny_game.telling_model().parameters()])
    assert not torch.equal(whole, start)
    found, steps = runs[where]
    assert steps == [2, 3]
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
