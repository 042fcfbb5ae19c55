"""The loss by hand, its gradients, and that cutting an update into parts changes nothing."""

import math

import pytest
import torch

from drv_env import SettingError
from trainers.loss_settings import LossSettings
from trainers.losses import AgentTokens, clipped_surrogate, policy_loss, token_weights

PLAIN = LossSettings()


def logs(*probabilities) -> torch.Tensor:
    return torch.log(torch.tensor(probabilities))


def tokens_of(advantages, counts, settings=PLAIN, old=None, **more) -> AgentTokens:
    """Rollouts of so many tokens each; old log-probs are 0 where none are given."""
    counts = torch.tensor(counts)
    return AgentTokens(
        advantages=torch.tensor(advantages),
        weights=torch.repeat_interleave(token_weights(counts.tolist(), settings), counts),
        old_log_probs=torch.zeros(len(advantages)) if old is None else old,
        **more,
    )


# ---- the surrogate -----------------------------------------------------------------------------


def test_the_loss_is_a_mean_over_rollouts_of_means_over_tokens():
    new = logs(1.1, 1.5, 0.5).requires_grad_()
    found = policy_loss(new, tokens_of([1.0, 1.0, -1.0], [2, 1]), PLAIN)
    # rollout 0: (1.1 + min(1.5, 1.2)) / 2; rollout 1: min(−0.5, −0.8)
    assert float(found.loss.detach()) == pytest.approx(-((1.1 + 1.2) / 2 - 0.8) / 2)
    assert found.figures["clip_share"] == pytest.approx(2 / 3)
    # mean of ρ − 1 − log ρ
    expected = sum(r - 1 - math.log(r) for r in (1.1, 1.5, 0.5)) / 3
    assert found.figures["kl"] == pytest.approx(expected)
    assert set(found.figures) == {"clip_share", "kl"}


def test_a_ratio_at_the_edge_of_the_clip_has_not_left_it():
    edges = LossSettings(clip_low=0.5, clip_high=1.0)
    tokens = tokens_of([1.0, 1.0, 1.0, 1.0], [4])
    # without an update the ratio is 1, the edge of no clip at all
    still = policy_loss(torch.zeros(4), tokens, LossSettings(clip_low=0.0, clip_high=0.0))
    assert still.figures["clip_share"] == 0.0
    found = policy_loss(logs(0.49, 0.51, 1.99, 2.01), tokens, edges)
    assert found.figures["clip_share"] == 0.5


def test_the_bound_of_the_dual_clip_is_for_losses_alone():
    found = clipped_surrogate(
        torch.tensor([0.5, 5.0, 5.0, 5.0]), torch.tensor([0.5, 0.5, 0.0, -0.5]), 0.2, 0.2, 3.0
    )
    # 0.5 · 0.5, clip(5) · 0.5, nothing, and 3 · −0.5 in place of 5 · −0.5
    assert found.tolist() == pytest.approx([0.25, 0.6, 0.0, -1.5])


def test_lower_and_upper_clip_are_apart():
    ratio = torch.tensor([0.5, 0.5, 2.0, 2.0])
    advantages = torch.tensor([1.0, -1.0, 1.0, -1.0])
    found = clipped_surrogate(ratio, advantages, 0.1, 0.3)
    torch.testing.assert_close(found, torch.tensor([0.5, -0.9, 1.3, -2.0]))


def test_a_dual_clip_bounds_what_a_bad_token_can_cost():
    ratio = torch.tensor([5.0, 2.0, 0.5, 5.0])
    advantages = torch.tensor([-1.0, -1.0, -1.0, 1.0])
    # without: −5, −2, min(−0.5, −0.8), 1.2; with d = 3 the first is −3, the rest as they are
    found = clipped_surrogate(ratio, advantages, 0.2, 0.2, 3.0)
    torch.testing.assert_close(found, torch.tensor([-3.0, -2.0, -0.8, 1.2]))


def test_a_token_at_the_dual_clip_has_no_gradient():
    new = logs(5.0, 2.0).requires_grad_()
    settings = LossSettings(dual_clip=3.0)
    found = policy_loss(new, tokens_of([-1.0, -1.0], [2], settings), settings)
    assert float(found.loss.detach()) == pytest.approx((3.0 + 2.0) / 2)
    found.loss.backward()
    assert new.grad.tolist() == pytest.approx([0.0, 1.0])  # 2 · 1 / 2 of the second


def test_an_entropy_bonus_is_averaged_as_the_rest():
    settings = LossSettings(entropy_weight=0.5)
    new = logs(1.0, 1.0, 1.0).requires_grad_()
    entropies = torch.tensor([2.0, 4.0, 1.0], requires_grad=True)
    tokens = tokens_of([1.0, 1.0, 1.0], [2, 1], settings)
    found = policy_loss(new, tokens, settings, entropies)
    # means over rollouts of 1 + 0.5 · H: (2 + 3) / 2 and 1.5
    assert float(found.loss.detach()) == pytest.approx(-(2.5 + 1.5) / 2)
    found.loss.backward()
    assert entropies.grad.tolist() == pytest.approx([-0.125, -0.125, -0.25])
    with pytest.raises(ValueError, match="entropy_weight needs entropies"):
        policy_loss(new, tokens, settings)


def test_a_clipped_token_has_no_gradient():
    new = logs(1.5, 0.5).requires_grad_()
    policy_loss(new, tokens_of([1.0, 1.0], [2]), PLAIN).loss.backward()
    assert float(new.grad[0]) == 0.0
    assert float(new.grad[1]) == pytest.approx(-0.25)


def test_on_policy_the_gradient_is_that_of_the_weighted_log_likelihood():
    new = torch.tensor([-1.0, -2.0]).requires_grad_()
    found = policy_loss(new, tokens_of([2.0, -1.0], [2], old=new.detach()), PLAIN)
    found.loss.backward()
    torch.testing.assert_close(new.grad, torch.tensor([-1.0, 0.5]))
    assert found.figures["kl"] == pytest.approx(0.0)


# ---- averages ------------------------------------------------------------------------------------


def test_a_token_mean_counts_every_token_the_same():
    settings = LossSettings(aggregation="token_mean")
    new = logs(1.1, 0.9, 0.9).requires_grad_()
    found = policy_loss(new, tokens_of([1.0, 2.0, 3.0], [1, 2], settings), settings)
    assert float(found.loss.detach()) == pytest.approx(-(1.1 + 1.8 + 2.7) / 3)


def test_a_constant_divides_sums_whatever_their_length():
    settings = LossSettings(aggregation="constant", constant_tokens=10)
    new = logs(1.1, 0.9, 0.9).requires_grad_()
    found = policy_loss(new, tokens_of([1.0, 2.0, 3.0], [1, 2], settings), settings)
    assert float(found.loss.detach()) == pytest.approx(-(1.1 / 10 + (1.8 + 2.7) / 10) / 2)


def test_weights_by_hand():
    found = [
        token_weights([1, 3], LossSettings(**settings)).tolist()
        for settings in (
            {},
            {"aggregation": "token_mean"},
            {"aggregation": "constant", "constant_tokens": 5},
        )
    ]
    expected = [[1 / 2, 1 / 6], [1 / 4, 1 / 4], [1 / 10, 1 / 10]]
    for weights, right in zip(found, expected, strict=True):
        assert weights == pytest.approx(right)


def test_a_rollout_without_tokens_counts_as_zero():
    assert token_weights([0, 2], PLAIN).tolist() == pytest.approx([0.5, 0.25])
    empty = policy_loss(torch.zeros(0), tokens_of([], [0]), PLAIN)
    assert (float(empty.loss), empty.figures) == (0.0, {"clip_share": 0.0, "kl": 0.0})


@pytest.mark.parametrize(
    "settings",
    [
        LossSettings(),
        LossSettings(aggregation="token_mean"),
        LossSettings(aggregation="constant", constant_tokens=7),
        LossSettings(kl_weight=0.3, importance_cap=1.5),
        LossSettings(aggregation="token_mean", kl_weight=0.3, kl_by_ratio=True),
    ],
)
def test_parts_of_an_update_add_up_to_it(settings):
    generator = torch.Generator().manual_seed(0)
    counts = [3, 1, 4, 2]
    total = sum(counts)
    new = (torch.randn(total, generator=generator) / 4).requires_grad_()
    whole = AgentTokens(
        advantages=torch.randn(total, generator=generator),
        weights=torch.repeat_interleave(token_weights(counts, settings), torch.tensor(counts)),
        old_log_probs=torch.randn(total, generator=generator) / 4,
        rollout_log_probs=torch.randn(total, generator=generator) / 4,
        reference_log_probs=torch.randn(total, generator=generator) / 4,
    )

    def part(places: list[int]) -> AgentTokens:
        return AgentTokens(**{name: getattr(whole, name)[places] for name in AgentTokens.__slots__})

    expected = policy_loss(new, whole, settings)
    (gradient,) = torch.autograd.grad(expected.loss, new)
    for cuts in ([[0], [1, 2], [3]], [[0, 3], [1], [2]], [[0], [1], [2], [3]]):
        losses, figures = [], dict.fromkeys(expected.figures, 0.0)
        for rollouts in cuts:
            places = [
                place
                for rollout in rollouts
                for place in range(sum(counts[:rollout]), sum(counts[: rollout + 1]))
            ]
            found = policy_loss(new[places], part(places), settings)
            losses.append(found.loss)
            for name, value in found.figures.items():
                figures[name] += value * len(places) / total
        together = torch.stack(losses).sum()
        torch.testing.assert_close(together, expected.loss)
        torch.testing.assert_close(torch.autograd.grad(together, new)[0], gradient)
        assert figures == pytest.approx(expected.figures, abs=1e-6)


# ---- penalty and correction ----------------------------------------------------------------------


def test_the_penalty_is_averaged_as_the_surrogate_is():
    settings = LossSettings(kl_weight=0.5)
    new = logs(0.5, 0.5).requires_grad_()
    tokens = tokens_of([0.0, 0.0], [2], old=new.detach(), reference_log_probs=logs(0.25, 0.5))
    found = policy_loss(new, tokens, settings)
    k3 = 0.5 - 1 - math.log(0.5)
    assert found.figures["reference_kl"] == pytest.approx(k3 / 2)
    assert float(found.loss.detach()) == pytest.approx(0.5 * k3 / 2)
    found.loss.backward()
    # ∇ k3 = 1 − r
    torch.testing.assert_close(new.grad, torch.tensor([0.5 * 0.5 * (1 - 0.5), 0.0]))


def test_the_penalty_by_ratio_has_the_ratios_gradient_too():
    settings = LossSettings(kl_weight=1.0, kl_estimator="k1", kl_by_ratio=True)
    new = logs(0.5).requires_grad_()
    tokens = tokens_of([0.0], [1], old=logs(0.4), reference_log_probs=logs(0.25))
    found = policy_loss(new, tokens, settings)
    # ρ k1 = 1.25 log 2, and its derivative by log π is ρ (k1 + 1)
    assert float(found.loss.detach()) == pytest.approx(1.25 * math.log(2))
    found.loss.backward()
    assert float(new.grad[0]) == pytest.approx(1.25 * (math.log(2) + 1))


def test_importance_correction_is_truncated_from_above_and_has_no_gradient():
    settings = LossSettings(importance_cap=2.0)
    new = logs(0.4, 0.4, 0.4).requires_grad_()
    old = logs(0.4, 0.4, 0.4).requires_grad_()
    tokens = tokens_of([1.0, 1.0, 1.0], [3], old=old, rollout_log_probs=logs(0.8, 0.4, 0.1))
    found = policy_loss(new, tokens, settings)
    # weights 0.5, 1 and min(4, 2); the ratio is 1 whatever the rollout's log-probs are
    assert float(found.loss.detach()) == pytest.approx(-(0.5 + 1 + 2) / 3)
    assert found.figures["importance"] == pytest.approx(3.5 / 3)
    assert found.figures["importance_capped"] == pytest.approx(1 / 3)
    found.loss.backward()
    torch.testing.assert_close(new.grad, torch.tensor([-0.5, -1.0, -2.0]) / 3)
    # the old log-probs' gradient is the ratio's alone
    torch.testing.assert_close(old.grad, -new.grad)


def test_the_correction_leaves_the_penalty_alone():
    settings = LossSettings(importance_cap=2.0, kl_weight=1.0)
    new = logs(0.5)
    tokens = tokens_of(
        [0.0], [1], old=new, rollout_log_probs=logs(0.1), reference_log_probs=logs(0.25)
    )
    found = policy_loss(new, tokens, settings)
    assert float(found.loss) == pytest.approx(0.5 - 1 - math.log(0.5))


def test_where_the_rollout_is_the_old_policys_the_correction_changes_nothing():
    new, old = logs(0.5, 0.3), logs(0.4, 0.4)
    bare = policy_loss(new, tokens_of([1.0, -1.0], [2], old=old), PLAIN)
    settings = LossSettings(importance_cap=2.0)
    tokens = tokens_of([1.0, -1.0], [2], old=old, rollout_log_probs=old)
    torch.testing.assert_close(policy_loss(new, tokens, settings).loss, bare.loss)


@pytest.mark.parametrize("setting", [{"kl_weight": 0.1}, {"importance_cap": 2.0}])
def test_log_probs_that_are_missing_are_asked_for(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        policy_loss(torch.zeros(1), tokens_of([1.0], [1]), LossSettings(**setting))


@pytest.mark.parametrize(
    "setting",
    [
        {"clip_low": -0.1},
        {"clip_low": 1.5},
        {"clip_high": math.nan},
        {"aggregation": "sum"},
        {"aggregation": "constant"},
        {"constant_tokens": 5},
        {"constant_tokens": 0, "aggregation": "constant"},
        {"kl_weight": -1.0},
        {"kl_estimator": "k4"},
        {"kl_by_ratio": True, "kl_estimator": "k2"},
        {"importance_cap": 0.0},
    ],
)
def test_settings_that_cannot_work_are_refused(setting):
    with pytest.raises(SettingError, match=next(iter(setting))):
        LossSettings(**setting)
