"""The expert: right without noise, wrong as often as it is told to be."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from drv_env.errors import SettingError, TaskDataError
from drv_env.protocol import Answer, Visit, format_verdict, read_turn, render_observation
from drv_env.tasks import Task
from drv_env.tools.base import Call
from drv_env.tools.offline import OfflineTools
from drv_env.worlds import (
    COMPACT,
    LINES,
    NO_NOISE,
    Expert,
    Noise,
    TurnStyle,
    WorldRecipe,
    questions,
    url_of,
)


@dataclass
class Played:
    task: Task
    turns: list[str]
    observations: list[str]
    answer: str

    @property
    def solved(self) -> bool:
        return self.answer in self.task.answers


def play(
    recipe: WorldRecipe,
    tasks: Sequence[Task],
    noise: Noise = NO_NOISE,
    style: TurnStyle = COMPACT,
    seed: int = 0,
    **settings: Any,
) -> list[Played]:
    """Every task, played by an expert against the real tools."""
    world, rng = recipe.build(), random.Random(seed)
    tools = OfflineTools([recipe], **settings)

    async def one(task: Task) -> Played:
        expert, observation = Expert(task, world, rng, noise, style), task.question
        turns: list[str] = []
        observations: list[str] = []
        while True:
            turns.append(expert.act(observation))
            reading = read_turn(turns[-1])
            if isinstance(reading.action, Answer):
                return Played(task, turns, observations, reading.action.text.strip())
            if reading.action is None:
                observation = reading.complaint
            else:
                observation = (await tools.call(Call(reading.action, task))).text
            observation = render_observation(observation)
            observations.append(observation)

    async def every() -> list[Played]:
        return [await one(task) for task in tasks]

    return asyncio.run(every())


TERSE: dict[str, Any] = {"results": 1, "fields": ("url",), "evidence_words": 8}


@pytest.mark.parametrize("settings", [{}, TERSE])
def test_without_noise_it_solves_every_question(settings: dict) -> None:
    recipe = WorldRecipe(0)
    played = play(recipe, questions(recipe.build()), **settings)
    assert all(game.solved for game in played)
    assert all(len(game.turns) == 2 * game.task.metadata["hops"] + 1 for game in played)


def test_without_noise_it_solves_a_large_world_full_of_distractors() -> None:
    recipe = WorldRecipe(1, size="large", distractors=1, repeats=1)
    world = recipe.build()
    starts = {name for found in world.entities.values() for name in found[:7]}
    played = play(recipe, questions(world, starts=starts))
    assert len(played) > 500
    assert all(game.solved for game in played)


@pytest.mark.parametrize("style", [LINES, COMPACT])
def test_every_turn_is_well_formed(style: TurnStyle) -> None:
    recipe = WorldRecipe(2)
    for game in play(recipe, questions(recipe.build())[::20], Noise(), style):
        *calls, final = game.turns
        assert all(format_verdict(turn, final=False) for turn in calls)
        assert format_verdict(final, final=True)


def test_noise_costs_about_a_third_of_the_answers_by_default() -> None:
    recipe = WorldRecipe(0)
    tasks = questions(recipe.build())
    solved = [game.solved for game in play(recipe, tasks, Noise(), **TERSE)]
    assert 0.60 < sum(solved) / len(solved) < 0.72


def test_an_early_stop_answers_the_object_of_an_intermediate_hop() -> None:
    recipe = WorldRecipe(0)
    tasks = questions(recipe.build())[::3]
    early = [g for g in play(recipe, tasks, Noise(0.3, 0, 0)) if not g.solved]
    several = sum(task.metadata["hops"] > 1 for task in tasks)
    assert 0.25 < len(early) / several < 0.35
    assert all(game.answer in game.task.metadata["entities"][1:-1] for game in early)
    assert {game.task.metadata["entities"].index(game.answer) for game in early} == {1, 2}


def test_a_wrong_entity_is_another_of_the_same_kind_and_believed() -> None:
    recipe = WorldRecipe(0, distractors=1)
    world = recipe.build()
    tasks = questions(world, hops=(1,))
    missed = 0
    for game in play(recipe, tasks, Noise(0, 1, 0), **TERSE):
        visit = read_turn(game.turns[1]).action
        assert isinstance(visit, Visit)
        start, relation = game.task.metadata["start"], game.task.metadata["path"][0]
        opened = world.pages[visit.urls[0]].title
        assert world.lookalikes[opened] == start
        assert game.answer == world.facts[opened][relation]
        missed += not game.solved
    assert missed > len(tasks) * 0.6


def test_a_wrong_entity_is_taken_from_the_results_where_there_are_some() -> None:
    recipe = WorldRecipe(0, distractors=1)
    kinds = recipe.build().kinds
    urls = {kind: {url_of(n) for n, k in kinds.items() if k == kind} for kind in kinds.values()}
    from_results = 0
    for game in play(recipe, questions(recipe.build(), hops=(1,)), Noise(0, 1, 0)):
        visit = read_turn(game.turns[1]).action
        assert isinstance(visit, Visit)
        start = game.task.metadata["start"]
        assert visit.urls[0] != url_of(start)
        shown = set(re.findall(r'"url": "([^"]*)"', game.observations[0]))
        if (shown & urls[kinds[start]]) - {url_of(start)}:
            assert visit.urls[0] in shown
            from_results += 1
    assert from_results > 100


def test_a_duplicate_repeats_one_call_once() -> None:
    recipe = WorldRecipe(0)
    tasks = questions(recipe.build())[::5]
    repeated = 0
    for game in play(recipe, tasks, Noise(0, 0, 0.5)):
        assert game.solved
        twice = sum(one == after for one, after in zip(game.turns, game.turns[1:], strict=False))
        assert twice <= 1
        assert len(game.turns) == 2 * game.task.metadata["hops"] + 1 + twice
        repeated += twice
    assert 0.4 < repeated / len(tasks) < 0.6


def test_a_malformed_turn_is_written_again() -> None:
    recipe = WorldRecipe(0)
    for style in (LINES, COMPACT):
        for game in play(recipe, questions(recipe.build())[::20], Noise(0, 0, 0, 1), style):
            assert game.solved
            bad = [turn for turn in game.turns if read_turn(turn).action is None]
            assert len(bad) == 1
            assert not format_verdict(bad[0], final=bad[0] == game.turns[-2])


def test_the_same_generator_gives_the_same_turns() -> None:
    recipe = WorldRecipe(0)
    tasks = questions(recipe.build())[::40]
    noise = Noise(0.5, 0.5, 0.5, 0.5)
    first, again = play(recipe, tasks, noise, seed=3), play(recipe, tasks, noise, seed=3)
    other = play(recipe, tasks, noise, seed=4)
    assert [game.turns for game in first] == [game.turns for game in again]
    assert [game.turns for game in first] != [game.turns for game in other]


@pytest.mark.parametrize(
    ("style", "opening"),
    [(COMPACT, "<think></think><answer>"), (LINES, "<think>\n\n</think>\n<answer>\n")],
)
def test_half_of_the_final_thoughts_are_bare(style: TurnStyle, opening: str) -> None:
    recipe = WorldRecipe(0)
    games = play(recipe, questions(recipe.build())[::3], style=style)
    bare = [game.turns[-1].startswith(opening) for game in games]
    assert 0.45 < sum(bare) / len(bare) < 0.55
    assert all(read_turn(turn).thought for game in games for turn in game.turns[:-1])


def test_thoughts_repeat_what_was_read() -> None:
    recipe = WorldRecipe(0)
    task = next(t for t in questions(recipe.build()) if t.metadata["hops"] == 2)
    start, middle, _ = task.metadata["entities"]
    one, two = task.metadata["path"]
    third = play(recipe, [task])[0].turns[2]
    assert read_turn(third).thought == f"{start}'s {one} is {middle}. Next: {middle}'s {two}."


def test_trajectories_are_short_under_terse_tools() -> None:
    recipe = WorldRecipe(0)
    games = play(recipe, questions(recipe.build())[::5], Noise(), **TERSE)
    texts = ["\n".join([g.task.question, *g.turns, *g.observations]) for g in games]
    # About one token each: a name or other word, a run of signs between words.
    sizes = [len(re.findall(r"\w+|[^\w\s]+", text)) for text in texts]
    assert sum(len(text.split()) for text in texts) / len(texts) < 100
    assert sum(sizes) / len(sizes) < 350
    assert max(sizes) < 600


def test_it_gives_up_when_the_tools_fail() -> None:
    world = WorldRecipe(0).build()
    task = next(t for t in questions(world) if t.metadata["hops"] == 2)
    expert = Expert(task, world, random.Random(0), NO_NOISE)
    turn = expert.act(task.question)
    for _ in range(9):
        if isinstance(read_turn(turn).action, Answer):
            break
        turn = expert.act("the tool failed")
    assert read_turn(turn).action == Answer("\nunknown\n")
    with pytest.raises(RuntimeError, match="has answered"):
        expert.act("")


def test_it_needs_a_task_with_a_path() -> None:
    world = WorldRecipe(0).build()
    with pytest.raises(TaskDataError, match="'path'"):
        Expert(Task("Who?", ("He",)), world, random.Random(0))


def test_noise_out_of_range_is_named() -> None:
    with pytest.raises(SettingError, match="duplicate"):
        Noise(duplicate=1.5)
