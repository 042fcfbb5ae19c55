"""The trainers that come with the package; importing this registers them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agents.rollout import RolloutSettings
from trainers.advantages import GRPO, IGPO
from trainers.rl_config import RLConfig
from trainers.runs.rl_run import prepare_rl
from trainers.runs.run_config import RLRun, SFTRun
from trainers.runs.sft_run import prepare_sft
from trainers.runs.trainer_registry import Trainer, add_trainer

_LOOP = RLConfig(rollout=RolloutSettings(seed=0))

add_trainer(
    Trainer(
        "sft",
        "behaviour cloning: the agent's own tokens of trajectories",
        SFTRun(out=Path("runs/sft")),
        prepare_sft,
    ),
    ours=True,
)
add_trainer(
    Trainer(
        "grpo",
        "reinforcement on own rollouts, by the outcome within a group",
        RLRun(out=Path("runs/grpo"), rl=replace(_LOOP, credit=GRPO)),
        prepare_rl,
    ),
    ours=True,
)
add_trainer(
    Trainer(
        "igpo",
        "reinforcement on own rollouts, by outcome and each visit's information gain",
        RLRun(out=Path("runs/igpo"), rl=replace(_LOOP, credit=IGPO)),
        prepare_rl,
    ),
    ours=True,
)
