"""Figures by hand."""

import math

import pytest

from agents.evaluate import evaluate
from drv_env import Ending, Task, TurnReward
from replay.trajectory import Trajectory, TurnRecord


def turn(tool=None, well_formed=True) -> TurnRecord:
    return TurnRecord("t", "", tool, None, well_formed, tool, None if tool is None else "ok")


def trajectory(outcome, *turns, ending=Ending.ANSWERED) -> Trajectory:
    last = len(turns) - 1
    rewards = tuple(
        TurnReward(None, item.well_formed, outcome if index == last else None)
        for index, item in enumerate(turns)
    )
    return Trajectory(Task("q", ("a",)), (), turns, rewards, ending)


def test_figures_by_hand():
    found = evaluate(
        [
            trajectory(1.0, turn("search"), turn("visit"), turn()),
            trajectory(0.0, turn("search"), turn(well_formed=False)),
            trajectory(None, turn("visit"), ending=Ending.BROKEN),
        ]
    )
    assert (found.episodes, found.broken) == (2, 1)
    assert found.success == 0.5
    assert found.standard_error == pytest.approx(math.sqrt(0.5 / 2))
    assert found.well_formed == pytest.approx(4 / 5)
    assert found.turns == 2.5
    assert found.visit_ratio == pytest.approx(1 / 3)
    assert found.endings == {"answered": 2, "broken": 1}


def test_without_tool_calls_there_is_no_visit_ratio():
    assert math.isnan(evaluate([trajectory(1.0, turn())]).visit_ratio)


def test_an_answer_that_nobody_scored_is_no_failure():
    with pytest.raises(ValueError, match="nobody scored"):
        evaluate([trajectory(1.0, turn()), trajectory(None, turn())])
