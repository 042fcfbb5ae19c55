"""Behaviour cloning learns the agent's tokens and nothing else."""

import numpy as np
import pytest
import torch

from drv_env import SettingError
from replay.sft_rows import transcribe
from trainers.rows import Row, pad_rows
from trainers.sft import SFTConfig, mean_nll, train_sft
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


def gradient_of(game, rows, **settings):
    """The first step's gradient: AdamW's first momentum is a tenth of it."""
    model, found = game.model(), {}

    def look(step):
        found.update({name: each.grad.clone() for name, each in model.named_parameters()})
        found["loss"] = torch.tensor(step.loss)

    config = SFTConfig(batch_size=len(rows), max_grad_norm=1e9, max_steps=1, **settings)
    train_sft(model, rows, config, look)
    return found


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("microbatch_tokens", [None, 700, 1])
def test_the_loss_is_the_mean_over_all_tokens_however_it_is_cut(
    tiny_game, packed, microbatch_tokens
):
    rows = rows_of(tiny_game)[:9]
    expected = gradient_of(tiny_game, rows)
    found = gradient_of(tiny_game, rows, packed=packed, microbatch_tokens=microbatch_tokens)
    for name, each in expected.items():
        torch.testing.assert_close(found[name], each, atol=2e-6, rtol=1e-3, msg=name)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("microbatch_tokens", [None, 700, 1])
def test_a_mean_over_rows_counts_a_short_one_as_much_as_a_long_one(
    tiny_game, packed, microbatch_tokens
):
    rows = rows_of(tiny_game)[:5]
    assert len({int(row.mask.sum()) for row in rows}) > 1
    alone = [gradient_of(tiny_game, [row]) for row in rows]
    found = gradient_of(
        tiny_game, rows, aggregation="row_mean", packed=packed, microbatch_tokens=microbatch_tokens
    )
    for name, each in found.items():
        expected = sum(one[name] for one in alone) / len(rows)
        torch.testing.assert_close(each, expected, atol=2e-6, rtol=1e-3, msg=name)


def test_packed_training_ends_where_padded_does(tiny_game):
    losses = []
    for packed in (False, True):
        config = SFTConfig(epochs=2, warmup_steps=3, packed=packed, microbatch_tokens=1_500)
        losses.append([s.loss for s in train_sft(tiny_game.model(), rows_of(tiny_game), config)])
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_a_step_says_what_it_measured(tiny_game):
    rows = rows_of(tiny_game)[:4]
    (step,) = train_sft(tiny_game.model(), rows, SFTConfig(max_steps=1, batch_size=4))
    assert step.tokens == sum(len(row) for row in rows)
    assert step.learnt == sum(int(row.mask.sum()) for row in rows)
    assert step.tokens_per_s == step.tokens / step.seconds
    assert step.grad_norm > 0
    assert step.held_out_loss is None


def test_held_out_rows_are_measured_and_not_learnt(tiny_game):
    rows = rows_of(tiny_game)
    config = SFTConfig(max_steps=5, batch_size=4, eval_every=2, packed=True, microbatch_tokens=900)
    model = tiny_game.model()
    steps = train_sft(model, rows[:24], config, held_out=rows[24:])
    assert [step.held_out_loss is None for step in steps] == [True, False, True, False, False]
    assert steps[-1].held_out_loss == pytest.approx(
        mean_nll(model, rows[24:], SFTConfig()), rel=1e-4
    )
    other = tiny_game.model()
    train_sft(other, rows[:24], config)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


def test_steps_can_be_bounded(tiny_game):
    steps = train_sft(tiny_game.model(), rows_of(tiny_game), SFTConfig(epochs=9, max_steps=3))
    assert [(step.step, step.steps) for step in steps] == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0},
        {"microbatch_tokens": 0},
        {"batch_tokens": 0},
        {"precision": "float16"},
        {"aggregation": "mean"},
        {"save_every": -1},
    ],
)
def test_settings_that_cannot_work_are_named(wrong):
    with pytest.raises(SettingError, match=next(iter(wrong))):
        SFTConfig(**wrong)


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
