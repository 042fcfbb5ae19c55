"""A tie up to rounding is a tie, whatever scale comes behind it; a small difference is none."""

import numpy as np
import pytest

from trainers.advantages import Advantages, Credit, rounding, turn_advantages

MODES = ("joint", "separate", "scaled_separate")
THIRD = 0.1 + 0.2  # 0.30000000000000004


def silent(values, **settings) -> list[bool]:
    found = turn_advantages(values, [0] * len(values), Credit(**settings))
    assert (found.silent_groups == (0,)) == found.silent.all()
    return found.silent.tolist()


@pytest.mark.parametrize("baseline", ["mean", "leave_one_out"])
@pytest.mark.parametrize("std_norm", [True, False])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "gains",
    [
        (THIRD, 0.3),
        (THIRD - 0.3, 0.0),  # a gain of nothing, up to the rounding of the beliefs
        (sum([0.1] * 10), 1.0),
        (1e6 * THIRD, 3e5),
        (-7.3 - -7.4, 0.1),  # a difference of beliefs
    ],
)
def test_gains_that_differ_by_rounding_are_a_silent_group(gains, mode, std_norm, baseline):
    settings = {"normalisation": mode, "std_norm": std_norm, "baseline": baseline}
    outcome = gains[1] if mode == "joint" else 0.0
    assert silent([[gains[0], outcome], [gains[1], outcome]], **settings) == [True, True]


@pytest.mark.parametrize("mode", [*MODES, "raw_ig"])
@pytest.mark.parametrize("std_norm", [True, False])
def test_outcomes_that_differ_by_rounding_are_a_silent_group(mode, std_norm):
    settings = {"normalisation": mode, "std_norm": std_norm}
    assert silent([[None, THIRD], [0.3], [0.3]], **settings) == [True] * 3
    assert silent([[3e8 * 0.1], [3e7]], **settings) == [True, True]


def test_a_raw_gain_of_rounding_is_none():
    found = turn_advantages(
        [[THIRD - 0.3, 0.0], [0.0, 0.0]], [0, 0], Credit(normalisation="raw_ig")
    )
    assert found.silent.tolist() == [True, True]


def test_the_edge_belongs_to_the_tie():
    raw = {"normalisation": "raw_ig"}
    assert silent([[1e-12, 0.0], [0.0, 0.0]], **raw) == [True, True]
    assert silent([[1.1e-12, 0.0], [0.0, 0.0]], **raw) == [False, True]
    assert own([1e-12], [0.0]).silent.tolist() == [True, True]


@pytest.mark.parametrize("std_norm", [True, False])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("gains", [(-3.0, -3.0 + 1e-9), (1e-9, 2e-9), (1e6, 1e6 + 1e-3), (0, 1e-9)])
def test_a_small_difference_is_a_signal(gains, mode, std_norm):
    found = silent([[gains[0], 0.0], [gains[1], 0.0]], normalisation=mode, std_norm=std_norm)
    assert found == [False, False]


def test_a_small_difference_stays_one_behind_a_scale_that_makes_it_smaller():
    """Group 0 has gains of 1e6, so that s is some 1e-6; 5e-9 of group 1 becomes 5e-15."""
    values = [[1e6, 0.0], [-1e6, 0.0], [1e-8, 0.0], [0.0, 0.0]]
    found = turn_advantages(values, [0, 0, 1, 1], Credit(std_norm=False))
    assert found.ig_scale == pytest.approx(6e-7, rel=1e-6)
    assert found.silent_groups == ()


def test_one_of_the_mean_is_silent_among_others():
    assert silent([[0.0], [THIRD], [0.6]], information_gain=False) == [False, True, False]


def test_the_tie_is_of_its_own_pool():
    """Large gains in one group, and outcomes, forgive no difference in another pool."""
    values = [[1e9, 0.0], [-1e9, 0.0], [1e-6, 0.0], [0.0, 0.0]]
    found = turn_advantages(values, [0, 0, 1, 1], Credit(normalisation="separate"))
    assert found.silent.tolist() == [False] * 4
    found = turn_advantages([[1e-6, 1e9], [0.0, 1e9]], [0, 0], Credit(normalisation="separate"))
    assert found.silent.tolist() == [False] * 2


def test_rounding_is_a_billionth_of_a_thousandth_of_the_largest_and_at_least_of_one():
    assert rounding(np.array([0.5, -0.25])) == 1e-12
    assert rounding(np.array([3.0, -5e6])) == pytest.approx(5e-6, rel=1e-15)
    assert rounding(np.zeros(0)) == 1e-12


# ---- advantages of one's own ---------------------------------------------------------------------


def own(*rollouts, groups=None, **settings) -> Advantages:
    arrays = [np.array(values) for values in rollouts]
    return Advantages.of(arrays, groups or [0] * len(arrays), **settings)


def test_ones_own_advantages_are_silent_where_they_are_rounding():
    assert own([THIRD - 0.3], [0.0, 0.0]).silent.tolist() == [True, True]
    assert own([1e-9, 0.0], [0.0]).silent.tolist() == [False, True]
    # of numbers of this size 1e-7 is rounding
    large = own([1e6], [1e-7], [-1e-7], groups=["a", "b", "b"])
    assert large.silent.tolist() == [False, True, True]
    assert large.silent_groups == ("b",)


def test_the_size_of_what_was_subtracted_can_be_told():
    noise = [2e-10], [-2e-10]  # 0.1 · 3e6 less 3e5, for instance
    assert own(*noise).silent.tolist() == [False, False]
    assert own(*noise, tie=rounding(np.array([3e5]))).silent.tolist() == [True, True]
    assert own([1e-300], [0.0], tie=0.0).silent.tolist() == [False, True]


def test_the_order_of_silent_groups_is_that_of_the_rollouts():
    found = own([0.0], [0.0], [1.0], [0.0], groups=["y", "x", "z", "y"], ig_scale=2.0)
    assert found.silent_groups == ("y", "x")
    assert (found.ig_scale, own([1.0]).ig_scale) == (2.0, 1.0)
    assert own(groups=None).silent_groups == ()
    with pytest.raises(ValueError, match="argument"):
        own([0.0], [0.0], groups=[0])
