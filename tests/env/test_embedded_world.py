"""An env without arguments: an embedded world, random turns, Gymnasium's own checker."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import drv_env
from drv_env.errors import SettingError
from drv_env.protocol import Answer, Search, Visit, render_turn
from drv_env.testing import FakeTools

ID = "drv_env/DeepResearch-v0"


def test_gymnasiums_own_checker_has_nothing_to_say() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(ID).unwrapped)


def test_random_turns_are_legal_and_end_every_episode() -> None:
    env = gymnasium.make(ID)
    env.action_space.seed(5)
    questions, endings = set(), set()
    for seed in range(12):
        question, info = env.reset(seed=seed)
        questions.add(question)
        over, turns = False, 0
        while not over:
            action = env.action_space.sample()
            assert env.action_space.contains(action)
            observation, _reward, terminated, truncated, info = env.step(action)
            assert env.observation_space.contains(observation)
            over, turns = terminated or truncated, turns + 1
            assert turns <= 201  # the rules' 200, and the answer that is asked for
        endings.add(info["ending"])
    env.close()
    assert len(questions) > 6  # drawn by the seed
    assert endings
    assert "broken" not in endings


def test_the_worlds_pages_answer_its_questions() -> None:
    """Followed by hand: world 0 has the person of the question and says what is asked."""
    env = gymnasium.make(ID)
    task = next(each for each in env.unwrapped.game.tasks if each.metadata["hops"] == 1)
    start, relation = task.metadata["start"], task.metadata["path"][0]
    env.reset(options={"task": task})
    found, *_ = env.step(render_turn("I look.", Search((start,))))
    url = drv_env.worlds.url_of(start)
    assert url in found
    page, *_ = env.step(render_turn("I open it.", Visit((url,), relation)))
    assert task.answers[0] in page
    ended = env.step(render_turn("Known.", Answer(task.answers[0])))
    assert ended[1:4] == (1.0, True, False)


def test_a_vector_plays_the_same_world() -> None:
    envs = gymnasium.make_vec(ID, num_envs=3)
    envs.action_space.seed(1)
    questions, _ = envs.reset(seed=0)
    one = gymnasium.make(ID)
    assert questions[1] == one.reset(seed=1)[0]
    for _ in range(30):
        observations, _, _, _, infos = envs.step(envs.action_space.sample())
        assert len(observations) == 3
        assert "broken" not in list(infos["ending"])
    envs.close()


@pytest.mark.parametrize("make", [gymnasium.make, lambda *a, **k: gymnasium.make_vec(*a, 2, **k)])
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"tasks": [("Who owns the mill?", "Salen")]}, "tools=OfflineTools.from_pages"),
        ({"tools": FakeTools()}, r"tasks=\[\(question, answer\)"),
    ],
)
def test_one_without_the_other_is_refused(make: Any, given: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingError, match=says):
        make(ID, **given)
