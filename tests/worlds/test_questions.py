"""Questions: chains that hold in their world, and parts that never share a start."""

from __future__ import annotations

import pytest

from drv_env.errors import SettingError
from drv_env.worlds import WorldRecipe, part_of, questions, split


def test_a_question_follows_its_path_to_its_answer() -> None:
    world = WorldRecipe(4).build()
    for task in questions(world):
        path, met = task.metadata["path"], task.metadata["entities"]
        assert met == world.follow(task.metadata["start"], path)
        assert task.answers == (met[-1],)
        assert task.metadata["hops"] == len(path)
        assert len(set(met)) == len(met)
        assert task.question == "What is " + "'s ".join([met[0], *path]) + "?"
        assert task.world == "world-4"


def test_questions_are_of_the_hops_asked_for_and_in_a_fixed_order() -> None:
    world = WorldRecipe(4).build()
    every = questions(world)
    assert {task.metadata["hops"] for task in every} == {1, 2, 3}
    assert {task.metadata["hops"] for task in questions(world, hops=(2,))} == {2}
    assert [task.id for task in every] == [task.id for task in questions(world)]
    assert len({task.id for task in every}) == len(every)
    assert 2_500 < len(every) < 3_500


def test_no_question_starts_from_a_lookalike() -> None:
    world = WorldRecipe(4, size=300).build()
    assert world.lookalikes
    assert not {task.metadata["start"] for task in questions(world)} & set(world.lookalikes)


def test_a_held_out_entity_starts_no_question_in_any_training_world() -> None:
    worlds = [WorldRecipe(seed) for seed in range(4)] + [WorldRecipe(9, size=500)]
    parts = split(worlds)
    starts = {part: {task.metadata["start"] for task in found} for part, found in parts.items()}
    assert list(starts) == ["train", "validation", "test"]
    assert not starts["train"] & starts["validation"]
    assert not starts["train"] & starts["test"]
    assert not starts["validation"] & starts["test"]
    assert sum(map(len, parts.values())) == sum(len(questions(r.build())) for r in worlds)


def test_the_division_holds_across_calls_worlds_and_sizes() -> None:
    parts = {"train": 0.7, "test": 0.3}
    small, other = part_of(WorldRecipe(0), parts), part_of(WorldRecipe(77), parts)
    large = part_of(WorldRecipe(5, size=2_000), parts)
    assert small == other
    assert small.items() <= large.items()
    alone = {task.metadata["start"] for task in split([WorldRecipe(77)], parts)["test"]}
    assert {large[start] for start in alone} == {"test"}


@pytest.mark.parametrize("seed", range(5))
def test_parts_have_their_shares(seed: int) -> None:
    found = part_of(WorldRecipe(0), {"train": 0.7, "validation": 0.15, "test": 0.15}, seed)
    counts = {part: list(found.values()).count(part) for part in ("train", "validation", "test")}
    assert sum(counts.values()) == 133
    assert abs(counts["train"] / 133 - 0.7) < 0.04
    assert abs(counts["test"] / 133 - 0.15) < 0.04


def test_another_seed_holds_out_others() -> None:
    parts = {"train": 0.8, "test": 0.2}
    assert part_of(WorldRecipe(0), parts, 0) != part_of(WorldRecipe(0), parts, 1)


def test_shares_below_one_leave_entities_out() -> None:
    found = part_of(WorldRecipe(0), {"train": 0.5})
    assert abs(list(found.values()).count(None) / 133 - 0.5) < 0.05


@pytest.mark.parametrize("parts", [{}, {"train": 0.9, "test": 0.2}, {"train": 1.0, "test": 0.0}])
def test_shares_that_cannot_be_used_are_refused(parts: dict[str, float]) -> None:
    with pytest.raises(SettingError, match="sum to at most 1"):
        split([WorldRecipe(0)], parts)


def test_hops_below_one_are_refused() -> None:
    with pytest.raises(SettingError, match="at least 1"):
        questions(WorldRecipe(0).build(), hops=(0, 1))
