"""What reset is given: seeds, options, and questions that the rules leave no room for."""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import drv_env
from drv_env.context import TextCounter
from drv_env.episode import Rules
from drv_env.errors import DrvError, SettingError, TaskDataError
from drv_env.game import Game
from drv_env.tasks import Task, task_from
from drv_env.testing import FakeTools
from drv_env.vector import DeepResearchVectorEnv
from drv_env.vector_wrappers import VectorFormatPenalty, VectorInformationGainReward

ANSWER = "<think>Known.</think><answer>Paris</answer>"
GOOD = Task("Capital of France?", ("Paris",))
LONG = Task("word " * 500, ("Paris",))
RULES = Rules(system_prompt="", max_context=400, max_turn_tokens=20)
COUNTER = TextCounter(lambda text: len(text.split()), per_message=0)


def make_vector(count: int = 3, tasks: Any = (GOOD,), **settings: Any) -> DeepResearchVectorEnv:
    return DeepResearchVectorEnv(count, tasks, FakeTools(), **settings)


@pytest.mark.parametrize("options", [["task"], "task", 5, ("task",), [("task", GOOD)], {5: 1}])
def test_options_that_are_not_by_name_are_refused(options: Any) -> None:
    env = gymnasium.make(drv_env.ENV_ID, tasks=[GOOD], tools=FakeTools())
    for reset in (env.reset, make_vector().reset):
        with pytest.raises(SettingError, match="reset"):
            reset(options=options)


@pytest.mark.parametrize("task", [5, "text", [], {}, [1, 2, 3], {"question": 1, "answer": "x"}])
def test_a_task_option_that_is_none_is_refused(task: Any) -> None:
    env = gymnasium.make(drv_env.ENV_ID, tasks=[GOOD], tools=FakeTools())
    with pytest.raises(TaskDataError):
        env.reset(options={"task": task})
    with pytest.raises(TaskDataError):
        make_vector().reset(options={"tasks": [GOOD, task, GOOD]})


@pytest.mark.parametrize(
    "options",
    [
        {"tasks": 5},
        {"tasks": "abc"},
        {"tasks": {"question": "a", "answer": "b", "id": "c"}},
        {"tasks": [GOOD]},
        {"counters": 5},
        {"counters": [1, 2, 3]},
        {"counters": "abc"},
        {"reset_mask": [True, False, True]},
        {"reset_mask": np.ones(3)},
        {"reset_mask": np.ones(2, bool)},
        {"reset_mask": "all"},
    ],
)
def test_vector_options_of_the_wrong_kind_are_named(options: Any) -> None:
    (name,) = options
    env = make_vector()
    with pytest.raises(SettingError, match=name):
        env.reset(options=options)
    assert env.reset(seed=0)[0] == (GOOD.question,) * 3


@pytest.mark.parametrize("seed", [-1, 1.5, math.nan, "7", True, [1.0]])
def test_seeds_that_are_none_are_refused(seed: Any) -> None:
    env = gymnasium.make(drv_env.ENV_ID, tasks=[GOOD], tools=FakeTools())
    with pytest.raises(SettingError, match="seed must be"):
        env.reset(seed=seed)
    with pytest.raises(SettingError, match="seed must be"):
        make_vector().reset(seed=seed)
    with pytest.raises(SettingError, match="seed must be"):
        make_vector(2).reset(seed=[0, seed])


def test_large_seeds_and_numpys_work_and_repeat() -> None:
    tasks = [Task(f"Question {number}?", ("x",)) for number in range(50)]
    env = gymnasium.make(drv_env.ENV_ID, tasks=tasks, tools=FakeTools())
    assert env.reset(seed=2**70)[0] == env.reset(seed=2**70)[0]
    vector = make_vector(2, tasks)
    assert vector.reset(seed=2**70)[0] == vector.reset(seed=2**70)[0]
    assert env.reset(seed=np.int64(5))[0] == env.reset(seed=5)[0]  # type: ignore[arg-type]
    assert vector.reset(seed=np.array([5, 6]))[0] == vector.reset(seed=5)[0]  # type: ignore[arg-type]


def test_an_over_long_question_breaks_its_own_episode_alone() -> None:
    env = make_vector(
        3, [GOOD], rules=RULES, counter=COUNTER, autoreset_mode=AutoresetMode.DISABLED
    )
    questions, infos = env.reset(options={"tasks": [GOOD, LONG, GOOD]})
    assert questions == (GOOD.question, LONG.question, GOOD.question)
    assert infos["_task_id"].tolist() == [True, True, True]
    observations, rewards, terminated, truncated, infos = env.step([ANSWER] * 3)
    assert observations == ("", "", "")
    assert rewards.tolist() == [1.0, 0.0, 1.0]
    assert terminated.tolist() == [True, False, True]
    assert truncated.tolist() == [False, True, False]
    assert infos["ending"].tolist() == ["answered", "broken", "answered"]
    assert "max_context=400 is too small: the opening takes 500 tokens" in infos["error"][1]
    assert infos["_turn_reward"].tolist() == [True, False, True]
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step([ANSWER] * 3)
    env.reset(options={"tasks": [GOOD] * 3, "reset_mask": np.array([True, True, True])})
    assert env.step([ANSWER] * 3)[1].tolist() == [1.0, 1.0, 1.0]


def test_it_is_told_once_in_every_autoreset_mode() -> None:
    for mode in ("next_step", "same_step"):
        env = make_vector(2, [GOOD], rules=RULES, counter=COUNTER, autoreset_mode=mode)
        env.reset(options={"tasks": [LONG, GOOD]})
        _, rewards, _, truncated, infos = env.step([ANSWER] * 2)
        assert rewards.tolist() == [0.0, 1.0]
        assert truncated.tolist() == [True, False]
        told = infos if mode == "next_step" else infos["final_info"]
        assert told["ending"][0] == "broken"
        _, rewards, terminated, truncated, _ = env.step([ANSWER] * 2)
        paid = [1.0, 1.0] if mode == "same_step" else [0.0, 0.0]
        assert rewards.tolist() == paid
        assert not truncated.any()
        assert terminated.tolist() == [bool(each) for each in paid]


def test_a_drawn_over_long_question_is_told_in_the_step_after_it_began() -> None:
    env = make_vector(1, [GOOD, LONG], rules=RULES, counter=COUNTER, autoreset_mode="same_step")
    env.reset(seed=0)
    endings = set()
    shown = env.episodes[0].task
    for _ in range(20):
        _, (reward,), _, (truncated,), infos = env.step([ANSWER])
        assert (reward, bool(truncated)) == ((1.0, False) if shown is GOOD else (0.0, True))
        endings.add(infos["final_info"]["ending"][0])
        shown = env.episodes[0].task
    assert endings == {"answered", "broken"}


def test_the_wrappers_pay_nothing_for_it_and_ask_no_scorer() -> None:
    asked: list[str] = []

    class Scorer:
        def score(self, messages: Any, answer: str, transcript: Any = None) -> float:
            asked.append(messages[-1]["content"])
            return -1.0

    plain = make_vector(2, [GOOD], rules=RULES, counter=COUNTER)
    env = VectorFormatPenalty(VectorInformationGainReward(plain, Scorer()))
    env.reset(options={"tasks": [LONG, GOOD]})
    _, rewards, _, truncated, _ = env.step(["no turn at all", ANSWER])
    assert rewards.tolist() == [0.0, 1.0]
    assert truncated.tolist() == [True, False]
    assert asked == [GOOD.question]


def test_a_game_needs_room_for_one_of_its_questions() -> None:
    assert len(Game([LONG, GOOD], FakeTools(), rules=RULES, counter=COUNTER).tasks) == 2
    with pytest.raises(SettingError, match="max_context=400 is too small"):
        Game([LONG, LONG], FakeTools(), rules=RULES, counter=COUNTER)


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf, "5", True, None])
@pytest.mark.parametrize("name", ["tool_timeout", "outcome_timeout"])
def test_timeouts_are_numbers_of_seconds(name: str, seconds: Any) -> None:
    with pytest.raises(SettingError, match=name):
        Game([GOOD], FakeTools(), **{name: seconds})


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "2", math.nan])
def test_the_number_of_envs_is_a_whole_number(count: Any) -> None:
    with pytest.raises(SettingError, match="num_envs"):
        make_vector(count)


@pytest.mark.parametrize(
    ("answer", "written"),
    [
        (42, ("42",)),
        (-7, ("-7",)),
        (3.0, ("3",)),
        (0.1, ("0.1",)),
        ([1, 2.5, "two"], ("1", "2.5", "two")),
        (np.int64(42), ("42",)),
        (np.float64(2.0), ("2",)),
        (np.array([1, 2]), ("1", "2")),
        (10**20, ("100000000000000000000",)),
    ],
)
def test_numbers_are_gold_answers_as_they_are_written(
    answer: Any, written: tuple[str, ...]
) -> None:
    assert task_from(("How many?", answer)).answers == written
    assert task_from({"question": "How many?", "answer": answer}).answers == written
    assert task_from({"question": "How many?", "answers": answer}).answers == written
    env = gymnasium.make(drv_env.ENV_ID, tasks=[("How many?", answer)], tools=FakeTools())
    env.reset(seed=0)
    turn = f"<think>Known.</think><answer>{written[0]}</answer>"
    assert env.step(turn)[1] == 1.0


def test_numbers_are_those_that_a_file_of_tasks_has(tmp_path: Any) -> None:
    import json

    from drv_env.task_files import read_tasks

    values: list[Any] = [42, -7, 3.0, 0.1, [1, 2.5, "two"], 1e16]
    file = tmp_path / "tasks.jsonl"
    file.write_text("\n".join(json.dumps({"question": "How many?", "answer": v}) for v in values))
    read = [task.answers for task in read_tasks(file)]
    assert read == [task_from(("How many?", value)).answers for value in values]


@pytest.mark.parametrize("answer", [True, math.nan, math.inf, None, [True], {"a": 1}, 1j])
def test_what_is_no_number_is_no_gold_answer(answer: Any) -> None:
    with pytest.raises(TaskDataError, match="gold answer"):
        task_from(("How many?", answer))
    with pytest.raises(DrvError):
        Task("How many?", answer)
