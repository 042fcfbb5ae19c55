"""What each turn is worth before any statistics: penalties, copied gains, presets, refusals."""

import math

import pytest

from drv_env import SettingError, TurnReward
from trainers.credit import (
    DR_GRPO,
    GRPO,
    IGPO,
    RLOO,
    Credit,
    penalised_turns,
    shared_gains,
    turn_values,
)

BY_TURN = Credit(assignment="turn")


def reward(gain=None, outcome=None, well_formed=True) -> TurnReward:
    return TurnReward(gain, well_formed, outcome)


def test_a_malformed_turn_is_penalised_even_without_a_gain():
    rewards = [reward(), reward(2.0), reward(well_formed=False), reward(outcome=1.0)]
    assert turn_values(rewards, IGPO) == [None, 2.0, -1.0, 1.0]
    assert penalised_turns(rewards, IGPO) == [False, False, True, False]


def test_a_malformed_gain_and_a_malformed_last_turn_are_replaced():
    rewards = [reward(2.0, well_formed=False), reward(outcome=1.0, well_formed=False)]
    assert turn_values(rewards, IGPO) == [-1.0, -1.0]
    assert turn_values(rewards, Credit(format_penalty=None)) == [2.0, 1.0]
    assert penalised_turns(rewards, Credit(format_penalty=None)) == [False, False]


def test_a_gain_of_zero_is_a_value_and_none_is_not():
    assert turn_values([reward(0.0), reward(None), reward(outcome=0.0)], IGPO) == [0.0, None, 0.0]


def test_grpo_uses_the_outcome_alone():
    rewards = [reward(5.0), reward(outcome=1.0)]
    for credit in (GRPO, DR_GRPO, RLOO):
        assert turn_values(rewards, credit) == [None, 1.0]


def test_grpo_penalises_too_when_it_is_switched_on():
    credit = Credit(information_gain=False, format_penalty=0.5)
    rewards = [reward(5.0, well_formed=False), reward(outcome=1.0)]
    assert turn_values(rewards, credit) == [-0.5, 1.0]
    by_turn = Credit(information_gain=False, format_penalty=0.5, assignment="turn")
    assert turn_values(rewards, by_turn) == [-0.5, 1.0]


def test_a_broken_rollout_has_no_values():
    with pytest.raises(ValueError, match="broken"):
        turn_values([reward(1.0), reward()], IGPO)


def test_by_turn_a_gain_is_copied_to_the_searches_since_the_visit_before():
    tools = ["search", "search", "visit", "search", "visit", "search", None]
    rewards = [reward(), reward(), reward(2.0), reward(), reward(-1.0), reward(), reward(None, 1.0)]
    assert turn_values(rewards, BY_TURN, tools) == [2.0, 2.0, 2.0, -1.0, -1.0, None, 1.0]
    assert turn_values(rewards, IGPO, tools) == [None, None, 2.0, None, -1.0, None, 1.0]


def test_a_visit_without_a_gain_keeps_its_searches_from_the_next_one():
    gains = [None, None, None, 2.0]
    tools = ["search", "visit", "search", "visit"]
    assert shared_gains(gains, tools, ["visit"], ["search"]) == [None, None, 2.0, 2.0]


def test_turns_that_call_something_else_share_nothing_and_end_nothing():
    gains = [None, None, None, 2.0]
    tools = ["search", "calculator", None, "visit"]
    assert shared_gains(gains, tools, ["visit"], ["search"]) == [2.0, None, None, 2.0]


def test_a_malformed_search_has_the_penalty_instead_of_the_copy():
    rewards = [reward(well_formed=False), reward(2.0), reward(outcome=1.0)]
    assert turn_values(rewards, BY_TURN, ["search", "visit", None]) == [-1.0, 2.0, 1.0]


def test_a_malformed_visit_has_the_penalty_and_its_searches_the_gain():
    rewards = [reward(), reward(2.0, well_formed=False), reward(outcome=1.0)]
    assert turn_values(rewards, BY_TURN, ["search", "visit", None]) == [2.0, -1.0, 1.0]


def test_names_of_tools_are_the_users():
    credit = Credit(assignment="turn", search_tools=("look_up",))
    rewards = [reward(), reward(2.0), reward(outcome=1.0)]
    assert turn_values(rewards, credit, ["look_up", "open", None], ["open"]) == [2.0, 2.0, 1.0]


def test_gains_by_turn_need_the_tools():
    with pytest.raises(ValueError, match="tool that each turn called"):
        turn_values([reward(1.0), reward(outcome=1.0)], BY_TURN)


@pytest.mark.parametrize(
    "setting",
    [
        {"gamma": 0.0},
        {"gamma": 1.5},
        {"gamma": math.nan},
        {"normalisation": "other"},
        {"assignment": "step"},
        {"baseline": "median"},
        {"search_tools": "search"},
        {"format_penalty": -1.0},
        {"format_penalty": math.nan},
        {"ig_weight": math.inf},
        {"ig_weight": -0.5},
        {"outcome_weight": -1.0},
        {"ig_weight_final": math.nan},
        {"outcome_weight_final": -1.0},
        {"scale_floor": -0.1},
        {"scale_max": math.inf},
        {"adaptive_gamma_min_weight": -0.1},
        {"adaptive_gamma_min_weight": 1.1},
        {"adaptive_gamma_min_weight": 2.0},
        {"penalty_alone": True, "format_penalty": None},
    ],
)
def test_settings_that_cannot_work_are_refused(setting):
    with pytest.raises(SettingError, match=next(iter(setting))):
        Credit(**setting)


def test_settings_at_the_edge_work():
    Credit(gamma=1.0, adaptive_gamma_min_weight=1.0, ig_weight=0.0, format_penalty=0.0)
    Credit(scale_floor=0.0, scale_max=0.0, penalty_alone=True)


def test_the_presets_are_what_they_are_called():
    assert (IGPO.information_gain, IGPO.assignment, IGPO.normalisation) == (
        True,
        "segment",
        "scaled_separate",
    )
    assert (IGPO.gamma, IGPO.format_penalty, IGPO.penalty_alone) == (0.95, 1.0, False)
    assert (IGPO.ig_weight, IGPO.outcome_weight, IGPO.moves) == (1.0, 1.0, False)
    assert (IGPO.scale_floor, IGPO.scale_max, IGPO.adaptive_gamma_min_weight) == (0.3, 10.0, 0.0)
    assert IGPO.search_tools == ("search",)
    for credit in (GRPO, DR_GRPO, RLOO):
        assert (credit.information_gain, credit.format_penalty) == (False, None)
    assert [credit.std_norm for credit in (IGPO, GRPO, DR_GRPO, RLOO)] == [True, True, False, False]
    assert [credit.baseline for credit in (IGPO, GRPO, DR_GRPO, RLOO)] == [
        "mean",
        "mean",
        "mean",
        "leave_one_out",
    ]


def test_weights_move_in_a_straight_line_over_the_run():
    """The release's curriculum: outcomes from 0.5 to 1, gains from 1 to 0.5."""
    credit = Credit(
        ig_weight=1.0, ig_weight_final=0.5, outcome_weight=0.5, outcome_weight_final=1.0, gamma=0.8
    )
    assert credit.moves
    found = [credit.at(step, 4) for step in (1, 2, 4, 5)]
    assert [item.ig_weight for item in found] == [0.875, 0.75, 0.5, 0.5]
    assert [item.outcome_weight for item in found] == [0.625, 0.75, 1.0, 1.0]
    assert not any(item.moves for item in found)
    assert found[0].gamma == 0.8


def test_a_weight_may_move_alone_or_to_nothing():
    gains = Credit(ig_weight=2.0, ig_weight_final=0.0)
    assert gains.moves
    assert (gains.at(3, 4).ig_weight, gains.at(4, 4).ig_weight) == (0.5, 0.0)
    assert gains.at(3, 4).outcome_weight == 1.0
    outcomes = Credit(outcome_weight_final=0.0)
    assert outcomes.moves
    assert (outcomes.at(1, 4).ig_weight, outcomes.at(1, 4).outcome_weight) == (1.0, 0.75)
    assert IGPO.at(1, 4) == IGPO
