"""Ctrl-C while a run on OpenRLHF starts and rolls out: one word, and no process is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress

import psutil
import pytest
import torch

from drv_env.worlds import WorldRecipe
from replay.chat_templates import QWEN3_THINKING
from tests.cluster.openrlhf.openrlhf_runs import MACHINE, ROOT
from tests.small_agent import AGENT
from trainers.checkpoint import save_model
from trainers.tiny import TinySize, build_model, build_tokenizer

COMMAND = """
import signal, sys
from trainers.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in background jobs
sys.exit(main(sys.argv[1:]))
"""


def raylet_is_there(driver: subprocess.Popen[str]) -> bool:
    """Waits until Ray has begun to start, or the driver has ended."""
    process = psutil.Process(driver.pid)
    while driver.poll() is None:
        if any("raylet" in child.name() for child in process.children()):
            return True
        with suppress(subprocess.TimeoutExpired):
            driver.wait(0.1)
    return False


@pytest.mark.parametrize("moment", ["start", "rollout"])
def test_ctrl_c_ends_ray_and_the_engines(tmp_path, moment):
    tokenizer = build_tokenizer(["What is the owner of a mill?"], WorldRecipe(3).build().kinds)
    model = build_model(tokenizer, 0, TinySize(context=512)).to(torch.bfloat16)
    agent = save_model(tmp_path / "agent", model, tokenizer, QWEN3_THINKING, AGENT)
    out = tmp_path / "run"
    words = ["train", "igpo", "--config", str(ROOT / "examples/configs/openrlhf_cpu.yaml")]
    words += ["--model.folder", str(agent), "--out", str(out), "--rl.steps", "50"]
    driver = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{MACHINE}{os.pathsep}{ROOT}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C reaches a whole process group
    )
    assert driver.stdout is not None
    try:
        if moment == "start":
            assert raylet_is_there(driver)
        else:
            assert any("Generate samples" in line for line in driver.stdout)
        made = psutil.Process(driver.pid).children(recursive=True)
        names = [process.name() for process in made]
        os.killpg(driver.pid, signal.SIGINT)
        said = driver.communicate(timeout=600)[0]
    finally:
        driver.kill()
    assert driver.returncode == 130
    assert said.rstrip().endswith("Stopped.")
    assert any("raylet" in name for name in names)
    assert any("VLLM" in name for name in names) == (moment == "rollout")
    _, alive = psutil.wait_procs(made, timeout=90)
    assert not alive
