"""Metrics of a step, by hand."""

import dataclasses

import pytest

from drv_env import Ending, Task, TurnReward
from replay.trajectory import Trajectory, TurnRecord
from replay.transcript import Transcript
from trainers.rl_metrics import (
    Phases,
    rollout_metrics,
    sampled_tokens,
    staleness,
    transcript_tokens,
)


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


def sampled_by(game, *versions) -> Trajectory:
    """An episode whose turns were sampled by the weights of these versions, three ids each."""
    transcript = Transcript(game.template)
    transcript.prompt(game.expert[0].opening)
    for turn, version in enumerate(versions):
        if turn:
            transcript.observation("<tool_response>\nx\n</tool_response>")
        transcript.completion([5, 6, 7], weight_version=version)
    found = episode(1.0, [None] * len(versions), [None] * len(versions))
    return dataclasses.replace(found, transcript=transcript)


def test_staleness_is_that_of_the_oldest_turn(tiny_game):
    rollouts = [sampled_by(tiny_game, 4, 5), sampled_by(tiny_game, 6), episode(1.0, [None], [None])]
    assert staleness(rollouts, 6) == 2.0
    assert staleness(rollouts[1:], 6) == 0.0
    assert staleness([sampled_by(tiny_game, None)], 6) == 0.0, "nobody said which weights"
    assert staleness([], 6) == 0.0


def test_tokens_are_counted_over_all_episodes(tiny_game):
    rollouts = [sampled_by(tiny_game, 1, 1), sampled_by(tiny_game, 1), episode(1.0, [None], ["x"])]
    assert sampled_tokens(rollouts) == 5 * 4
    untold = dataclasses.replace(rollouts[0].turns[0], tokens=None)
    told = dataclasses.replace(rollouts[0], turns=(untold, rollouts[0].turns[1]))
    assert sampled_tokens([told]) == 5, "nobody said how many the first turn had"
    first, second = (len(item.transcript) for item in rollouts[:2])
    assert transcript_tokens(rollouts) == first + second
    assert rollout_metrics(rollouts)["tokens"] == (first + second) / 2
