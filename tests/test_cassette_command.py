"""drv cassette: stats, merge, export."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tyro

from drv_env.cassette import CassetteError, CassetteStore, Recorded
from drv_env.errors import SettingError
from trainers.commands.cassette import Cassette


def drv_cassette(*arguments: object) -> None:
    tyro.cli(Cassette, args=[str(argument) for argument in arguments]).run()


def cassette(path: Path, **searches: str) -> Path:
    with CassetteStore(path) as store:
        for query, text in searches.items():
            store.put("search", {"query": [query]}, Recorded(text, cost=0.5, recorded_at=86_400.0))
    return path


def test_stats_show_each_tool(tmp_path, capsys):
    path = cassette(tmp_path / "one.sqlite", a="A", b="B")
    with CassetteStore(path) as store:
        store.put("visit", {"url": ["u"], "goal": "g"}, Recorded("", "empty", recorded_at=1.0))
    drv_cassette("stats", path)
    printed = capsys.readouterr().out
    assert "one.sqlite" in printed
    (search,) = [line for line in printed.splitlines() if "search" in line]
    assert "1.00" in search
    assert "1970-01-02" in search
    assert "visit" in printed


def test_merge_reports_conflicts_and_can_only_look(tmp_path, capsys):
    one = cassette(tmp_path / "one", a="A", b="B")
    two = cassette(tmp_path / "two", b="other", c="C")
    drv_cassette("merge", one, two, "--dry-run")
    assert "would go into one" in capsys.readouterr().out
    with CassetteStore(one) as store:
        assert store.get("search", {"query": ["c"]}) is None
    drv_cassette("merge", one, two)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "two" in line]
    assert [int(number) for number in line.split() if number.isdigit()] == [1, 0, 1, 0]
    with CassetteStore(one) as store:
        assert store.get("search", {"query": ["c"]}).text == "C"
        assert store.get("search", {"query": ["b"]}).text == "B"


def test_merge_makes_a_cassette_from_several_and_refuses_before_it_writes(tmp_path):
    one, two = cassette(tmp_path / "one", a="A"), cassette(tmp_path / "two", b="B")
    drv_cassette("merge", tmp_path / "new", one, two)
    with CassetteStore(tmp_path / "new") as store:
        assert len(list(store.entries())) == 2
    with pytest.raises(CassetteError, match="nowhere"):
        drv_cassette("merge", tmp_path / "other", one, tmp_path / "nowhere")
    assert not (tmp_path / "other").exists()
    with pytest.raises(SettingError, match="at least one"):
        drv_cassette("merge", one)


def test_export_writes_json_lines(tmp_path, capsys):
    out = tmp_path / "out.jsonl"
    drv_cassette("export", cassette(tmp_path / "one", a="A", b="B"), out)
    assert "2 recordings" in capsys.readouterr().out
    assert [json.loads(line)["text"] for line in out.read_text().splitlines()] == ["A", "B"]
    with pytest.raises(CassetteError, match="no cassette"):
        drv_cassette("export", tmp_path / "nowhere", out)
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(SettingError, match="can't be written"):
        drv_cassette("export", tmp_path / "one", tmp_path / "no folder" / "out.jsonl")


def test_the_command_is_known_without_loading_anything_heavy():
    code = (
        "import sys, trainers.commands.cassette\n"
        "heavy = {'sqlite3', 'rich.table', 'drv_env', 'torch', 'gymnasium'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
