"""A fictional world: entities, facts about them, and the pages that state the facts.

Everything follows from the recipe.  Randomness comes from generators seeded by text,
order from lists; no set is iterated and nothing is hashed, so that the pages are the
same bytes in every process.

Page text is made of short sentences of one shape ("The founder is Tavelin.") so that a
very small model can learn to copy from them.  An entity has the same name and url in
every world of its lexicon; the facts differ from world to world.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from drv_env.worlds.lexicon import KINDS, LOST, names, pick, similar

if TYPE_CHECKING:
    from drv_env.worlds.recipe import WorldRecipe

RELATIONS: Mapping[str, Mapping[str, str]] = {
    "person": {"birthplace": "city", "employer": "company", "mentor": "person"},
    "company": {"founder": "person", "headquarters": "city", "bestseller": "work"},
    "work": {"author": "person", "publisher": "company"},
    "city": {"country": "country", "mayor": "person"},
    "country": {"capital": "city"},
}
"""For each kind, its relations and the kind of their objects."""

URL_PREFIX = "https://w/"

_ARTICLED = {"person": "a person", "company": "a company", "work": "a book"} | {
    "city": "a city",
    "country": "a country",
}


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a web.

    Attributes:
        url: where it is; unique in its world.
        title: a few words; searched with more weight than the text.
        text: sentences, or any text.
        links: urls it links to, which may lead nowhere.
    """

    url: str
    title: str
    text: str
    links: tuple[str, ...] = ()


def url_of(entity: str) -> str:
    """The url of an entity's page, in every world.

    Example:
        >>> url_of("Tavelin")
        'https://w/Tavelin'
    """
    return URL_PREFIX + entity


class World:
    """The world of a recipe; get it with ``recipe.build()``, which keeps it.

    It pickles as its recipe.  All its mappings are read-only.

    Attributes:
        recipe: what it was made from.
        entities: for each kind, its entities; look-alikes are not among them.
        kinds: the kind of every entity and look-alike.
        lookalikes: each look-alike and the entity it resembles.
        facts: for every entity and look-alike, its relations and their objects; an
            object is never a look-alike.
        pages: every page by url, in url order.
    """

    recipe: WorldRecipe
    entities: Mapping[str, tuple[str, ...]]
    kinds: Mapping[str, str]
    lookalikes: Mapping[str, str]
    facts: Mapping[str, Mapping[str, str]]
    pages: Mapping[str, Page]

    def __init__(self, recipe: WorldRecipe) -> None:
        self.recipe = recipe
        counts = recipe.counts
        self.entities = MappingProxyType(
            {kind: names(recipe.lexicon, kind, counts[kind]) for kind in KINDS}
        )
        kinds = {name: kind for kind in KINDS for name in self.entities[kind]}
        self.lookalikes = MappingProxyType(_lookalikes(kinds, recipe.lookalikes))
        kinds.update({name: kinds[like] for name, like in self.lookalikes.items()})
        self.kinds = MappingProxyType(kinds)
        self.facts = MappingProxyType(self._draw_facts())
        self.pages = MappingProxyType(self._write_pages())

    def follow(self, start: str, path: Iterable[str]) -> list[str]:
        """The entities met from ``start`` along the relations of ``path``, start included.

        Raises:
            KeyError: when an entity lacks the relation.
        """
        met = [start]
        for relation in path:
            met.append(self.facts[met[-1]][relation])
        return met

    def __reduce__(self) -> tuple[Callable[..., World], tuple[Any, ...]]:
        return type(self.recipe).build, (self.recipe,)

    def _rng(self, purpose: str) -> random.Random:
        return random.Random(f"{purpose}-{self.recipe.seed}-{self.recipe.lexicon}")

    def _draw_facts(self) -> dict[str, Mapping[str, str]]:
        rng = self._rng("facts")
        countries, cities = self.entities["country"], self.entities["city"]
        keys = [rng.random() for _ in cities]
        order = sorted(range(len(cities)), key=keys.__getitem__)
        capitals = {
            country: cities[number] for country, number in zip(countries, order, strict=False)
        }
        governed = {capital: country for country, capital in capitals.items()}
        facts: dict[str, Mapping[str, str]] = {}
        for name, kind in self.kinds.items():
            known: dict[str, str] = {}
            for relation, target in RELATIONS[kind].items():
                found = _other(rng, self.entities[target], name)
                if relation == "capital":
                    found = capitals.get(name, found)
                elif relation == "country":
                    found = governed.get(name, found)
                known[relation] = found
            facts[name] = MappingProxyType(known)
        return facts

    def _write_pages(self) -> dict[str, Page]:
        rng = self._rng("pages")
        sentences: dict[str, list[str]] = {}
        links: dict[str, list[str]] = {}
        for name, kind in self.kinds.items():
            like = self.lookalikes.get(name)
            opening = f"{name} is {_ARTICLED[kind]}."
            sentences[name] = [opening] if like is None else [opening, f"{name} is not {like}."]
            sentences[name] += [f"The {rel} is {obj}." for rel, obj in self.facts[name].items()]
            links[name] = list(self.facts[name].values())
        repeats = self.recipe.share("repeats")
        for name, known in self.facts.items():
            for relation, found in known.items():
                if rng.random() < repeats:
                    sentences[found].append(f"{name}'s {relation} is {found}.")
                    links[found].append(name)
        linking = [name for name in self.kinds if rng.random() < self.recipe.share("dead_links")]
        lost = names(self.recipe.lexicon, LOST, len(linking))
        for name, nowhere in zip(linking, lost, strict=True):
            sentences[name].append(f"See {nowhere}.")
            links[name].append(nowhere)
        return {
            url_of(name): Page(
                url_of(name),
                name,
                " ".join(sentences[name]),
                tuple(url_of(target) for target in dict.fromkeys(links[name])),
            )
            for name in sorted(self.kinds)
        }


def _lookalikes(kinds: Mapping[str, str], count: int) -> dict[str, str]:
    """The first ``count`` look-alikes, spread evenly over the entities."""
    originals = list(kinds)
    found: dict[str, str] = {}
    number = 0
    while len(found) < count:
        wanted = min(count - len(found), len(originals))
        for step in range(wanted):
            name = originals[step * len(originals) // wanted]
            found[similar(name, kinds[name], number)] = name
        number += 1
    return found


def _other(rng: random.Random, items: tuple[str, ...], name: str) -> str:
    """One of ``items`` that is not ``name``."""
    found = pick(rng, items)
    while found == name:
        found = pick(rng, items)
    return found
