"""The settings of the policy's loss, apart from it: whoever reads settings needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from drv_env.errors import SettingError
from drv_env.settings import above, at_least, between, check_fields

Aggregation = Literal["rollout_mean", "token_mean", "constant"]
KLEstimator = Literal["k1", "k2", "k3"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSettings:
    """How advantages become a loss; formulas in :mod:`trainers.losses` and :mod:`trainers.kl`.

    Attributes:
        clip_low: the ratio is clipped from below at 1 − clip_low; 0.2 as published.
        clip_high: and from above at 1 + clip_high; 0.2 as published.
        dual_clip: d, above 1: where the advantage is negative a token's share is never below
            d times it, however large its ratio (dual-clip PPO, arXiv 1912.09729); the release
            has 3.  None bounds nothing.
        entropy_weight: of a bonus for the policy's entropy at the agent's tokens, averaged as
            the rest; 0 as published.
        aggregation: how tokens are averaged over an update: ``rollout_mean`` (a mean over
            rollouts of the means over their agent tokens, as published), ``token_mean``
            (over all agent tokens), or ``constant`` (sums over rollouts by
            ``constant_tokens``, then the mean over rollouts; Dr. GRPO).
        constant_tokens: what ``constant`` divides by, such as the most tokens of a rollout.
        kl_weight: β of the penalty for leaving the reference model; 0 needs none, the
            release has 0.001.
        kl_estimator: of that penalty; k3 as published.
        kl_by_ratio: multiply the estimate by the ratio π/π_old, gradient and all, for the
            unbiased gradient of the reverse KL; for k1 and k3, see :mod:`trainers.kl`.
        importance_cap: C, truncated importance correction: log-probs of the rollouts'
            tokens are made anew by the model as it is before the updates, and a token
            counts min(π_old/π_rollout, C) times.  For rollouts from another engine or from
            older weights.  None takes the rollouts' own log-probs for the old ones.

    Raises:
        SettingError: naming a value that can't work.
    """

    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None
    entropy_weight: float = 0.0
    aggregation: Aggregation = "rollout_mean"
    constant_tokens: int | None = None
    kl_weight: float = 0.0
    kl_estimator: KLEstimator = "k3"
    kl_by_ratio: bool = False
    importance_cap: float | None = None

    def __post_init__(self) -> None:
        check_fields(
            self,
            clip_low=between(0, 1),
            clip_high=at_least(0),
            dual_clip=above(1),
            constant_tokens=at_least(1),
            kl_weight=at_least(0),
            entropy_weight=at_least(0),
            importance_cap=above(0, infinite=True),
        )
        if (self.aggregation == "constant") != (self.constant_tokens is not None):
            raise SettingError(
                f'aggregation "constant" and constant_tokens need each other, got '
                f"{self.aggregation!r} and {self.constant_tokens}"
            )
        if self.kl_by_ratio and self.kl_estimator == "k2":
            raise SettingError("kl_by_ratio is for k1 and k3: with the ratio k2's gradient is off")
