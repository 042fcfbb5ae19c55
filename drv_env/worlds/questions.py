"""Questions about a world, and their division into training and held-out parts.

A question is a chain of possessives ("What is Tavelin's employer's founder?") whose
answer is one name.  A chain never meets an entity twice.

Parts are divided by the entity that a question starts from, the same way in every
world of a lexicon, whatever its size and seed: an entity that starts a question in one
part starts none in another, in any world of that lexicon, also across calls.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from drv_env.errors import SettingError
from drv_env.settings import at_least, checked_seed, checked_shares, checked_whole
from drv_env.tasks import Task
from drv_env.worlds.lexicon import KINDS, names
from drv_env.worlds.recipe import WorldRecipe
from drv_env.worlds.world import World

HOPS = (1, 2, 3)
_GOLDEN = 0.6180339887498949


def questions(
    world: World, hops: Sequence[int] = HOPS, starts: Collection[str] | None = None
) -> list[Task]:
    """Every question of the world, in a fixed order.

    Args:
        world: where the facts hold; its recipe's name becomes ``Task.world``.
        hops: lengths of the chains, each 1 or more.  The number of questions grows
            about 2.5-fold with every hop: some 3,100 in the small size up to 3.
        starts: only questions that start from these entities; None for all.  No
            question starts from a look-alike.

    Returns:
        Tasks with one answer; ``metadata`` has ``hops``, ``start``, ``kind`` (of the
        start), ``path`` (list of relations) and ``entities`` (list, start to answer).

    Raises:
        SettingError: when a number of hops is below 1.
    """
    if not hops:
        raise SettingError("hops must have at least one number")
    for hop in hops:
        checked_whole("hops", hop, at_least(1))
    tasks = []
    for kind in KINDS:
        for start in world.entities[kind]:
            if starts is not None and start not in starts:
                continue
            for path, met in _chains(world, start, max(hops)):
                if len(path) in hops:
                    tasks.append(_task(world, kind, path, met))
    return tasks


def part_of(
    recipe: WorldRecipe, parts: Mapping[str, float], seed: int = 0
) -> dict[str, str | None]:
    """The part of each entity of the recipe's world.

    It depends on the lexicon, the parts, the seed and the entity, and on nothing else.

    Args:
        recipe: names the lexicon and how many entities there are.
        parts: share of each part, above 0, together at most 1, in a fixed order.
        seed: another seed, another division.

    Returns:
        Entity to part; None for entities left over when the shares sum to less than 1.

    Raises:
        SettingError: when the shares can't be used.
    """
    checked_seed(seed)
    parts = checked_shares(parts)
    found: dict[str, str | None] = {}
    for kind, count in recipe.counts.items():
        offset = random.Random(f"part-{seed}-{recipe.lexicon}-{kind}").random()
        for number, entity in enumerate(names(recipe.lexicon, kind, count)):
            # Multiples of the golden ratio fill [0, 1) evenly from the first on: shares
            # come out right for a handful of entities as for thousands, and adding
            # entities moves none.
            point = (offset + number * _GOLDEN) % 1.0
            found[entity] = _part_at(point, parts)
    return found


def split(
    worlds: Sequence[WorldRecipe | World],
    parts: Mapping[str, float] | None = None,
    seed: int = 0,
    hops: Sequence[int] = HOPS,
) -> dict[str, list[Task]]:
    """The questions of several worlds in disjoint parts.

    Args:
        worlds: recipes or worlds; each gives questions to every part.
        parts: share of the starting entities in each part; by default train 0.7,
            validation 0.15, test 0.15.  ``{"train": 0.8, "test": 0.2}`` gives two.
        seed: decides which entities are held out.
        hops: as for :func:`questions`.

    Returns:
        Tasks by part, in the order of the worlds.

    Raises:
        SettingError: when shares or hops can't be used.
    """
    if parts is None:
        parts = {"train": 0.7, "validation": 0.15, "test": 0.15}
    found: dict[str, list[Task]] = {part: [] for part in parts}
    for item in worlds:
        world = item if isinstance(item, World) else item.build()
        division = part_of(world.recipe, parts, seed)
        for task in questions(world, hops):
            part = division[task.metadata["start"]]
            if part is not None:
                found[part].append(task)
    return found


def _part_at(point: float, parts: Mapping[str, float]) -> str | None:
    edge = 0.0
    for part, share in parts.items():
        edge += share
        if point < edge:
            return part
    # Shares that sum to 1 may add up to a little less in floating point.
    return part if edge > 1 - 1e-9 else None


def _chains(
    world: World, start: str, longest: int
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """(path, entities met) of every chain from ``start``, shorter ones first."""
    level: list[tuple[tuple[str, ...], tuple[str, ...]]] = [((), (start,))]
    for _ in range(longest):
        level = [
            ((*path, relation), (*met, found))
            for path, met in level
            for relation, found in world.facts[met[-1]].items()
            if found not in met
        ]
        yield from level


def _task(world: World, kind: str, path: tuple[str, ...], met: tuple[str, ...]) -> Task:
    chain = "".join(f"{name}'s " for name in (met[0], *path[:-1]))
    metadata: dict[str, Any] = {
        "hops": len(path),
        "start": met[0],
        "kind": kind,
        "path": list(path),
        "entities": list(met),
    }
    return Task(
        f"What is {chain}{path[-1]}?", (met[-1],), world=world.recipe.name, metadata=metadata
    )
