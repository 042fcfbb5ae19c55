"""Which questions about invented webs a game is played with: hops, balance, and the draw.

The demo, training and every command that plays take them from here, so that a checkpoint's
``agent.json`` can name the very questions that its figures are of.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from drv_env.errors import SettingError
from drv_env.tasks import Task
from drv_env.worlds.questions import HOPS, split
from drv_env.worlds.recipe import WorldRecipe


def game_random(seed: int) -> random.Random:
    """The randomness that balances a game's questions, and then orders them."""
    return random.Random(f"demo-{seed}")


def world_parts(
    worlds: Sequence[int], hops: Sequence[int] = (), balance: random.Random | None = None
) -> dict[str, list[Task]]:
    """Questions of each part about some webs.

    Args:
        worlds: seeds of the webs.
        hops: how many facts a question chains; none given are 1 to 3.
        balance: draws as many questions of each number of hops as there are of the rarest, in
            each part; None keeps all, most of which are the longest.

    Raises:
        SettingError: for numbers that can't work.
    """
    parts = split([WorldRecipe(seed) for seed in worlds], hops=tuple(hops) or HOPS)
    if balance is None:
        return parts
    return {part: _balanced(tasks, balance) for part, tasks in parts.items()}


def drawn(tasks: Sequence[Task], count: int, seed: int, called: str = "count") -> list[Task]:
    """So many of the tasks at random; all, in their order, where that is how many there are.

    Args:
        tasks: what to draw from.
        count: how many.
        seed: decides which.
        called: what the user calls the count.

    Raises:
        SettingError: when there are not so many.
    """
    if not 1 <= count <= len(tasks):
        raise SettingError(f"{called} must be from 1 to the {len(tasks):,} there are: {count}")
    if count == len(tasks):
        return list(tasks)
    return random.Random(f"questions-{seed}").sample(list(tasks), count)


def worlds_named(tasks: Iterable[Task]) -> tuple[int, ...]:
    """Seeds of the webs that tasks name, in order; none where a task names none, or another.

    Example:
        >>> worlds_named([Task("Q?", ("A",), world=name) for name in ("world-7", "world-0")])
        (0, 7)
    """
    seeds = set()
    for task in tasks:
        found = re.fullmatch(r"world-(\d{1,18})", task.world or "")
        if found is None or WorldRecipe(int(found[1])).name != task.world:
            return ()
        seeds.add(int(found[1]))
    return tuple(sorted(seeds))


def asked_of_worlds(
    own: Mapping[str, Any], hops: Sequence[int] | None = None, balanced: bool | None = None
) -> tuple[tuple[int, ...], random.Random | None]:
    """Hops, and what balances them: as asked for, else as a checkpoint says of itself.

    Args:
        own: the section ``questions`` of its ``agent.json``.
        hops: the user's; none take the checkpoint's.
        balanced: likewise.
    """
    wanted = own.get("balanced", False) if balanced is None else balanced
    chosen = tuple(hops or own.get("hops", ()))
    return chosen, game_random(own.get("seed", 0)) if wanted else None


def _balanced(tasks: Sequence[Task], rng: random.Random) -> list[Task]:
    by_hops: dict[int, list[Task]] = {}
    for task in tasks:
        by_hops.setdefault(task.metadata["hops"], []).append(task)
    fewest = min(map(len, by_hops.values()), default=0)
    return [task for group in by_hops.values() for task in rng.sample(group, fewest)]
