"""The surrogate by hand, and log-probs in chunks against full logits."""

import pytest
import torch

from trainers.log_probs import token_log_probs
from trainers.losses import clipped_surrogate


def test_the_surrogate_is_a_mean_over_rollouts_of_means_over_tokens():
    old = torch.zeros(3)
    new = torch.log(torch.tensor([1.1, 1.5, 0.5])).requires_grad_()
    advantages = torch.tensor([1.0, 1.0, -1.0])
    found = clipped_surrogate(new, old, advantages, torch.tensor([0, 0, 1]), 2)
    # rollout 0: (1.1 + min(1.5, 1.2)) / 2; rollout 1: min(−0.5, −0.8)
    assert float(found.loss.detach()) == pytest.approx(-((1.1 + 1.2) / 2 - 0.8) / 2)
    assert found.clip_share == pytest.approx(2 / 3)


def test_a_clipped_token_has_no_gradient():
    new = torch.log(torch.tensor([1.5, 0.5])).requires_grad_()
    clipped_surrogate(
        new, torch.zeros(2), torch.tensor([1.0, 1.0]), torch.tensor([0, 0]), 1
    ).loss.backward()
    assert float(new.grad[0]) == 0.0
    assert float(new.grad[1]) == pytest.approx(-0.25)


def test_on_policy_the_gradient_is_that_of_the_weighted_log_likelihood():
    new = torch.tensor([-1.0, -2.0]).requires_grad_()
    found = clipped_surrogate(new, new.detach(), torch.tensor([2.0, -1.0]), torch.tensor([0, 0]), 1)
    found.loss.backward()
    torch.testing.assert_close(new.grad, torch.tensor([-1.0, 0.5]))
    assert found.kl == pytest.approx(0.0)


def test_log_probs_equal_those_of_full_logits(tiny_game):
    model = tiny_game.model()
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 300, (3, 40), generator=generator)
    wanted = torch.rand((3, 40), generator=generator) > 0.5
    wanted[:, 0] = False
    found, entropies = token_log_probs(model, ids, wanted, chunk=7)
    logits = model(input_ids=ids).logits[:, :-1].log_softmax(-1)
    expected = logits.gather(-1, ids[:, 1:, None])[..., 0][wanted[:, 1:]]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(
        entropies, -(logits.exp() * logits).sum(-1)[wanted[:, 1:]], atol=1e-4, rtol=1e-4
    )


def test_padding_changes_nothing(tiny_game):
    model = tiny_game.model()
    ids = torch.arange(20)[None] + 5
    wanted = torch.ones(1, 20, dtype=torch.bool)
    wanted[:, 0] = False
    alone, _ = token_log_probs(model, ids, wanted)
    padded = torch.nn.functional.pad(ids, (0, 9))
    among, _ = token_log_probs(model, padded, torch.nn.functional.pad(wanted, (0, 9)))
    torch.testing.assert_close(among, alone, atol=1e-6, rtol=1e-6)


def test_gradients_do_not_depend_on_the_chunk(tiny_game):
    model = tiny_game.model()
    ids = torch.arange(30)[None] + 5
    wanted = torch.ones(1, 30, dtype=torch.bool)
    wanted[:, 0] = False
    grads = []
    for chunk in (4, 1000):
        model.zero_grad()
        token_log_probs(model, ids, wanted, chunk)[0].sum().backward()
        grads.append(model.model.layers[0].mlp.up_proj.weight.grad.clone())
    torch.testing.assert_close(grads[0], grads[1], atol=1e-5, rtol=1e-4)


def test_the_first_token_of_a_row_cannot_be_scored(tiny_game):
    with pytest.raises(ValueError, match="first token"):
        token_log_probs(
            tiny_game.model(), torch.zeros(1, 4, dtype=torch.int64), torch.ones(1, 4).bool()
        )
