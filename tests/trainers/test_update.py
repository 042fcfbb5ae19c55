"""An update's gradient against full logits, however it is cut."""

import numpy as np
import pytest
import torch

from replay.sft_rows import transcribe
from trainers.learnt import LearntRollout
from trainers.loss_settings import LossSettings
from trainers.rl_config import RLConfig
from trainers.rows import Row
from trainers.update import update_policy


@pytest.fixture(scope="module")
def rollouts(tiny_game):
    """The expert's turns as if they had been sampled with other log-probs than the model's."""
    found, generator = [], np.random.default_rng(0)
    for item in tiny_game.expert[:3]:
        transcript = transcribe(item, tiny_game.template)
        row = Row(transcript.ids, transcript.mask())
        count = int(row.mask.sum())
        advantages = generator.normal(size=count).astype(np.float32)
        old = np.full(count, -6.0, np.float32)
        found.append(LearntRollout(transcript, row, advantages, old))
    return found


def expected(model, rollouts, bonus, dual_clip):
    """The gradient of the objective as it is written, of whole logits."""
    loss, _ = objective(model, rollouts, bonus, dual_clip)
    return torch.autograd.grad(loss, list(model.parameters()))


def objective(model, rollouts, bonus, dual_clip):
    """The loss, and the mean entropy of each rollout's tokens."""
    gain = torch.zeros(())
    means = []
    for item in rollouts:
        ids = torch.from_numpy(item.row.ids.astype(np.int64))
        mask = torch.from_numpy(item.row.mask)[1:]
        full = model(input_ids=ids[None], use_cache=False).logits[0, :-1].log_softmax(-1)[mask]
        picked = full.gather(-1, ids[1:][mask][:, None])[:, 0]
        ratio = (picked + 6.0).exp()
        advantages = torch.from_numpy(item.advantages)
        each = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
        each = torch.where(advantages < 0, each.maximum(dual_clip * advantages), each)
        entropies = -(full.exp() * full).sum(-1)
        means.append(float(entropies.mean().detach()))
        each = each + bonus * entropies
        gain = gain + each.mean() / len(rollouts)
    return -gain, means


@pytest.mark.parametrize(
    ("packed", "microbatch_tokens"), [(False, 1), (False, 10_000), (True, 10_000)]
)
def test_bonus_and_dual_clip_are_in_the_gradient(tiny_game, rollouts, packed, microbatch_tokens):
    bonus, dual_clip = 0.3, 1.5
    model = tiny_game.model()
    model.eval()
    wanted = expected(model, rollouts, bonus, dual_clip)
    assert any(bool(each.any()) for each in wanted)
    before = [each.detach().clone() for each in model.parameters()]
    config = RLConfig(
        minibatches=1,
        packed=packed,
        microbatch_tokens=microbatch_tokens,
        max_grad_norm=1e9,
        loss=LossSettings(entropy_weight=bonus, dual_clip=dual_clip),
    )
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
    update_policy(model, optimiser, rollouts, config, np.random.default_rng(0))
    for each, old, gradient in zip(model.parameters(), before, wanted, strict=True):
        torch.testing.assert_close(old - each.detach(), gradient, atol=2e-6, rtol=1e-3)


def test_figures_are_means_over_the_minibatches(tiny_game, rollouts):
    """A rollout each, and no step between them: as many losses, norms and entropies."""
    bonus, dual_clip = 0.3, 1.5
    model = tiny_game.model()
    model.eval()
    norms, losses, entropies = [], [], []
    for item in rollouts:
        loss, means = objective(model, [item], bonus, dual_clip)
        gradient = torch.autograd.grad(loss, list(model.parameters()))
        norms.append(float(torch.cat([each.flatten() for each in gradient]).norm()))
        losses.append(float(loss.detach()))
        entropies += means
    config = RLConfig(
        minibatches=len(rollouts),
        max_grad_norm=1e9,
        loss=LossSettings(entropy_weight=bonus, dual_clip=dual_clip),
    )
    standing = torch.optim.SGD(model.parameters(), lr=0.0)
    training = []

    def note(body, _):
        if torch.is_grad_enabled():  # others look at the model before
            training.append(body.training)

    model.base_model.register_forward_pre_hook(note)
    found = update_policy(model, standing, rollouts, config, np.random.default_rng(0))
    assert training == [True] * len(rollouts)
    assert not model.training
    assert found["grad_norm"] == pytest.approx(np.mean(norms), rel=1e-3)
    assert found["loss"] == pytest.approx(np.mean(losses), rel=1e-3)
    assert found["entropy"] == pytest.approx(np.mean(entropies), rel=1e-3)
    assert update_policy(model, standing, [], config, np.random.default_rng(0)) == {}
