"""Wherever a task is taken, a ``(question, answer)`` pair and a mapping do as well."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from agents.engines.base import Sampling
from agents.engines.scripted import ScriptedEngine
from agents.research import research
from agents.rollout import rollout
from agents.rollout_folder import RolloutFolder, fingerprint
from agents.vector_rollout import rollout_agents, rollout_vector
from drv_env import ENV_ID, Rules
from drv_env.episode import Episode
from drv_env.errors import TaskDataError
from drv_env.game import Game
from drv_env.protocol import Answer, Search, render_turn
from drv_env.rewards.key_facts import KeyFacts
from drv_env.rewards.outcome import exact_match, exact_match_cjk, token_f1, token_f1_cjk
from drv_env.task_order import TaskOrder, sample_tasks, split_tasks
from drv_env.tasks import Task, task_from
from drv_env.testing import FakeTools
from drv_env.tools.base import Call
from tests.agents.conftest import make_template

PAIR = ("Who owns mill 1?", "Owner1")
MAPPING = {"question": "Who owns mill 1?", "answer": "Owner1"}
TASK = Task("Who owns mill 1?", ("Owner1",))
SAMPLING = Sampling(64)

alike = pytest.mark.parametrize("given", [PAIR, MAPPING, TASK], ids=["pair", "mapping", "task"])


def answers(text: str) -> str:
    return render_turn("Known.", Answer("Owner1"))


class Answers:
    """An agent that knows one answer."""

    def act(self, message: str) -> str:
        return answers(message)


def played(given: Any, how: str) -> Any:
    template = make_template()
    engine = ScriptedEngine(answers, template)
    rules = Rules(system_prompt="")
    game = Game([given], FakeTools(), rules=rules)
    if how == "rollout":
        return asyncio.run(rollout(game, engine, template, [given], SAMPLING))[0].task
    if how == "research":
        return asyncio.run(research(game, engine, template, given, SAMPLING)).task
    env = gymnasium.make_vec(ENV_ID, 2, tasks=[given], tools=FakeTools(), rules=rules)
    if how == "rollout_vector":
        return rollout_vector(env, engine, template, [given], SAMPLING)[0].task
    seen: list[Task] = []

    def agent(task: Task) -> Answers:
        seen.append(task)
        return Answers()

    assert rollout_agents(env, agent, [given])[0].task == seen[0]
    return seen[0]


@alike
@pytest.mark.parametrize("how", ["rollout", "research", "rollout_vector", "rollout_agents"])
def test_it_is_played(given: Any, how: str) -> None:
    assert played(given, how) == TASK


TAKERS: dict[str, Callable[[Any], Any]] = {
    "Episode": lambda given: Episode(given, Rules()).task,
    "Game.episode": lambda given: Game([given], FakeTools()).episode(given).task,
    "Call": lambda given: Call(Search(("mill",)), given).task,
    "TaskOrder": lambda given: next(TaskOrder([given])),
    "sample_tasks": lambda given: sample_tasks([given], 1)[0],
    "split_tasks": lambda given: split_tasks([given], {"all": 1.0})["all"][0],
}


@alike
@pytest.mark.parametrize("taker", TAKERS)
def test_it_becomes_the_same_task(given: Any, taker: str) -> None:
    assert TAKERS[taker](given) == TASK


@alike
@pytest.mark.parametrize("score", [exact_match, token_f1, exact_match_cjk, token_f1_cjk])
def test_it_is_scored(given: Any, score: Callable[[str, Any], float]) -> None:
    assert score("owner1.", given) == 1.0
    assert score("somebody", given) == 0.0


def test_key_facts_are_taken_from_a_mapping() -> None:
    given = {**MAPPING, "key_facts": ["Owner1", "1912"]}
    assert asyncio.run(KeyFacts()("It was Owner1.", given)) == 0.5


@alike
def test_a_rollouts_folder_knows_them(given: Any, tmp_path: Path) -> None:
    assert fingerprint([given]) == fingerprint([TASK])
    assert RolloutFolder(tmp_path / "run", [given]).done == frozenset()


@pytest.mark.parametrize("given", [("only a question",), 7, {"question": "Who?"}])
def test_what_is_none_says_where_it_is(given: Any) -> None:
    with pytest.raises(TaskDataError):
        task_from(given)
    with pytest.raises(TaskDataError, match="task 1"):
        TaskOrder([PAIR, given])
