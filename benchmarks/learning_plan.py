"""What ``benchmarks/learning.py`` runs: its settings, methods and runs.  Knows no torch.

A *run* is one file of results: either the supervised part of a seed (``sft-…``) or one
reinforcement from it.  Runs with the same SFT seed and the same RL seed are pairs: they start
from the same weights and draw the same questions in the same order with the same sampling
seeds, so that they differ in the method alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from replay.resample import Resampling
from trainers.credit import GRPO, IGPO, Credit
from trainers.small_world_config import WorldSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One way of reinforcement.

    Attributes:
        title: for tables.
        credit: how rewards become advantages.
        scored: tools whose turns have a gain.
    """

    title: str
    credit: Credit
    scored: tuple[str, ...] = ("visit",)


METHODS: dict[str, Method] = {
    "grpo": Method(title="GRPO", credit=GRPO),
    "grpo-penalty": Method(
        title="GRPO with the penalty alone",
        credit=Credit(information_gain=False, penalty_alone=True),
    ),
    "igpo": Method(title="IGPO", credit=IGPO),
    "igpo-no-penalty": Method(
        title="IGPO without the format penalty", credit=Credit(format_penalty=None)
    ),
    "igpo-penalty-alone": Method(
        title="IGPO with the penalty alone", credit=Credit(penalty_alone=True)
    ),
    "igpo-every-turn": Method(
        title="IGPO, gains on every turn", credit=IGPO, scored=("search", "visit")
    ),
    "igpo-turn": Method(title="IGPO, credit by turn", credit=Credit(assignment="turn")),
    "igpo-no-scale": Method(
        title="IGPO without the IG scale", credit=Credit(normalisation="separate")
    ),
}
MAIN = ("grpo", "grpo-penalty", "igpo")
"""Compared, and each tuned; the others are IGPO but for one thing, and take its rate.

Under GRPO the penalty acts only where it stands alone (:class:`trainers.credit.Credit`); between
``grpo-penalty`` and ``igpo-penalty-alone`` the gains are the one difference in credit.
"""
ABLATIONS = tuple(name for name in METHODS if name not in MAIN)


_WORLD = WorldSettings()
_RESAMPLING = Resampling(((5, 1), (7, 2)), 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """All settings of the study; everything else follows.

    Attributes:
        world: webs, questions and expert; its seed is each SFT seed in turn.
        expert_episodes: trajectories to clone.
        copy_steps: the most steps of learning to copy.
        rl_steps: rollout batches of a run.
        tasks_per_step, group_size: questions of a batch, rollouts of each.
        minibatches: updates a batch.
        eval_every: batches between two points of the curve.
        validation: questions of each point; settings are chosen on them.
        test: questions of the final evaluation.
        sft_seeds: of webs, expert, model and cloning.
        rl_seeds: of the questions' order and all sampling.
        learning_rates: tried for each of :data:`MAIN`.
        sweep_sft_seeds, sweep_rl_seed: the SFT seeds and the RL seed they are tried with.
        ablation_sft_seeds, ablation_rl_seeds: those of the ablations.
        resampling: how often a trajectory counts in the resampled SFT, by its turns.
    """

    world: WorldSettings = _WORLD
    expert_episodes: int = 9600
    copy_steps: int = 1000
    rl_steps: int = 24
    tasks_per_step: int = 8
    group_size: int = 8
    minibatches: int = 2
    eval_every: int = 6
    validation: int = 64
    test: int = 192
    sft_seeds: tuple[int, ...] = (0, 1, 2)
    rl_seeds: tuple[int, ...] = (0, 1, 2)
    learning_rates: tuple[float, ...] = (2.5e-4, 5e-4, 1e-3)
    sweep_sft_seeds: tuple[int, ...] = (0, 1)
    sweep_rl_seed: int = 100
    ablation_sft_seeds: tuple[int, ...] = (0, 1, 2)
    ablation_rl_seeds: tuple[int, ...] = (0,)
    resampling: Resampling = _RESAMPLING

    @property
    def rollouts(self) -> int:
        """Of one run."""
        return self.rl_steps * self.tasks_per_step * self.group_size


QUICK = Study(
    world=WorldSettings(worlds=1, hops=(1, 2), max_turns=3, context=300, turn_tokens=20),
    expert_episodes=64,
    copy_steps=5,
    rl_steps=1,
    tasks_per_step=2,
    group_size=2,
    eval_every=1,
    validation=8,
    test=8,
    sft_seeds=(0, 1),
    rl_seeds=(0,),
    learning_rates=(5e-4,),
    sweep_sft_seeds=(0,),
    ablation_sft_seeds=(0,),
    resampling=Resampling(((3, 1),), 2),
)
"""Proves the path; its figures mean nothing."""


@dataclass(frozen=True, slots=True)
class SFTRun:
    """The supervised part of a seed."""

    seed: int
    resampled: bool = False

    @property
    def name(self) -> str:
        """Of its files."""
        return f"sft-{self.seed}" + ("-resampled" if self.resampled else "")


@dataclass(frozen=True, slots=True)
class RLRun:
    """One reinforcement, from the (unresampled) model of ``sft_seed``; ``test`` plays the test."""

    method: str
    learning_rate: float
    sft_seed: int
    rl_seed: int
    test: bool

    @property
    def name(self) -> str:
        """Of its files."""
        part = "" if self.test else "sweep-"
        rate = re.sub(r"e-0*", "e-", f"{self.learning_rate:.2e}").replace(".00", "")
        return f"{part}{self.method}-lr{rate}-sft{self.sft_seed}-rl{self.rl_seed}"


Run = SFTRun | RLRun


def result_file(folder: Path, run: Run) -> Path:
    """Where its result is, once it is done."""
    return folder / f"{run.name}.json"


def sweep(study: Study) -> list[Run]:
    """What chooses the learning rates, and the SFT it starts from; plays no test question."""
    models = [SFTRun(seed) for seed in study.sft_seeds]
    tried = [
        RLRun(method, rate, seed, study.sweep_rl_seed, test=False)
        for seed in study.sweep_sft_seeds
        for rate in study.learning_rates
        for method in MAIN
    ]
    return [*models, *tried]


def comparison(study: Study, rates: dict[str, float]) -> list[Run]:
    """The main comparison at the chosen rates, pair by pair."""
    return [
        _run(method, rates, seed, rl_seed)
        for rl_seed in study.rl_seeds
        for seed in study.sft_seeds
        for method in MAIN
    ]


def ablations(study: Study, rates: dict[str, float]) -> list[Run]:
    """Each change of IGPO alone, at IGPO's rate; and SFT with resampling."""
    return [
        *(
            _run(method, rates, seed, rl_seed)
            for rl_seed in study.ablation_rl_seeds
            for method in ABLATIONS
            for seed in study.ablation_sft_seeds
        ),
        *(SFTRun(seed, resampled=True) for seed in study.ablation_sft_seeds),
    ]


def chosen_rates(finals: Iterable[tuple[str, float, float]], study: Study) -> dict[str, float]:
    """The best learning rate of each tuned method.

    Args:
        finals: method, learning rate and validation success of each run of the sweep.
        study: says what was tried.

    Raises:
        ValueError: when nothing was tried for a method.
    """
    found: dict[str, float] = {}
    tried = list(finals)
    for method in MAIN:
        means = {
            rate: _mean([value for name, at, value in tried if (name, at) == (method, rate)])
            for rate in study.learning_rates
        }
        found[method] = max(means, key=lambda rate: means[rate])
    return found


def _run(method: str, rates: dict[str, float], sft_seed: int, rl_seed: int) -> RLRun:
    return RLRun(method, rates.get(method, rates["igpo"]), sft_seed, rl_seed, test=True)


def _mean(values: Sequence[float]) -> float:
    if not values:
        raise ValueError("a learning rate without a run can't be chosen")
    return sum(values) / len(values)
