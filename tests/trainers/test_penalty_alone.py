"""The format penalty: as published it is a value among others, alone it acts where it says."""

import numpy as np
import pytest

from drv_env import TurnReward
from trainers.advantages import GRPO, IGPO, Credit, advantages_of, turn_advantages
from trainers.credit import penalised_turns, turn_values

MODES = ("joint", "separate", "scaled_separate", "raw_ig")


def reward(gain=None, outcome=None, well_formed=True) -> TurnReward:
    return TurnReward(gain, well_formed, outcome)


def bad(gain=None, outcome=None) -> TurnReward:
    return reward(gain, outcome, well_formed=False)


def advantages(episodes, **settings):
    tools = [["visit"] * (len(own) - 1) + [None] for own in episodes]
    return advantages_of(episodes, [0] * len(episodes), Credit(**settings), tools)


# ---- as published --------------------------------------------------------------------------------


def test_by_default_the_turns_before_a_malformed_one_inherit_its_penalty():
    episodes = [[reward(), bad(), reward(3.0), reward(outcome=1.0)], [reward(1.0), reward(None, 0)]]
    found = advantages(episodes, normalisation="separate", std_norm=False, gamma=0.5).per_turn[0]
    # gains −1, 3 and 1 about their mean 1; outcomes 1 and 0 about 0.5
    visit = 2.0 + 0.5 * 0.5
    penalty = -2.0 + 0.5 * visit
    np.testing.assert_allclose(found, [penalty, penalty, visit, 0.5])


def test_as_published_a_penalty_without_gains_is_none_and_even_favours_the_malformed_turn():
    """All values of the pool are −λ, so that each is the mean; what is left of it is a discount."""
    episodes = [[bad(), reward(outcome=0.0)], [reward(), reward(outcome=1.0)]]
    found = advantages(episodes, information_gain=False, std_norm=False, gamma=0.5).per_turn
    np.testing.assert_allclose(found[0], [-0.25, -0.5])
    np.testing.assert_allclose(found[1], [0.5, 0.5])


def test_a_raw_penalty_is_divided_and_has_the_outcome_as_a_gain_has():
    episodes = [[bad(), reward(1.0), reward(outcome=1.0)], [reward(outcome=0.0)]]
    found = advantages(episodes, normalisation="raw_ig", std_norm=False).per_turn[0]
    np.testing.assert_allclose(found, [-1 / 1.000001 + 0.5, 1 / 1.000001 + 0.5, 0.5], rtol=1e-7)


def test_raw_penalties_with_no_gain_beside_them_are_divided_by_the_floor():
    """−1 and −1 have no variance: √1e-8 + 1e-6 is left; as released, and why alone is better."""
    episodes = [[bad(), reward(outcome=0.0)], [bad(), reward(outcome=0.0)]]
    found = advantages(episodes, normalisation="raw_ig").per_turn
    assert found[0][0] == pytest.approx(-1 / 0.000101)
    found = advantages(episodes, normalisation="raw_ig", penalty_alone=True).per_turn
    assert found[0].tolist() == [-1.0, 0.0]


# ---- alone ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalisation", MODES)
@pytest.mark.parametrize("std_norm", [True, False])
@pytest.mark.parametrize("assignment", ["segment", "turn"])
@pytest.mark.parametrize("information_gain", [True, False])
@pytest.mark.parametrize("baseline", ["mean", "leave_one_out"])
def test_alone_it_is_taken_from_the_malformed_turn_and_from_nothing_else(
    normalisation, std_norm, assignment, information_gain, baseline
):
    """Gains, malformed or not, weights and scale are as without it."""
    episodes = [
        [reward(), bad(), bad(2.5), reward(3.0), reward(outcome=1.0)],
        [reward(1.0), bad(outcome=0.0)],
        [bad(), reward(outcome=0.0)],
        [reward(0.5), reward(), bad(outcome=1.0)],
    ]
    settings = {
        "normalisation": normalisation,
        "std_norm": std_norm,
        "assignment": assignment,
        "information_gain": information_gain,
        "baseline": baseline,
        "ig_weight": 3.0,
        "outcome_weight": 0.5,
    }
    without = advantages(episodes, **settings, format_penalty=None)
    alone = advantages(episodes, **settings, format_penalty=0.75, penalty_alone=True)
    taken = [a - b for a, b in zip(without.per_turn, alone.per_turn, strict=True)]
    for own, expected in zip(
        taken, [[0, 0.75, 0.75, 0, 0], [0, 0.75], [0.75, 0], [0, 0, 0.75]], strict=True
    ):
        np.testing.assert_allclose(own, expected, atol=1e-12)
    assert alone.ig_scale == without.ig_scale


def test_grpo_with_the_penalty_alone_by_hand():
    """A wrong rollout's malformed turn is below its others, and so is a right one's."""
    episodes = [
        [reward(), bad(), reward(outcome=0.0)],
        [bad(), reward(), reward(outcome=1.0)],
    ]
    settings = {"information_gain": False, "std_norm": False, "gamma": 0.5}
    found = advantages(episodes, **settings, penalty_alone=True).per_turn
    np.testing.assert_allclose(found[0], [-0.5, -1.5, -0.5])
    np.testing.assert_allclose(found[1], [-0.5, 0.5, 0.5])


def test_igpo_penalises_in_a_group_without_a_scored_visit():
    episodes = [[bad(), reward(outcome=0.0)], [reward(), reward(outcome=0.0)]]
    assert advantages(episodes).silent.tolist() == [True, True]  # as published
    found = advantages(episodes, penalty_alone=True)
    assert [values.tolist() for values in found.per_turn] == [[-1.0, 0.0], [0.0, 0.0]]
    assert found.silent.tolist() == [False, True]
    assert found.silent_groups == ()


def test_a_malformed_last_turn_keeps_its_outcome_beside_the_penalty():
    episodes = [[reward(), bad(outcome=0.0)], [reward(), reward(outcome=1.0)]]
    settings = {"information_gain": False, "std_norm": False}
    found = advantages(episodes, **settings, penalty_alone=True).per_turn
    np.testing.assert_allclose(found[0], [-0.5, -1.5])
    # as published the outcomes are −1 and 1
    found = advantages(episodes, **settings).per_turn
    np.testing.assert_allclose(found[0], [-1.0, -1.0])


def test_alone_a_penalty_of_zero_is_no_signal():
    episodes = [[bad(), reward(outcome=1.0)], [reward(), reward(outcome=1.0)]]
    found = advantages(episodes, format_penalty=0.0, penalty_alone=True)
    assert found.silent_groups == (0,)


def test_values_have_no_penalty_where_it_stands_alone():
    rewards = [bad(2.0), bad(), bad(outcome=1.0)]
    assert turn_values(rewards, IGPO) == [-1.0, -1.0, -1.0]
    alone = Credit(penalty_alone=True)
    assert turn_values(rewards, alone) == [2.0, None, 1.0]
    assert penalised_turns(rewards, alone) == [True, True, True]
    assert penalised_turns(rewards, GRPO) == [False, False, False]


@pytest.mark.parametrize("flags", [None, [[True, False, True]], []])
def test_alone_it_needs_a_flag_for_each_turn(flags):
    with pytest.raises(ValueError, match="penalt"):
        turn_advantages([[1.0, 2.0]], [0], Credit(penalty_alone=True), flags)
