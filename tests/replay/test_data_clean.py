"""drv data clean and report."""

import subprocess
import sys

import pyarrow.parquet as pq
import pytest
import tyro

from drv_env import background
from drv_env.errors import SettingError, TaskDataError
from replay.clean_stats import PUBLISHED_ROWS, CleanStats
from replay.cleaned_rows import read_cleaned
from tests.replay import raw_rows as raw
from tests.rewards.conftest import KEY, Endpoint
from trainers.commands.data_clean import DataClean, DataReport, clean_table


def drv_data_clean(*arguments):
    tyro.cli(DataClean, args=[str(argument) for argument in arguments]).run()


def test_a_folder_is_cleaned_and_its_figures_are_printed(tmp_path, capsys):
    source = raw.write_parquet(tmp_path / "raw.parquet", raw.many(20))
    (tmp_path / "notes.txt").write_text("stray")
    out = tmp_path / "out"
    command = (source, tmp_path / "notes.txt", "--out", out, "--workers", 1)
    drv_data_clean(*command, "--correctness", "exact", "--weights", "50:1,4")
    printed = capsys.readouterr().out
    assert "dropped: wrong_answer" in printed
    assert "PythonInterpreter" in printed
    assert not printed.startswith("\n")
    kinds = ".parquet, .pq, .jsonl, .ndjson, .json"
    told = f"left out: {tmp_path / 'notes.txt'}: none of the kinds that are read: {kinds}"
    assert told in printed.splitlines()
    rows = [row for table in read_cleaned(out) for row in table.to_pylist()]
    assert {row["weight"] for row in rows} == {1, 4}
    assert "<tools>" in rows[0]["messages"][0]["content"]
    DataReport(out).run()
    assert "dropped: wrong_answer" in capsys.readouterr().out
    drv_data_clean(*command, "--correctness", "exact", "--weights", "50:1,4")
    assert "were there already" in capsys.readouterr().out
    with pytest.raises(SettingError, match="--again"):
        drv_data_clean(*command)


def test_what_was_dropped_is_told_with_its_first_row_and_the_option_that_keeps_it(tmp_path, capsys):
    step = raw.search("bridge")
    thoughtless = raw.row(step, last="<answer>Long Bridge</answer>")
    source = raw.write_lines(tmp_path / "raw.jsonl", [raw.row(step), thoughtless, thoughtless])
    with source.open("a") as more:
        more.write("{")
    drv_data_clean(source, "--out", tmp_path / "out", "--workers", 1)
    said = capsys.readouterr().out.splitlines()
    kept = "last_without_thought, which --thoughts optional keeps"
    assert f"  {kept}: {source} line 2" in said
    assert any(line.startswith(f"  unreadable: {source} line 4: ") for line in said)


@pytest.fixture
def judging(monkeypatch):
    server = Endpoint()
    background.run(server.start())
    monkeypatch.setenv("JUDGE_MODEL_NAME", "m")
    monkeypatch.setenv("JUDGE_API_BASE", server.url)
    monkeypatch.setenv("JUDGE_API_KEY", KEY)
    yield server
    background.run(server.stop())


def test_the_judge_is_asked_once_and_again_only_where_it_failed(tmp_path, capsys, judging):
    def verdict(body):
        asked = body["messages"][1]["content"]
        if "(3)" in asked and failing:
            return 400
        return "correct: no" if "Short Bridge" in asked else "correct: yes"

    judging.script, failing = [verdict], True
    rows = [
        raw.row(last=raw.answer("Short Bridge" if n == 7 else "The long one")) for n in range(10)
    ]
    for number, row in enumerate(rows):
        row["meta"]["question"] = f"Which bridge? ({number})"
    source = raw.write_parquet(tmp_path / "raw.parquet", rows)
    command = [source, "--out", tmp_path / "out", "--cassette", tmp_path / "c", "--workers", 1]
    command += ["--correctness", "judge", "--limit", 2]
    drv_data_clean(*command)
    assert judging.peak <= 2
    assert "set aside: judge failed" in capsys.readouterr().out
    (aside,) = pq.read_table(tmp_path / "out" / "_set_aside.parquet").to_pylist()
    assert aside["row"] == 3
    assert aside["why"]
    failing = False
    judging.bodies.clear()
    drv_data_clean(*command)
    assert [judging.sent(0)["question"], len(judging.bodies)] == ["Which bridge? (3)", 1]
    drv_data_clean(*command, "--again")
    assert len(judging.bodies) == 1
    rows = [row["row"] for table in read_cleaned(tmp_path / "out") for row in table.to_pylist()]
    assert rows == [0, 1, 2, 3, 4, 5, 6, 8, 9]


def test_the_system_prompt_may_come_from_a_file_or_be_left_out(tmp_path):
    source = raw.write_parquet(tmp_path / "raw.parquet", raw.many(2))
    (tmp_path / "prompt.txt").write_text("Mine.")
    for choice, expected in ((tmp_path / "prompt.txt", "Mine."), ("none", None), ("keep", None)):
        command = ("--out", tmp_path / "out", "--system-prompt", choice, "--workers", 1, "--again")
        drv_data_clean(source, *command)
        first = next(read_cleaned(tmp_path / "out"))["messages"][0].as_py()[0]
        assert (first["content"] if first["role"] == "system" else None) == expected


def test_a_folder_without_a_result_is_told(tmp_path):
    with pytest.raises(TaskDataError, match="no finished result"):
        DataReport(tmp_path).run()


def test_the_published_figures_stand_beside_those_of_the_full_set():
    columns = [column.header for column in clean_table(CleanStats(rows=PUBLISHED_ROWS)).columns]
    assert columns == ["", "here", "published"]
    assert len(clean_table(CleanStats(rows=7)).columns) == 2


def test_the_command_is_known_without_loading_anything_heavy():
    code = (
        "import sys, trainers.commands.data_clean\n"
        "heavy = {'pyarrow', 'rich.table', 'drv_env', 'replay', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
