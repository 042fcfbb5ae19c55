"""The vector face: many episodes in lock-step."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence as equivalent
from gymnasium.vector import AutoresetMode, VectorEnv

from drv_env import ENV_ID, DeepResearchVectorEnv, Rules, SettingError, TaskDataError
from drv_env.protocol import Answer, Search, Visit, observation_body, render_turn
from drv_env.testing import FakeTools, ManualClock
from drv_env.tools import Call, ToolResult
from drv_env.tools.offline import OfflineTools
from drv_env.worlds import WorldRecipe, questions

TASKS = [(f"Question {number}?", f"answer {number}") for number in range(20)]
ANSWER = render_turn("t", Answer("answer 1"))
RECIPE = WorldRecipe(1)


def search(query: str) -> str:
    return render_turn("t", Search((query,)))


def make(num_envs: int = 3, **arguments: Any) -> VectorEnv:
    arguments.setdefault("tasks", TASKS)
    arguments.setdefault("tools", FakeTools())
    return gymnasium.make_vec(ENV_ID, num_envs=num_envs, **arguments)


def test_make_vec_makes_our_own() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = make(4)
    assert isinstance(env.unwrapped, DeepResearchVectorEnv)
    assert env.num_envs == 4
    assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert len(env.action_space.sample()) == 4
    observations, infos = env.reset(seed=0)
    assert observations in env.observation_space
    assert infos["task_id"].shape == (4,)
    assert env.spec is not None
    env.close()


def test_a_group_is_copies_of_one_task() -> None:
    env = make(3)
    observations, infos = env.reset(options={"tasks": [("Q?", "A")] * 3})
    assert observations == ("Q?",) * 3
    assert len(set(infos["task_id"])) == 1
    _, rewards, terminated, _, _ = env.step(
        [render_turn("t", Answer(text)) for text in ("A", "B", "a!")]
    )
    assert rewards.tolist() == [1.0, 0.0, 1.0]
    assert terminated.all()
    assert set(env.step(["", "", ""])[0]) <= {question for question, _ in TASKS}


def test_the_step_after_an_end_begins_anew_and_ignores_the_action() -> None:
    tools = FakeTools()
    env = make(2, tools=tools, rules=Rules(max_turns=5))
    env.reset(seed=0, options={"tasks": [TASKS[1], TASKS[2]]})
    observations, rewards, terminated, truncated, infos = env.step([ANSWER, search("a")])
    assert observations[0] == ""
    assert rewards.tolist() == [1.0, 0.0]
    assert terminated.tolist() == [True, False]
    assert truncated.tolist() == [False, False]
    assert infos["ending"].tolist() == ["answered", None]
    observations, rewards, terminated, truncated, infos = env.step([search("never"), search("b")])
    assert observations[0] in dict(TASKS)
    assert rewards.tolist() == [0.0, 0.0]
    assert not terminated.any()
    assert not truncated.any()
    assert [call.action.queries for call in tools.calls] == [("a",), ("b",)]  # type: ignore[union-attr]
    assert infos["_task_id"].tolist() == [True, False]
    assert infos["_turn"].tolist() == [False, True]
    assert infos["turn"].tolist() == [0, 2]
    _, _, _, _, infos = env.step([search("c"), search("d")])
    assert infos["turn"].tolist() == [1, 3]
    assert "task_id" not in infos


def test_infos_have_masks_and_types() -> None:
    env = make(2)
    _, infos = env.reset(seed=0)
    assert infos["_messages"].tolist() == [True, True]
    assert infos["messages"][0][0]["role"] == "system"
    _, rewards, terminated, truncated, infos = env.step([search("a"), "hello"])
    assert (rewards.dtype, terminated.dtype, truncated.dtype) == (np.float64, bool, bool)
    for key, dtype in {
        "turn": int,
        "verdict": bool,
        "duplicate": bool,
        "latency": float,
        "cost": float,
        "tool": object,
        "reading": object,
        "turn_reward": object,
        "ending": object,
    }.items():
        assert infos[key].dtype == dtype, key
        assert infos[key].shape == (2,)
        assert infos[f"_{key}"].tolist() == [True, True]
    assert infos["verdict"].tolist() == [True, False]
    assert infos["tool"].tolist() == ["search", None]


class Meeting(FakeTools):
    """Calls that return only when ``number`` of them wait at the same time."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.waiting = 0
        self.all_here: asyncio.Event | None = None

    @property
    def instant(self) -> bool:
        return False

    async def call(self, call: Call) -> ToolResult:
        if self.all_here is None:
            self.all_here = asyncio.Event()
        self.waiting += 1
        if self.waiting == self.number:
            self.all_here.set()
        await self.all_here.wait()
        return await super().call(call)


def test_the_calls_of_a_step_run_at_once() -> None:
    tools = Meeting(16)
    env = make(16, tools=tools, tool_timeout=30.0)
    env.reset(seed=0)
    infos = env.step([search(str(index)) for index in range(16)])[4]
    assert set(infos["tool_status"]) == {"ok"}
    assert len(tools.calls) == 16


def test_a_sub_environment_that_fails_or_hangs_touches_no_other() -> None:
    class Uneven(FakeTools):
        @property
        def instant(self) -> bool:
            return False

        async def call(self, call: Call) -> ToolResult:
            assert isinstance(call.action, Search)
            query = call.action.queries[0]
            if query == "hang":
                await asyncio.Event().wait()
            if query == "raise":
                raise OSError("reset")
            if query == "cancel":
                inner = asyncio.ensure_future(asyncio.Event().wait())
                inner.cancel()
                await inner
            return await super().call(call)

    queries = ["a", "hang", "b", "raise", "c", "cancel"]
    env = make(6, tools=Uneven(), tool_timeout=0.05)
    env.reset(seed=0)
    calm = make(6, tools=FakeTools())
    calm.reset(seed=0)
    for number in range(3):
        seen, rewards, terminated, truncated, infos = env.step([search(q) for q in queries])
        expected = calm.step([search(q) for q in queries])
        for index in (0, 2, 4):
            assert seen[index] == expected[0][index]
            assert infos["tool_status"][index] == "ok"
        assert infos["tool_status"][[1, 3, 5]].tolist() == ["failed"] * 3
        assert not rewards.any()
        assert not terminated.any()
        assert truncated.tolist() == [
            number == 2 and query in ("hang", "raise", "cancel") for query in queries
        ]
    assert infos["ending"].tolist() == [None, "broken"] * 3


def test_a_lost_judge_breaks_only_its_own() -> None:
    def judge(answer: str, task: Any) -> float:
        return 1.0 if answer == "good" else float("nan")

    env = make(2, outcome=judge)
    env.reset(seed=0)
    turns = [render_turn("t", Answer(answer)) for answer in ("good", "bad")]
    _, rewards, terminated, truncated, infos = env.step(turns)
    assert rewards.tolist() == [1.0, 0.0]
    assert terminated.tolist() == [True, False]
    assert truncated.tolist() == [False, True]
    assert infos["ending"].tolist() == ["answered", "broken"]
    assert infos["turn_reward"][1].outcome is None


def test_it_plays_as_so_many_single_envs() -> None:
    recipe_tasks = questions(RECIPE.build(), hops=(1,))[:30]
    number, seed = 4, 11
    for tasks, tools in ((TASKS, FakeTools()), (recipe_tasks, OfflineTools([RECIPE]))):
        vector = make(number, tasks=tasks, tools=tools, rules=Rules(max_turns=3))
        singles = [
            gymnasium.make(ENV_ID, tasks=tasks, tools=tools, rules=Rules(max_turns=3))
            for _ in range(number)
        ]
        observations, infos = vector.reset(seed=seed)
        for index, env in enumerate(singles):
            assert env.reset(seed=seed + index)[0] == observations[index]
        rng = np.random.default_rng(0)
        over = [False] * number
        for _ in range(20):
            turns = [
                [search("x"), render_turn("t", Visit(("u",), "g")), "hello", ANSWER][pick]
                for pick in rng.integers(0, 4, number)
            ]
            observations, rewards, terminated, truncated, infos = vector.step(turns)
            for index, env in enumerate(singles):
                if over[index]:
                    observation, info = env.reset()
                    found: tuple = (observation, 0.0, False, False)
                else:
                    *start, info = env.step(turns[index])
                    found = tuple(start)
                assert found == (
                    observations[index],
                    rewards[index],
                    terminated[index],
                    truncated[index],
                )
                masked = {
                    key: value[index]
                    for key, value in infos.items()
                    if not key.startswith("_") and infos[f"_{key}"][index]
                }
                assert masked.keys() == info.keys()
                assert equivalent(
                    {key: str(value) for key, value in masked.items()},
                    {key: str(value) for key, value in info.items()},
                )
                over[index] = found[2] or found[3]


def test_seeds_decide_the_tasks() -> None:
    first, second = make(3), make(3)
    assert first.reset(seed=5)[0] == second.reset(seed=[5, 6, 7])[0]
    assert first.reset()[0] == second.reset()[0]
    drawn = [make(3).reset(seed=seed)[0] for seed in range(6)]
    assert len(set(drawn)) > 1
    kept = first.reset(seed=[None, 1, None])[0]
    assert kept[1] == make(1).reset(seed=1)[0][0]


def test_latency_is_told_per_sub_environment() -> None:
    env = make(2, tools=FakeTools(latency=1.5, clock=ManualClock()))
    env.reset(seed=0)
    assert env.step([search("a"), "hello"])[4]["latency"].tolist() == [1.5, 0.0]


@pytest.mark.parametrize("actions", [[], ["a"], ["a"] * 4, "abc", ["a", "b", None], [1, 2, 3]])
def test_actions_are_as_many_texts_as_there_are_envs(actions: Any) -> None:
    env = make(3)
    env.reset(seed=0)
    with pytest.raises(TypeError, match="3 strings"):
        env.step(actions)


def test_actions_can_be_any_sequence() -> None:
    env = make(2)
    env.reset(seed=0)
    for actions in (("a", "b"), np.array(["a", "b"]), np.array(["a", "b"], dtype=object)):
        assert env.step(actions)[4]["_turn"].all()


def test_wrong_counts_and_settings_are_named() -> None:
    env = make(3)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(["a"] * 3)
    with pytest.raises(SettingError, match="2"):
        env.reset(seed=[1, 2])
    with pytest.raises(SettingError, match=r"\(3\), got 1"):
        env.reset(options={"tasks": [TASKS[0]]})
    with pytest.raises(TaskDataError):
        env.reset(options={"tasks": ["q"] * 3})
    for arguments in ({"num_envs": 0}, {"render_mode": "rgb_array"}, {"tool_timeout": -1.0}):
        with pytest.raises(SettingError):
            DeepResearchVectorEnv(
                **{"num_envs": 1, "tasks": TASKS, "tools": FakeTools(), **arguments}
            )  # type: ignore[arg-type]


def test_the_conversations_can_be_rendered() -> None:
    env = make(2, render_mode="ansi", rules=Rules(system_prompt=""))
    env.reset(seed=0, options={"tasks": TASKS[:2]})
    env.step(["hello", ANSWER])
    first, second = env.render()  # type: ignore[misc]
    assert first.startswith("[user]\nQuestion 0?\n\n[assistant]\nhello\n\n[user]\n<tool_response>")
    assert second.endswith("[answered]")


def test_close_closes_the_tools_once() -> None:
    tools = FakeTools()
    env = make(2, tools=tools)
    env.reset(seed=0)
    env.close()
    env.close()
    assert tools.closed == 1


def test_observations_are_messages() -> None:
    env = make(2)
    env.reset(seed=0)
    observations = env.step([search("a"), "hello"])[0]
    assert isinstance(observations, tuple)
    assert all(observation_body(observation) for observation in observations)
