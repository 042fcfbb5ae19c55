"""drv data clean and report."""

import subprocess
import sys

import pytest
import tyro

from drv_env.errors import SettingError, TaskDataError
from replay.clean_stats import PUBLISHED_ROWS, CleanStats
from replay.cleaned_rows import read_cleaned
from tests.replay import raw_rows as raw
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
    assert "left out" in printed
    rows = [row for table in read_cleaned(out) for row in table.to_pylist()]
    assert {row["weight"] for row in rows} == {1, 4}
    assert "<tools>" in rows[0]["messages"][0]["content"]
    DataReport(out).run()
    assert "dropped: wrong_answer" in capsys.readouterr().out
    drv_data_clean(*command, "--correctness", "exact", "--weights", "50:1,4")
    assert "were there already" in capsys.readouterr().out
    with pytest.raises(SettingError, match="--again"):
        drv_data_clean(*command)


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
