"""The recipe of a world: everything that decides its pages, in a few numbers.

A recipe is small, hashable and picklable, and it is what travels between processes;
the world itself is built from it where it is needed.  Equal recipes give equal worlds,
byte for byte, on any machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from drv_env.errors import SettingError
from drv_env.settings import SEED, at_least, between, check_fields
from drv_env.worlds.lexicon import KINDS, MOST_SIMILAR
from drv_env.worlds.world import World

Counts = dict[str, int]
"""Number of entities of each kind."""

SMALL: Counts = {"person": 54, "company": 21, "work": 21, "city": 30, "country": 7}
"""The small size, on which a tiny model learns in minutes."""

SIZES: dict[str, int | None] = {"small": None, "medium": 1_000, "large": 10_000}
"""Named sizes in pages; ``small`` is counted in entities instead (see :data:`SMALL`)."""

SMALLEST = 25
"""Fewest pages that a size given in pages may have."""

_SPARSE = {"distractors": 0.05, "dead_links": 0.05, "repeats": 0.1}
_DENSE = {"distractors": 0.2, "dead_links": 0.2, "repeats": 0.5}


@dataclass(frozen=True)
class WorldRecipe:
    """What a world is made from.

    Attributes:
        seed: decides the facts.  Worlds that differ only here have the same entities
            at the same urls.
        size: ``"small"`` (133 entities), ``"medium"`` (1,000 pages), ``"large"``
            (10,000 pages), or a number of pages of at least 25.
        lexicon: which list of names, 0 or more.
        distractors: pages about a look-alike (Tavelina beside Tavelin), as a share of
            the entities, 0 to 3.
        dead_links: share of the pages that link to a page that does not exist, 0 to 1.
        repeats: share of the facts that also stand on the page of their object, 0 to 1.

    The three shares are low in the small size (0.05, 0.05, 0.1) and higher in the others
    (0.2, 0.2, 0.5) unless given.

    Raises:
        SettingError: when a value is out of range.

    Example:
        >>> WorldRecipe(3).name
        'world-3'
        >>> WorldRecipe(3, size=500, lexicon=1).name
        'world-3-size500-lexicon1'
    """

    seed: int
    size: int | str = "small"
    lexicon: int = 0
    distractors: float | None = None
    dead_links: float | None = None
    repeats: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.size, str) and self.size not in SIZES:
            raise SettingError(f"size must be one of {', '.join(SIZES)}, got {self.size!r}")
        check_fields(
            self,
            seed=SEED,
            size=at_least(SMALLEST, "pages"),
            lexicon=at_least(0),
            distractors=between(0, MOST_SIMILAR),
            dead_links=between(0, 1),
            repeats=between(0, 1),
        )
        for share, default in self._usual().items():
            value = getattr(self, share)
            object.__setattr__(self, share, default if value is None else float(value))

    @property
    def name(self) -> str:
        """Names the world in tasks; different recipes have different names."""
        parts = [f"world-{self.seed}"]
        if self.size != "small":
            parts.append(f"size{self.size}")
        if self.lexicon:
            parts.append(f"lexicon{self.lexicon}")
        for share, default in self._usual().items():
            if getattr(self, share) != default:
                parts.append(f"{share}{getattr(self, share)!r}")
        return "-".join(parts)

    @property
    def counts(self) -> Counts:
        """Number of entities of each kind, look-alikes not among them."""
        pages = SIZES[self.size] if isinstance(self.size, str) else self.size
        if pages is None:
            return dict(SMALL)
        entities = math.ceil(pages / (1 + self.share("distractors")))
        whole = sum(SMALL.values())
        counts = {kind: max(1, entities * SMALL[kind] // whole) for kind in KINDS}
        counts["person"] += entities - sum(counts.values())
        return counts

    @property
    def lookalikes(self) -> int:
        """Number of pages about look-alikes."""
        pages = SIZES[self.size] if isinstance(self.size, str) else self.size
        entities = sum(self.counts.values())
        return round(entities * self.share("distractors")) if pages is None else pages - entities

    def share(self, name: str) -> float:
        """The value of ``distractors``, ``dead_links`` or ``repeats``."""
        return float(getattr(self, name))

    def build(self) -> World:
        """The world, built once per process and then kept (the last 64 of them)."""
        return _build(self)

    def _usual(self) -> dict[str, float]:
        return _SPARSE if self.size == "small" else _DENSE


@lru_cache(maxsize=64)
def _build(recipe: WorldRecipe) -> World:
    return World(recipe)
