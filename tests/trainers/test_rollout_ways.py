"""Training from rollouts at their own pace, and ahead of the updates."""

import numpy as np
import pytest
import torch

from agents.engines.base import Sampling
from agents.rollout import RolloutSettings
from drv_env import SettingError, background
from trainers.rl import RLConfig, train_rl


def sampling(game) -> Sampling:
    return Sampling(24, stop_ids=game.template.stop_ids)


def train(game, **settings):
    model = game.telling_model()
    engine = game.engine(model)
    config = RLConfig(
        tasks_per_step=2, group_size=4, sampling=sampling(game), learning_rate=1e-3, **settings
    )
    seen = []
    try:
        train_rl(model, engine, game.envs, game.template, game.tasks, config, seen.append)
        probe = np.arange(1, 9)
        scored = background.run(engine.score(probe, [(1, 8)]))[0]
    finally:
        background.run(engine.close())
    with torch.no_grad():
        logits = model(torch.from_numpy(probe)[None]).logits[0].log_softmax(-1)
    expected = logits[:-1].gather(-1, torch.from_numpy(probe)[1:, None])[:, 0].numpy()
    np.testing.assert_allclose(scored, expected, atol=1e-4)
    return seen


def versions(step):
    return {
        version
        for item in step.trajectories
        if item.transcript is not None
        for version in item.transcript.weight_versions
    }


def test_the_asynchronous_way_trains_on_fresh_rollouts_when_nothing_may_be_stale(tiny_game):
    seen = train(tiny_game, steps=3, rollouts="async", rollout=RolloutSettings(seed=1))
    assert [step.step for step in seen] == [1, 2, 3]
    assert [step.metrics["staleness"] for step in seen] == [0, 0, 0]
    assert [versions(step) for step in seen] == [{1}, {2}, {3}]
    assert all(
        item.provenance["step"] == step.step and item.provenance["task"] == index // 4
        for step in seen
        for index, item in enumerate(step.trajectories)
    )


def test_rollouts_that_run_ahead_are_stale_by_the_bound_at_most(tiny_game):
    seen = train(tiny_game, steps=4, rollouts="async", max_staleness=1)
    assert len(seen) == 4
    assert seen[0].metrics["staleness"] == 0
    assert all(0 <= step.metrics["staleness"] <= 1 for step in seen)
    assert min(versions(seen[1])) == 1, "the second step's rollouts did not begin ahead"


def test_both_ways_roll_out_the_same_episodes_for_a_seed(tiny_game):
    settings = {"steps": 1, "rollout": RolloutSettings(seed=7)}
    ways = [train(tiny_game, rollouts=way, **settings) for way in ("vector", "async")]
    texts = [[[turn.text for turn in item.turns] for item in step.trajectories] for (step,) in ways]
    assert texts[0] == texts[1]  # decided by each request's seed
    assert len({str(episode) for episode in texts[0]}) >= 4


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rollouts": "threads"}, "vector or async"),
        ({"max_staleness": 1}, "needs async rollouts"),
        ({"max_staleness": -1}, "at least 0"),
        ({"rollout": RolloutSettings(stragglers="ask")}, "stragglers needs"),
    ],
)
def test_ways_that_cannot_be_gone_are_refused(settings, said):
    with pytest.raises(SettingError, match=said):
        RLConfig(sampling=Sampling(8), **settings)
