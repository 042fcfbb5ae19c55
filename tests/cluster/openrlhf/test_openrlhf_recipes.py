"""The recipes and the configuration that come with the project can be started as they stand."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cluster.openrlhf.openrlhf_runs import ROOT
from trainers.commands.train import parse_options, read_layers
from trainers.openrlhf.flags import arguments_of
from trainers.runs.cluster_run import prepare_cluster
from trainers.runs.trainer_registry import TRAINERS


@pytest.fixture
def model(agent, tmp_path) -> Path:
    """A folder whose model claims to hold a long context."""
    folder = tmp_path / "model"
    shutil.copytree(agent.folder, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 300_000}))
    return folder


def started(words: list[str]) -> list[str]:
    """OpenRLHF's arguments for ``drv train`` with these words."""
    name, rest = words[1], words[2:]
    cut = rest.index("--") if "--" in rest else len(rest)
    rest, flags = rest[:cut], tuple(rest[cut + 1 :])
    chosen = dict(itertools.pairwise(rest))
    trainer = TRAINERS[name]
    layers = read_layers(chosen.get("--config"), chosen.get("--preset"))
    config = parse_options(trainer, layers.over(trainer), rest)
    cluster = dataclasses.replace(config.cluster, flags=(*config.cluster.flags, *flags))
    job = prepare_cluster(dataclasses.replace(config, cluster=cluster), name, lambda line: None)
    return arguments_of(job.what)


@pytest.mark.parametrize("name", ["igpo_1_gpu.sh", "igpo_16_gpus.sh"])
def test_a_recipe_asks_for_what_goes_together(name, model, tmp_path):
    tasks = tmp_path / "tasks.jsonl"
    rows = ({"question": f"Who owns mill {n}?", "answer": "Ada"} for n in range(90))
    tasks.write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = tmp_path / "words"
    drv = tmp_path / "bin" / "drv"
    drv.parent.mkdir()
    drv.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {told}\n")
    drv.chmod(0o755)
    subprocess.run(
        [ROOT / "examples" / "openrlhf" / name],
        check=True,
        env={
            **os.environ,
            "PATH": f"{drv.parent}{os.pathsep}{os.environ['PATH']}",
            "MODEL": str(model),
            "TASKS": str(tasks),
            "OUT": str(tmp_path / "run"),
        },
    )
    arguments = started(told.read_text().splitlines())
    assert arguments[arguments.index("--actor.model_name_or_path") + 1] == str(model)


def test_the_configuration_for_a_cpu_asks_for_what_goes_together(model, tmp_path):
    words = ["train", "igpo", "--config", str(ROOT / "examples/configs/openrlhf_cpu.yaml")]
    world = ["--tools.world", "3", "--rules.max-context", "4096", "--rules.max-turn-tokens", "64"]
    arguments = started(
        [*words, "--model.folder", str(model), "--out", str(tmp_path / "run"), *world]
    )
    assert arguments[arguments.index("--rollout.batch_size") + 1] == "4"
