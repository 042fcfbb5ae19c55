"""Cleaning raw trajectories, row by row, and their search results, case by case."""

import pytest

from replay.clean import clean_row
from replay.cleaned_rows import read_cleaned
from replay.layouts import Drop
from replay.pipeline import CleanJob, run_clean
from replay.read import read_raw
from replay.resample import Resampling
from replay.search_text import parse_search_text


def test_search_text_equals_the_reference(golden):
    cases = golden("search_text.json")["cases"]
    for case in cases:
        assert parse_search_text(case["text"]) == case["parsed"], case["text"]
    assert cases


def test_rows_equal_the_reference(golden, golden_folder):
    expected = golden("raw_trajectories_cleaned.json")["rows"]
    rows = list(read_raw(golden_folder / "raw_trajectories.parquet"))
    assert len(rows) == len(expected)
    for (source, raw), wanted in zip(rows, expected, strict=True):
        row = raw if isinstance(raw, Drop) else clean_row(raw)
        assert isinstance(row, Drop) is not wanted["kept"], source
        if not isinstance(row, Drop):
            assert list(row.messages) == wanted["messages"], source
            assert row.pruned.total() == wanted["pruned_tool_turns"]
            assert row.repeated.total() == wanted["duplicate_tool_turns"]
            assert row.turns == wanted["turns"]
            assert Resampling().weight(row.turns) == wanted["multiplier"]


def test_the_whole_job_gives_the_same_rows(golden, golden_folder, tmp_path):
    expected = [r for r in golden("raw_trajectories_cleaned.json")["rows"] if r["kept"]]
    source = golden_folder / "raw_trajectories.parquet"
    run_clean(CleanJob((source,), tmp_path / "out", system_prompt="S", workers=1))
    rows = [row for table in read_cleaned(tmp_path / "out") for row in table.to_pylist()]
    assert [row["messages"][1:] for row in rows] == [row["messages"] for row in expected]
    assert [row["weight"] for row in rows] == [row["multiplier"] for row in expected]


@pytest.mark.parametrize("name", ["trajectories_sft", "trajectories_rl_rollout"])
def test_real_trajectories_of_other_layouts_are_all_kept(data_folder, name):
    rows = [raw for _, raw in read_raw(data_folder / f"{name}.parquet")]
    assert rows
    assert not [row for row in map(clean_row, rows) if isinstance(row, Drop)]
