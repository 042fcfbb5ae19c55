"""Exact match and token F1, case by case."""

import pytest

from drv_env.rewards.outcome import exact_match, token_f1
from drv_env.tasks import task_from


def test_scores_equal_the_reference(golden):
    cases = golden("outcome.json")["cases"]
    for case in cases:
        task = task_from({"question": "q", "answer": case["ground_truth"]})
        assert exact_match(case["prediction"], task) == case["em"], case
        assert token_f1(case["prediction"], task) == pytest.approx(case["f1"], abs=1e-9), case
    assert len(cases) > 10
