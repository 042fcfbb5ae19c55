"""Information gain as a definition on numbers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drv_env.episode import Episode, ObservationKind, Rules
from drv_env.errors import SettingError
from drv_env.protocol import Search, Visit, render_turn
from drv_env.rewards.information_gain import (
    GainTracker,
    answer_value,
    check_settings,
    finite_or_none,
    gain,
    gains,
    is_scored,
    shows_result,
)
from drv_env.tasks import Task
from drv_env.tools import Status, ToolResult

FINITE = st.floats(-50, 0)


def test_a_gain_is_the_difference_of_log_probs_or_of_probabilities() -> None:
    assert gain(-3.0, -1.0) == 2.0
    assert gain(-1.0, -3.0) == -2.0
    assert gain(math.log(0.2), math.log(0.5), "prob_diff") == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], []),
        ([-1.0], []),
        ([-1.0, -1.0], [0.0]),
        ([-3.0, -2.0, -4.0], [1.0, -2.0]),
        ([None, -2.0, -1.0], [None, 1.0]),
        ([-3.0, None, None, -1.0], [None, None, 2.0]),
        ([None, None], [None]),
    ],
)
def test_gains_are_measured_from_the_last_value_there_is(values: list, expected: list) -> None:
    assert gains(values) == expected


@given(st.lists(st.one_of(FINITE, st.none()), max_size=12))
def test_gains_add_up_to_the_whole_difference(values: list[float | None]) -> None:
    found = gains(values)
    assert len(found) == max(len(values) - 1, 0)
    known = [value for value in values if value is not None]
    total = sum(value for value in found if value is not None)
    assert total == pytest.approx(known[-1] - known[0] if known else 0.0, abs=1e-9)


def test_what_is_no_number_is_none_and_zero_is_zero() -> None:
    assert [finite_or_none(v) for v in (0.0, -1.0, math.nan, math.inf, -math.inf)] == [
        0.0,
        -1.0,
        None,
        None,
        None,
    ]


def test_the_best_of_several_answers_is_the_best_finite_one() -> None:
    values = {"a": -3.0, "b": -1.0, "c": math.nan, "d": math.inf}
    assert answer_value(values.__getitem__, list("abcd")) == -3.0
    assert answer_value(values.__getitem__, list("abcd"), "best") == -1.0
    assert answer_value(values.__getitem__, list("cd"), "best") is None
    assert answer_value(values.__getitem__, list("ca")) is None


def test_the_first_answer_alone_is_asked_for() -> None:
    asked: list[str] = []

    def score(answer: str) -> float:
        asked.append(answer)
        return -1.0

    answer_value(score, ["a", "b"])
    assert asked == ["a"]


def test_a_turn_is_scored_when_the_agent_saw_what_the_tool_found() -> None:
    episode = Episode(Task("Q", ("A",)), Rules(max_turns=4))
    for action, status in (
        (Visit(("a",), ""), Status.OK),
        (Visit(("b",), ""), Status.FAILED),
        (Search(("c",)), Status.OK),
    ):
        episode.take(render_turn("t", action))
        episode.give(ToolResult("x", status))
    episode.take(render_turn("t", Visit(("d",), "")))
    episode.take("hello")
    assert [is_scored(turn, ("visit",)) for turn in episode.turns] == [True] + [False] * 4
    assert [is_scored(turn, {"search"}) for turn in episode.turns] == [False, False, True] + [
        False
    ] * 2


@pytest.mark.parametrize(
    ("tool", "status", "kind", "scored"),
    [
        ("visit", "ok", "result", True),
        ("visit", "empty", "result", True),
        ("visit", Status.REFUSED, ObservationKind.RESULT, True),
        ("visit", "failed", "result", False),
        ("visit", "ok", "budget", False),
        ("visit", None, "result", False),
        ("visit", "ok", None, False),
        ("search", "ok", "result", False),
        (None, None, "malformed", False),
    ],
)
def test_the_bare_facts_decide(tool, status, kind, scored: bool) -> None:
    assert shows_result(tool, status, kind, ("visit",)) is scored


def test_failed_calls_are_scored_where_it_is_asked_for() -> None:
    for status, scored in (("failed", True), ("ok", True), (None, False)):
        assert shows_result("visit", status, "result", ("visit",), failed=True) is scored
    assert not shows_result("visit", "failed", "budget", ("visit",), failed=True)
    assert not shows_result("search", "failed", "result", ("visit",), failed=True)


def test_the_tracker_pays_a_failed_call_where_it_is_asked_to() -> None:
    class Scorer:
        """Believes more with every message."""

        def score(self, messages, answer, transcript=None) -> float:
            return -10.0 + len(messages)

    found = {}
    for failed in (False, True):
        episode = Episode(Task("Q", ("A",)), Rules(system_prompt=""))
        tracker = GainTracker(
            Scorer(), ("visit",), "log_prob_diff", "first", {"visit"}, failed=failed
        )
        tracker.begin(episode)
        gains = []
        for url, status in (("a", Status.FAILED), ("b", Status.OK)):
            episode.take(render_turn("t", Visit((url,), "")))
            episode.give(ToolResult("x", status))
            gains.append(tracker.after_turn(episode))
        found[failed] = gains
    # the opening has one message, and every turn adds two
    assert found == {False: [None, 4.0], True: [2.0, 2.0]}


def test_a_tracker_refuses_what_is_no_scorer_and_tools_that_are_not_there() -> None:
    class TheScorer:
        def score(self, messages, answer, transcript=None) -> float:
            return 0.0

    settings = ("log_prob_diff", "first", {"visit"})
    with pytest.raises(SettingError, match="a scorer needs a method score"):
        GainTracker(object(), ("visit",), *settings)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="there is no tool 'open' to score"):
        GainTracker(TheScorer(), ("open",), *settings)


def test_settings_that_cannot_work_are_named() -> None:
    check_settings("prob_diff", "best", {"visit"})
    for arguments, named in (
        (("diff", "first", ("visit",)), "'diff'"),
        (("prob_diff", "last", ("visit",)), "'last'"),
        (("prob_diff", "first", "visit"), "'visit'"),
        (("prob_diff", "first", ()), "non-empty"),
    ):
        with pytest.raises(SettingError, match=named):
            check_settings(*arguments)
