"""Checkpoints that are not whole: vLLM's engine refuses them by name, and starts nothing."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import psutil
import pytest

from agents.engines.vllm import VllmEngine
from drv_env.errors import SettingError
from tests.engines.test_checkpoint_check import FAULTS, beyond
from tests.small_agent import save_small_agent
from trainers.cli import main

BEYOND = "<one too many>"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_small_agent(tmp_path_factory.mktemp("sound") / "model")


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "model"))


def at_work() -> tuple[set[int], set[str]]:
    """Processes below this one, and its threads."""
    children = {process.pid for process in psutil.Process().children(recursive=True)}
    return children, {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("fault", [*FAULTS, "a tokenizer that is too large"])
def test_a_damaged_checkpoint_is_refused_before_vllm_starts(copy: Path, fault: str) -> None:
    damage, words = FAULTS.get(fault, (beyond, BEYOND))
    damage(copy)
    before = at_work()
    with pytest.raises(SettingError, match=words) as told:
        VllmEngine(copy, dtype="float32")
    assert str(copy) in str(told.value)
    assert "\n" not in str(told.value)
    assert at_work() == before


@pytest.mark.parametrize("fault", ["missing", "nan", "cut off", "a tokenizer that is too large"])
def test_a_command_that_plays_with_vllm_says_it_in_one_line(
    copy: Path, fault: str, capsys: pytest.CaptureFixture[str]
) -> None:
    damage, _ = FAULTS.get(fault, (beyond, BEYOND))
    damage(copy)
    before = at_work()
    words = ["eval", "world", "--questions", "1", "--engine", "vllm", "--model", str(copy)]
    assert main(words) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("drv: ")]
    assert str(copy) in line
    assert at_work()[0] == before[0]
