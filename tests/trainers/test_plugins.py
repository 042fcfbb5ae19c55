"""Trainers and advantages of a user's own: the examples, run as their first lines say."""

from pathlib import Path

import numpy as np
import pytest

from drv_env import Ending, Task, TurnReward
from drv_env.errors import SettingError
from replay.trajectory import Trajectory, TurnRecord
from tests import warm_process
from tests.trainers.train_runs import metrics, save_untrained
from trainers.registry import ADVANTAGES, import_plugins

EXAMPLES = Path(__file__).parents[2] / "examples"


def trajectory(outcome, turns):
    return Trajectory(
        task=Task("Who?", ("me",)),
        opening=(),
        turns=tuple(TurnRecord("x", "", None, None, True) for _ in range(turns)),
        rewards=(*(TurnReward(None, True, None),) * (turns - 1), TurnReward(None, True, outcome)),
        ending=Ending.ANSWERED,
        answer=None,
        error=None,
        transcript=None,
        provenance={},
    )


def test_the_examples_advantage_is_the_outcome_less_its_groups_median(monkeypatch):
    monkeypatch.chdir(EXAMPLES)
    import_plugins(["own_advantage"])
    played = [trajectory(value, 2) for value in (1.0, 0.0, 0.0, 0.25, 0.75)]
    found = ADVANTAGES["less_median"](played, [0, 0, 0, 1, 1], None)
    expected = [[1, 1], [0, 0], [0, 0], [-0.25, -0.25], [0.25, 0.25]]
    np.testing.assert_allclose(np.array(found.per_turn), expected)
    assert found.silent.tolist() == [False, True, True, False, False]


@pytest.mark.parametrize(
    ("trainer", "config"), [("own-successes", "own_trainer"), ("grpo", "own_advantage")]
)
def test_the_example_runs_from_its_folder(tiny_game, tmp_path, trainer, config):
    save_untrained(tiny_game, tmp_path)
    out = tmp_path / "out"
    small = {
        "model.folder": tmp_path / "untrained",
        "out": out,
        "rl.steps": 1,
        "rl.tasks-per-step": 2,
        "rl.group-size": 2,
        "evaluation.every": 0,
        "outcome": "f1",
    }
    options = [str(word) for name, value in small.items() for word in (f"--{name}", value)]
    drv = "import sys; from trainers.cli import main; sys.exit(main())"
    asked = ["train", trainer, "--config", f"configs/{config}.yaml", *options]
    done = warm_process.run(drv, *asked, cwd=EXAMPLES)
    assert done.returncode == 0, done.stderr
    assert "4 episodes at once" in done.stdout
    assert len(metrics(out, "rl")) == 1
    assert (out / "checkpoints" / "final" / "agent.json").is_file()


def test_a_module_that_is_missing_is_named():
    with pytest.raises(SettingError, match=r"the plugin no_such can't be imported: [^()]*$"):
        import_plugins(["no_such"])
