"""Worlds: what their recipe decides, and what their pages say."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys

import pytest

from drv_env.errors import SettingError
from drv_env.worlds import RELATIONS, WorldRecipe, url_of
from drv_env.worlds.lexicon import KINDS, LOST, names, similar

_DIGEST = """
import hashlib
from drv_env.worlds import WorldRecipe, questions, split
recipes = [WorldRecipe(7), WorldRecipe(8, size=400, lexicon=2, distractors=0.5)]
digest = hashlib.sha256()
for recipe in recipes:
    world = recipe.build()
    digest.update(repr(list(world.pages.values())).encode())
    digest.update(repr([task.question for task in questions(world)]).encode())
digest.update(repr([task.id for task in split(recipes)["test"]]).encode())
print(digest.hexdigest())
"""


def _digest(hash_seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    run = subprocess.run(
        [sys.executable, "-c", _DIGEST], env=environment, capture_output=True, text=True, check=True
    )
    return run.stdout.strip()


def test_a_recipe_gives_the_same_bytes_in_every_process() -> None:
    assert _digest("1") == _digest("4242")


def test_the_pages_of_a_recipe_never_change() -> None:
    """A change here breaks every recorded run: give such worlds a new name instead."""
    page = WorldRecipe(0).build().pages["https://w/Bimobir"]
    assert page.text == (
        "Bimobir is a person. The birthplace is Kotufos. The employer is Hopavex. "
        "The mentor is Wekosel."
    )


def test_names_are_words_and_differ_within_and_across_kinds() -> None:
    found = [name for kind in (*KINDS, LOST) for name in names(3, kind, 20_000)]
    found += [
        similar(name, kind, number)
        for kind in KINDS
        for name in names(3, kind, 2_000)
        for number in range(3)
    ]
    assert len(set(found)) == len(found)
    assert all(name.isalpha() and name.isascii() and name.istitle() for name in found)


def test_names_can_be_had_by_the_hundred_thousand() -> None:
    many = names(0, "person", 200_000)
    assert len(set(many)) == 200_000
    assert many[:54] == names(0, "person", 54)


def test_small_worlds_have_the_counts_of_the_small_size() -> None:
    world = WorldRecipe(0).build()
    assert {kind: len(found) for kind, found in world.entities.items()} == {
        "person": 54,
        "company": 21,
        "work": 21,
        "city": 30,
        "country": 7,
    }
    words = [len(page.text.split()) for page in world.pages.values()]
    assert sum(words) / len(words) <= 25


def test_worlds_of_one_lexicon_share_names_and_urls_but_not_facts() -> None:
    one, other = WorldRecipe(1).build(), WorldRecipe(2).build()
    assert one.entities == other.entities
    assert list(one.pages) == list(other.pages)
    same = sum(one.facts[name] == other.facts[name] for name in one.facts)
    assert same < len(one.facts) / 4


def test_another_lexicon_has_other_names() -> None:
    one, other = WorldRecipe(1).build(), WorldRecipe(1, lexicon=1).build()
    assert not set(one.entities["person"]) & set(other.entities["person"])


def test_every_fact_stands_on_its_entitys_page_and_points_to_the_right_kind() -> None:
    world = WorldRecipe(5, size=300).build()
    assert len(world.pages) == 300
    for name, known in world.facts.items():
        page = world.pages[url_of(name)]
        assert list(known) == list(RELATIONS[world.kinds[name]])
        for relation, found in known.items():
            assert f"The {relation} is {found}." in page.text
            assert world.kinds[found] == RELATIONS[world.kinds[name]][relation]
            assert found not in world.lookalikes
            assert url_of(found) in page.links


def test_a_capital_lies_in_its_country() -> None:
    world = WorldRecipe(5, size=300).build()
    for country in world.entities["country"]:
        assert world.facts[world.facts[country]["capital"]]["country"] == country


def test_shares_decide_lookalikes_dead_links_and_repeats() -> None:
    bare = WorldRecipe(0, distractors=0, dead_links=0, repeats=0).build()
    assert len(bare.pages) == 133
    assert not bare.lookalikes
    assert all(link in bare.pages for page in bare.pages.values() for link in page.links)
    full = WorldRecipe(0, distractors=2, dead_links=1, repeats=1).build()
    assert len(full.lookalikes) == 266
    for page in full.pages.values():
        assert sum(link not in full.pages for link in page.links) == 1
    for name, known in full.facts.items():
        for relation, found in known.items():
            assert f"{name}'s {relation} is {found}." in full.pages[url_of(found)].text


def test_the_small_size_has_a_few_of_each() -> None:
    world = WorldRecipe(0).build()
    texts = [page.text for page in world.pages.values()]
    dead = sum(link not in world.pages for page in world.pages.values() for link in page.links)
    assert 1 <= len(world.lookalikes) <= 10
    assert 1 <= dead <= 20
    assert 1 <= sum(text.count("'s ") for text in texts) <= 60


def test_ten_thousand_pages() -> None:
    world = WorldRecipe(0, size="large").build()
    assert len(world.pages) == 10_000
    assert len({page.title for page in world.pages.values()}) == 10_000
    assert list(world.pages) == sorted(world.pages)


@pytest.mark.parametrize("size", [25, 26, 57, 140, 999])
@pytest.mark.parametrize("distractors", [0, 0.3, 3])
def test_a_size_in_pages_is_exact(size: int, distractors: float) -> None:
    assert len(WorldRecipe(0, size=size, distractors=distractors).build().pages) == size


def test_recipes_and_worlds_pickle_small() -> None:
    recipe = WorldRecipe(3, size=300)
    assert pickle.loads(pickle.dumps(recipe)) == recipe
    assert pickle.loads(pickle.dumps(recipe)).name == recipe.name
    assert len(pickle.dumps(recipe.build())) < 500
    assert pickle.loads(pickle.dumps(recipe.build())) is recipe.build()


def test_recipes_have_names_of_their_own() -> None:
    recipes = [
        WorldRecipe(seed, size, lexicon, distractors)
        for seed in (0, 1, 11)
        for size in ("small", "medium", 100, 1000)
        for lexicon in (0, 1)
        for distractors in (None, 0.25, 0.251)
    ]
    assert len({recipe.name for recipe in recipes}) == len(set(recipes)) == len(recipes)
    assert WorldRecipe(0) == WorldRecipe(0, distractors=0.05)
    assert WorldRecipe(0).name == WorldRecipe(0, distractors=0.05).name == "world-0"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"size": "huge"}, "huge"),
        ({"size": 3}, "25"),
        ({"lexicon": -1}, "-1"),
        ({"repeats": 1.5}, "repeats"),
        ({"distractors": 4}, "distractors"),
        ({"dead_links": float("nan")}, "dead_links"),
    ],
)
def test_a_setting_out_of_range_is_named(settings: dict, named: str) -> None:
    with pytest.raises(SettingError, match=named):
        WorldRecipe(0, **settings)
