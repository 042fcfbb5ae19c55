"""The judge as an env's outcome: an episode whose judge is lost is broken, never worth 0."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from drv_env import ENV_ID, background
from drv_env.cassette import CassetteStore
from drv_env.chat import ChatClient
from drv_env.protocol import Answer, render_turn
from drv_env.rewards.judge import Judge
from drv_env.rewards.key_facts import KeyFacts
from drv_env.rewards.records import TurnReward
from drv_env.testing import FakeTools
from tests.rewards.conftest import Endpoint

TASK = ("Capital of France?", "Paris")


def answered(outcome: Any, answer: str, task: Any = TASK) -> tuple[float, bool, bool, dict]:
    env = gymnasium.make(ENV_ID, tasks=[task], tools=FakeTools(), outcome=outcome)
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(render_turn("t", Answer(answer)))
    env.close()
    return float(reward), terminated, truncated, info


@pytest.mark.parametrize(("reply", "outcome"), [("correct: yes", 1.0), ("correct: no", 0.0)])
def test_a_verdict_is_the_reward_of_the_last_step(
    endpoint: Endpoint, judge_of: Callable[..., Judge], reply: str, outcome: float
) -> None:
    endpoint.script = [reply]
    reward, terminated, truncated, info = answered(judge_of(), "Lutetia")
    assert (reward, terminated, truncated) == (outcome, True, False)
    assert info["ending"] == "answered"
    assert info["turn_reward"] == TurnReward(None, True, outcome)


@pytest.mark.parametrize("reply", [500, 401, "I cannot say.", "correct: yes/no"])
@pytest.mark.parametrize("kind", ["judge", "key facts"])
def test_a_lost_judge_breaks_the_episode(
    endpoint: Endpoint, judge_of: Callable[..., Judge], reply: str | int, kind: str
) -> None:
    endpoint.script = [reply]
    judge = judge_of()
    task = {"question": "Q?", "answer": "Paris", "key_facts": ["Paris"]}
    outcome = judge if kind == "judge" else KeyFacts(judge)
    reward, terminated, truncated, info = answered(outcome, "Lutetia", task)
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["ending"] == "broken"
    assert info["turn_reward"] == TurnReward(None, True, None)
    assert "judge m" in info["error"]


def test_a_hanging_judge_breaks_the_episode(
    endpoint: Endpoint, judge_of: Callable[..., Judge]
) -> None:
    endpoint.opened.clear()
    reward, _, truncated, info = answered(judge_of(timeout=0.05), "Lutetia")
    assert (reward, truncated, info["ending"]) == (0.0, True, "broken")
    assert info["turn_reward"].outcome is None
    assert len(endpoint.bodies) == 3


def test_an_exact_match_makes_no_request(
    endpoint: Endpoint, judge_of: Callable[..., Judge]
) -> None:
    endpoint.script = [500]
    assert answered(judge_of(), "paris.")[0] == 1.0
    assert endpoint.bodies == []


def test_a_recorded_verdict_makes_no_request(
    endpoint: Endpoint, judge_of: Callable[..., Judge], tmp_path: Path
) -> None:
    endpoint.script = ["correct: yes", 500]
    with CassetteStore(tmp_path / "c") as store:
        rewards = [answered(judge_of(cassette=store), "Lutetia")[0] for _ in range(3)]
    assert rewards == [1.0] * 3
    assert len(endpoint.bodies) == 1


def test_a_vector_of_answers_is_judged_together(
    endpoint: Endpoint, judge_of: Callable[..., Judge]
) -> None:
    envs = gymnasium.make_vec(
        ENV_ID, num_envs=6, tasks=[TASK], tools=FakeTools(), outcome=judge_of(limit=6)
    )
    envs.reset(seed=0)

    async def open_when_all_are_there() -> None:
        for _ in range(6):
            await endpoint.arrived.acquire()
        endpoint.opened.set()

    endpoint.opened.clear()
    opening = asyncio.run_coroutine_threadsafe(open_when_all_are_there(), background.loop())
    turns = tuple(render_turn("t", Answer(f"Lutetia {number}")) for number in range(6))
    rewards = envs.step(turns)[1]
    opening.result()
    assert list(rewards) == [1.0] * 6
    envs.close()


# ---- closing ------------------------------------------------------------------------------


class Watched(Judge):
    """A judge that says how often it was closed."""

    closed = 0

    async def close(self) -> None:
        self.closed += 1
        await super().close()


@pytest.mark.parametrize("kind", ["judge", "key facts"])
@pytest.mark.parametrize("way", ["close", "aclose", "vector"])
def test_the_judge_closes_with_the_env(endpoint: Endpoint, way: str, kind: str) -> None:
    judge = Watched(ChatClient(endpoint.url, "m"))
    arguments: dict[str, Any] = {
        "tasks": [{"question": "Q?", "answer": "Paris", "key_facts": ["Paris"]}],
        "tools": FakeTools(),
        "outcome": judge if kind == "judge" else KeyFacts(judge),
    }
    if way == "vector":
        gymnasium.make_vec(ENV_ID, 2, **arguments).close()
    elif way == "close":
        gymnasium.make(ENV_ID, **arguments).close()
    else:
        asyncio.run(gymnasium.make(ENV_ID, **arguments).unwrapped.aclose())
    assert judge.closed == 1


def test_a_closed_judge_that_another_env_shares_judges_on(
    endpoint: Endpoint, judge_of: Callable[..., Judge]
) -> None:
    judge = judge_of()
    assert answered(judge, "Lutetia")[0] == answered(judge, "Lutece")[0] == 1.0


def test_an_outcome_that_can_not_be_closed_costs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Stubborn:
        def __call__(self, answer: str, task: Any) -> float:
            return 1.0

        async def close(self) -> None:
            raise OSError("the line is dead")

    assert answered(Stubborn(), "x")[0] == 1.0
    assert "close() of the outcome" in caplog.text
    assert "the line is dead" in caplog.text


def test_a_pair_is_judged_as_a_task_is(endpoint: Endpoint, judge_of: Callable[..., Judge]) -> None:
    assert asyncio.run(judge_of()("Lutetia", TASK)) == 1.0
    assert endpoint.sent()["gold_answers"] == ["Paris"]
