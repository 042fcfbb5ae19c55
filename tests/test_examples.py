"""The examples run as they are."""

import subprocess
import sys
from pathlib import Path

import pytest

from drv_env import Ending
from tests.patience import HANGS

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.mark.parametrize("name", ["env_loop.py", "own_tool.py", "vector_rollout.py"])
def test_the_example_runs(name):
    done = subprocess.run(
        [sys.executable, EXAMPLES / name], capture_output=True, text=True, timeout=HANGS
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_readmes_python_runs(tmp_path):
    """Every Python block of the README that stands on its own."""
    readme = (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")
    blocks = [part.split("```")[0] for part in readme.split("```python\n")[1:]]
    random_turns, loop, mocked = blocks[0], blocks[1], blocks[3]
    done = subprocess.run([sys.executable, "-c", random_turns], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] in {*Ending} - {Ending.BROKEN}
    done = subprocess.run([sys.executable, "-c", loop], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("ok")
    (tmp_path / "test_mocked.py").write_text(mocked, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
