"""Parts, filters, and trajectories shown, summed up and converted."""

import json
import os
from collections import Counter
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from drv_env import SettingError, TaskDataError, TurnReward
from replay import store
from replay.chat_templates import QWEN3_THINKING
from replay.convert import convert
from replay.recorded import from_messages, to_messages
from replay.schema import SCHEMA, to_row
from replay.sft_rows import transcribe
from replay.show import show
from replay.sources import Passed, open_trajectories, trajectory_at
from replay.store import (
    TrajectoryWriter,
    count_trajectories,
    read_columns,
    read_trajectories,
    write_trajectories,
)
from replay.summary import summarise
from replay.template import ChatTemplate
from replay.trajectory import Trajectory
from tests.replay import recordings as made


def numbered(number, turns=1, outcome=None, world=None):
    content = [made.call("search", query=[f"q{number}"]), made.search_result("q", "u")] * turns
    trajectory = from_messages(
        made.chat(*content, made.answer()), ["Enki"], world=world, provenance={"number": number}
    )
    rewards = (*trajectory.rewards[:-1], TurnReward(None, True, outcome))
    fields = {name: getattr(trajectory, name) for name in Trajectory.__slots__}
    return Trajectory(**{**fields, "rewards": rewards})


def numbers(trajectories):
    return [trajectory.provenance["number"] for trajectory in trajectories]


def test_parts_are_written_while_trajectories_come(tmp_path):
    writer = TrajectoryWriter(tmp_path, part_rows=2)
    for number in range(5):
        writer.write(numbered(number))
    # A crash here loses what waits for the third part, and no more.
    assert numbers(read_trajectories(tmp_path)) == [0, 1, 2, 3]
    assert writer.written == 4
    writer.close()
    assert numbers(read_trajectories(tmp_path)) == [0, 1, 2, 3, 4]
    assert sorted(os.listdir(tmp_path)) == [f"part-{n:05}.parquet" for n in range(3)]


def test_numbering_goes_on_and_writers_share_a_folder(tmp_path):
    with TrajectoryWriter(tmp_path, part_rows=1) as one, TrajectoryWriter(tmp_path, 1) as other:
        one.write(numbered(0))
        other.write(numbered(1))
        one.write(numbered(2))
    with TrajectoryWriter(tmp_path) as later:
        later.write(numbered(3))
    assert numbers(read_trajectories(tmp_path)) == [0, 1, 2, 3]
    assert count_trajectories(tmp_path) == 4


def test_a_big_part_is_closed_early(tmp_path):
    with TrajectoryWriter(tmp_path, part_rows=100, part_bytes=1) as writer:
        writer.write(numbered(0))
        assert writer.written == 1


def test_a_failed_part_leaves_nothing_and_can_be_tried_again(tmp_path, monkeypatch):
    writer = TrajectoryWriter(tmp_path)
    writer.write(numbered(0))
    monkeypatch.setattr(store, "_write", _disk_full)
    with pytest.raises(OSError, match="full"):
        writer.flush()
    assert os.listdir(tmp_path) == []
    monkeypatch.undo()
    writer.close()
    assert numbers(read_trajectories(tmp_path)) == [0]


def _disk_full(path, trajectories):
    path.write_bytes(b"half")
    raise OSError("disk full")


def test_filters_read_only_what_they_need(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "_GROUP_ROWS", 2)
    all_of_them = [
        numbered(n, turns=n + 1, outcome=n / 8, world="w" if n % 2 else None) for n in range(8)
    ]
    write_trajectories(tmp_path / "t.parquet", all_of_them)
    where = (pc.field("turn_count") > 3) & (pc.field("outcome") < 0.7)
    assert numbers(read_trajectories(tmp_path, where=where)) == [2, 3, 4, 5]
    assert numbers(read_trajectories(tmp_path, where=pc.field("world") == "w")) == [1, 3, 5, 7]
    assert numbers(read_trajectories(tmp_path, first=5)) == [5, 6, 7]
    assert list(read_trajectories(tmp_path, where=pc.field("ending") == "broken")) == []
    (table, *_) = read_columns(tmp_path, ["ending", "turns.list.element.tool"])
    assert table.column_names == ["ending", "turns"]
    with pytest.raises(TaskDataError, match="columns for it are task_id"):
        list(read_trajectories(tmp_path, where=pc.field("colour") == "red"))


def test_version_1_is_read_and_converted(tmp_path):
    old = SCHEMA.remove(SCHEMA.get_field_index("outcome"))
    old = old.remove(old.get_field_index("turn_count"))
    rows = [{name: to_row(numbered(0))[name] for name in old.names}]
    path = tmp_path / "old.parquet"
    pq.write_table(pa.Table.from_pylist(rows, old.with_metadata({"drv_schema_version": "1"})), path)
    assert list(read_trajectories(path)) == [numbered(0)]
    with pytest.raises(TaskDataError, match="drv data convert"):
        list(read_trajectories(path, where=pc.field("turn_count") == 1))
    convert(open_trajectories([path]), tmp_path / "new.parquet", "parquet")
    (again,) = read_trajectories(tmp_path / "new.parquet", where=pc.field("turn_count") == 2)
    assert again == numbered(0)


def test_an_empty_folder_is_named(tmp_path):
    with pytest.raises(TaskDataError, match="holds no Parquet files"):
        list(read_trajectories(tmp_path))


@pytest.mark.parametrize("form", ["jsonl", "sharegpt"])
def test_converted_recordings_are_read_again(tmp_path, form):
    trajectories = [from_messages(made.spaced(), ["Enki"]), from_messages(made.tight())]
    out = tmp_path / "out.jsonl"
    assert convert(trajectories, out, form) == 2
    again = list(open_trajectories([out]))
    assert [to_messages(item) for item in again] == [made.spaced(), made.tight()]
    assert again[0].task.answers == ("Enki",)
    first = json.loads(out.read_text().splitlines()[0])
    assert ("conversations" in first) == (form == "sharegpt")


@pytest.mark.parametrize("form", ["jsonl", "sharegpt"])
def test_weight_and_world_outlive_every_form(tmp_path, form):
    weighted = from_messages(made.spaced(), world="w", provenance={"weight": 5, "row": 1})
    convert([weighted], tmp_path / "out.jsonl", form)
    (again,) = open_trajectories([tmp_path / "out.jsonl"])
    assert (again.provenance["weight"], again.task.world) == (5, "w")


def test_what_a_form_has_no_place_for_is_counted(tmp_path, bpe):
    plain = from_messages(made.spaced(), ["Enki"], provenance={"file": "f", "row": 1})
    rich = replace(
        numbered(0, outcome=1.0, world="w"),
        transcript=transcribe(plain, ChatTemplate(bpe, QWEN3_THINKING)),
    )
    first, *others = rich.turns
    rich = replace(rich, turns=(replace(first, latency=0.5, cost=0.001), *others))
    chat, sharegpt, parquet = Counter(), Counter(), Counter()
    convert([plain, rich], tmp_path / "out.jsonl", "jsonl", chat)
    convert([plain, rich], tmp_path / "out.json", "sharegpt", sharegpt)
    convert([plain, rich], tmp_path / "out.parquet", "parquet", parquet)
    assert chat == {"tokens and log-probs": 1}
    assert sharegpt == dict.fromkeys(
        ("tokens and log-probs", "outcomes", "latencies", "costs", "provenance"), 1
    )
    assert not parquet


def test_rows_that_are_no_recordings_are_counted(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [{"messages": made.spaced()}, {"messages": []}, {"messages": made.tight()[:2]}, 7]
    path.write_text("\n".join(map(json.dumps, rows)))
    passed = Passed()
    assert len(list(open_trajectories([path], passed))) == 1
    assert passed.count == 3
    with pytest.raises(TaskDataError, match=r"rows\.jsonl, row 1"):
        list(open_trajectories([path]))


def test_weights_come_with_rows(tmp_path):
    path = tmp_path / "rows.parquet"
    rows = [{"question": "q", "gt": "Enki", "messages": made.spaced(), "weight": 5}]
    pq.write_table(pa.Table.from_pylist(rows), path)
    (trajectory,) = open_trajectories([path])
    assert trajectory.provenance["weight"] == 5


def test_one_row_is_found(tmp_path):
    with TrajectoryWriter(tmp_path, part_rows=2) as writer:
        for number in range(5):
            writer.write(numbered(number))
    assert trajectory_at(tmp_path, 3).provenance["number"] == 3
    with pytest.raises(TaskDataError, match=r"has no row 5; its last is row 4$"):
        trajectory_at(tmp_path, 5)
    with pytest.raises(SettingError, match="from 0"):
        trajectory_at(tmp_path, -1)


def test_a_shown_trajectory_sends_no_control_characters():
    messages = made.chat(
        made.call("search", query=["x"]), "\x1b]0;owned\x07" + "long " * 1_000, made.answer()
    )
    shown = show(from_messages(messages, ["Enki"]), most=100)
    assert "\x1b" not in shown
    assert "\\x1b]0;owned" in shown
    assert "more characters" in shown
    assert "[turn 1: search, ok]" in shown
    assert "answer: Enki" in shown
    assert "more characters" not in show(from_messages(messages), most=None)


def test_figures_are_summed_up():
    summary = summarise([numbered(0, turns=1, outcome=1.0), numbered(1, turns=60, outcome=0.0)])
    assert summary.trajectories == 2
    assert summary.all_turns == 63
    assert summary.tools["search"] == 61
    assert summary.duplicates == 59
    assert summary.share_over(50) == 0.5
    assert summary.figures()["mean outcome"] == "0.500 of 2"
    assert summarise([]).figures() == {"trajectories": "0"}
