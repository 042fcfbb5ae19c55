"""The three ways a vector env begins anew, and its reward wrappers in each."""

from __future__ import annotations

import random
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from drv_env import (
    ENV_ID,
    EngineError,
    FormatPenalty,
    InformationGainReward,
    SettingError,
    VectorFormatPenalty,
    VectorInformationGainReward,
)
from drv_env.env import DeepResearchEnv
from drv_env.protocol import Answer, Search, Visit, render_turn
from drv_env.testing import FakeScorer, FakeTools
from drv_env.wrappers import check_penalty

TASKS = [("Q?", "A")]
RIGHT = render_turn("t", Answer("A"))
SEARCH = render_turn("t", Search(("x",)))
VISIT = render_turn("t", Visit(("https://e.org",), "x"))
MODES = [mode.name.lower() for mode in AutoresetMode]


def make(mode: str, num_envs: int = 2, **arguments: Any) -> Any:
    arguments.setdefault("tools", FakeTools())
    return gymnasium.make_vec(
        ENV_ID, num_envs=num_envs, tasks=TASKS, autoreset_mode=mode, **arguments
    )


def belief(messages, answer) -> float:
    """A scorer's value that depends on the history alone."""
    return -10.0 / len(messages) - len(messages[-1]["content"]) / 1000


def turns(count: int) -> list[str]:
    rng = random.Random(count)
    return [rng.choice([SEARCH, VISIT, VISIT, "bad", RIGHT, RIGHT + " tail"]) for _ in range(40)]


@pytest.mark.parametrize("mode", MODES)
def test_the_mode_is_in_the_metadata(mode):
    assert make(mode).metadata["autoreset_mode"] is AutoresetMode[mode.upper()]
    assert make("next_step").metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP


def test_an_unknown_mode_is_refused():
    with pytest.raises(SettingError, match="next_step, same_step, disabled"):
        make("sometimes")


def test_same_step_shows_the_new_question_and_keeps_the_last_of_the_old():
    env = make("same_step")
    env.reset(seed=0)
    observations, rewards, terminated, truncated, infos = env.step([RIGHT, SEARCH])
    assert observations[0] == "Q?"
    assert observations[1].startswith("<tool_response>")
    assert rewards.tolist() == [1.0, 0.0]
    assert (terminated.tolist(), truncated.tolist()) == ([True, False], [False, False])
    assert infos["final_obs"].tolist() == ["", None]
    assert infos["_final_obs"].tolist() == infos["_final_info"].tolist() == [True, False]
    assert infos["final_info"]["ending"][0] == "answered"
    assert infos["final_info"]["turn_reward"][0].outcome == 1.0
    assert infos["_task_id"].tolist() == [True, False]
    assert infos["_turn"].tolist() == [False, True]
    _, _, terminated, _, infos = env.step([SEARCH, SEARCH])
    assert not terminated.any()
    assert "final_info" not in infos
    assert infos["turn"].tolist() == [1, 2]


def test_same_step_is_what_gymnasiums_own_vector_does():
    ours = make("same_step")
    theirs = SyncVectorEnv(
        [lambda: DeepResearchEnv(TASKS, FakeTools())] * 2, autoreset_mode=AutoresetMode.SAME_STEP
    )
    ours.reset(seed=0)
    theirs.reset(seed=0)
    for pair in zip(turns(1), turns(2), strict=True):
        mine, other = ours.step(list(pair)), theirs.step(pair)
        assert mine[0] == other[0]
        for one, two in zip(mine[1:4], other[1:4], strict=True):
            np.testing.assert_array_equal(one, two)
        for key in ("final_obs", "final_info"):
            assert (key in mine[4]) == (key in other[4])
        if "final_info" in mine[4]:
            assert mine[4]["final_info"]["ending"].tolist() == [
                ending or None for ending in other[4]["final_info"]["ending"].tolist()
            ]


def test_disabled_waits_for_a_reset_by_mask():
    env = make("disabled")
    env.reset(seed=0)
    observations, *_ = env.step([RIGHT, SEARCH])
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"sub-environment 0.*reset_mask"):
        env.step([SEARCH, SEARCH])
    shown, infos = env.reset(options={"reset_mask": np.array([True, False])})
    assert shown == ("Q?", observations[1])
    assert infos["_task_id"].tolist() == [True, False]
    *_, infos = env.step([SEARCH, SEARCH])
    assert infos["turn"].tolist() == [1, 2]


def test_a_mask_goes_with_tasks_and_seeds():
    env = make("disabled", 3)
    env.reset(seed=0)
    mask = np.array([False, True, True])
    shown, _ = env.reset(
        seed=[None, 7, 8],
        options={"reset_mask": mask, "tasks": [("Q0?", "A"), ("Q1?", "A"), ("Q2?", "A")]},
    )
    assert shown == ("Q?", "Q1?", "Q2?")


@pytest.mark.parametrize(
    "mask", [[True, False], np.array([1, 0]), np.array([True]), np.array([False, False])]
)
def test_a_mask_that_does_not_fit_is_refused(mask):
    env = make("disabled")
    env.reset(seed=0)
    with pytest.raises(SettingError, match="reset_mask"):
        env.reset(options={"reset_mask": mask})


# ---- reward wrappers ------------------------------------------------------------------


def alone(actions: list[str], penalty_first: bool) -> list[float]:
    """Rewards of one env with the single wrappers, with resets between."""
    env: Any = DeepResearchEnv(TASKS, FakeTools())
    if penalty_first:
        env = InformationGainReward(FormatPenalty(env), FakeScorer(belief))
    else:
        env = FormatPenalty(InformationGainReward(env, FakeScorer(belief)))
    env.reset(seed=0)
    rewards = []
    for action in actions:
        _, reward, terminated, truncated, _ = env.step(action)
        rewards.append(reward)
        if terminated or truncated:
            env.reset()
    return rewards


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("penalty_first", [True, False])
def test_each_sub_environment_earns_what_it_would_alone(mode, penalty_first):
    scripts = [turns(1), turns(2), turns(3)]
    env = make(mode, 3)
    if penalty_first:
        env = VectorInformationGainReward(VectorFormatPenalty(env), FakeScorer(belief))
    else:
        env = VectorFormatPenalty(VectorInformationGainReward(env, FakeScorer(belief)))
    env.reset(seed=0)
    earned: list[list[float]] = [[], [], []]
    over = np.zeros(3, dtype=bool)
    while min(map(len, earned)) < 30:
        playing = ~over if mode == "next_step" else np.ones(3, dtype=bool)
        actions = [
            script[len(rewards) % len(script)]
            for script, rewards in zip(scripts, earned, strict=True)
        ]
        _, rewards, terminated, truncated, _ = env.step(actions)
        for index in range(3):
            if playing[index]:
                earned[index].append(float(rewards[index]))
            else:
                assert rewards[index] == 0.0
        over = terminated | truncated
        if mode == "disabled" and over.any():
            env.reset(options={"reset_mask": over})
    for script, rewards in zip(scripts, earned, strict=True):
        cycle = (script * 3)[: len(rewards)]
        assert rewards == pytest.approx(alone(cycle, penalty_first))


def test_the_gain_and_the_penalty_are_in_the_infos():
    env = VectorFormatPenalty(VectorInformationGainReward(make("next_step"), FakeScorer(belief)))
    env.reset(seed=0)
    _, rewards, _, _, infos = env.step([VISIT, "bad"])
    assert infos["turn_reward"][0].information_gain == pytest.approx(rewards[0])
    assert infos["turn_reward"][1].information_gain is None
    assert infos["penalised"].tolist() == [False, True]
    assert rewards[1] == -1.0


def test_a_malformed_last_turn_is_penalised_in_its_final_info():
    env = VectorFormatPenalty(make("same_step"), 0.5)
    env.reset(seed=0)
    _, rewards, _, _, infos = env.step([RIGHT + " tail", RIGHT])
    assert rewards.tolist() == [-0.5, 1.0]
    assert infos["final_info"]["penalised"].tolist() == [True, False]


@pytest.mark.parametrize("penalty_first", [True, False])
def test_a_lost_scorer_breaks_one_episode_and_spares_the_others(penalty_first):
    def values(messages, answer):
        if len(messages) > 3 and "x1" in messages[2]["content"]:
            raise EngineError("gone")
        return belief(messages, answer)

    env = make("next_step")
    if penalty_first:
        env = VectorInformationGainReward(VectorFormatPenalty(env), FakeScorer(values))
    else:
        env = VectorFormatPenalty(VectorInformationGainReward(env, FakeScorer(values)))
    env.reset(seed=0)
    visits = [render_turn("t", Visit(("https://e.org",), f"x{n}")) for n in range(2)]
    observations, rewards, _, truncated, infos = env.step(visits)
    assert truncated.tolist() == [False, True]
    assert observations[1] == ""
    assert rewards[0] != 0.0
    assert rewards[1] == 0.0
    assert infos["ending"].tolist() == [None, "broken"]
    observations, _, _, truncated, infos = env.step(visits)
    assert observations[1] == "Q?"
    assert not truncated.any()


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_a_scorer_lost_at_an_opening_breaks_that_episode_and_spares_the_others(mode):
    asked = []

    def values(messages, answer):
        asked.append(len(messages))
        if len(asked) > 2 and len(messages) == 2:
            raise EngineError("gone")
        return -1.0

    env = VectorInformationGainReward(make(mode), FakeScorer(values))
    env.reset(seed=0)
    for _ in range(1 if mode == "same_step" else 2):
        _, rewards, _, truncated, infos = env.step([RIGHT, "hello"])
    assert rewards[1] == 0.0
    assert infos["ending"][0] == "broken"
    assert "gone" in infos["error"][0]
    # in the same step the episode before ended by its answer; in its own, nothing else did
    assert truncated.tolist() == [mode == "next_step", False]
    assert infos["turn"][1] >= 1


def test_vector_wrappers_refuse_other_envs():
    other = gymnasium.make_vec("CartPole-v1", num_envs=1)
    with pytest.raises(SettingError, match="DeepResearchVectorEnv"):
        VectorFormatPenalty(other)
    with pytest.raises(SettingError, match="DeepResearchVectorEnv"):
        VectorInformationGainReward(other, FakeScorer([0.0]))
    with pytest.raises(SettingError, match="penalty"):
        check_penalty(-1.0)


# ---- Gymnasium's own vectors ----------------------------------------------------------


def single() -> DeepResearchEnv:
    return DeepResearchEnv(TASKS, FakeTools())


def test_gymnasiums_async_vector_works_without_shared_memory():
    env = AsyncVectorEnv([single, single], shared_memory=False)
    try:
        observations, _ = env.reset(seed=0)
        assert observations == ("Q?", "Q?")
        observations, rewards, terminated, _, infos = env.step((SEARCH, RIGHT))
        assert observations[0].startswith("<tool_response>")
        assert rewards.tolist() == [0.0, 1.0]
        assert terminated.tolist() == [False, True]
        assert infos["ending"].tolist() == [None, "answered"]
    finally:
        env.close()


def test_shared_memory_is_refused_and_says_what_to_set():
    with pytest.raises(Exception, match="shared_memory=False"):
        AsyncVectorEnv([single, single])
