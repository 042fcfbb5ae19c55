"""Normalisation, scale and returns of every mode, with values computed by hand."""

import math

import numpy as np
import pytest

from drv_env import TurnReward
from trainers.advantages import IGPO, Credit, advantages_of, ig_scale, turn_advantages


def reward(gain=None, outcome=None) -> TurnReward:
    return TurnReward(gain, True, outcome)


def deviation(variance: float) -> float:
    return math.sqrt(variance + 1e-8) + 1e-6


EPISODES = [
    [reward(), reward(4.0), reward(), reward(outcome=1.0)],
    [reward(0.0), reward(outcome=0.0)],
]
TOOLS = [["search", "visit", "other", None], ["visit", None]]


def advantages(**settings) -> list[np.ndarray]:
    """Of the two episodes above as one group, γ one half."""
    settings = {"gamma": 0.5, **settings}
    return advantages_of(EPISODES, ["q", "q"], Credit(**settings), TOOLS).per_turn


def expect(found, *expected) -> None:
    assert len(found) == len(expected)
    for own, values in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, values, rtol=1e-12, atol=1e-15)


# ---- modes × std_norm × assignment ---------------------------------------------------------------
#
# By segment the gains are 4 and 0, mean 2, variance 4; by turn, with the search's copy, 4, 4 and
# 0, mean 8/3, variance 32/9.  The outcomes are 1 and 0, mean 1/2, variance 1/4.  All together,
# by segment: mean 5/4, variance 43/16; by turn: 4, 4, 0, 1, 0, mean 9/5, variance 84/25.


@pytest.mark.parametrize("divide", [True, False])
def test_gains_and_outcomes_apart(divide):
    gain, outcome = (2 / deviation(4), 0.5 / deviation(0.25)) if divide else (2, 0.5)
    visit = gain + 0.5 * outcome
    expect(
        advantages(normalisation="separate", std_norm=divide),
        [visit, visit, outcome, outcome],
        [-gain - 0.5 * outcome, -outcome],
    )
    third = (4 / 3) / deviation(32 / 9) if divide else 4 / 3
    visit = third + 0.25 * outcome
    expect(
        advantages(normalisation="separate", std_norm=divide, assignment="turn"),
        [third + 0.5 * visit, visit, 0.5 * outcome, outcome],
        [-2 * third - 0.5 * outcome, -outcome],
    )


@pytest.mark.parametrize("divide", [True, False])
def test_gains_and_outcomes_together(divide):
    by = deviation(43 / 16) if divide else 1
    visit = 2.75 / by + 0.5 * -0.25 / by
    expect(
        advantages(normalisation="joint", std_norm=divide),
        [visit, visit, -0.25 / by, -0.25 / by],
        [-1.25 / by + 0.5 * -1.25 / by, -1.25 / by],
    )
    by = deviation(84 / 25) if divide else 1
    last = -0.8 / by
    visit = 2.2 / by + 0.25 * last
    expect(
        advantages(normalisation="joint", std_norm=divide, assignment="turn"),
        [2.2 / by + 0.5 * visit, visit, 0.5 * last, last],
        [-1.8 / by + 0.5 * -1.8 / by, -1.8 / by],
    )


@pytest.mark.parametrize("divide", [True, False])
def test_scaled_gains_have_the_size_of_outcomes(divide):
    gain, outcome = (2 / deviation(4), 0.5 / deviation(0.25)) if divide else (2, 0.5)
    scaled = gain * outcome / (gain + 1e-6)  # M_O over M_IG, both sizes are those of each value
    visit = scaled + 0.5 * outcome
    expect(
        advantages(normalisation="scaled_separate", std_norm=divide),
        [visit, visit, outcome, outcome],
        [-scaled - 0.5 * outcome, -outcome],
    )
    third = (4 / 3) / deviation(32 / 9) if divide else 4 / 3
    scale = outcome / (4 / 3 * third + 1e-6)  # the mean of one, one and two thirds
    visit = scale * third + 0.25 * outcome
    expect(
        advantages(normalisation="scaled_separate", std_norm=divide, assignment="turn"),
        [scale * third + 0.5 * visit, visit, 0.5 * outcome, outcome],
        [-2 * scale * third - 0.5 * outcome, -outcome],
    )


@pytest.mark.parametrize("divide", [True, False])
def test_raw_gains_are_divided_whatever_the_outcomes_are(divide):
    """Not centred, the outcome added to each, no discount; as released, divided all the same."""
    outcome = 0.5 / deviation(0.25) if divide else 0.5
    visit = 4 / deviation(4) + outcome
    expect(
        advantages(normalisation="raw_ig", std_norm=divide),
        [visit, visit, outcome, outcome],
        [-outcome, -outcome],
    )
    visit = 4 / deviation(32 / 9) + outcome
    expect(
        advantages(normalisation="raw_ig", std_norm=divide, assignment="turn"),
        [visit, visit, outcome, outcome],
        [-outcome, -outcome],
    )


def test_by_turn_a_turn_without_a_raw_gain_has_the_outcome_alone():
    credit = Credit(normalisation="raw_ig", std_norm=False, assignment="turn")
    found = turn_advantages([[None, 3.0, None, 1.0], [1.0, 0.0]], [0, 0], credit).per_turn
    visit = 3 / deviation(1)
    expect(found, [0.5, visit + 0.5, 0.5, 0.5], [1 / deviation(1) - 0.5, -0.5])


def test_raw_gains_are_left_undiscounted_by_an_adaptive_gamma_too():
    found = advantages(normalisation="raw_ig", std_norm=False, adaptive_gamma_min_weight=0.25)
    visit = 4 / deviation(4) + 0.5
    expect(found, [visit, visit, 0.5, 0.5], [-0.5, -0.5])


# ---- the deviation's floors ----------------------------------------------------------------------


def test_the_floor_of_the_variance_is_under_the_root_and_epsilon_outside():
    """Gains 2 and 2 have no variance: √1e-8 + 1e-6 is left."""
    credit = Credit(normalisation="raw_ig")
    found = turn_advantages([[2.0, 0.0], [2.0, 0.0]], [0, 0], credit).per_turn
    assert found[0][0] == pytest.approx(2 / 0.000101, rel=1e-12)


def test_a_variance_of_the_size_of_its_floor_is_added_to_it():
    """Outcomes 0 and 2e-4 have a variance of 1e-8: 1e-4 / (√2 · 1e-4 + 1e-6)."""
    found = turn_advantages([[0.0], [2e-4]], [0, 0], IGPO).per_turn
    assert found[1][0] == pytest.approx(1 / 1.4242135623730951, rel=1e-9)


def test_a_pool_of_one_has_a_variance_of_one():
    credit = Credit(normalisation="raw_ig")
    found = turn_advantages([[3.0, 1.0], [0.0]], [0, 0], credit).per_turn
    assert found[0][0] == pytest.approx(3 / 1.000001 + 0.5 / deviation(0.25), rel=1e-10)
    # by itself a value is its own mean
    alone = turn_advantages([[3.0, 1.0], [0.0]], [0, 0], Credit(normalisation="separate")).per_turn
    assert alone[0][0] == pytest.approx(0.95 * 0.5 / deviation(0.25), rel=1e-12)


def test_the_deviation_is_the_populations():
    """Of 3, 0 and 0: mean 1, variance (4 + 1 + 1) / 3 = 2."""
    found = turn_advantages([[3.0], [0.0], [0.0]], [0] * 3, IGPO).per_turn
    expect(found, [2 / deviation(2)], [-1 / deviation(2)], [-1 / deviation(2)])


# ---- the scale -----------------------------------------------------------------------------------

NOTHING = np.zeros(0)


def test_the_scale_has_a_floor_a_bound_and_a_delta():
    scale = ig_scale(np.array([2.0, -1.0]), np.array([0.5, -0.7]), IGPO)
    assert scale == pytest.approx(0.6 / 1.500001, rel=1e-12)
    assert ig_scale(np.array([2.0]), np.array([0.1]), IGPO) == pytest.approx(0.3 / 2.000001)
    assert ig_scale(np.array([0.01]), np.array([0.5]), IGPO) == 10.0
    mine = Credit(scale_floor=0.8, scale_max=2.0)
    assert ig_scale(np.array([2.0]), np.array([0.1]), mine) == pytest.approx(0.8 / 2.000001)
    assert ig_scale(np.array([0.01]), np.array([0.5]), mine) == 2.0
    assert ig_scale(np.zeros(1), np.array([1.0]), Credit(scale_max=2e6)) == pytest.approx(1e6)


def test_a_mean_over_nothing_is_one():
    assert ig_scale(NOTHING, np.array([0.5]), IGPO) == pytest.approx(0.5 / 1.000001, rel=1e-12)
    assert ig_scale(np.array([2.0]), NOTHING, IGPO) == pytest.approx(1 / 2.000001, rel=1e-12)
    found = turn_advantages([[None, 1.0], [0.0]], [0, 0], IGPO)
    assert found.ig_scale == pytest.approx(0.5 / deviation(0.25) / 1.000001, rel=1e-12)


@pytest.mark.parametrize("mode", ["joint", "separate", "raw_ig"])
def test_only_scaled_gains_have_a_scale(mode):
    found = turn_advantages([[4.0, 1.0], [0.0, 0.0]], [0, 0], Credit(normalisation=mode))
    assert found.ig_scale == 1.0


# ---- weights -------------------------------------------------------------------------------------


def test_weights_multiply_what_is_normalised():
    weights = {"ig_weight": 3.0, "outcome_weight": 0.25, "std_norm": False}
    last = 0.25 * 0.5
    visit = 3 * 2 + 0.5 * last
    expect(
        advantages(normalisation="separate", **weights),
        [visit, visit, last, last],
        [-visit, -last],
    )
    visit = 3 * 4 / deviation(4) + last
    expect(
        advantages(normalisation="raw_ig", **weights), [visit, visit, last, last], [-last, -last]
    )
    visit = 3 * 2.75 + 0.5 * 0.25 * -0.25
    found = advantages(normalisation="joint", **weights)
    expect(found[:1], [visit, visit, 0.25 * -0.25, 0.25 * -0.25])


def test_the_scale_does_not_see_the_weights():
    plain = turn_advantages([[4.0, 1.0], [0.0, 0.0]], [0, 0], IGPO)
    credit = Credit(ig_weight=3.0, outcome_weight=2.0, gamma=0.5)
    found = turn_advantages([[4.0, 1.0], [0.0, 0.0]], [0, 0], credit)
    assert found.ig_scale == plain.ig_scale
    gain, outcome = 2 / deviation(4), 0.5 / deviation(0.25)
    scaled = gain * outcome / (gain + 1e-6)
    expect(found.per_turn[:1], [3 * scaled + 0.5 * 2 * outcome, 2 * outcome])


# ---- discounts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "weight", "expected"),
    [
        # two rewards in the sum: γ = w^(1/2); the turn without one counts in no exponent
        ([2.0, None, 1.0], 0.25, [2 + 0.5 * 0.5, 0.5, 0.5]),
        # three: γ = w^(1/3)
        ([2.0, 2.0, 1.0], 0.125, [2 + 0.5 * (2 + 0.5 * 0.5), 2 + 0.5 * 0.5, 0.5]),
        # one: there is nothing to discount
        ([None, None, 1.0], 0.25, [0.5, 0.5, 0.5]),
        ([1.0], 0.25, [0.5]),
    ],
)
def test_an_adaptive_gamma_depends_on_the_rewards_of_the_episode(values, weight, expected):
    credit = Credit(
        normalisation="separate", std_norm=False, gamma=0.9, adaptive_gamma_min_weight=weight
    )
    # the other episode's gains bring the mean of all to 0
    other = [-value for value in values[:-1] if value is not None] + [0.0]
    found = turn_advantages([values, other], [0, 0], credit).per_turn
    expect(found[:1], expected)


def test_groups_have_statistics_of_their_own_in_every_mode():
    for mode in ("joint", "separate", "raw_ig"):
        credit = Credit(normalisation=mode, gamma=0.5)
        values = [[4.0, 1.0], [0.0, 0.0], [7.0, 3.0], [5.0, 2.0]]
        both = turn_advantages(values, ["a", "a", "b", "b"], credit).per_turn
        expect(both[:2], *turn_advantages(values[:2], [0, 0], credit).per_turn)
        expect(both[2:], *turn_advantages(values[2:], [0, 0], credit).per_turn)


# ---- baselines -----------------------------------------------------------------------------------


def test_a_baseline_of_the_others_keeps_the_pools_deviation():
    """Outcomes 3, 0 and 0: the others' means are 0, 3/2 and 3/2; the variance is 2."""
    credit = Credit(information_gain=False, baseline="leave_one_out")
    found = turn_advantages([[3.0], [0.0], [0.0]], [0] * 3, credit).per_turn
    expect(found, [3 / deviation(2)], [-1.5 / deviation(2)], [-1.5 / deviation(2)])


def test_a_baseline_of_the_others_is_within_the_group():
    credit = Credit(information_gain=False, std_norm=False, baseline="leave_one_out")
    found = turn_advantages([[1.0], [0.0], [5.0], [7.0]], [0, 0, 1, 1], credit).per_turn
    expect(found, [1.0], [-1.0], [-2.0], [2.0])


def test_raw_gains_have_no_baseline_of_others_either():
    credit = Credit(normalisation="raw_ig", std_norm=False, baseline="leave_one_out")
    found = turn_advantages([[4.0, 1.0], [0.0, 0.0]], [0, 0], credit).per_turn
    # outcomes 1 − 0 and 0 − 1
    expect(found, [4 / deviation(4) + 1, 1.0], [-1.0, -1.0])


def test_together_the_others_mean_is_over_gains_and_outcomes():
    credit = Credit(normalisation="joint", std_norm=False, baseline="leave_one_out", gamma=1.0)
    found = turn_advantages([[4.0, 1.0], [3.0, 0.0]], [0, 0], credit).per_turn
    # the others' means are 3/2 and 5/2
    expect(found, [2.5 - 0.5, -0.5], [0.5 - 2.5, -2.5])
