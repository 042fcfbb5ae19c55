"""The door: a run of OpenRLHF in this process, with our parts in its places.

OpenRLHF has command lines and no functions to call, so its command line is run as a module
of this process, after its parts have been replaced; Ray carries them to the others.

``python -m trainers.openrlhf.launch runs/x/openrlhf.json`` does the same with a run that was
written before, for ``torchrun`` and Ray's job submission.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from agents.engines.checkpoint_check import check_checkpoint
from drv_env.errors import DrvError, SettingError
from drv_env.task_order import TaskOrder
from drv_env.tasks import TaskLike
from drv_env.whole_files import write_text
from replay.own_folder import FolderKind, FolderLock
from trainers.agent_file import write_agent
from trainers.interrupts import finishing_first
from trainers.openrlhf.flags import arguments_of
from trainers.openrlhf.lacking import refuse_lacking_keys
from trainers.openrlhf.points import check_points, install, put_in_place
from trainers.openrlhf.run import (
    FILE,
    TASKS,
    VARIABLE,
    OpenRLHFRun,
    read_run,
    write_run,
    write_tasks,
)
from trainers.openrlhf.sft_flags import sft_arguments_of
from trainers.run_folder import ROWS, holds_own_rows

_FOREIGN = "metrics.jsonl"
_ENDING = 45.0
"""Seconds for torchrun to end its ranks; after 30 it kills them."""
KIND = FolderKind(
    "a run on OpenRLHF",
    {FILE: {"model": str, "out": str, "cluster": dict}},
    parts=("trajectories", "checkpoints", "state"),
    before={ROWS: holds_own_rows, _FOREIGN: Path.is_file},
)


def run_openrlhf(run: OpenRLHFRun, tasks: Sequence[TaskLike] = ()) -> Path:
    """Train; returns when it is done.

    Args:
        run: what and where.
        tasks: questions of a reinforcement, drawn from in the order of the one-device trainer;
            OpenRLHF shuffles them among the steps.

    Returns:
        The folder of the trained model, as ``drv eval`` and every engine load it.

    Raises:
        SettingError: for what can't work, before anything is started.
        DrvError: when OpenRLHF left no model, or the run failed on purpose.
    """
    check_folder(run)
    busy = f"another process is at work in {run.out}; wait for it, or name another folder"
    with FolderLock(run.out, busy):
        _train(run, tasks)
    return run.final


def _train(run: OpenRLHFRun, tasks: Sequence[TaskLike]) -> None:
    if run.fine_tuning is not None:
        arguments = sft_arguments_of(run)
        check_points()
        _fine_tune(write_run(run), run, arguments)
    else:
        arguments = arguments_of(run)
        refuse_lacking_keys(run)
        check_points()
        path = write_run(run)
        config = run.rl.config
        order = TaskOrder(tasks, config.seed)
        write_tasks(run.out / TASKS, list(islice(order, config.steps * config.tasks_per_step)))
        _reinforce(path, run, arguments)
    finish(run)


def check_folder(run: OpenRLHFRun) -> None:
    """Refuse the folder of another run, and a model that isn't whole.

    Raises:
        SettingError: naming the folder.
    """
    check_checkpoint(run.model)
    KIND.record(run.out)
    if not run.resume and (run.out / _FOREIGN).exists():
        raise SettingError(
            f"{run.out} holds a run already; go on with it (resume), or name another folder"
        )


# ---- reinforcement: Ray ------------------------------------------------------------------------


def _reinforce(path: Path, run: OpenRLHFRun, arguments: Sequence[str]) -> None:
    ray: Any = importlib.import_module("ray")
    passed = {
        "TOKENIZERS_PARALLELISM": "true",
        "NCCL_DEBUG": "WARN",
        "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1",
    }
    variables = {name: os.environ.get(name, usual) for name, usual in passed.items()}
    with _environment({VARIABLE: str(path)}):
        with finishing_first("Ray's start") as interrupt:  # half of it would be left running
            ray.init(
                runtime_env={"env_vars": {**variables, VARIABLE: str(path)}},
                **{"ignore_reinit_error": False, **run.cluster.ray},
            )
        try:
            if interrupt.asked:
                raise KeyboardInterrupt
            install()
            _command_line("openrlhf.cli.train_ppo_ray", arguments)
        finally:
            ray.shutdown()


# ---- fine-tuning: one process a device ---------------------------------------------------------


def _fine_tune(path: Path, run: OpenRLHFRun, arguments: Sequence[str]) -> None:
    if run.cluster.gpus > 1 and "RANK" not in os.environ:
        if run.cluster.nodes > 1:
            raise SettingError(
                "fine-tuning on several nodes is started on each of them: torchrun --nnodes "
                f"{run.cluster.nodes} --nproc-per-node {run.cluster.gpus} … -m "
                f"trainers.openrlhf.launch {path}"
            )
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", str(run.cluster.gpus)]
        status = run_ranks([*command, "-m", "trainers.openrlhf.launch", str(path)])
        if status:
            raise DrvError(f"fine-tuning ended with exit status {status}; see its output")
        return
    alone = {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
    }
    missing = {name: value for name, value in alone.items() if name not in os.environ}
    with _environment({VARIABLE: str(path), **missing}):
        parts: Any = importlib.import_module("trainers.openrlhf.inside.sft_parts")
        put_in_place(
            ("openrlhf.datasets", "SFTDataset", parts.DocumentDataset),
            ("openrlhf.datasets.utils", "blending_datasets", parts.Documents),
            ("openrlhf.trainer.sft_trainer", "SFTTrainer", parts.RecordingSFTTrainer),
        )
        _command_line("openrlhf.cli.train_sft", arguments)


def run_ranks(command: Sequence[str]) -> int:
    """Run torchrun; returns its exit status.

    Its ranks have sessions of their own, so that Ctrl-C reaches torchrun alone: it is given
    the time to end them, or they would go on without it.
    """
    process = subprocess.Popen(command)
    try:
        return process.wait()
    except KeyboardInterrupt:
        try:
            process.wait(_ENDING)
        except (subprocess.TimeoutExpired, KeyboardInterrupt):
            process.terminate()
            process.wait()
        raise


# ---- the trained model -------------------------------------------------------------------------


def finish(run: OpenRLHFRun) -> None:
    """Make what OpenRLHF saved a checkpoint like ours: chat template, agent.json, cache on.

    Raises:
        DrvError: when there is nothing, as where the folder is not seen by this machine.
    """
    file = run.final / "config.json"
    if not file.is_file():
        raise DrvError(
            f"OpenRLHF left no model in {run.final}; the run's folder must be one that every node "
            "sees"
        )
    config = json.loads(file.read_text(encoding="utf-8"))
    write_text(file, json.dumps({**config, "use_cache": True}, indent=2) + "\n")
    if run.chat_template is not None:
        write_text(run.final / "chat_template.jinja", run.chat_template)
    described = run.described()
    if described is not None:
        write_agent(run.final, described)


# ---- pieces ------------------------------------------------------------------------------------


def _command_line(module: str, arguments: Sequence[str]) -> None:
    before = sys.argv
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        sys.argv = before


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _main(path: str) -> None:
    run = read_run(path)
    if run.fine_tuning is not None:
        _fine_tune(Path(path).resolve(), run, sft_arguments_of(run))
    else:
        _reinforce(Path(path).resolve(), run, arguments_of(run))
    if int(os.environ.get("RANK", "0")) == 0:
        finish(run)


if __name__ == "__main__":
    from trainers.cli import guarded

    sys.exit(guarded(lambda: _main(sys.argv[1])))
