"""Which folders a command takes for its own, and who holds them."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from drv_env.errors import SettingError
from replay.own_folder import FolderKind, FolderLock, holds_no_file, refuse_busy, refuse_overlap

KIND = FolderKind(
    "a heap",
    {"heap.json": {"stones": int}},
    parts=("stones",),
    before={"work": holds_no_file},
)


def test_a_missing_or_empty_folder_and_one_with_the_record_are_taken(tmp_path):
    assert KIND.record(tmp_path / "a" / "b") is None
    assert KIND.record(tmp_path) is None
    (tmp_path / ".lock").write_text("")
    (tmp_path / "work").mkdir()
    (tmp_path / ".heap.json.12.0123abcd.tmp").write_text("half")
    assert KIND.record(tmp_path) is None
    (tmp_path / "heap.json").write_text(json.dumps({"stones": 3, "more": None}))
    (tmp_path / "mine.txt").write_text("mine")
    assert KIND.record(tmp_path) == {"stones": 3, "more": None}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("mine.txt", "mine", r"other files and no heap \(mine\.txt, and no heap\.json\)"),
        ("work/mine.txt", "mine", "other files and no heap"),
        (".lock", "a lock of somebody's", "other files and no heap"),
        ("heap.json", "mine", r"heap\.json can't be read"),
        ("heap.json", "[3]", "no JSON object"),
        ("heap.json", '{"stone": 3}', "is not the record of a heap: it has no such 'stones'"),
        ("heap.json", '{"stones": "3"}', "is not the record of a heap"),
        ("heap.json", '{"stones": true}', "is not the record of a heap"),
        ("heap.json", "[" * 100_000, "can't be read"),
        ("heap.json/x", "a folder", "can't be read"),
    ],
)
def test_anything_else_is_refused_and_stays(tmp_path, name, text, said):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    with pytest.raises(SettingError, match=said):
        KIND.record(tmp_path)
    assert file.read_text() == text


def test_places_where_no_folder_can_be_are_named(tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path, said in (
        ("file", "file is a file"),
        ("file/x", "file is a file"),
        ("link", "leads nowhere"),
        ("loop", "leads nowhere"),
    ):
        with pytest.raises(SettingError, match=said):
            KIND.record(tmp_path / path)


def test_a_part_that_leads_elsewhere_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    out = tmp_path / "out"
    out.mkdir()
    (out / "heap.json").write_text('{"stones": 1}')
    (out / "stones").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SettingError, match="stones is a link"):
        KIND.record(out)


def test_a_part_that_is_no_folder_is_refused(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "heap.json").write_text('{"stones": 1}')
    (out / "stones").write_text("mine")
    with pytest.raises(SettingError, match="stones is no folder; take it away"):
        KIND.record(out)
    assert (out / "stones").read_text() == "mine"


def test_a_file_that_is_none_is_refused(tmp_path):
    kind = FolderKind("a heap", {"heap.json": {"stones": int}}, files=("list",))
    (tmp_path / "heap.json").write_text('{"stones": 1}')
    assert kind.record(tmp_path) == {"stones": 1}
    (tmp_path / "elsewhere").write_text("mine")
    for make in (Path.mkdir, lambda path: path.symlink_to("elsewhere"), os.mkfifo):
        make(tmp_path / "list")
        with pytest.raises(SettingError, match="list is a link or no regular file"):
            kind.record(tmp_path)
        (tmp_path / "list").rename(tmp_path / f"taken {make}".replace("/", ""))


def test_a_name_that_no_folder_can_have_is_refused():
    for check in (KIND.record, lambda path: refuse_overlap(path, [])):
        with pytest.raises(SettingError, match="holds a zero byte"):
            check(Path("a\0b"))


def test_one_at_a_time_and_the_lock_goes_with_its_holder(tmp_path):
    out = tmp_path / "new"
    with FolderLock(out, "taken"):
        with pytest.raises(SettingError, match="taken"):
            FolderLock(out, "taken")
        with pytest.raises(SettingError, match="taken"):
            refuse_busy(out, "taken")
    assert not out.exists()
    refuse_busy(out, "taken")
    FolderLock(out, "taken").close()


def test_a_lock_is_never_written_through(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    out = tmp_path / "out"
    out.mkdir()
    (out / ".lock").symlink_to(tmp_path / "mine.txt")
    with pytest.raises(SettingError, match="no lock of ours"):
        FolderLock(out, "taken")
    (out / ".lock").unlink()
    os.mkfifo(out / ".lock")
    with pytest.raises(SettingError, match="no lock of ours"):
        FolderLock(out, "taken")
    assert (tmp_path / "mine.txt").read_text() == "mine"


HOLDER = """
import os, signal, sys, time
from replay.own_folder import FolderLock
lock = FolderLock(sys.argv[1], "taken")
read, write = os.pipe()
if os.fork() == 0:  # outlives its parent, and does not hold the folder
    os.write(write, b"born")
    sys.stdin.read()
    os._exit(0)
os.read(read, 4)
print("held", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_and_its_children_hold_nothing(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout.readline() == b"held\n"
    assert process.wait(60) == -signal.SIGKILL
    FolderLock(tmp_path, "taken").close()
    process.stdin.close()
    process.stdout.close()


def test_inputs_are_no_part_of_the_output_whatever_they_are_called(tmp_path, monkeypatch):
    out, raw = tmp_path / "out", tmp_path / "raw"
    out.mkdir()
    raw.mkdir()
    (raw / "a.jsonl").write_text("data")
    (out / "part").write_text("ours")
    (tmp_path / "to out").symlink_to(out)
    (tmp_path / "to part").symlink_to(out / "part")
    (tmp_path / "hard").hardlink_to(out / "part")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "b.jsonl").symlink_to(out / "part")
    (out / "deep").mkdir()
    (out / "deep" / "c.jsonl").write_text("data")
    monkeypatch.chdir(out)
    for given in (
        out,
        ".",
        "../out",
        tmp_path / "to out",
        out / "part",
        "part",
        tmp_path / "to part",
        tmp_path / "hard",
        tmp_path / "linked",
        tmp_path / "to out" / "deep",
        out / "deep" / "c.jsonl",
    ):
        with pytest.raises(SettingError, match=r"is an input too|is also in the output folder"):
            refuse_overlap(out, [raw, given])
        with pytest.raises(SettingError, match=r"is an input too|is also in the output folder"):
            refuse_overlap(tmp_path / "to out", [given])
    for inside in (raw / "out", raw / "a" / "b", tmp_path / "out" / ".." / "raw" / "x"):
        with pytest.raises(SettingError, match="lies in the input folder"):
            refuse_overlap(inside, [raw])
    refuse_overlap(out, [raw, raw / "a.jsonl", None, "no such file"])
    refuse_overlap(out, [out / "deep"], kept=[out / "deep"])


def test_a_folder_that_was_made_and_stays_empty_goes_again(tmp_path):
    (tmp_path / "mine").mkdir()
    FolderLock(tmp_path / "mine", "busy").close()
    assert (tmp_path / "mine").is_dir()
    FolderLock(tmp_path / "mine" / "new" / "out", "busy").close()
    assert list((tmp_path / "mine").iterdir()) == []
    with FolderLock(tmp_path / "filled" / "out", "busy"):
        (tmp_path / "filled" / "out" / "a").write_text("a")
    assert (tmp_path / "filled" / "out" / "a").read_text() == "a"
