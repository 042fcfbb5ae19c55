"""KL of the policy to a reference, estimated from the log-probs of sampled tokens.

With x drawn from π and r = π_ref(x)/π(x), after J. Schulman, "Approximating KL divergence"
(joschu.net/blog/kl-approx.html, 2020):

    k1 = −log r            unbiased for KL(π ‖ π_ref), may be negative
    k2 = ½ (log r)²        biased, small where the two are near
    k3 = r − 1 − log r     unbiased, never negative; GRPO's (arXiv 2402.03300, eq. 4)

A good estimate of the KL need not have the KL's gradient (Tang and Munos, arXiv 2506.09477).
What an estimate in the loss pulls at, in expectation over x from π:

    k1   nothing: E[∇ log π] = 0
    k2   ∇ KL(π ‖ π_ref), exactly
    k3   ∇ KL(π_ref ‖ π), the other direction; near the reference the two agree
    (π/π_old) k1 and (π/π_old) k3, x from π_old: ∇ KL(π ‖ π_ref), exactly
"""

from __future__ import annotations

from torch import Tensor

from trainers.loss_settings import KLEstimator


def kl_estimate(log_probs: Tensor, reference: Tensor, estimator: KLEstimator) -> Tensor:
    """One estimate a token, in nats; formulas and gradients in the module's docstring.

    Args:
        log_probs: of the policy, any shape, with gradient.
        reference: of the reference model, the same tokens, without.
        estimator: which.
    """
    log_ratio = reference - log_probs
    if estimator == "k1":
        return -log_ratio
    if estimator == "k2":
        return log_ratio.square() / 2
    return log_ratio.expm1() - log_ratio
