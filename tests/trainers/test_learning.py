"""The small world that demo and study share, and what the study makes of its results."""

import dataclasses
import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from drv_env import SettingError
from trainers.agent_file import checked_agent
from trainers.small_world import SmallWorld
from trainers.small_world_config import WorldSettings

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module", autouse=True)
def _benchmarks_on_the_path():
    sys.path.insert(0, str(BENCHMARKS))
    yield
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def world():
    return SmallWorld(WorldSettings(seed=3, worlds=2, hops=(1, 2)))


def hops_of(tasks):
    return Counter(task.metadata["hops"] for task in tasks)


def test_no_entity_starts_questions_of_two_parts(world):
    train = {task.metadata["start"] for task in world.train}
    validation = {task.metadata["start"] for task in world.held_out("validation", 150)}
    test = {task.metadata["start"] for task in world.held_out("test", 150)}
    assert not train & validation
    assert not train & test
    assert not validation & test


def test_balanced_questions_have_all_lengths_equally_often(world):
    for tasks in (world.train, world.held_out("test", 64)):
        counts = hops_of(tasks)
        assert set(counts) == {1, 2}
        assert abs(counts[1] - counts[2]) <= (0 if tasks is world.train else 24)
    every = SmallWorld(WorldSettings(seed=3, worlds=2, hops=(1, 2), balanced=False))
    counts = hops_of(every.train)
    assert counts[2] > 1.5 * counts[1]


def test_held_out_questions_are_the_same_every_time(world):
    first = world.held_out("validation", 20)
    world.held_out("test", 20)
    assert world.held_out("validation", 20) == first
    assert SmallWorld(world.settings).held_out("validation", 20) == first
    with pytest.raises(SettingError, match=r"from 1 to the \d+ there are: 100000"):
        world.held_out("validation", 100_000)


def test_a_checkpoint_says_how_this_world_is_played(world):
    game = world.played_with(world.tokenizer_for(world.expert_trajectories(20)))
    told = checked_agent(game.described())
    assert told["offline"]["worlds"] == (3000, 3001)
    assert told["rules"]["max_turns"] == 12


# ---- the study ---------------------------------------------------------------------------


def test_a_difference_is_over_pairs_and_its_error_over_sft_seeds():
    from learning_table import difference, estimate

    igpo = {(0, 0): 0.5, (0, 1): 0.7, (1, 0): 0.4, (1, 1): 0.4, (2, 0): 0.9}
    grpo = {(0, 0): 0.4, (0, 1): 0.4, (1, 0): 0.4, (1, 1): 0.6}
    assert estimate(igpo).mean == pytest.approx((0.6 + 0.4 + 0.9) / 3)
    gap = difference(igpo, grpo)
    assert (gap.runs, gap.seeds) == (4, 2)
    assert gap.mean == pytest.approx((0.2 - 0.1) / 2)
    assert gap.standard_error == pytest.approx(0.3 / 2)  # of 0.2 and −0.1
    assert gap.interval == pytest.approx(12.71 * 0.15)


def test_the_best_rate_on_validation_is_chosen_for_each_method():
    from learning_plan import Study, chosen_rates

    study = Study(learning_rates=(1e-4, 1e-3))
    tried = [
        *(("grpo", 1e-4, 0.5), ("grpo", 1e-3, 0.4)),
        *(("grpo-penalty", 1e-4, 0.5), ("grpo-penalty", 1e-3, 0.6)),
        *(("igpo", 1e-4, 0.3), ("igpo", 1e-4, 0.5)),
    ]
    with pytest.raises(ValueError, match="can't be chosen"):
        chosen_rates(tried, study)
    found = chosen_rates([*tried, ("igpo", 1e-3, 0.45)], study)
    assert found == {"grpo": 1e-4, "grpo-penalty": 1e-3, "igpo": 1e-3}


def test_the_arms_with_the_penalty_alone_differ_in_the_gains_alone():
    from learning_plan import METHODS

    grpo, igpo = METHODS["grpo-penalty"].credit, METHODS["igpo-penalty-alone"].credit
    assert grpo.penalty_alone
    assert dataclasses.replace(grpo, information_gain=True) == igpo
    assert dataclasses.replace(igpo, penalty_alone=False) == METHODS["igpo"].credit


def test_runs_have_names_of_their_own_and_only_final_runs_play_the_test():
    from learning_plan import RLRun, SFTRun, Study, ablations, comparison, sweep

    study = Study()
    rates = {"grpo": 2.5e-4, "grpo-penalty": 5e-4, "igpo": 1e-3}
    runs = [*sweep(study), *comparison(study, rates), *ablations(study, rates)]
    assert len({run.name for run in runs}) == len(set(runs)) == len(runs)
    assert not any(run.test for run in sweep(study) if isinstance(run, RLRun))
    for run in comparison(study, rates):
        assert run.learning_rate == rates[run.method]
    for run in ablations(study, rates):
        assert isinstance(run, SFTRun) or run.learning_rate == rates["igpo"]


def test_the_report_of_a_folder_of_results(tmp_path, monkeypatch, capsys):
    import learning
    from learning_plan import MAIN, QUICK, RLRun, SFTRun, comparison, result_file, sweep

    runs = [*sweep(QUICK), *comparison(QUICK, dict.fromkeys(MAIN, 5e-4))]
    figures = {"success": 0.25, "well_formed": 1.0}
    for run in runs:
        success = 0.25
        if isinstance(run, RLRun) and run.method == "igpo":
            success = 0.5 + 0.25 * run.sft_seed
        result = {
            "curve": [{"rollouts": 8, "success": success}],
            "test": {**figures, "success": success, "by_hops": {"1": 1.0}},
            "test_greedy": figures,
        }
        if isinstance(run, RLRun) and not run.test:
            del result["test"], result["test_greedy"]
        if isinstance(run, SFTRun):
            result["curve"][0]["rollouts"] = 0
        result_file(tmp_path, run).write_text(json.dumps(result))
    monkeypatch.setattr(sys, "argv", ["learning.py", "--quick", "--report", "--out", str(tmp_path)])
    assert learning.main() == 0
    last = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert last["success_igpo"] == pytest.approx(0.625)
    assert last["difference_igpo_grpo"] == pytest.approx(0.375)
    assert last["difference_igpo_grpo_standard_error"] == pytest.approx(0.125)

    (tmp_path / "study.json").write_text("{}")
    assert learning.main() == 1
    assert "other settings" in capsys.readouterr().err
