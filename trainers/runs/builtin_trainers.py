"""The trainers that come with the package; importing this registers them.

Their settings alone are imported: torch comes when a job is made.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agents.rollout import RolloutSettings
from trainers.advantages import GRPO, IGPO
from trainers.rl_config import RLConfig
from trainers.runs.run_config import RLRun, SFTRun
from trainers.runs.trainer_registry import Job, Say, Trainer, add_trainer

_LOOP = RLConfig(rollout=RolloutSettings(seed=0))


def _prepare_sft(run: SFTRun, name: str, say: Say) -> Job:
    from trainers.runs.sft_run import prepare_sft

    return prepare_sft(run, name, say)


def _prepare_rl(run: RLRun, name: str, say: Say) -> Job:
    from trainers.runs.rl_run import prepare_rl

    return prepare_rl(run, name, say)


add_trainer(
    Trainer(
        "sft",
        "behaviour cloning: the agent's own tokens of trajectories",
        SFTRun(out=Path("runs/sft")),
        _prepare_sft,
    ),
    ours=True,
)
add_trainer(
    Trainer(
        "grpo",
        "reinforcement on own rollouts, by the outcome within a group",
        RLRun(out=Path("runs/grpo"), rl=replace(_LOOP, credit=GRPO)),
        _prepare_rl,
    ),
    ours=True,
)
add_trainer(
    Trainer(
        "igpo",
        "reinforcement on own rollouts, by outcome and each visit's information gain",
        RLRun(out=Path("runs/igpo"), rl=replace(_LOOP, credit=IGPO)),
        _prepare_rl,
    ),
    ours=True,
)
