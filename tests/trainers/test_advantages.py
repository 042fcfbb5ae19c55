"""Advantages by hand, and the order of operations."""

import math

import numpy as np
import pytest

from drv_env import TurnReward
from trainers.advantages import (
    DR_GRPO,
    GRPO,
    IGPO,
    RLOO,
    Credit,
    advantages_of,
    ig_scale,
    token_advantages,
    turn_advantages,
    turn_values,
)

PLAIN = {"normalisation": "separate", "std_norm": False}
"""Only centred, so that sums can be done in the head."""


def reward(gain=None, outcome=None, well_formed=True) -> TurnReward:
    return TurnReward(gain, well_formed, outcome)


# ---- the order -----------------------------------------------------------------------------


def test_the_penalty_comes_before_the_statistics():
    """Were −λ put in after normalising, the other rollout's gain would stay at zero."""
    credit = Credit(normalisation="separate", gamma=1.0)
    good = turn_values([reward(1.0), reward(outcome=1.0)], credit)
    bad = turn_values([reward(1.0, well_formed=False), reward(outcome=1.0)], credit)
    found = turn_advantages([good, bad], [0, 0], credit).per_turn
    # gains 1 and −1: mean 0, deviation 1; outcomes are equal, so they vanish
    assert found[0][0] == pytest.approx(1.0, abs=1e-5)
    assert found[1][0] == pytest.approx(-1.0, abs=1e-5)


def test_a_malformed_answer_counts_as_an_outcome_of_minus_lambda():
    credit = Credit(information_gain=False, format_penalty=2.0, std_norm=False)
    rewards = [[reward(outcome=1.0)], [reward(outcome=1.0, well_formed=False)]]
    found = advantages_of(rewards, [0, 0], credit).per_turn
    # outcomes 1 and −2 about −0.5
    assert [array.tolist() for array in found] == [[1.5], [-1.5]]


def test_the_scale_brings_gains_to_the_size_of_outcomes():
    assert ig_scale(np.array([2.0, -2.0]), np.array([1.0, -1.0]), IGPO) == pytest.approx(0.5)
    assert ig_scale(np.array([2.0]), np.array([0.0]), IGPO) == pytest.approx(0.15)
    assert ig_scale(np.array([1e-9]), np.array([1.0]), IGPO) == pytest.approx(10.0)


def test_the_scale_is_over_the_whole_batch_not_the_group():
    values = [[1.0, 1.0], [0.0, 0.0], [5.0, 0.0], [0.0, 0.0]]
    together = turn_advantages(values, [0, 0, 1, 1], IGPO)
    alone = turn_advantages(values[:2], [0, 0], IGPO)
    # group 1 has no outcome signal and pulls M_O to one half for everyone
    assert together.ig_scale == pytest.approx(0.5, abs=1e-4)
    assert alone.ig_scale == pytest.approx(1.0, abs=1e-4)


def test_groups_need_not_stand_together():
    values = [[1.0, 1.0], [4.0, 0.0], [0.0, 0.0], [2.0, 1.0]]
    mixed = turn_advantages(values, ["a", "b", "a", "b"], IGPO)
    sorted_ = turn_advantages([values[i] for i in (0, 2, 1, 3)], ["a", "a", "b", "b"], IGPO)
    for index, place in enumerate((0, 2, 1, 3)):
        np.testing.assert_allclose(mixed.per_turn[place], sorted_.per_turn[index])


# ---- who shares in a reward ------------------------------------------------------------------


def test_an_unrewarded_turn_shares_the_next_return_and_gamma_counts_rewarded_turns():
    credit = Credit(**PLAIN, gamma=0.5)
    values = [[None, 3.0, None, None, 1.0], [1.0, 0.0]]
    found = turn_advantages(values, [0, 0], credit).per_turn[0]
    # gains 3, 1 about their mean 2; outcomes 1, 0 about 0.5
    last = 0.5
    first = 1.0 + 0.5 * last
    np.testing.assert_allclose(found, [first, first, last, last, last])


def test_by_turn_copies_count_in_the_statistics_and_gamma_counts_turns():
    credit = Credit(**PLAIN, gamma=0.5, assignment="turn")
    rewards = [
        [reward(), reward(4.0), reward(), reward(), reward(outcome=1.0)],
        [reward(1.0), reward(outcome=0.0)],
    ]
    tools = [["search", "visit", "search", None, None], ["visit", None]]
    found = advantages_of(rewards, [0, 0], credit, tools).per_turn
    # gains 4 (copied), 4 and 1 about their mean 3; two turns with 0; outcomes about 0.5
    r = [1.0, 1.0, 0.0, 0.0, 0.5]
    expected = [sum(0.5 ** (k - t) * r[k] for k in range(t, 5)) for t in range(5)]
    assert expected == [1.53125, 1.0625, 0.125, 0.25, 0.5]
    np.testing.assert_allclose(found[0], expected)
    np.testing.assert_allclose(found[1], [-2.0 + 0.5 * -0.5, -0.5])


def test_by_turn_an_adaptive_discount_counts_turns():
    credit = Credit(**PLAIN, adaptive_gamma_min_weight=0.25, assignment="turn")
    found = turn_advantages([[None, 1.0], [0.0]], [0, 0], credit).per_turn[0]
    # two turns: γ = 0.25^(1/2)
    np.testing.assert_allclose(found, [0.5 * 0.5, 0.5])


# ---- GRPO and its kin -------------------------------------------------------------------------


def test_grpo_gives_every_turn_the_normalised_outcome():
    found = turn_advantages([[None, None, 1.0], [None, 0.0]], ["a", "a"], GRPO)
    np.testing.assert_allclose(found.per_turn[0], [1.0, 1.0, 1.0], atol=1e-5)
    np.testing.assert_allclose(found.per_turn[1], [-1.0, -1.0], atol=1e-5)


def test_grpo_divides_by_the_population_deviation():
    found = turn_advantages([[1.0], [0.0], [0.0], [0.0]], [0] * 4, GRPO).per_turn
    deviation = math.sqrt(3) / 4
    assert found[0][0] == pytest.approx(0.75 / deviation, abs=1e-5)
    assert found[1][0] == pytest.approx(-0.25 / deviation, abs=1e-5)


def test_dr_grpo_only_centres():
    found = turn_advantages([[None, 1.0], [0.0], [0.0], [0.0]], [0] * 4, DR_GRPO).per_turn
    np.testing.assert_allclose(np.concatenate(found), [0.75, 0.75, -0.25, -0.25, -0.25])


def test_leave_one_out_takes_the_others_mean():
    found = turn_advantages([[None, 1.0], [0.5], [0.0]], [0] * 3, RLOO).per_turn
    np.testing.assert_allclose(np.concatenate(found), [0.75, 0.75, 0.0, -0.75])


def test_leave_one_out_leaves_out_the_whole_rollouts_gains():
    credit = Credit(**PLAIN, gamma=1.0, baseline="leave_one_out")
    values = [[4.0, 2.0, 0.0], [1.0, 0.0], [3.0, 0.0]]
    found = turn_advantages(values, [0] * 3, credit).per_turn
    np.testing.assert_allclose(found[0], [(4 - 2) + (2 - 2), 2 - 2, 0.0])
    np.testing.assert_allclose(found[1][0], 1 - 3)
    np.testing.assert_allclose(found[2][0], 3 - 7 / 3)


def test_leave_one_out_of_nothing_else_is_nothing():
    credit = Credit(**PLAIN, baseline="leave_one_out")
    assert turn_advantages([[2.0, 1.0]], [0], credit).per_turn[0].tolist() == [0.0, 0.0]


# ---- what is left out -------------------------------------------------------------------------


def test_a_broken_rollout_has_no_advantages():
    with pytest.raises(ValueError, match="broken"):
        advantages_of([[reward(1.0), reward()]], [0], IGPO)


@pytest.mark.parametrize("tools", [[], [["visit", None], ["visit", None]]])
def test_tools_are_needed_for_each_rollout_where_they_are_given(tools):
    with pytest.raises(ValueError, match="argument"):
        advantages_of([[reward(1.0), reward(outcome=1.0)]], [0], IGPO, tools)


def test_groups_without_signal_are_named():
    found = turn_advantages([[None, 1.0], [None, 1.0], [1.0], [0.0]], ["x", "x", "y", "y"], GRPO)
    assert found.silent_groups == ("x",)
    assert found.silent.tolist() == [True, True, False, False]


def test_a_rollout_may_be_silent_in_a_group_that_is_not():
    found = turn_advantages([[0.5], [1.0], [0.0]], [0, 0, 0], DR_GRPO)
    assert found.silent_groups == ()
    assert found.silent.tolist() == [True, False, False]


def test_a_batch_of_nothing_has_no_advantages():
    found = turn_advantages([], [], IGPO)
    assert (found.per_turn, found.silent_groups) == ([], ())


@pytest.mark.parametrize(
    ("values", "groups", "problem"),
    [
        ([[1.0, None]], [0], "last turn"),
        ([[]], [0], "last turn"),
        ([[1.0]], [0, 0], "groups"),
        ([[math.nan, 1.0]], [0], "finite"),
    ],
)
def test_values_that_cannot_be_are_refused(values, groups, problem):
    with pytest.raises(ValueError, match=problem):
        turn_advantages(values, groups, IGPO)


# ---- turns to tokens --------------------------------------------------------------------------


def test_every_agent_token_has_its_turns_advantage_and_no_other_has_any():
    found = token_advantages(np.array([2.0, -1.0]), [(3, 5), (8, 9)], 10)
    assert found.dtype == np.float32
    assert found.tolist() == [0, 0, 0, 2, 2, 0, 0, 0, -1, 0]


def test_an_empty_turn_has_no_token():
    assert token_advantages(np.array([2.0, -1.0]), [(1, 1), (1, 2)], 2).tolist() == [0, -1]


@pytest.mark.parametrize("spans", [[(0, 1)], [(0, 2), (1, 3)], [(0, 1), (2, 5)]])
def test_spans_that_do_not_fit_are_refused(spans):
    with pytest.raises(ValueError, match="spans"):
        token_advantages(np.zeros(2), spans, 4)
