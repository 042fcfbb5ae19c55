"""A step's advantages: who counts, who is learnt from, which settings hold."""

import numpy as np
import pytest

from drv_env import TurnReward
from drv_env.episode import Ending
from drv_env.errors import DrvError, SettingError
from drv_env.tasks import Task
from replay.trajectory import Trajectory, TurnRecord
from trainers.advantages import Advantages
from trainers.credit import DR_GRPO, Credit
from trainers.registry import ADVANTAGES
from trainers.rl_config import RLConfig
from trainers.step_advantages import step_advantages


def trajectory(*gains, outcome=0.0, tools=None, ending=Ending.ANSWERED) -> Trajectory:
    called = tools or [*("visit" for _ in gains), None]
    return Trajectory(
        task=Task("Who?", ("Salen",)),
        opening=(),
        turns=tuple(TurnRecord("x", "", tool, None, True, tool) for tool in called),
        rewards=(
            *(TurnReward(gain, True, None) for gain in gains),
            TurnReward(None, True, None if ending is Ending.BROKEN else outcome),
        ),
        ending=ending,
        error="tools are down" if ending is Ending.BROKEN else None,
    )


BROKEN = trajectory(1.0, ending=Ending.BROKEN)
OUTCOMES = RLConfig(credit=DR_GRPO)


def played(*outcomes) -> list[Trajectory]:
    return [trajectory(outcome=outcome) for outcome in outcomes]


def test_broken_episodes_are_in_no_statistic_and_positions_are_those_of_the_step():
    step = [BROKEN, *played(1.0, 0.0), BROKEN, *played(0.0)]
    found = step_advantages(step, [0, 0, 0, 0, 0], OUTCOMES)
    assert (found.whole, found.learnt) == ([1, 2, 4], [1, 2, 4])
    np.testing.assert_allclose(np.concatenate(found.per_turn), [2 / 3, -1 / 3, -1 / 3])
    assert found.metrics == {"silent_groups": 0.0, "dropped_rollouts": 0.0}


def test_a_step_that_is_not_numbered_is_the_first():
    config = RLConfig(credit=Credit(ig_weight=0.0, ig_weight_final=1.0), steps=4)
    assert step_advantages(played(1.0, 0.0), [0, 0], config).metrics["ig_weight"] == 0.25


def test_where_all_broke_the_step_and_the_last_error_are_named():
    with pytest.raises(DrvError, match=r"all 2 episodes of step 7 broke; the last: tools are down"):
        step_advantages([BROKEN, BROKEN], [0, 0], OUTCOMES, 7)


@pytest.mark.parametrize(
    ("drop", "learnt"), [("rollouts", [1, 2]), ("groups", [0, 1, 2]), ("none", [0, 1, 2, 3, 4])]
)
def test_what_has_no_signal_is_dropped_as_asked(drop, learnt):
    """Of 0.5, 1 and 0 the first is the mean; the second group is silent."""
    step = played(0.5, 1.0, 0.0, 1.0, 1.0)
    found = step_advantages(step, [0, 0, 0, 1, 1], RLConfig(credit=DR_GRPO, drop_silent=drop))
    assert found.learnt == learnt
    assert len(found.per_turn) == len(learnt)
    assert found.whole == [0, 1, 2, 3, 4]
    assert found.metrics == {"silent_groups": 0.5, "dropped_rollouts": 5.0 - len(learnt)}


def test_a_group_that_broke_whole_counts_among_the_groups():
    step = [*played(1.0, 1.0), BROKEN, BROKEN]
    assert step_advantages(step, [0, 0, 1, 1], OUTCOMES).metrics["silent_groups"] == 0.5


def test_tools_and_their_names_come_from_trajectories_and_settings():
    """By turn the search gets the visit's gain: gains 2, 2 and −1 about their mean 1."""
    credit = Credit(
        normalisation="separate", std_norm=False, assignment="turn", gamma=0.5, format_penalty=None
    )
    step = [
        trajectory(None, 2.0, tools=["search", "visit", None]),
        trajectory(-1.0),
    ]
    found = step_advantages(step, [0, 0], RLConfig(credit=credit))
    np.testing.assert_allclose(found.per_turn[0], [1.5, 1.0, 0.0])
    np.testing.assert_allclose(found.per_turn[1], [-2.0, 0.0])
    assert found.metrics["ig_scale"] == 1.0


def test_weights_that_move_are_those_of_the_step():
    credit = Credit(
        normalisation="separate",
        std_norm=False,
        gamma=1.0,
        ig_weight=1.0,
        ig_weight_final=0.0,
        outcome_weight=0.0,
        outcome_weight_final=2.0,
    )
    config = RLConfig(credit=credit, steps=4)
    step = [trajectory(4.0, outcome=1.0), trajectory(0.0)]
    # gains ±2 about their mean, outcomes ±1/2
    for number, (gain, outcome) in {1: (0.75, 0.5), 3: (0.25, 1.5), 4: (0.0, 2.0)}.items():
        found = step_advantages(step, [0, 0], config, number)
        assert found.metrics["ig_weight"] == gain
        assert found.metrics["outcome_weight"] == outcome
        last = 0.5 * outcome
        np.testing.assert_allclose(found.per_turn[0], [2 * gain + last, last])


def test_an_estimator_of_ones_own_has_the_settings_of_the_step():
    seen = []

    @ADVANTAGES.register("tests_seen")
    def own(trajectories, groups, config):
        seen.append((config.credit.ig_weight, config.credit.ig_weight_final, config.steps))
        return Advantages.of([np.ones(len(item.turns)) for item in trajectories], groups)

    credit = Credit(ig_weight=1.0, ig_weight_final=0.0)
    config = RLConfig(credit=credit, steps=4, advantages="tests_seen")
    step_advantages(played(1.0, 0.0), [0, 0], config, 2)
    assert seen == [(0.5, None, 4)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([np.ones(1)], "1 rollouts for 2"),
        ([np.ones(1), np.ones(2)], r"one of 1 turns they gave \[1.0, 1.0\]"),
        ([np.ones(1), np.array([np.nan])], r"finite .* gave \[nan\]"),
        ([np.ones(1), np.float64(1.0)], "each turn"),
    ],
)
def test_advantages_that_do_not_fit_the_rollouts_are_refused(given, said):
    @ADVANTAGES.register("tests_unfit")
    def unfit(trajectories, groups, config):
        return Advantages(given, 1.0, (), np.zeros(2, bool))

    with pytest.raises(SettingError, match=f"'tests_unfit'.*{said}"):
        step_advantages(played(1.0, 0.0), [0, 0], RLConfig(advantages="tests_unfit"))


@pytest.mark.parametrize(("given", "said"), [([0.5, 0.5], "gave list"), (None, "gave NoneType")])
def test_advantages_of_another_type_are_refused(given, said):
    @ADVANTAGES.register("tests_untyped")
    def untyped(trajectories, groups, config):
        return given

    with pytest.raises(SettingError, match=rf"'tests_untyped' must give .*Advantages.of\(.*{said}"):
        step_advantages(played(1.0, 0.0), [0, 0], RLConfig(advantages="tests_untyped"))


def test_an_estimator_that_nobody_registered_is_refused():
    with pytest.raises(SettingError, match="no way to advantages 'tests_nobody'"):
        step_advantages(played(1.0, 0.0), [0, 0], RLConfig(advantages="tests_nobody"))
