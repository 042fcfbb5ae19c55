"""A small offline game, and an expert who knows it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from drv_env.episode import Rules
from drv_env.game import Game
from drv_env.tools.offline import OfflineTools
from drv_env.worlds import NO_NOISE, Expert, WorldRecipe, questions

WORLD = WorldRecipe(seed=3, size=25).build()


def play(task, observations: Sequence[str]) -> str:
    """The expert's next turn after these observations."""
    expert = Expert(task, WORLD, random.Random(0), NO_NOISE)
    turn = expert.act(task.question)
    for seen in observations:
        turn = expert.act(seen)
    return turn


@pytest.fixture
def game() -> Game:
    tasks = questions(WORLD, hops=(1,))[:2]
    return Game(tasks, OfflineTools([WORLD.recipe]), rules=Rules(max_turns=6))


@pytest.fixture
def expert():
    return play
