"""Figures by hand."""

import itertools
import json
import math
from dataclasses import replace

import pytest

from agents.evaluate import evaluate, pass_at_k
from drv_env import Ending, SettingError, Task, TurnReward
from replay.trajectory import Trajectory, TurnRecord


def turn(tool=None, well_formed=True) -> TurnRecord:
    return TurnRecord("t", "", tool, None, well_formed, tool, None if tool is None else "ok")


def trajectory(outcome, *turns, ending=Ending.ANSWERED, question="q") -> Trajectory:
    last = len(turns) - 1
    rewards = tuple(
        TurnReward(None, item.well_formed, outcome if index == last else None)
        for index, item in enumerate(turns)
    )
    return Trajectory(Task(question, ("a",)), (), turns, rewards, ending)


def test_figures_by_hand():
    found = evaluate(
        [
            trajectory(1.0, turn("search"), turn("visit"), turn(), question="one"),
            trajectory(0.0, turn("search"), turn(well_formed=False), question="two"),
            trajectory(None, turn("visit"), ending=Ending.BROKEN),
        ]
    )
    assert (found.episodes, found.broken, found.tasks) == (2, 1, 2)
    assert found.success == 0.5
    assert found.standard_error == pytest.approx(math.sqrt(0.5 / 2))
    assert found.well_formed == pytest.approx(4 / 5)
    assert found.turns == 2.5
    assert found.calls == {"search": 1.0, "visit": 0.5}
    assert found.visit_ratio == pytest.approx(1 / 3)
    assert found.visit_ratio_correct == pytest.approx(1 / 2)
    assert found.visit_ratio_wrong == 0.0
    assert found.endings == {"answered": 2, "broken": 1}
    assert math.isnan(found.turn_tokens)


def test_questions_that_share_an_id_are_several():
    def played(question, outcome):
        made = trajectory(outcome, turn(), question=question)
        return replace(made, task=Task(question, ("a",), id="1"))

    found = evaluate([played("one", 1.0), played("two", 0.0), played("two", 0.0)])
    assert found.tasks == 2
    assert found.pass_at == {1: 0.5, 2: 0.0}  # of one alone it would be 1/3, and 2/3


def test_pass_at_k_is_the_share_of_draws_with_a_correct_sample():
    for samples, correct, k in [(5, 2, 1), (5, 2, 3), (6, 1, 4), (4, 0, 2), (4, 4, 4)]:
        draws = list(itertools.combinations([1] * correct + [0] * (samples - correct), k))
        expected = sum(any(draw) for draw in draws) / len(draws)
        assert pass_at_k(samples, correct, k) == pytest.approx(expected)
    with pytest.raises(SettingError, match="pass@3"):
        pass_at_k(2, 1, 3)


def test_pass_at_k_leaves_out_tasks_with_too_few_whole_samples():
    def samples(question, *outcomes):
        return [trajectory(value, turn(), question=question) for value in outcomes]

    broken = trajectory(None, turn(), ending=Ending.BROKEN, question="two")
    found = evaluate([*samples("one", 1, 0, 0, 0), *samples("two", 0, 1), broken, broken])
    assert found.pass_at == {
        1: pytest.approx((0.25 + 0.5) / 2),
        2: pytest.approx((0.5 + 1.0) / 2),
        4: 1.0,
    }


def test_samples_of_one_task_are_not_taken_for_independent_ones():
    def run(copies):
        return evaluate(
            [
                trajectory(float(number % 2), turn(), question=f"q{number}")
                for number in range(20)
                for _ in range(copies)
            ]
        )

    assert run(8).standard_error == pytest.approx(run(1).standard_error)
    assert run(8).interval == pytest.approx(run(1).interval)


def test_the_interval_of_full_marks_is_not_a_point():
    low, high = evaluate([trajectory(1.0, turn(), question=f"q{n}") for n in range(10)]).interval
    assert high == 1.0
    assert low == pytest.approx(0.7225, abs=1e-3)  # Wilson's, 10 of 10


@pytest.mark.parametrize("outcomes", [[1, 0, 0], [0.1], [0.7] * 3, [1] + [0] * 5])
def test_tasks_that_all_come_out_alike_are_no_proof(outcomes):
    """Whatever rounding makes of the spread between them, which is none."""
    found = evaluate(
        [trajectory(value, turn(), question=f"q{n}") for n in range(5) for value in outcomes]
    )
    low, high = found.interval
    assert high - low > 0.3


def test_figures_go_into_json_and_a_table():
    found = evaluate([trajectory(1.0, turn(), question="one")])
    again = json.loads(json.dumps(found.to_json()))
    assert again["visit_ratio"] is None
    assert again["pass_at"] == {"1": 1.0}
    names = [name for name, _ in found.rows()]
    assert "accuracy" in names
    assert "visit ratio" not in names


def test_every_figure_has_its_row():
    def called(tool, status, cost):
        return TurnRecord("t", "", tool, None, True, tool, status, tokens=300, cost=cost)

    last = TurnRecord("t", "", None, None, False, None, None, tokens=700)
    found = evaluate(
        [
            trajectory(1.0, called("search", "ok", 0.75), last, question="one"),
            trajectory(1.0, called("visit", "ok", 0.5), last, question="one"),
            trajectory(0.0, called("visit", "failed", 0.0), last, question="two"),
            trajectory(None, called("visit", "ok", 9.0), ending=Ending.BROKEN, question="two"),
        ]
    )
    assert found.rows()[3:] == [
        ("pass@1", "50.0%"),  # 1 of "one", 0 of "two"
        ("pass@2", "100.0%"),  # of "one" alone, which has two samples
        ("ending answered", "3"),
        ("ending broken", "1"),
        ("turns an episode", "2.0"),
        ("well-formed turns", "50.0%"),
        ("sampled tokens an episode", "1,000"),
        ("calls of visit an episode", "0.7"),
        ("calls of search an episode", "0.3"),
        ("failed calls", "33.3%"),
        ("visit ratio", "66.7%"),
        ("visit ratio, correct", "50.0%"),
        ("visit ratio, wrong", "100.0%"),
        ("cost of calls", "US$ 1.25"),
    ]
    assert found.rows()[1:3] == [("questions, episodes", "2, 3"), ("broken, not counted", "1")]


@pytest.mark.parametrize(("outcome", "right"), [(1.0, True), (0.5, True), (0.49, False)])
def test_an_outcome_of_a_half_and_more_is_correct(outcome, right):
    found = evaluate([trajectory(outcome, turn("visit"), turn())])
    assert found.pass_at == {1: float(right)}
    assert found.visit_ratio_correct == pytest.approx(1.0 if right else math.nan, nan_ok=True)
    assert found.visit_ratio_wrong == pytest.approx(math.nan if right else 1.0, nan_ok=True)


def test_without_tool_calls_there_is_no_visit_ratio():
    assert math.isnan(evaluate([trajectory(1.0, turn())]).visit_ratio)


def test_an_answer_that_nobody_scored_is_no_failure():
    with pytest.raises(ValueError, match="nobody scored"):
        evaluate([trajectory(1.0, turn()), trajectory(None, turn())])
