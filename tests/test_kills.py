"""Commands that are killed or stopped give the same afterwards; ``tests/kills.py`` tries more."""

import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("kills.py")


def test_a_killed_or_stopped_command_gives_the_same_when_it_is_run_again():
    arguments = ["--commands", "rows", "--places", "2"]
    command = [sys.executable, str(PROGRAM), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 of them with a fault" in done.stdout
