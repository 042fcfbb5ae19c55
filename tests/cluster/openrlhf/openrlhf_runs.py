"""Runs of OpenRLHF in processes that have no GPU, and what they left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drv_env.tasks import Task
from replay.store import read_trajectories
from replay.trajectory import Trajectory
from tests.cluster.openrlhf.cloned_agent import GAME, ClonedAgent
from trainers.checkpoint import load_model
from trainers.openrlhf.launch import check_folder
from trainers.openrlhf.run import (
    TASKS,
    Cluster,
    OpenRLHFRun,
    Reinforcement,
    write_run,
    write_tasks,
)
from trainers.rl_config import RLConfig

ROOT = Path(__file__).parents[3]
MACHINE = Path(__file__).parent / "cpu_machine"
FLAGS = ("--vllm.sync_backend", "gloo", "--vllm.enforce_eager", "--ds.attn_implementation", "eager")
RAY = {"num_cpus": 4, "num_gpus": 2, "include_dashboard": False}
STEPS, TASKS_A_STEP, GROUP = 2, 4, 4


@dataclass(frozen=True)
class Ran:
    """A run that is over."""

    run: OpenRLHFRun
    agent: ClonedAgent

    def metrics(self, phase: str = "rl") -> list[dict[str, Any]]:
        lines = (self.run.out / "metrics.jsonl").read_text().splitlines()
        return [each for line in lines if (each := json.loads(line))["phase"] == phase]

    def trajectories(self, step: int) -> list[Trajectory]:
        return list(read_trajectories(self.run.out / "trajectories" / f"rl-{step:04d}.parquet"))

    def model(self, step: int) -> Any:
        """The weights before a step's update, in bfloat16 as everywhere in the run."""
        saved = self.run.state / f"global_step{step - 1}_hf"
        return load_model(self.run.model if step == 1 else saved, "bfloat16")


def carry_out(run: OpenRLHFRun, tasks: Sequence[Task] = ()) -> None:
    """What run_openrlhf does, in its order, in a process that has no GPU."""
    check_folder(run)
    path = write_run(run)
    if tasks:
        write_tasks(run.out / TASKS, tasks)
    done = subprocess.run(
        [sys.executable, "-m", "trainers.openrlhf.launch", str(path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{MACHINE}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-6000:]}"


def reinforce(
    agent: ClonedAgent, out: Path, *, cluster: Cluster | None = None, resume=False, **settings: Any
) -> Ran:
    """A run of some steps, begun or gone on with; its settings over the usual ones here."""
    config = {
        "steps": STEPS,
        "tasks_per_step": TASKS_A_STEP,
        "group_size": GROUP,
        "minibatches": 2,
        "precision": "bfloat16",
        "learning_rate": 2e-3,  # so large that a sampling by the old weights shows
        **settings,
    }
    usual = Cluster(
        ray=RAY, check_syncs=STEPS, flags=(*FLAGS, "--ckpt.save_hf", "--ckpt.disable_ds")
    )
    run = OpenRLHFRun(
        model=agent.folder,
        out=out,
        reinforcement=Reinforcement(config=RLConfig(**config), game=GAME),
        cluster=cluster or usual,
        resume=resume,
    )
    carry_out(run, agent.tasks[: config["steps"] * TASKS_A_STEP])
    return Ran(run, agent)
