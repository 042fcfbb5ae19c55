"""Limits of turns that are drawn for each episode: as the release draws them, in either way."""

import asyncio
from collections import Counter

import gymnasium
import numpy as np
import pytest

from agents.engines.base import Sampling
from agents.engines.scripted import ScriptedEngine
from agents.rollout import RolloutSettings, rollout
from agents.turn_limits import turn_limit
from agents.vector_rollout import rollout_vector
from drv_env import ENV_ID, Rules, SettingError, Task
from drv_env.game import Game
from drv_env.protocol import Answer, Search, render_turn
from drv_env.testing import FakeTools

TASKS = [Task(f"Who owns mill {n}?", (f"Owner{n}",)) for n in range(5)]
SAMPLING = Sampling(256)


def searches_until_asked(text: str) -> str:
    """A search a turn, each another, and an answer once nothing else is allowed."""
    last = text.rsplit("<tool_response>", 1)[-1]
    if "<answer>" in last:
        return render_turn("I must.", Answer("nobody"))
    return render_turn("On.", Search((f"mill {text.count('<tool_response>')}",)))


def limits_of(trajectories) -> list[int]:
    """All turns, the forced answer's among them."""
    return [len(item.turns) for item in trajectories]


def test_a_limit_is_cut_towards_the_middle_as_released():
    rules = Rules(max_turns=200)
    found = Counter(turn_limit(rules, 5, (1, 2, sample)) for sample in range(4000))
    assert set(found) == set(range(196, 205))
    # ten equal tenths of [−5, 5), of which two are cut to 0
    assert found[200] == pytest.approx(800, abs=150)
    assert found[196] == pytest.approx(400, abs=100)


def test_a_draw_is_the_same_on_every_machine():
    # 10 · 0.888 − 5, 10 · 0.269 − 5, 10 · 0.384 − 5 and 10 · 0.430 − 5, cut towards 0
    found = [turn_limit(Rules(max_turns=200), 5, (0, 0, sample)) for sample in range(4)]
    assert found == [200 + 3, 200 - 2, 200 - 1, 200]


def test_there_is_always_room_for_an_answer():
    few, counted = Rules(max_turns=1), Rules(max_turns=2, count_forced_turn=True)
    assert min(turn_limit(few, 5, (0, 0, sample)) for sample in range(50)) == 1
    assert min(turn_limit(counted, 5, (0, 0, sample)) for sample in range(50)) == 2
    assert turn_limit(few, 0, (0, 0, 0)) is None
    with pytest.raises(SettingError, match="turn_jitter"):
        RolloutSettings(turn_jitter=-1)


@pytest.mark.parametrize(("counted", "more"), [(False, 1), (True, 0)])
def test_episodes_end_at_their_own_limit_and_the_same_in_lock_step(template, counted, more):
    rules = Rules(system_prompt="", max_turns=6, count_forced_turn=counted)
    expected = [turn_limit(rules, 3, (9, task, sample)) for task in range(5) for sample in (0, 1)]
    assert len(set(expected)) > 2
    group = [task for task in TASKS for _ in range(2)]
    envs = gymnasium.make_vec(ENV_ID, num_envs=4, tasks=TASKS, tools=FakeTools(), rules=rules)
    engines = [ScriptedEngine(searches_until_asked, template) for _ in range(2)]
    in_step = rollout_vector(
        envs, engines[0], template, group, SAMPLING, seed=9, group_size=2, turn_jitter=3
    )
    settings = RolloutSettings(group_size=2, seed=9, turn_jitter=3)
    game = Game(TASKS, FakeTools(), rules=rules)
    own_pace = asyncio.run(rollout(game, engines[1], template, TASKS, SAMPLING, settings))
    # the turns that carry out calls, the last call that is not, and the answer
    assert limits_of(in_step) == [limit + more for limit in expected]
    assert limits_of(own_pace) == limits_of(in_step)
    assert {str(item.ending) for item in own_pace} == {"forced_turns"}


def test_without_a_seed_limits_differ_by_themselves(template):
    game = Game(TASKS[:1], FakeTools(), rules=Rules(system_prompt="", max_turns=30))
    engine = ScriptedEngine(searches_until_asked, template)
    settings = RolloutSettings(group_size=40, seed=None, turn_jitter=28)
    found = asyncio.run(rollout(game, engine, template, TASKS[:1], SAMPLING, settings))
    assert len(set(limits_of(found))) > 1  # forty draws of 55 are all the same once in 10^60


def test_a_vector_env_takes_a_limit_for_each_episode():
    rules = Rules(system_prompt="", max_turns=6)
    env = gymnasium.make_vec(ENV_ID, num_envs=2, tasks=TASKS, tools=FakeTools(), rules=rules)
    env.reset(options={"max_turns": [1, None]})
    call = render_turn("On.", Search(("mill",)))
    env.step((call, call))
    infos = env.step((call, call))[4]
    assert infos["ending"].tolist() == ["no_answer", None]
    with pytest.raises(SettingError, match=r"options\['max_turns'\] must have one"):
        env.reset(options={"max_turns": [1]})
    with pytest.raises(SettingError, match="max_turns must be at least 1"):
        env.reset(options={"max_turns": [0, None]})
    assert isinstance(env.unwrapped.episodes[0].rules.max_turns, int | np.integer)
