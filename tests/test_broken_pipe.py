"""A reader that has seen enough (``drv … | head``), and outputs that the shell has closed."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm_process

ROOT = Path(__file__).parents[1]

EACH = """
import json, os, sys

# Each command in a child of its own, with a standard output (1), or error (2), that nobody reads.
for place, (number, words) in enumerate(json.loads(sys.argv[1])):
    child = os.fork()
    if child == 0:
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, number)
        os.dup2(os.open(f"said-{place}", os.O_CREAT | os.O_WRONLY), 3 - number)
        sys.argv = ["drv", *words]
        from trainers.cli import main
        sys.exit(main())
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with open(f"status-{place}", "w") as file:
        file.write(str(status))
"""

ROWS = {
    "question": "Who?",
    "gt": "Salen",
    "messages": [
        {"role": "user", "content": "Who?"},
        {"role": "assistant", "content": "<think>\nSo.\n</think>\n<answer>Salen</answer>"},
    ],
}
COMMANDS = [
    *(["--help"], ["--version"], ["train", "igpo", "--help"], ["world", "questions", "7"]),
    *(["data", "show", "rows.jsonl"], ["data", "stats", "rows.jsonl"]),
    ["data", "clean", "rows.jsonl", "--out", "clean", "--workers", "1"],
]
"""Commands that print, whose output nobody reads."""
REFUSED = [["nonsense"], ["ask", "who?", "--model", "absent"], ["train", "igpo", "--rl.steps", "0"]]
"""Commands that complain, and nobody reads that."""


def test_nobody_who_stops_reading_sees_a_traceback(tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps(ROWS) + "\n")
    asked = [*((1, words) for words in COMMANDS), *((2, words) for words in REFUSED)]
    done = warm_process.run(EACH, json.dumps(asked), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for place, command in enumerate(asked):
        assert (tmp_path / f"said-{place}").read_text() == "", command
        assert int((tmp_path / f"status-{place}").read_text()) in (1, 2), command


@pytest.mark.parametrize(
    ("words", "status"), [("--version 1>&-", 0), ("--help 1>&-", 0), ("nonsense 2>&-", 2)]
)
def test_an_output_that_the_shell_has_closed_is_none(words, status, tmp_path):
    done = subprocess.run(
        f"{shlex.quote(sys.executable)} -m trainers.cli {words}",
        shell=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.stdout + done.stderr == ""
    assert done.returncode == status
