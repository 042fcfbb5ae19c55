"""Log-probs and likelihood behind an output head, chunk by chunk, against full logits."""

import math

import pytest
import torch
from torch import nn

from agents.engines.final_logits import FinalLogits
from trainers import output_head
from trainers.output_head import chunk_size, head_log_probs, head_nll


def made(bias=False, seed=0):
    torch.manual_seed(seed)
    head = nn.Linear(12, 40, bias=bias)
    states = torch.randn(33, 12, requires_grad=True)
    targets = torch.randint(0, 40, (33,))
    return head, states, targets, torch.randn(33)


def gradients(head, states, loss):
    found = torch.autograd.grad(loss, [states, *head.parameters()])
    return [each.clone() for each in found]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("chunk", [1, 10, 33, None])
def test_log_probs_and_their_gradients_are_those_of_full_logits(bias, chunk):
    head, states, targets, upstream = made(bias)
    full = head(states).log_softmax(-1)
    expected = full.gather(-1, targets[:, None])[:, 0]
    found, entropies = head_log_probs(head, states, targets, chunk)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(entropies, -(full.exp() * full).sum(-1))
    assert not entropies.requires_grad
    wanted = gradients(head, states, (expected * upstream).sum())
    for one, other in zip(gradients(head, states, (found * upstream).sum()), wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("chunk", [1, 10, None])
@pytest.mark.parametrize("final", [FinalLogits(), FinalLogits(0.5), FinalLogits(2.0, 1.5)])
def test_entropies_have_the_gradient_of_full_logits_where_it_is_asked_for(bias, chunk, final):
    head, states, targets, upstream = made(bias)
    other = torch.linspace(-1, 2, len(targets))
    full = final(head(states)).log_softmax(-1)
    picked, entropies = full.gather(-1, targets[:, None])[:, 0], -(full.exp() * full).sum(-1)
    wanted = gradients(head, states, (picked * upstream + entropies * other).sum())
    found = head_log_probs(head, states, targets, chunk, final, entropies_too=True)
    torch.testing.assert_close(found[1], entropies)
    made_so = gradients(head, states, (found[0] * upstream + found[1] * other).sum())
    for one, right in zip(made_so, wanted, strict=True):
        torch.testing.assert_close(one, right, atol=1e-5, rtol=1e-4)


def test_the_gradient_of_entropies_by_hand_and_in_mixed_precision():
    # of two ids with p = 1/4 and 3/4: dH/dz₁ = −p₁ (log p₁ + H) = p₁ p₂ log(p₂ / p₁)
    head = nn.Linear(1, 2, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[0.0], [1.0]]))
    states = torch.tensor([[3.0]]).log().requires_grad_()
    for precision, tolerance in ((None, 1e-6), (torch.bfloat16, 0.02)):
        with torch.autocast("cpu", precision or torch.bfloat16, enabled=precision is not None):
            _, entropies = head_log_probs(head, states, torch.tensor([0]), entropies_too=True)
        assert entropies.item() == pytest.approx(math.log(4) - 0.75 * math.log(3), abs=tolerance)
        (found,) = torch.autograd.grad(entropies.sum(), states)
        # the state moves the second logit alone, whose gradient is minus the first's
        assert found.item() == pytest.approx(-3 / 16 * math.log(3), abs=tolerance)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("chunk", [10, None])
def test_the_likelihood_and_its_gradients_are_cross_entropys(bias, chunk):
    head, states, targets, _ = made(bias)
    expected = nn.functional.cross_entropy(head(states), targets, reduction="sum") / 50
    found = head_nll(head, states, targets, 50, chunk)
    torch.testing.assert_close(found, expected)
    wanted = gradients(head, states, 3 * expected)
    for one, other in zip(gradients(head, states, 3 * found), wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)


def test_a_frozen_head_passes_the_gradient_on():
    head, states, targets, _ = made()
    head.requires_grad_(False)
    expected = torch.autograd.grad(nn.functional.cross_entropy(head(states), targets), states)[0]
    found = torch.autograd.grad(head_nll(head, states, targets, 33, 10), states)[0]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("function", ["nll", "log_probs"])
def test_mixed_precision_keeps_the_gradients_dtypes(function):
    head, states, targets, _ = made()
    exact = gradients(head, states, nn.functional.cross_entropy(head(states), targets))
    with torch.autocast("cpu", torch.bfloat16):
        if function == "nll":
            loss = head_nll(head, states, targets, 33, 10)
        else:
            loss = -head_log_probs(head, states, targets, 10)[0].mean()
    assert loss.dtype == torch.float32
    for one, other in zip(gradients(head, states, loss), exact, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, atol=2e-3, rtol=0.05)


def test_nothing_wanted_is_no_loss():
    head, states, targets, _ = made()
    found, entropies = head_log_probs(head, states[:0], targets[:0])
    assert found.shape == entropies.shape == (0,)
    assert float(head_nll(head, states[:0], targets[:0], 5)) == 0.0


def test_without_gradient_no_gradient_is_made(monkeypatch):
    head, states, targets, _ = made()
    monkeypatch.delattr(output_head, "_NLL")
    with torch.no_grad():
        found = head_nll(head, states, targets, 33)
    torch.testing.assert_close(found, nn.functional.cross_entropy(head(states), targets))


def test_a_chunk_holds_no_more_logits_than_allowed():
    assert chunk_size(nn.Linear(1, 151_936)) * 151_936 <= output_head.LOGITS_HELD
    assert chunk_size(nn.Linear(1, 300)) == output_head.CHUNK
