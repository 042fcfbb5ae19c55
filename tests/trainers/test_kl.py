"""KL estimates by hand, and what their gradients pull at, summed over a whole vocabulary."""

import math

import pytest
import torch

from trainers.kl import kl_estimate


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        ("k1", math.log(2)),
        ("k2", math.log(2) ** 2 / 2),
        ("k3", 0.5 - 1 + math.log(2)),
    ],
)
def test_estimates_by_hand(estimator, expected):
    found = kl_estimate(torch.tensor([0.5]).log(), torch.tensor([0.25]).log(), estimator)
    assert float(found) == pytest.approx(expected)


@pytest.fixture
def policies():
    generator = torch.Generator().manual_seed(0)
    logits, reference = torch.randn(2, 8, generator=generator, dtype=torch.float64)
    return logits.requires_grad_(), reference.log_softmax(-1)


def expected_gradient(estimator, logits, reference, by_ratio=False) -> torch.Tensor:
    """The mean gradient of the estimate over tokens drawn from the policy as it is."""
    log_probs = logits.log_softmax(-1)
    drawn = log_probs.detach().exp()
    estimate = kl_estimate(log_probs, reference, estimator)
    if by_ratio:
        estimate = (log_probs - log_probs.detach()).exp() * estimate
    return torch.autograd.grad((drawn * estimate).sum(), logits)[0]


def true_gradients(logits, reference) -> tuple[torch.Tensor, torch.Tensor]:
    """Of KL(π ‖ π_ref), and of KL(π_ref ‖ π)."""
    log_probs = logits.log_softmax(-1)
    reverse = (log_probs.exp() * (log_probs - reference)).sum()
    forward = (reference.exp() * (reference - log_probs)).sum()
    return (
        torch.autograd.grad(reverse, logits, retain_graph=True)[0],
        torch.autograd.grad(forward, logits)[0],
    )


def test_k1_and_k3_are_unbiased_and_k2_is_not(policies):
    logits, reference = policies
    log_probs = logits.detach().log_softmax(-1)
    drawn = log_probs.exp()
    true = float((drawn * (log_probs - reference)).sum())
    found = {
        name: float((drawn * kl_estimate(log_probs, reference, name)).sum())
        for name in ("k1", "k2", "k3")
    }
    assert found["k1"] == pytest.approx(true)
    assert found["k3"] == pytest.approx(true)
    assert found["k2"] != pytest.approx(true, rel=0.01)


def test_what_each_estimate_in_the_loss_pulls_at(policies):
    reverse, forward = true_gradients(*policies)
    torch.testing.assert_close(expected_gradient("k1", *policies), torch.zeros_like(reverse))
    torch.testing.assert_close(expected_gradient("k2", *policies), reverse)
    torch.testing.assert_close(expected_gradient("k3", *policies), forward)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_times_the_ratio_the_gradient_is_the_reverse_kls(policies, estimator):
    reverse, _ = true_gradients(*policies)
    torch.testing.assert_close(expected_gradient(estimator, *policies, by_ratio=True), reverse)
