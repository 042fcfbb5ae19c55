"""Invented names: one letters-only word each, so that a name can be one token.

A name is a chain of syllables and an ending that belongs to its kind alone; therefore
no two kinds ever share a name.  The list for a lexicon number and kind is endless and
fixed: asking for more names only makes it longer.  Nothing here knows facts or pages.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

from drv_env.errors import SettingError
from drv_env.settings import at_least, checked_whole

T = TypeVar("T")

_CONSONANTS = "bdfghjklmnprstvwyz"
_VOWELS = "aeiou"
_ENDINGS = {
    "person": "lin ren kas del mir wen tor sel nak bir",
    "company": "dex tix rox vex nox lux max pax zex kix",
    "work": "ria lia nia dia via sia tia mia bia kia",
    "city": "ton bur dal gar pol wik nes fos hof mar",
    "country": "tan dor gal zan ran lar nor var zor bal",
    "lost": "gus rus tus nus lus mus sus vus dus bus",
}
KINDS = ("person", "company", "work", "city", "country")
"""Kinds of entities, in the order that worlds list them."""

LOST = "lost"
"""Kind of the names that are mentioned but have no page."""

_SIMILAR = {"work": ("n", "s", "r")}
_SIMILAR_ELSE = ("a", "o", "i")
MOST_SIMILAR = 3
"""How many look-alikes a name can have."""

_CROWDING = 8  # a chain grows before more than 1/8 of its names are used: few collisions


def pick(rng: random.Random, items: Sequence[T]) -> T:
    """One of ``items``, from one call of ``rng.random()``.

    The sequence of ``random()`` is the one part of a generator that Python promises
    not to change between versions; ``choice`` and ``shuffle`` are not.
    """
    return items[int(rng.random() * len(items))]


@lru_cache(maxsize=64)
def names(lexicon: int, kind: str, count: int) -> tuple[str, ...]:
    """The first ``count`` names of a kind, all different.

    Args:
        lexicon: which list of names; equal numbers give equal names.
        kind: one of :data:`KINDS`, or :data:`LOST`.
        count: how many, 0 or more; names get longer beyond about ten thousand.

    Raises:
        SettingError: for an unknown kind or a negative count.

    Example:
        >>> names(0, "city", 3) == names(0, "city", 9)[:3]
        True
        >>> all(name.isalpha() and name.istitle() for name in names(0, "city", 9))
        True
    """
    if kind not in _ENDINGS:
        raise SettingError(f"kind must be one of {', '.join(_ENDINGS)}, got {kind!r}")
    checked_whole("count", count, at_least(0))
    rng = random.Random(f"lexicon-{lexicon}-{kind}")
    endings = _ENDINGS[kind].split()
    syllables, room = 2, _room(2, len(endings))
    found: dict[str, None] = {}
    while len(found) < count:
        if len(found) * _CROWDING >= room:
            syllables += 1
            room = _room(syllables, len(endings))
        chain = "".join(pick(rng, _CONSONANTS) + pick(rng, _VOWELS) for _ in range(syllables))
        found[(chain + pick(rng, endings)).capitalize()] = None
    return tuple(found)


def similar(name: str, kind: str, number: int = 0) -> str:
    """A look-alike of ``name`` that is no name of any kind.

    Args:
        name: a name of the lexicon.
        kind: its kind.
        number: which look-alike, from 0 to ``MOST_SIMILAR - 1``.

    Example:
        >>> similar("Tavelin", "person")
        'Tavelina'
    """
    return name + _SIMILAR.get(kind, _SIMILAR_ELSE)[number]


def _room(syllables: int, endings: int) -> int:
    return (len(_CONSONANTS) * len(_VOWELS)) ** syllables * endings
