"""Every command that writes, on a disk that is full; ``tests/full_disk.py`` tries more."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.full_disk import QUICK, try_way


@pytest.mark.parametrize(
    ("way", "commands"), [("disk", QUICK), ("limit", ("rows", "convert, parquet", "merge"))]
)
def test_a_full_disk_is_one_line_and_nothing_is_half_written(way, commands):
    try:
        tried = try_way(way, list(commands), [0, 16])
    except PermissionError as error:
        pytest.skip(str(error))
    assert {each["command"] for each in tried} == set(commands)
    assert sum(each["full"] for each in tried) > len(commands)
    assert [each for each in tried if each["faults"]] == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_standard_output_that_takes_nothing_is_one_line():
    command = [sys.executable, "-m", "trainers.cli", "version"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        "drv: the standard output, or a file without a name, can't be written: the disk is full\n"
    )


def test_a_reader_that_has_seen_enough_is_no_error_to_tell():
    command = f"{shlex.quote(sys.executable)} -m trainers.cli version | true"
    done = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr == ""
