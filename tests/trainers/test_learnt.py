"""Rollouts as an update learns from them, on a tiny model."""

import copy
import dataclasses

import numpy as np
import pytest
import torch

from agents.engines.base import Sampling
from drv_env import SettingError
from replay.sft_rows import transcribe
from replay.transcript import Transcript
from trainers.learnt import LearntRollout, agent_tokens, learnt_rollouts
from trainers.log_probs import token_log_probs
from trainers.loss_settings import LossSettings
from trainers.losses import policy_loss, token_weights
from trainers.other_log_probs import frozen_copy, sampled_log_probs
from trainers.rl_config import RLConfig
from trainers.rows import Row, by_tokens, pad_rows
from trainers.update import update_policy


@pytest.fixture(scope="module")
def model(tiny_game):
    return tiny_game.model()


@pytest.fixture(scope="module")
def other(tiny_game):
    return tiny_game.model(seed=1)


@pytest.fixture(scope="module")
def played(tiny_game, other):
    """The expert's episodes as if another model had sampled them."""
    found = []
    for trajectory in tiny_game.expert[:6]:
        recorded = transcribe(trajectory, tiny_game.template)
        (log_probs,) = sampled_log_probs(other, [recorded], 512)
        found.append(dataclasses.replace(trajectory, transcript=sampled(recorded, log_probs)))
    return found


def sampled(recorded: Transcript, log_probs) -> Transcript:
    """The transcript with log-probs of what was sampled."""
    counts = [span.stop - span.start for span in recorded.spans if span.kind == "completion"]
    per_turn = np.split(log_probs, np.cumsum(counts)[:-1])
    return Transcript.from_record({**recorded.to_record(), "log_probs": per_turn})


@pytest.fixture(scope="module")
def per_turn(played):
    rng = np.random.default_rng(0)
    return [rng.normal(size=len(item.turns)) for item in played]


def test_log_probs_of_a_model_are_those_of_a_full_pass_and_leave_it_as_it_was(played, other):
    other.train()
    transcripts = [item.transcript for item in played]
    found = sampled_log_probs(other, transcripts, 64)
    assert other.training
    other.eval()
    with torch.no_grad():
        ids, mask = pad_rows([Row(item.ids, item.mask()) for item in transcripts])
        expected, _ = token_log_probs(other, ids, mask)
    np.testing.assert_allclose(np.concatenate(found), expected.numpy(), atol=1e-5)
    assert all(parameter.grad is None for parameter in other.parameters())


def test_a_frozen_copy_stays(model):
    mine = copy.deepcopy(model)
    held = frozen_copy(mine)
    with torch.no_grad():
        next(mine.parameters()).add_(1.0)
    torch.testing.assert_close(next(held.parameters()), next(model.parameters()).detach())
    assert not any(parameter.requires_grad for parameter in held.parameters())


def test_every_sampled_id_has_its_turns_advantage(played, per_turn):
    found = LearntRollout.of(played[0], per_turn[0])
    counts = [len(log_probs) for log_probs in played[0].transcript.log_probs]
    np.testing.assert_array_equal(
        found.advantages, np.repeat(per_turn[0].astype(np.float32), counts)
    )
    np.testing.assert_array_equal(found.sampled, np.concatenate(played[0].transcript.log_probs))
    assert found.tokens == sum(counts) == int(found.row.mask.sum())


def test_other_models_are_asked_only_where_the_loss_needs_them(played, per_turn, model, other):
    def made(**settings):
        return learnt_rollouts(played, per_turn, model, other, LossSettings(**settings), 256)

    assert all(item.old is None and item.reference is None for item in made())
    with_both = made(importance_cap=2.0, kl_weight=0.1)
    transcripts = [item.transcript for item in played]
    for item, old in zip(with_both, sampled_log_probs(model, transcripts, 256), strict=True):
        np.testing.assert_allclose(item.old, old, atol=1e-6)
        # the reference is the model that sampled
        np.testing.assert_allclose(item.reference, item.sampled, atol=1e-5)
    with pytest.raises(ValueError, match="reference"):
        learnt_rollouts(played, per_turn, model, None, LossSettings(kl_weight=0.1), 256)


def test_old_log_probs_are_the_models_own_where_they_are_made_anew(played, per_turn, model, other):
    settings = LossSettings(importance_cap=2.0)
    batch = learnt_rollouts(played, per_turn, model, other, settings, 256)
    tokens = agent_tokens(batch, torch.ones(len(batch)), torch.device("cpu"))
    ids, mask = pad_rows([item.row for item in batch])
    log_probs, _ = token_log_probs(model, ids, mask)
    torch.testing.assert_close(log_probs.detach(), tokens.old_log_probs, atol=1e-5, rtol=0)
    found = policy_loss(log_probs, tokens, settings).figures
    assert found["clip_share"] == 0.0
    weights = (tokens.old_log_probs - tokens.rollout_log_probs).exp().clamp(max=2.0)
    assert found["importance"] == pytest.approx(float(weights.mean()))
    assert weights.std() > 0.01


@pytest.mark.parametrize(
    "settings",
    [
        LossSettings(),
        LossSettings(aggregation="token_mean", kl_weight=0.1, kl_by_ratio=True),
        LossSettings(aggregation="constant", constant_tokens=64, importance_cap=2.0),
    ],
)
def test_the_gradient_does_not_depend_on_the_microbatches(played, per_turn, model, settings):
    reference = frozen_copy(model)
    batch = learnt_rollouts(played, per_turn, model, reference, settings, 256)
    weights = token_weights([item.tokens for item in batch], settings)
    gradients = []
    for most in (1, 100_000):
        policy = copy.deepcopy(model)
        for micro in by_tokens([len(item.row) for item in batch], most):
            chosen = [batch[index] for index in micro]
            ids, mask = pad_rows([item.row for item in chosen])
            log_probs, _ = token_log_probs(policy, ids, mask)
            tokens = agent_tokens(chosen, weights[micro], torch.device("cpu"))
            policy_loss(log_probs, tokens, settings).loss.backward()
        gradients.append(torch.cat([each.grad.flatten() for each in policy.parameters()]))
    assert gradients[0].abs().max() > 1e-3
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-6, rtol=1e-4)


def test_rollouts_that_cannot_be_learnt_from_are_refused(tiny_game, played, per_turn):
    with pytest.raises(ValueError, match="transcript"):
        LearntRollout.of(dataclasses.replace(played[0], transcript=None), per_turn[0])
    recorded = transcribe(tiny_game.expert[0], tiny_game.template)
    with pytest.raises(ValueError, match="turn 1 has no log-probs"):
        LearntRollout.of(dataclasses.replace(played[0], transcript=recorded), per_turn[0])
    encoded = Transcript.from_record({**played[0].transcript.to_record(), "reencoded": True})
    with pytest.raises(SettingError, match="encoded again"):
        LearntRollout.of(dataclasses.replace(played[0], transcript=encoded), per_turn[0])


@pytest.mark.parametrize("most", [1, 300, 100_000])
@pytest.mark.parametrize("minibatches", [1, 2])
def test_metrics_of_an_update_are_means_over_the_tokens_of_its_minibatches(
    played, per_turn, model, most, minibatches
):
    """However the rollouts, long and short ones, are cut into passes."""
    settings = LossSettings(clip_low=0.02, clip_high=0.02)
    batch = learnt_rollouts(played, per_turn, model, None, settings, 256)
    assert len({item.tokens for item in batch}) > 2
    config = RLConfig(
        sampling=Sampling(8), loss=settings, minibatches=minibatches, microbatch_tokens=most
    )
    still = torch.optim.SGD(model.parameters(), lr=0.0)
    found = update_policy(copy.deepcopy(model), still, batch, config, np.random.default_rng(3))

    expected: dict[str, list[float]] = {"loss": [], "kl": [], "clip_share": [], "entropy": []}
    order = np.random.default_rng(3).permutation(len(batch))
    for part in np.array_split(order, minibatches):
        log_probs, entropies, advantages, weights = [], [], [], []
        for index in part:
            item = batch[index]
            own, entropy = token_log_probs(model, *pad_rows([item.row]))
            log_probs.append(own.detach().double() - torch.from_numpy(item.sampled).double())
            entropies.append(entropy.double())
            advantages.append(torch.from_numpy(item.advantages).double())
            weights.append(torch.full((item.tokens,), 1 / (len(part) * item.tokens)).double())
        difference, advantage = torch.cat(log_probs), torch.cat(advantages)
        ratio = difference.exp()
        surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.98, 1.02) * advantage)
        expected["loss"].append(float(-(torch.cat(weights) * surrogate).sum()))
        expected["kl"].append(float((ratio - 1 - difference).mean()))
        expected["clip_share"].append(float(((ratio < 0.98) | (ratio > 1.02)).double().mean()))
        expected["entropy"].append(float(torch.cat(entropies).mean()))
    assert 0 < np.mean(expected["clip_share"]) < 1
    for name, values in expected.items():
        assert found[name] == pytest.approx(np.mean(values), rel=1e-4, abs=1e-6), name


def test_a_model_with_sliding_windows_is_scored_plainly(tiny_game, played):
    """Old and reference log-probs, by one pass a trajectory; else refused, with what to set."""
    layers = tiny_game.model().config.num_hidden_layers
    kinds = ["sliding_attention"] + ["full_attention"] * (layers - 1)
    changed = copy.deepcopy(tiny_game.model().config)
    changed.use_sliding_window, changed.sliding_window, changed.layer_types = True, 8, kinds
    torch.manual_seed(0)
    sliding = type(tiny_game.model())(changed).eval()
    per_turn = [np.ones(len(item.transcript.log_probs)) for item in played]
    settings = LossSettings(importance_cap=2.0, kl_weight=0.1)
    asked = (played, per_turn, sliding, frozen_copy(sliding), settings, 512)
    with pytest.raises(SettingError, match=r"rl\.scoring to plain"):
        learnt_rollouts(*asked)
    for item in learnt_rollouts(*asked, scoring="plain"):
        ids = torch.from_numpy(np.asarray(item.transcript.ids, np.int64))[None]
        with torch.no_grad():
            logits = sliding(input_ids=ids).logits[0, :-1].log_softmax(-1)
        own = logits.gather(-1, ids[0, 1:, None])[:, 0].numpy()[item.row.mask[1:]]
        np.testing.assert_allclose(item.old, own, atol=1e-4)
        np.testing.assert_allclose(item.reference, own, atol=1e-4)
