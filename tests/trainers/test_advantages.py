"""Advantages by hand, and the order of operations."""

import math

import numpy as np
import pytest

from drv_env import SettingError, TurnReward
from trainers.advantages import GRPO, IGPO, Credit, ig_scale, turn_advantages, turn_values


def reward(gain=None, outcome=None, well_formed=True) -> TurnReward:
    return TurnReward(gain, well_formed, outcome)


def test_a_malformed_turn_is_penalised_even_without_a_gain():
    rewards = [reward(), reward(2.0), reward(well_formed=False), reward(outcome=1.0)]
    assert turn_values(rewards, IGPO) == [None, 2.0, -1.0, 1.0]


def test_a_malformed_gain_and_a_malformed_last_turn_are_replaced():
    rewards = [reward(2.0, well_formed=False), reward(outcome=1.0, well_formed=False)]
    assert turn_values(rewards, IGPO) == [-1.0, -1.0]
    assert turn_values(rewards, Credit(format_penalty=None)) == [2.0, 1.0]


def test_a_gain_of_zero_is_a_value_and_none_is_not():
    assert turn_values([reward(0.0), reward(None), reward(outcome=0.0)], IGPO) == [0.0, None, 0.0]


def test_grpo_uses_the_outcome_alone():
    rewards = [reward(5.0), reward(outcome=1.0)]
    assert turn_values(rewards, GRPO) == [None, 1.0]


def test_grpo_penalises_too_when_it_is_switched_on():
    credit = Credit(information_gain=False, format_penalty=0.5)
    rewards = [reward(5.0, well_formed=False), reward(outcome=1.0)]
    assert turn_values(rewards, credit) == [-0.5, 1.0]


def test_a_broken_rollout_has_no_advantages():
    with pytest.raises(ValueError, match="broken"):
        turn_values([reward(1.0), reward()], IGPO)


def test_the_penalty_comes_before_the_statistics():
    """Were −λ put in after normalising, the other rollout's gain would stay at zero."""
    credit = Credit(normalisation="separate", gamma=1.0)
    good = turn_values([reward(1.0), reward(outcome=1.0)], credit)
    bad = turn_values([reward(1.0, well_formed=False), reward(outcome=1.0)], credit)
    found = turn_advantages([good, bad], [0, 0], credit).per_turn
    # gains 1 and −1: mean 0, deviation 1; outcomes are equal, so they vanish
    assert found[0][0] == pytest.approx(1.0, abs=1e-5)
    assert found[1][0] == pytest.approx(-1.0, abs=1e-5)


def test_grpo_gives_every_turn_the_normalised_outcome():
    found = turn_advantages([[None, None, 1.0], [None, 0.0]], ["a", "a"], GRPO)
    np.testing.assert_allclose(found.per_turn[0], [1.0, 1.0, 1.0], atol=1e-5)
    np.testing.assert_allclose(found.per_turn[1], [-1.0, -1.0], atol=1e-5)


def test_an_unrewarded_turn_shares_the_next_return_and_gamma_counts_rewarded_turns():
    credit = Credit(normalisation="separate", std_norm=False, gamma=0.5)
    values = [[None, 3.0, None, None, 1.0], [1.0, 0.0]]
    found = turn_advantages(values, [0, 0], credit).per_turn[0]
    # gains 3, 1 about their mean 2; outcomes 1, 0 about 0.5
    last = 0.5
    first = 1.0 + 0.5 * last
    np.testing.assert_allclose(found, [first, first, last, last, last])


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


def test_groups_without_signal_are_named():
    found = turn_advantages([[None, 1.0], [None, 1.0], [1.0], [0.0]], ["x", "x", "y", "y"], GRPO)
    assert found.silent_groups == ("x",)


@pytest.mark.parametrize(
    "setting",
    [
        {"gamma": 0.0},
        {"gamma": 1.5},
        {"normalisation": "other"},
        {"format_penalty": -1.0},
        {"adaptive_gamma_min_weight": 2.0},
        {"gamma": math.nan},
    ],
)
def test_settings_that_cannot_work_are_refused(setting):
    with pytest.raises(SettingError):
        Credit(**setting)
