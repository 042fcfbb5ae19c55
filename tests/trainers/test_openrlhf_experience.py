"""What goes from rollouts to OpenRLHF's trainer, and what it learns; OpenRLHF is not needed."""

import dataclasses

import numpy as np
import pytest

from drv_env.episode import Ending
from drv_env.errors import DrvError
from replay.sft_rows import transcribe
from replay.trajectory import Trajectory
from trainers.advantages import advantages_of
from trainers.openrlhf.experience import learn, with_rank_gains
from trainers.openrlhf.records import pack, unpack
from trainers.openrlhf.scoring import shares
from trainers.rl_config import RLConfig


@pytest.fixture(scope="module")
def played(tiny_game) -> list[Trajectory]:
    """Eight of the expert's episodes, in tokens, with gains made up where a visit is scored."""
    found = []
    for item in tiny_game.expert[:8]:
        transcript = transcribe(item, tiny_game.template)
        rewards = list(item.rewards)
        for turn in item.scored_turns(("visit",)):
            gain = 0.1 * turn - 0.01 * len(found)
            rewards[turn - 1] = dataclasses.replace(rewards[turn - 1], information_gain=gain)
        rewards[-1] = dataclasses.replace(rewards[-1], outcome=float(len(found) % 2))
        found.append(dataclasses.replace(item, transcript=transcript, rewards=tuple(rewards)))
    return found


def broken(item: Trajectory) -> Trajectory:
    rewards = (*item.rewards[:-1], dataclasses.replace(item.rewards[-1], outcome=None))
    return dataclasses.replace(item, ending=Ending.BROKEN, error="tools are down", rewards=rewards)


def test_a_trajectory_goes_through_integers_whole(played):
    for item in played:
        found = unpack(np.array([*pack(item), 0, 0, 0]))  # a batch is padded with zeros
        assert found.transcript.ids.tolist() == item.transcript.ids.tolist()
        assert found.transcript.spans == item.transcript.spans
        assert dataclasses.replace(found, transcript=None) == dataclasses.replace(
            item, transcript=None
        )


def test_a_none_and_a_zero_are_not_the_same_after_the_way(played):
    item = next(item for item in played if item.scored_turns(("visit",)))
    turn = item.scored_turns(("visit",))[0]
    rewards = list(item.rewards)
    rewards[turn - 1] = dataclasses.replace(rewards[turn - 1], information_gain=0.0)
    found = unpack(pack(dataclasses.replace(item, rewards=tuple(rewards))))
    assert found.rewards[turn - 1].information_gain == 0.0
    assert found.rewards[-1].information_gain is None


def test_advantages_are_the_one_device_trainers_token_for_token(played):
    config = RLConfig(drop_silent="none")
    groups = [0, 0, 0, 0, 1, 1, 1, 1]
    found = learn(played, groups, config, version=3)
    own = advantages_of(
        [item.rewards for item in played],
        groups,
        config.credit,
        [[turn.tool for turn in item.turns] for item in played],
    )
    assert found.metrics["ig_scale"] == own.ig_scale
    for item, per_turn, row in zip(played, own.per_turn, found.advantages, strict=True):
        mask = item.transcript.mask()
        assert len(row) == len(mask) - 1
        assert not row[~mask[1:]].any()  # entry i belongs to id i + 1
        for span in item.transcript.spans:
            if span.kind == "completion":
                expected = np.float32(per_turn[span.turn - 1])
                assert (row[span.start - 1 : span.stop - 1] == expected).all()


def test_a_broken_episode_is_in_no_statistic(played):
    config = RLConfig()
    whole = learn(played[:3], [0, 0, 0], config, 0)
    found = learn([*played[:3], broken(played[3])], [0, 0, 0, 0], config, 0)
    assert found.advantages[3] is None
    for own, row in zip(whole.advantages, found.advantages[:3], strict=True):
        assert np.array_equal(own, row)
    assert found.metrics["broken"] == 1
    assert found.metrics["success"] == whole.metrics["success"]


def test_a_step_whose_episodes_all_broke_is_an_error(played):
    with pytest.raises(DrvError, match="tools are down"):
        learn([broken(item) for item in played], [0] * 8, RLConfig(), 0)


@pytest.mark.parametrize(("drop", "left_out"), [("rollouts", 4), ("groups", 4), ("none", 0)])
def test_what_has_no_signal_is_left_out_as_the_settings_say(played, drop, left_out):
    silent = [
        dataclasses.replace(
            item,
            rewards=tuple(
                dataclasses.replace(
                    reward,
                    information_gain=None,
                    well_formed=True,
                    outcome=None if reward.outcome is None else 1.0,
                )
                for reward in item.rewards
            ),
        )
        for item in played[:4]
    ]
    groups = [0, 0, 0, 0, 1, 1, 1, 1]
    found = learn([*silent, *played[4:]], groups, RLConfig(drop_silent=drop), 0)
    assert [row is None for row in found.advantages].count(True) == left_out
    assert found.metrics["dropped_rollouts"] == left_out
    assert found.metrics["silent_groups"] == 0.5


def test_ranks_share_by_length_and_broken_ones_are_nobodys(played):
    episodes = [*played, broken(played[0])]
    found = shares(episodes, 3)
    assert sorted(index for rank in found for index in rank) == list(range(8))
    burdens = [sum(len(episodes[index].transcript) for index in rank) for rank in found]
    assert max(burdens) - min(burdens) <= max(len(item.transcript) for item in played)
    assert shares(episodes[:1], 3) == [[0], [], []]


def test_gains_come_back_to_their_turns(played):
    shared = shares(played, 2)
    made = [
        [[float(index)] * (len(played[index].turns) - 1) + [None] for index in rank]
        for rank in shared
    ]
    found = with_rank_gains(played, shared, made)
    for index, item in enumerate(found):
        gains = [reward.information_gain for reward in item.rewards]
        assert gains == [float(index)] * (len(gains) - 1) + [None]
        assert [r.outcome for r in item.rewards] == [r.outcome for r in played[index].rewards]
