"""The settings of reinforcement, apart from its loop.

What is refused here can't work whatever the model and the tasks are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from agents.engines.base import Sampling
from agents.rollout import RolloutSettings
from drv_env.episode import Rules
from drv_env.errors import SettingError
from drv_env.settings import SEED, above, at_least, check_fields
from replay.template import ChatTemplate
from trainers.advantages import IGPO, Credit
from trainers.gain_settings import GainSettings, Method
from trainers.loss_settings import LossSettings
from trainers.model_settings import Precision
from trainers.optimiser_settings import OptimiserSettings
from trainers.plugins import SCORERS
from trainers.rollouts import RolloutWay, check_way


@dataclass(frozen=True, slots=True, kw_only=True)
class RLConfig(OptimiserSettings):
    """Settings of one run; learning rate, schedule and decay are :class:`OptimiserSettings`'s.

    The schedule goes by steps: all updates of a step have its rate.

    Attributes:
        credit: how rewards become advantages; :data:`~trainers.advantages.IGPO` or
            :data:`~trainers.advantages.GRPO`, or a setting between them.
        advantages: who makes them: ``credit``, by those settings, or a function of your own
            by its name (:mod:`trainers.registry`).
        gain: how information gain is scored, where ``credit`` uses it.
        gain_by: who scores it: the ``model`` being trained, in one pass a trajectory that
            also gives the log-probs before the update, the ``engine``, probe by probe, or a
            scorer of your own by its name (:data:`trainers.plugins.SCORERS`).
        scoring: how the model's log-probs of gains, of importance correction and of the KL's
            reference are computed: ``auto`` from kept keys and values, packed where that
            can be; ``plain``, one full pass a history, is for models with sliding windows or
            other attention, and slow where gains are scored; see
            :func:`trainers.trajectory_scores.score_trajectories`.
        steps: rollout batches.
        tasks_per_step: questions a step.
        group_size: rollouts a question, at least 2: statistics are within the group.
        minibatches: updates a step, each on an equal share of the rollouts.
        microbatch_tokens: the most tokens of one forward pass, padding counted; an update
            sums over as many passes as it takes, and its result does not depend on it.
        packed: put the rollouts of a pass behind one another, each attending to itself alone
            (:mod:`trainers.packed_attention`), instead of padding them to the longest.  It
            changes memory and speed only.
        precision: see :mod:`trainers.model_setup`.
        loss: clips, averages, the KL penalty and importance correction.
        drop_silent: what is left out of the updates for having no advantage on any turn:
            ``rollouts``, only whole ``groups``, or ``none``.  What is left out is in no
            average, and has no KL penalty.
        sampling: how turns are sampled; temperature 1, for log-probs are compared raw.  None
            is that, with the turn's tokens that the rules allow and the template's stops.
        rollouts: ``vector`` (lock-step) or ``async`` (each episode at its own pace); both
            give the same episodes.
        rollout: limits, deadlines and retries of the rollouts; its ``group_size`` is this
            one's, its ``seed`` None leaves the sampling to the engine.
        max_staleness: updates that may lie between sampling and training: 1 plays the next
            step's rollouts while this step is trained on.  Needs ``async``;
            ``loss.importance_cap`` corrects for it.
        save_every: steps between two states, at least 1, where the run has a folder for them.
        seed: decides the order of tasks and of minibatches.

    Raises:
        SettingError: naming a value that can't work.
    """

    credit: Credit = IGPO
    advantages: str = "credit"
    gain: GainSettings = field(default_factory=GainSettings)
    gain_by: str = "model"
    scoring: Method = "auto"
    steps: int = 40
    tasks_per_step: int = 8
    group_size: int = 8
    minibatches: int = 2
    microbatch_tokens: int = 8192
    packed: bool = False
    precision: Precision = "float32"
    learning_rate: float = 5e-4
    loss: LossSettings = field(default_factory=LossSettings)
    drop_silent: Literal["rollouts", "groups", "none"] = "rollouts"
    sampling: Sampling | None = None
    rollouts: RolloutWay = "vector"
    rollout: RolloutSettings = field(default_factory=lambda: RolloutSettings(seed=None))
    max_staleness: int = 0
    save_every: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        OptimiserSettings.__post_init__(self)
        check_fields(
            self,
            steps=at_least(1),
            tasks_per_step=at_least(1),
            minibatches=at_least(1),
            microbatch_tokens=at_least(1),
            max_grad_norm=above(0, infinite=True),  # said again: every field is looked at
            max_staleness=at_least(0),
            save_every=at_least(1),
            seed=SEED,
        )
        if self.group_size < 2:
            raise SettingError(
                f"group_size must be at least 2 (rewards are compared within a group), "
                f"got {self.group_size}",
                setting="group_size",
            )
        if self.sampling is not None:
            _check_sampling(self.sampling)
        if self.gain_by not in ("model", "engine"):
            try:
                SCORERS[self.gain_by]
            except SettingError as error:
                raise SettingError(f"gain_by is model, engine or a scorer: {error}") from None
        check_way(self.rollouts, self.rollout, self.max_staleness)

    @property
    def scored_for(self) -> list[str]:
        """Settings for which log-probs are scored with the model, by their names."""
        gains = self.credit.information_gain and self.gain_by == "model"
        wanted = {
            "gain_by model": gains,
            "loss.importance_cap": self.loss.importance_cap is not None,
            "loss.kl_weight": self.loss.kl_weight > 0,
        }
        return [name for name, is_wanted in wanted.items() if is_wanted]

    @property
    def follows_steps(self) -> bool:
        """Whether what a step does depends on how many steps the run has: its rate, its weights."""
        own: bool = super(RLConfig, self).follows_steps
        return own or self.credit.moves


def usual_sampling(rules: Rules, template: ChatTemplate) -> Sampling:
    """At temperature 1, with the tokens of a turn that the rules allow."""
    return Sampling(rules.max_turn_tokens, stop_ids=template.stop_ids)


def _check_sampling(sampling: Sampling) -> None:
    plain = Sampling(sampling.max_tokens)
    for name in ("temperature", "top_p", "top_k", "presence_penalty"):
        if getattr(sampling, name) != getattr(plain, name):
            raise SettingError(
                "rollouts to train on are sampled at temperature 1 without top_p, top_k and "
                f"penalties ({name} is {getattr(sampling, name)}): their raw log-probs are "
                "compared with the trainer's"
            )
