"""Metrics of a step, by hand."""

import pytest

from drv_env import Ending, Task, TurnReward
from replay.trajectory import Trajectory, TurnRecord
from trainers.rl_metrics import Phases, rollout_metrics, sampled_tokens


def episode(outcome, gains, tools, ending=Ending.ANSWERED) -> Trajectory:
    turns = tuple(
        TurnRecord("t", "", tool, None, True, tool, None if tool is None else "ok", tokens=5)
        for tool in tools
    )
    last = len(turns) - 1
    rewards = tuple(
        TurnReward(gain, True, outcome if index == last else None)
        for index, gain in enumerate(gains)
    )
    return Trajectory(Task("q", ("a",)), (), turns, rewards, ending)


def test_figures_by_hand():
    found = rollout_metrics(
        [
            episode(1.0, [None, 2.0, None], ["search", "visit", None]),
            episode(0.0, [0.0, None], ["visit", None], Ending.FORCED_TURNS),
            episode(None, [7.0], ["visit"], Ending.BROKEN),
        ]
    )
    assert found["success"] == 0.5
    assert found["broken"] == 1
    assert (found["scored_turns"], found["information_gain"]) == (2, 1.0)
    assert found["information_gain_std"] == 1.0
    assert found["visit_ratio_correct"] == 0.5
    assert found["visit_ratio_wrong"] == 1.0
    assert found["ending_answered"] == found["ending_broken"] == pytest.approx(1 / 3)
    assert found["ending_no_answer"] == 0.0
    assert found["sampled_tokens"] == 12.5
    assert "tokens" not in found, "nobody has transcripts"


def test_what_there_is_none_of_is_left_out_and_a_gain_of_zero_is_not():
    found = rollout_metrics([episode(0.0, [None], [None])])
    assert "information_gain" not in found
    assert "visit_ratio" not in found
    assert rollout_metrics([episode(0.0, [0.0], ["visit"])])["information_gain"] == 0.0


def test_phases_are_timed_one_after_the_other():
    phases = Phases()
    phases.end("rollout", sampled_tokens([episode(1.0, [None] * 2, ["search", None])]))
    phases.end("sync")
    assert list(phases.figures) == ["seconds_rollout", "tokens_per_s_rollout", "seconds_sync"]
    rate = phases.figures["tokens_per_s_rollout"] * phases.figures["seconds_rollout"]
    assert rate == pytest.approx(10)
