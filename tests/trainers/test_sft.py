"""Behaviour cloning learns the agent's tokens and nothing else."""

import itertools

import numpy as np
import pytest

from drv_env import SettingError
from replay.sft_rows import transcribe
from trainers.rows import Row, pad_rows
from trainers.sft import SFTConfig, schedule, train_sft
from trainers.warmup import CopyConfig, warm_up_copying


def rows_of(game) -> list[Row]:
    transcripts = [transcribe(trajectory, game.template) for trajectory in game.expert]
    return [Row(transcript.ids, transcript.mask()) for transcript in transcripts]


def test_the_mask_covers_the_assistants_text_and_end_of_turn(tiny_game):
    template = tiny_game.template
    for trajectory in tiny_game.expert[:5]:
        transcript = transcribe(trajectory, template)
        for turn, span in zip(
            trajectory.turns, (s for s in transcript.spans if s.kind == "completion"), strict=True
        ):
            ids = transcript.ids[span.start : span.stop]
            assert ids[-1] == template.end_of_turn
            assert template.completion_text(ids) == turn.text
        assert transcript.mask().sum() == sum(
            span.stop - span.start for span in transcript.spans if span.kind == "completion"
        )


def test_the_loss_falls(tiny_game):
    model = tiny_game.model()
    steps = train_sft(model, rows_of(tiny_game), SFTConfig(epochs=12, batch_size=8, warmup_steps=5))
    assert np.mean([s.loss for s in steps[-6:]]) < 0.6 * np.mean([s.loss for s in steps[:6]])
    assert steps[-1].step == steps[-1].steps == 72


def test_a_seed_fixes_the_run(tiny_game):
    losses = [
        [s.loss for s in train_sft(tiny_game.model(), rows_of(tiny_game)[:16], SFTConfig(seed=3))]
        for _ in range(2)
    ]
    assert losses[0] == losses[1]


def test_unmasked_tokens_have_no_influence(tiny_game):
    """Rows that differ only behind the last learnt token give the same loss."""
    ids = np.arange(10, 30, dtype=np.int32)
    mask = np.zeros(20, dtype=bool)
    mask[5:10] = True
    other = ids.copy()
    other[12:] = 7
    losses = [
        train_sft(tiny_game.model(), [Row(row, mask)], SFTConfig())[0].loss for row in (ids, other)
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


def test_rows_that_teach_nothing_are_refused():
    ids = np.arange(4, dtype=np.int32)
    with pytest.raises(SettingError, match="row 1 has no token"):
        train_sft(
            None,
            [Row(ids, np.array([0, 1, 0, 0], bool)), Row(ids, np.zeros(4, bool))],
            SFTConfig(),
        )
    with pytest.raises(SettingError, match="no rows"):
        train_sft(None, [], SFTConfig())


def test_the_schedule_rises_and_falls():
    factors = [schedule(step, 10, 3) for step in range(1, 11)]
    assert factors[:3] == pytest.approx([1 / 3, 2 / 3, 1.0])
    assert all(a > b for a, b in itertools.pairwise(factors[2:]))
    assert factors[-1] > 0


def test_rows_are_padded_on_the_right():
    ids, mask = pad_rows(
        [Row(np.array([1, 2]), np.array([0, 1], bool)), Row(np.array([3]), np.array([1], bool))]
    )
    assert ids.tolist() == [[1, 2], [3, 0]]
    assert mask.tolist() == [[False, True], [True, False]]


def test_copying_is_learnt(tiny_game):
    model = tiny_game.model()
    config = CopyConfig(length=24, min_period=3, max_period=6, max_steps=60)
    seen = []
    warm_up_copying(model, 20, config, lambda step, accuracy: seen.append(accuracy))
    assert seen[-1] > 2 * seen[4]
