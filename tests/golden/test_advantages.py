"""Advantages per turn of every mode, case by case."""

import numpy as np

from trainers.advantages import Credit, turn_advantages


def test_advantages_equal_the_reference(golden):
    cases = golden("advantages.json")["cases"]
    for case in cases:
        credit = Credit(
            normalisation=case["mode"],
            std_norm=case["std_norm"],
            gamma=case["gamma"],
            ig_weight=case["ig_weight"],
            adaptive_gamma_min_weight=case["adaptive_gamma_min_weight"],
        )
        episodes = case["episodes"]
        values = [[turn["reward"] for turn in episode["turns"]] for episode in episodes]
        found = turn_advantages(values, [episode["group"] for episode in episodes], credit)
        for episode, advantages in zip(episodes, found.per_turn, strict=True):
            np.testing.assert_allclose(
                advantages, episode["advantage_per_turn"], atol=2e-5, rtol=2e-5
            )
    assert {case["mode"] for case in cases} == {"joint", "separate", "scaled_separate", "raw_ig"}
    assert {case["std_norm"] for case in cases} == {True, False}
    assert len({case["ig_weight"] for case in cases}) > 1
    assert len({case["adaptive_gamma_min_weight"] for case in cases}) > 1
