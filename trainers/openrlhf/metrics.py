"""OpenRLHF's figures of a step under the names of the one-device trainer; writing them down."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from drv_env.whole_files import append, disk_faults_told

NAMES = {
    "policy_loss": "loss",
    "ppo_clip_ratio": "clip_share",
    "ppo_kl": "kl",
    "kl": "reference_kl",
    "entropy_loss": "entropy",
    "actor_grad_norm": "grad_norm",
    "actor_lr": "learning_rate",
    "is_filter_ratio": "importance_capped",
    "vllm_kl": "rollout_kl",
    "timing/generation": "seconds_rollout",
    "timing/make_experience": "seconds_experience",
    "timing/ppo_train": "seconds_update",
    "timing/broadcast": "seconds_sync",
    "timing/step_total": "seconds_step",
}
"""Ours by OpenRLHF's.

``loss`` is a step's mean over its updates; with packed rows, of their passes' shares.
``kl`` is the mean of log π_old − log π over the agent's tokens; ``clip_share`` counts tokens
on which the clip changed the loss; ``grad_norm`` and ``learning_rate`` are the last update's;
``rollout_kl`` is the mean of log π_rollout − log π_old, of engine against trainer;
``seconds_experience`` holds ``seconds_information_gain``.
"""


def renamed(status: Mapping[str, Any], kl_weight: float) -> dict[str, float]:
    """OpenRLHF's figures that have a name of ours; those that are not finite are left out.

    Args:
        status: of one step.
        kl_weight: without a penalty there is no ``reference_kl``, though OpenRLHF has a 0.
    """
    found = {
        own: float(status[theirs])
        for theirs, own in NAMES.items()
        if isinstance(status.get(theirs), int | float)
    }
    if kl_weight == 0:
        found.pop("reference_kl", None)
    return {name: value for name, value in found.items() if math.isfinite(value)}


def append_metrics(folder: Path, step: int, values: Mapping[str, float], phase: str = "rl") -> None:
    """One line more in the run's ``metrics.jsonl``, as :mod:`trainers.run_folder` writes it."""
    path = folder / "metrics.jsonl"
    line = json.dumps({"phase": phase, "step": step, **values}) + "\n"
    with disk_faults_told(path), path.open("ab", buffering=0) as file:
        append(file, line.encode("utf-8"))
