"""Which turns are sampled again, by hand: no engine."""

import numpy as np
import pytest

from agents.robust import RobustSampling, repeats_at_end
from drv_env import SettingError
from drv_env.episode import Call, Episode, Rules
from drv_env.protocol import Answer, Search, render_turn
from drv_env.tasks import Task
from drv_env.tools import ToolResult

SEARCH = render_turn("t", Search(("x",)))
ANSWER = render_turn("t", Answer("Paris"))
VARIED = np.arange(200, dtype=np.int32)


@pytest.mark.parametrize(
    ("units", "repeats", "length", "expected"),
    [
        ([1, 2] * 4, 4, 8, True),
        ([1, 2] * 4, 4, 9, False),  # the repetition is to fill nine
        ([0, 3, *[1, 2] * 4], 4, 8, True),
        ([1, 2] * 3, 4, 4, False),  # three times only
        ([*[1, 2] * 4, 3], 4, 8, False),  # not at the end
        ([1, 2] * 4 + [1], 4, 9, True),  # an end within a block
        ([7] * 4, 4, 4, True),
        ([7] * 3, 4, 4, False),
        ([], 3, 3, False),
        (list(range(256)) * 3, 3, 3, True),
        (list(range(257)) * 3, 3, 3, False),  # blocks are of up to 256
    ],
)
def test_a_repetition_is_a_block_that_stands_at_the_end(units, repeats, length, expected):
    assert repeats_at_end(units, repeats, length) is expected


def begun():
    """An episode that has searched once."""
    episode = Episode(Task("Capital of France?", ("Paris",)), Rules())
    assert isinstance(episode.take(SEARCH), Call)
    episode.give(ToolResult("found"))
    return episode


def test_every_fault_has_its_name_and_the_first_counts():
    robust, episode = RobustSampling(), begun()
    units = np.zeros(96, np.int32)  # four times and more, 96 ids
    assert robust.fault(episode, ANSWER, units) == "repetition"
    assert robust.fault(episode, ANSWER, units[:95]) is None
    assert robust.fault(episode, "nothing", VARIED) == "unreadable"
    assert robust.fault(episode, SEARCH, VARIED) == "duplicate"
    assert robust.fault(episode, render_turn("t", Search(("y",))), VARIED) is None
    assert robust.fault(episode, "nothing", units) == "repetition"


@pytest.mark.parametrize("only", ["repetition", "unreadable", "duplicate"])
def test_faults_that_are_not_asked_for_are_none(only):
    robust, episode = RobustSampling(faults=(only,)), begun()
    found = {
        robust.fault(episode, ANSWER, np.zeros(96, np.int32)),
        robust.fault(episode, "nothing", VARIED),
        robust.fault(episode, SEARCH, VARIED),
    }
    assert found == {only, None}


def test_a_turn_is_sampled_as_often_as_attempts_say():
    episode = begun()
    assert [RobustSampling().again(n, episode, "nothing", VARIED) for n in (1, 2, 3)] == [
        True,
        True,
        False,
    ]
    assert not RobustSampling().again(1, episode, ANSWER, VARIED)


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"repeats": 2}, {"repeats": 5, "repeated": 4}])
def test_settings_that_cannot_work_are_named(wrong):
    with pytest.raises(SettingError, match=list(wrong)[-1]):
        RobustSampling(**wrong)
    assert RobustSampling(attempts=1, repeats=3, repeated=3).repeated == 3
