"""``drv data show``, ``stats``, ``convert``, ``rows``, ``web`` and ``replay-check``."""

import json
from dataclasses import replace

import pytest

from drv_env import DrvError, SettingError, TaskDataError, TurnReward
from replay.sources import Passed, open_trajectories
from replay.store import write_trajectories
from tests.replay import recordings as made
from tests.replay.conftest import byte_level_bpe
from trainers.cli import main
from trainers.commands.data_files import (
    DataConvert,
    DataReplayCheck,
    DataRows,
    DataShow,
    DataStats,
    DataWeb,
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "recorded.jsonl"
    rows = [{"messages": made.spaced()}, {"messages": made.tight()}, {"messages": []}]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_show_prints_one(file, capsys):
    DataShow(file, row=1).run()
    shown = capsys.readouterr().out
    assert "[turn 2: visit, failed]" in shown
    assert "answer: **Enki**" in shown


def test_show_says_which_row_is_the_last_where_others_are_damaged_too(file):
    with pytest.raises(TaskDataError, match=r"has no row 9; its last is row 2$"):
        DataShow(file, row=9).run()
    with file.open("a") as more:
        more.write("\n{")
    with pytest.raises(TaskDataError, match="row 3: unreadable"):
        DataShow(file, row=3).run()


def test_stats_counts_and_says_what_was_passed_over(file, capsys):
    DataStats(file).run()
    said = capsys.readouterr().out
    assert "calls of search" in said
    assert "1 row or file was passed over" in said
    assert "row 2: no_messages" in said


def test_convert_takes_the_form_from_the_name(file, tmp_path, capsys):
    DataConvert(file, tmp_path / "t.parquet").run()
    DataConvert(tmp_path / "t.parquet", tmp_path / "t.json", "sharegpt").run()
    assert "2 trajectories written" in capsys.readouterr().out
    first, _ = json.loads((tmp_path / "t.json").read_text())
    speakers = [turn["from"] for turn in first["conversations"]]
    assert speakers[:3] == ["system", "human", "gpt"]
    DataShow(tmp_path / "t.json", row=1).run()
    assert "answer: **Enki**" in capsys.readouterr().out


def test_convert_says_what_the_form_has_no_place_for(file, tmp_path, capsys):
    judged = [
        replace(item, rewards=(*item.rewards[:-1], TurnReward(None, True, 1.0)))
        for item in open_trajectories([file], Passed())
    ]
    write_trajectories(tmp_path / "t.parquet", judged)
    DataConvert(tmp_path / "t.parquet", tmp_path / "t.json", "sharegpt").run()
    (said,) = [line for line in capsys.readouterr().out.splitlines() if "no place" in line]
    assert said == ("left out, as sharegpt has no place for it: outcomes (of 2); parquet keeps all")
    DataConvert(tmp_path / "t.parquet", tmp_path / "t.jsonl").run()
    assert "no place" not in capsys.readouterr().out


def test_a_web_is_built_and_checked(file, tmp_path, capsys):
    DataWeb((file,), tmp_path / "web").run()
    DataReplayCheck(file, tmp_path / "web").run()
    assert "6 of 6 turns match, 2 of 2 trajectories whole" in capsys.readouterr().out


def test_a_difference_fails_the_check(file, tmp_path, capsys):
    DataWeb((file,), tmp_path / "web").run()
    other = tmp_path / "other.jsonl"
    other.write_text(file.read_text().replace("Ur was founded by Enki", "Ur was founded by Anu"))
    with pytest.raises(DrvError, match="trajectory 0, turn 2"):
        DataReplayCheck(other, tmp_path / "web").run()
    said = capsys.readouterr().out
    assert "5 of 6 turns match, 1 of 2 trajectories whole" in said
    assert "founded by Anu" in said


def test_rows_are_made_and_packed(file, tmp_path, capsys):
    byte_level_bpe().save(str(tmp_path / "tokenizer.json"))
    DataRows(
        (file,),
        tokenizer=tmp_path,
        out=tmp_path / "rows",
        chat_template="qwen3-thinking",
        max_tokens=3_000,
        workers=1,
    ).run()
    said = capsys.readouterr().out
    assert "packed rows of 3,000" in said
    assert (tmp_path / "rows" / "packing.json").is_file()


@pytest.mark.parametrize("cut", ["right", "turn"])
def test_rows_that_keep_no_token_are_one_line_and_leave_no_folder(file, tmp_path, capsys, cut):
    byte_level_bpe().save(str(tmp_path / "tokenizer.json"))
    out = tmp_path / "new" / "rows"
    make = ["data", "rows", str(file), "--tokenizer", str(tmp_path), "--out", str(out)]
    make += ["--chat-template", "qwen3-thinking", "--workers", "1"]
    assert main([*make, "--max-tokens", "5", "--cut", cut]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert said.endswith(
        "none of the 2 trajectories keeps a token to learn within --max-tokens=5; raise it"
    )
    assert not out.parent.exists()


@pytest.mark.parametrize("name", ["out.csv", "out", "out.jsonl.gz", "out.txt"])
def test_convert_refuses_a_name_that_nothing_reads(file, tmp_path, capsys, name):
    assert main(["data", "convert", str(file), str(tmp_path / name)]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert said.endswith("name a file that ends in .jsonl, .ndjson, .json, .parquet, .pq")
    assert not (tmp_path / name).exists()


def test_convert_refuses_a_form_under_anothers_name_and_a_file_that_exists(file, tmp_path, capsys):
    wrong = tmp_path / "out.jsonl"
    assert main(["data", "convert", str(file), str(wrong), "--format", "parquet"]) == 1
    assert "of parquet name a file that ends in .parquet, .pq" in capsys.readouterr().err
    assert not wrong.exists()
    there = tmp_path / "there.JSONL"
    there.write_text("mine")
    assert main(["data", "convert", str(file), str(there)]) == 1
    assert "exists" in capsys.readouterr().err
    assert there.read_text() == "mine"


PLAIN = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}
NOTHING = {
    "empty.jsonl": "",
    "empty.json": "[]",
    "columns.jsonl": '{"a": 1}\n',
    "damaged.JSONL": "{no JSON\n",
    "chat.jsonl": json.dumps(PLAIN),
    "missing.jsonl": None,
}


@pytest.mark.parametrize("name", NOTHING)
@pytest.mark.parametrize("command", ["stats", "convert", "web", "rows", "clean"])
def test_nothing_read_is_one_line_and_leaves_nothing(tmp_path, capsys, name, command):
    given, out = tmp_path / name, tmp_path / "out" / "new.jsonl"
    if NOTHING[name] is not None:
        given.write_text(NOTHING[name])
    byte_level_bpe().save(str(tmp_path / "tokenizer.json"))
    before = sorted(tmp_path.rglob("*"))
    written = {
        "stats": [],
        "convert": [str(out)],
        "rows": ["--tokenizer", str(tmp_path), "--chat-template", "qwen3-thinking"],
    }
    more = written.get(command, [])
    if command in ("rows", "web", "clean"):
        more = [*more, "--out", str(out)]
    workers = ["--workers", "1"] if command in ("rows", "clean") else []
    assert main(["data", command, str(given), *more, *workers]) == 1
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    assert name in line or "chat" in name
    assert said.out == ""
    assert sorted(tmp_path.rglob("*")) == before


def test_a_web_of_no_call_is_nothing_read(tmp_path, capsys):
    answered = [PLAIN["messages"][0], {"role": "assistant", "content": "<answer>Hello</answer>"}]
    (tmp_path / "a.jsonl").write_text(json.dumps({"messages": answered}))
    assert main(["data", "stats", str(tmp_path / "a.jsonl")]) == 0
    assert main(["data", "web", str(tmp_path / "a.jsonl"), "--out", str(tmp_path / "web")]) == 1
    assert "1 trajectories and no call of a tool" in capsys.readouterr().err
    assert not (tmp_path / "web").exists()


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(SettingError, match="at least one file"):
        DataWeb((), tmp_path / "web").run()
    with pytest.raises(TaskDataError, match="there is no file or folder"):
        DataStats(tmp_path / "none.parquet").run()
    with pytest.raises(SettingError, match="no finished recorded web"):
        DataReplayCheck(tmp_path, tmp_path / "web").run()
