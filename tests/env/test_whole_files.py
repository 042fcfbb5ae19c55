"""Files are written whole or not at all, and never over what is to stay."""

import errno
import os
import socket
import sqlite3
import stat
import subprocess
import sys

import pytest

from drv_env.errors import DiskError, SettingError
from drv_env.whole_files import (
    append,
    append_line,
    disk_fault,
    disk_faults_told,
    output,
    refuse_output,
    replacing,
    sweep,
    temporary_beside,
    write_json,
    write_text,
)


def test_a_file_takes_its_place_when_the_block_ends_well(tmp_path):
    file = tmp_path / "new" / "file.txt"
    write_text(file, "one\n")
    write_text(file, "two\n")
    assert file.read_text() == "two\n"
    assert os.listdir(file.parent) == ["file.txt"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(file.stat().st_mode) == 0o666 & ~umask


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_after_an_error_what_stood_there_stands_alone(tmp_path, error):
    file = tmp_path / "file.txt"
    file.write_text("old")

    def fail():
        with replacing(file) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(error):
        fail()
    assert os.listdir(tmp_path) == ["file.txt"]
    assert file.read_text() == "old"


def test_long_names_and_odd_text_are_written(tmp_path):
    for name in ("x" * 255, "ä" * 127):
        write_text(tmp_path / name, "here")
        assert (tmp_path / name).read_text() == "here"
    write_json(tmp_path / "json", {"half": "\ud800", "whole": "ä"})
    assert "\\ud800" in (tmp_path / "json").read_text()


KILLED = """
import os, signal, sys
from pathlib import Path
from drv_env.whole_files import replacing
with replacing(sys.argv[1]) as temporary:
    temporary.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_is_swept_and_nothing_else(tmp_path):
    file = tmp_path / "file.txt"
    file.write_text("old")
    mine = [f".file.txt.{os.getpid()}.tmp", ".file.txt.1.abcdef012.tmp", "file.txt.1.abcdef01.tmp"]
    for name in mine:
        (tmp_path / name).write_text("mine")
    done = subprocess.run([sys.executable, "-c", KILLED, str(file)], check=False)
    assert done.returncode == -9
    left = set(os.listdir(tmp_path)) - {"file.txt", *mine}
    assert len(left) == 1
    assert file.read_text() == "old"
    with output(tmp_path / "other", force=False) as temporary:
        temporary.write_text("of another file: nothing is swept")
    assert left < set(os.listdir(tmp_path))
    with output(file, force=True) as temporary:
        temporary.write_text("new")
    assert set(os.listdir(tmp_path)) == {"file.txt", "other", *mine}
    assert file.read_text() == "new"


def test_what_another_is_writing_is_not_swept(tmp_path):
    with temporary_beside(tmp_path / "part.parquet") as temporary:
        sweep(tmp_path)
        assert temporary.exists()
    assert os.listdir(tmp_path) == []


def test_a_file_that_appeared_meanwhile_stays(tmp_path):
    file = tmp_path / "file"

    def write():
        with output(file) as temporary:
            temporary.write_text("mine")
            file.write_text("theirs")

    with pytest.raises(SettingError, match=r"file can't be written: File exists"):
        write()
    assert file.read_text() == "theirs"
    assert os.listdir(tmp_path) == ["file"]


def irregular(tmp_path):
    """Places that hold no regular file, each with what it is called."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    (tmp_path / "folder link").symlink_to("folder")
    listening = socket.socket(socket.AF_UNIX)
    os.chdir(tmp_path)  # a socket's path is short
    listening.bind("socket")
    listening.close()
    return {
        "/dev/null": "a device",
        "/dev/full": "a device",
        tmp_path / "folder": "a folder",
        tmp_path / "pipe": "a pipe",
        tmp_path / "link": "a device",
        tmp_path / "folder link": "a folder",
        tmp_path / "socket": "a socket",
    }


def test_what_is_no_regular_file_is_refused_even_by_force(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path, what in irregular(tmp_path).items():
        for force in (False, True):
            with pytest.raises(SettingError, match=f"is {what}; name a file"):
                refuse_output(path, force=force)
        with pytest.raises(SettingError, match=f"is {what}; name a file"):
            write_text(path, "here")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert (tmp_path / "link").is_symlink()


def test_a_link_is_never_replaced_wherever_it_leads(tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "to a file").symlink_to("file")
    (tmp_path / "dangling").symlink_to("nowhere")
    with (tmp_path / "opened").open("w") as opened:  # as the standard output is, in a shell
        (tmp_path / "like stdout").symlink_to(f"/proc/self/fd/{opened.fileno()}")
        for name in ("to a file", "dangling", "like stdout"):
            path = tmp_path / name
            for force in (False, True):
                with pytest.raises(SettingError, match=f"{name} is a link; name the file itself"):
                    refuse_output(path, force=force)
            for write in (write_text, append_line):
                with pytest.raises(SettingError, match=f"{name} is a link; name the file itself"):
                    write(path, "here")
            assert path.is_symlink()
    assert (tmp_path / "file").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


def test_a_name_that_no_file_can_have_is_refused(tmp_path):
    for name in ("a\0b", "x" * 300):
        with pytest.raises(SettingError, match=r"can't be written: .*; name another file"):
            refuse_output(tmp_path / name)


def test_an_existing_file_needs_force_and_an_input_no_force_helps(tmp_path, monkeypatch):
    folder = tmp_path / "in"
    (folder / "trajectories").mkdir(parents=True)
    file = folder / "a.jsonl"
    file.write_text("data")
    (tmp_path / "hard").hardlink_to(file)
    (tmp_path / "soft").symlink_to(file)
    (tmp_path / "there").symlink_to(folder)
    (tmp_path / "other").write_text("mine")
    with pytest.raises(SettingError, match="other exists; name another file, or replace"):
        refuse_output(tmp_path / "other", [file])
    refuse_output(tmp_path / "other", [file], force=True)
    refuse_output(tmp_path / "new", [file, folder])
    refuse_output(folder / "sub" / "new", [folder])
    monkeypatch.chdir(folder)
    same = [file, "a.jsonl", "../in/a.jsonl", tmp_path / "hard", tmp_path / "soft"]
    for path in [*same, tmp_path / "there" / "a.jsonl"]:
        with pytest.raises(SettingError, match="is the input"):
            refuse_output(path, [file], force=True)
    inside = [*same, "new.jsonl", tmp_path / "there" / "new", folder / "trajectories" / "new"]
    for path in inside:
        with pytest.raises(SettingError, match="lies in the input folder"):
            refuse_output(path, [folder], force=True)


def test_lines_are_added_whole_or_not_at_all(tmp_path):
    file = tmp_path / "lines"
    file.write_text("cut by a ki")
    append_line(file, "two")
    assert file.read_text() == "cut by a ki\ntwo\n"

    class Full:
        """A file that takes some bytes and then no more."""

        def __init__(self, opened):
            self.opened, self.calls = opened, 0

        def fileno(self):
            return self.opened.fileno()

        def write(self, data):
            self.calls += 1
            if self.calls == 2:
                raise OSError(errno.ENOSPC, "No space left on device")
            return self.opened.write(data[:3])

    with file.open("ab", buffering=0) as opened, pytest.raises(OSError, match="space"):
        append(Full(opened), b"three")
    assert file.read_text() == "cut by a ki\ntwo\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_is_told_whatever_library_met_it(tmp_path):
    def meets(write):
        with pytest.raises(DiskError) as told, disk_faults_told(tmp_path / "file"):
            write()
        return str(told.value)

    def by_python():
        with open("/dev/full", "w") as file:
            file.write("x" * 100_000)

    def by_arrow():
        import pyarrow as pa
        import pyarrow.parquet as pq

        with open("/dev/full", "wb") as file:  # by its path, Arrow would remove it
            pq.write_table(pa.table({"x": list(range(100_000))}), file)

    def by_sqlite():
        with sqlite3.connect(":memory:") as connection:
            connection.execute("PRAGMA max_page_count = 1")
            connection.execute("CREATE TABLE a (b)")

    for write in (by_python, by_arrow, by_sqlite):
        said = meets(write)
        assert said.startswith(f"{tmp_path}/file can't be written: the disk is full; make room")
        assert "\n" not in said
    assert disk_fault(RuntimeError("I/O error: No space left (os error 28)")) == "the disk is full"
    assert disk_fault(OSError(errno.EACCES, "no")) is None
    assert disk_fault(ValueError("errno 9")) is None
