"""Fine-tuning on several devices is torchrun's: Ctrl-C ends it, and the ranks with it."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

RANK = """
import os, signal
for asked in (signal.SIGINT, signal.SIGTERM):
    signal.signal(asked, signal.SIG_IGN)  # torchrun kills it, after half a minute
os.write(1, b"begun\\n")  # in one piece
signal.pause()
"""
DRIVER = """
import signal, sys
from trainers.cli import guarded
from trainers.openrlhf.launch import run_ranks
signal.signal(signal.SIGINT, signal.default_int_handler)
command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
sys.exit(guarded(lambda: print(run_ranks([*command, *sys.argv[1:]]))))
"""
ROOT = Path(__file__).parents[3]


def start(tmp_path: Path, text: str) -> subprocess.Popen[str]:
    rank = tmp_path / "rank.py"
    rank.write_text(text)
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(rank)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )


def test_ctrl_c_ends_torchrun_and_its_ranks(tmp_path):
    driver = start(tmp_path, RANK)
    assert driver.stdout is not None
    try:
        for _ in range(2):
            assert driver.stdout.readline() == "begun\n"
        os.killpg(driver.pid, signal.SIGINT)  # as a terminal does; ranks have other groups
        _, said = driver.communicate(timeout=300)  # until no process has the pipes any more
    finally:
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGTERM)
    assert driver.returncode == 130
    assert said.rstrip().endswith("Stopped.")


@pytest.mark.parametrize(("text", "status"), [("print()", "0"), ("raise SystemExit(3)", "1")])
def test_the_ranks_end_is_the_commands(tmp_path, text, status):
    driver = start(tmp_path, text)
    said, _ = driver.communicate(timeout=300)
    assert driver.returncode == 0
    assert said.splitlines()[-1] == status
