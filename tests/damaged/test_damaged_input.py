"""Damaged files: the right rows, or one line with the file's name; nothing lost, no traceback."""

from __future__ import annotations

import gzip
import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drv_env.errors import DrvError, SettingError, TaskDataError
from drv_env.json_files import read_object
from drv_env.prompts import read_system_prompt
from drv_env.rewards.labelled import read_labelled
from drv_env.secrets import Keys
from drv_env.task_files import read_tasks
from replay.sources import Passed, open_trajectories, trajectory_at
from replay.store import read_trajectories
from replay.template import ChatTemplate
from replay.token_store import TokenStore
from replay.web import RecordedWeb
from tests.damaged import faults
from trainers.cli import main
from trainers.commands.agent_setup import template_source
from trainers.runs.config_files import read_settings

TRIALS = int(os.environ.get("DRV_FAULTS", "2"))
"""Damages of each kind of file for each reader; `python -m tests.damaged.faults 500` does more."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("originals")
    faults.write_originals(folder)
    return folder


def read(path: Path) -> tuple[int, list[str]]:
    passed = Passed()
    return len(list(open_trajectories([path], passed))), passed.reasons


# ---- by chance -------------------------------------------------------------------------


@pytest.mark.parametrize("case", faults.CASES, ids=lambda case: case[0])
def test_seeded_damage_gives_rows_or_one_line(case: Any, home: Path, tmp_path: Path) -> None:
    title, reader, names = case
    for name in names:
        for seed in range(TRIALS):
            place = tmp_path / name.replace("/", "-")
            place.mkdir(exist_ok=True)
            fault = faults.trial(reader, home, name, seed, place)
            assert fault is None, f"{title}: {fault}"


# ---- files of trajectories ----------------------------------------------------------------


def test_a_gzip_with_a_bad_checksum_gives_all_rows_and_says_so(tmp_path: Path) -> None:
    whole = gzip.compress(faults.as_lines(faults.chat_rows()))
    file = tmp_path / "chats.jsonl.gz"
    file.write_bytes(whole[:-8] + bytes(8))
    count, (reason,) = read(file)
    assert count == faults.ROWS
    assert "chats.jsonl.gz: after 12 rows: CRC check failed" in reason


@pytest.mark.parametrize("name", ["chats.jsonl.gz", "chats.json.gz"])
def test_a_truncated_gzip_gives_the_rows_before(name: str, tmp_path: Path) -> None:
    rows = [
        {**row, "request_id": os.urandom(2_000).hex()} for row in faults.chat_rows()
    ]  # so that half of the file is half of the rows
    text = faults.as_lines(rows) if "jsonl" in name else json.dumps(rows).encode()
    whole = gzip.compress(text)
    file = tmp_path / name
    file.write_bytes(whole[: len(whole) // 2])
    count, (reason,) = read(file)
    assert 4 <= count <= 6
    assert f"{name}: after {count} rows: Compressed file ended" in reason


def write_page_damage(file: Path) -> None:
    """Three row groups of 20; the second one's first page is broken, the footer is whole."""
    rows = (faults.chat_rows() * 5)[:60]
    file.write_bytes(faults.as_parquet(rows, group=20))
    place = pq.read_metadata(file).row_group(1).column(0)
    start = place.dictionary_page_offset or place.data_page_offset
    content = bytearray(file.read_bytes())
    content[start : start + 12] = b"\xff" * 12
    file.write_bytes(bytes(content))


def test_a_damaged_page_hides_its_own_row_group_alone(tmp_path: Path) -> None:
    file = tmp_path / "page.parquet"
    write_page_damage(file)
    count, (reason,) = read(file)
    assert count == 40
    assert "page.parquet: after 20 rows: rows 20 to 39 can't be read" in reason
    trajectory_at(file, 39)  # the last row that is there, of the third group


def test_rows_before_the_damage_within_a_group_are_used(tmp_path: Path) -> None:
    messages = faults.chat_rows()[0]["messages"]
    rows = [
        {"messages": [{**m, "content": m["content"] + str(number)} for m in messages]}
        for number in range(300)
    ]
    file = tmp_path / "pages.parquet"
    table = pa.Table.from_pylist(rows)
    pq.write_table(
        table,
        file,
        compression="none",
        use_dictionary=False,
        data_page_size=1_000,
        write_batch_size=10,
    )
    content = bytearray(file.read_bytes())
    last = pq.read_metadata(file).row_group(0).column(0)
    end = last.data_page_offset + last.total_compressed_size
    content[end - 600 : end] = b"\xff" * 600
    file.write_bytes(bytes(content))
    count, (reason,) = read(file)
    assert 200 <= count < 300
    assert f"after {count} rows: rows {count} to 299 can't be read" in reason


def test_a_damaged_page_in_our_own_files(tmp_path: Path, home: Path) -> None:
    file = tmp_path / "own.parquet"
    table = pq.read_table(home / "own.parquet")
    pq.write_table(table, file, row_group_size=4)
    place = pq.read_metadata(file).row_group(1).column(1)
    start = place.dictionary_page_offset or place.data_page_offset
    content = bytearray(file.read_bytes())
    content[start : start + 12] = b"\xff" * 12
    file.write_bytes(bytes(content))
    count, (reason,) = read(file)
    assert count == 8
    assert "own.parquet: after 4 rows: rows 4 to 7 can't be read" in reason
    with pytest.raises(TaskDataError, match=r"own\.parquet: row group 1 can't be read"):
        list(read_trajectories(file))


def test_one_damaged_part_hides_no_other(tmp_path: Path, home: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    for number in range(3):
        shutil.copy(home / "own.parquet", folder / f"part-{number:05}.parquet")
    (folder / "part-00000.parquet").write_bytes(b"PAR1 no more")
    count, (reason,) = read(folder)
    assert count == 2 * faults.ROWS
    assert "part-00000.parquet" in reason


def test_a_bad_line_stops_no_other(tmp_path: Path) -> None:
    good = json.dumps(faults.chat_rows()[0]).encode()
    lines = [
        good,
        b"{",
        b"[" * 100_000,
        b'{"messages": ' + b"9" * 5_000 + b"}",
        b'{"messages": NaN}',
        b"",
        b"null",
        good,
        good.replace(b"Enki", b"En\x00ki"),
        good[:-1] + b', "weight": Infinity}',
        good.replace(b"Enki", b"\xe9nki"),
    ]
    file = tmp_path / "chats.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + b"\n".join(lines))
    passed = Passed()
    assert len(list(open_trajectories([file], passed))) == 3
    assert passed.count == 7
    assert f"{file}, row 1: unreadable" in passed.reasons[0]
    assert passed.reasons[0].endswith("(line 2)")


@pytest.mark.parametrize("command", ["stats", "convert", "rows", "web", "clean", "show"])
def test_every_command_reads_a_file_with_one_bad_line(
    command: str, tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "chats.jsonl", tmp_path / "out.jsonl"
    lines = faults.as_lines(faults.chat_rows()).splitlines()
    file.write_bytes(b"\n".join([lines[0], b"{ no JSON", *lines[1:]]))
    words = {
        "stats": (),
        "show": ("--row", "2"),
        "convert": (str(out),),
        "rows": ("--out", str(out), "--tokenizer", str(home / "model"), "--workers", "1"),
        "web": ("--out", str(out)),
        "clean": ("--out", str(out), "--workers", "1"),
    }
    assert main(["data", command, str(file), *words[command]]) == 0
    said = capsys.readouterr().out
    if command not in ("show", "clean"):
        assert "1 row or file was passed over" in said
        assert "row 1: unreadable" in said
    if command == "convert":
        assert len(out.read_text().splitlines()) == faults.ROWS
    if command == "clean":
        assert json.loads((out / "stats.json").read_text())["kept"] == faults.ROWS


@pytest.mark.parametrize("command", ["stats", "convert", "rows", "web", "show", "clean"])
@pytest.mark.parametrize("kind", ["empty", "folder", "fifo", "duplicate", "missing", "magic"])
def test_where_nothing_can_be_read_nothing_is_written(
    kind: str, command: str, tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "bad.parquet", tmp_path / "out.jsonl"
    table = pa.Table.from_pylist(faults.chat_rows())
    if kind == "empty":
        file.write_bytes(b"")
    elif kind == "folder":
        file.mkdir()
    elif kind == "fifo":
        os.mkfifo(file)
    elif kind == "duplicate":
        pq.write_table(table.append_column("messages", table["messages"]), file)
    elif kind == "missing":
        pq.write_table(table.drop(["messages"]), file)
    else:
        file.write_bytes(b"PAR1" + bytes(100))
    words = {
        "stats": (),
        "show": (),
        "convert": (str(out),),
        "rows": ("--out", str(out), "--tokenizer", str(home / "model"), "--workers", "1"),
        "web": ("--out", str(out)),
        "clean": ("--out", str(out), "--workers", "1"),
    }
    assert main(["data", command, str(file), *words[command]]) == 1
    said = capsys.readouterr()
    assert said.err.strip().count("\n") == 0
    assert "bad.parquet" in said.err
    assert not out.exists()


def test_columns_of_other_types_and_null_turns_drop_their_rows(tmp_path: Path, home: Path) -> None:
    table = pq.read_table(home / "own.parquet")

    def changed(name: str, row: int, value: Any) -> Path:
        place = table.schema.get_field_index(name)
        values = table[name].to_pylist()
        values[row] = value
        field = table.schema.field(place)
        file = tmp_path / f"{name}.parquet"
        pq.write_table(table.set_column(place, field, pa.array(values, field.type)), file)
        return file

    turn = dict(table["turns"].to_pylist()[0][0])
    for name, value, said in (
        ("turns", None, "turns is null"),
        ("turns", [None], "a part of the row is None"),
        ("turns", [{**turn, "text": None}], "text is null"),
        ("opening", [], "the opening is empty"),
        ("opening", [{"role": None, "content": "x"}], "role is null"),
        ("opening", [{"role": "user", "content": None}], "content is null"),
        ("answers", None, "answers is null"),
        ("ending", "nonsense", "'nonsense' is not a valid Ending"),
        ("question", None, "a task needs a question"),
        ("task_metadata", "{", "the row is damaged"),
        ("provenance", "[1]", "provenance is no JSON object"),
        ("provenance", '{"weight": NaN}', "a weight must be a number"),
    ):
        file = changed(name, 5, value)
        count, (reason,) = read(file)
        assert count == faults.ROWS - 1
        assert f"{file}, row 5: " in reason
        assert said in reason
        with pytest.raises(TaskDataError, match="row 5"):
            list(open_trajectories([file]))
    file = tmp_path / "ending.parquet"
    numbers = pa.array(range(len(table)))
    place = table.schema.get_field_index("ending")
    pq.write_table(
        table.set_column(place, "ending", numbers).replace_schema_metadata(table.schema.metadata),
        file,
    )
    with pytest.raises(TaskDataError, match="column 'ending' is of type int64, not string"):
        read(file)
    pq.write_table(table.drop(["turns"]), file)
    with pytest.raises(TaskDataError, match="no column 'turns'"):
        read(file)


def test_spans_and_ids_of_a_transcript_that_cannot_be(tmp_path: Path, home: Path) -> None:
    from replay.transcript import Transcript

    whole = {
        "ids": [1, 2, 3, 4],
        "span_kinds": ["prompt", "completion"],
        "span_starts": [0, 2],
        "span_stops": [2, 4],
        "log_probs": [None],
        "weight_versions": [None],
        "finishes": ["stop"],
    }
    assert len(Transcript.from_record(whole)) == 4
    for change in (
        {"ids": [1, -2, 3, 4]},
        {"span_stops": [2, 5]},
        {"span_starts": [0, 3]},
        {"span_starts": [0, 2], "span_stops": [2, 1]},
        {"finishes": []},
    ):
        with pytest.raises(ValueError):  # noqa: PT011 - each says another thing
            Transcript.from_record({**whole, **change})


def test_names_in_capitals_and_lists_are_read_alike(tmp_path: Path) -> None:
    (tmp_path / "X.PARQUET").write_bytes(faults.as_parquet(faults.chat_rows()))
    (tmp_path / "Y.JSONL").write_bytes(faults.as_lines(faults.chat_rows()))
    (tmp_path / "Z.JSON").write_text(json.dumps(faults.chat_rows()))
    for file in tmp_path.iterdir():
        assert read(file) == (faults.ROWS, [])


# ---- questions, labels, settings -----------------------------------------------------------


@pytest.mark.parametrize("kind", ["jsonl", "csv", "json"])
def test_questions_before_the_damage_are_used(kind: str, tmp_path: Path) -> None:
    rows = [
        {"question": f"Question {number}? {os.urandom(100).hex()}", "answer": "yes"}
        for number in range(500)
    ]
    text = {
        "jsonl": faults.as_lines(rows),
        "csv": faults.as_csv(rows),
        "json": json.dumps(rows).encode(),
    }[kind]
    whole = gzip.compress(text)
    file = tmp_path / f"tasks.{kind}.gz"
    file.write_bytes(whole[: len(whole) // 2])
    found = read_tasks(file)
    assert 200 <= len(found) <= 260
    assert found.tasks[0].question == rows[0]["question"]
    assert "the file is damaged from here on" in found.problems[-1].reason
    assert "ended before the end" in found.problems[-1].reason
    file.write_bytes(whole[:-8] + bytes(8))
    found = read_tasks(file)
    assert len(found) == 500
    assert "CRC check failed" in found.problems[-1].reason


def test_questions_of_a_table_with_a_damaged_page(tmp_path: Path) -> None:
    file = tmp_path / "tasks.parquet"
    file.write_bytes(faults.as_parquet(faults.task_rows()))
    place = pq.read_metadata(file).row_group(1).column(0)
    start = place.dictionary_page_offset or place.data_page_offset
    content = bytearray(file.read_bytes())
    content[start : start + 12] = b"\xff" * 12
    file.write_bytes(bytes(content))
    found = read_tasks(file)
    assert [task.question for task in found] == [
        f"Question {n}?" for n in (0, 1, 2, 3, 8, 9, 10, 11)
    ]
    (problem,) = found.problems
    assert "rows 4 to 7 can't be read" in str(problem)


def test_a_list_of_questions_that_is_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "tasks.json"
    text = json.dumps(faults.task_rows())
    file.write_text(text[: text.index("Question 7")])
    found = read_tasks(file)
    assert len(found) == 7
    assert str(found.problems[0]).startswith(f"{file} row 7: the file is damaged from here on")


@pytest.mark.parametrize("read_file", [read_tasks, read_labelled, read_settings])
def test_a_fifo_is_no_file(read_file: Any, tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    os.mkfifo(file)
    with pytest.raises(DrvError, match="no regular file"):
        read_file(file)


def test_a_bad_label_stops_no_other(tmp_path: Path) -> None:
    lines = faults.as_lines(faults.labelled_rows()).splitlines()
    lines[3:4] = [b"{", lines[3].replace(b"yes", b"\xff\xfe")]
    file = tmp_path / "labelled.jsonl"
    file.write_bytes(b"\n".join(lines))
    found = read_labelled(file)
    assert len(found.rows) == faults.ROWS - 1
    assert [problem.partition(": ")[0] for problem in found.problems] == [
        f"{file}, row 4",
        f"{file}, row 5",
    ]


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe\x00", b"a: [1, 2", b"a: 1\na: 2", b"\x00", b"[" * 100_000, b"- 1", b"a: \xe9"],
)
def test_a_damaged_configuration_is_named(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_bytes(content)
    with pytest.raises(SettingError, match=r"run\.yaml"):
        read_settings(file)


def test_a_damaged_env_file_is_named_without_its_keys(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_bytes(b"SERPER_KEY_ID=secret-\xff-key\n")
    with pytest.raises(SettingError) as caught:
        Keys.from_env({}, file)
    assert str(caught.value).startswith(f"{file} can't be read: it is no UTF-8 text (byte 0xff ")
    assert "secret" not in str(caught.value)


# ---- models, rows, webs ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", b""),
        ("tokenizer.json", b"{"),
        ("tokenizer.json", b"[]"),
        ("tokenizer.json", b"{}"),
        ("tokenizer.json", b'{"model": {"type": "BPE"}}'),
        ("tokenizer.json", b"\xff\xfe"),
        ("tokenizer.json", b"[" * 100_000),
        ("tokenizer_config.json", b"{"),
        ("tokenizer_config.json", b"[1]"),
        ("tokenizer_config.json", b'{"chat_template": [1, null]}'),
        ("tokenizer_config.json", b'{"chat_template": [{"name": "default"}]}'),
        ("tokenizer_config.json", b"\xff"),
        ("chat_template.jinja", b"{% for x in messages %}"),
        ("chat_template.jinja", b"\xff\xfe"),
        ("chat_template.jinja", b"{{ 1 / 0 }}"),
        ("special_tokens_map.json", b"nonsense"),
    ],
)
def test_a_damaged_tokenizer_is_named(
    name: str, content: bytes, tmp_path: Path, home: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(home / "model", folder)
    (folder / name).write_bytes(content)
    with pytest.raises(SettingError, match=r"model") as caught:
        ChatTemplate.from_folder(folder)
    assert "\n" not in str(caught.value)


def test_a_truncated_tokenizer_stops_a_command_before_it_writes(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(home / "model", folder)
    whole = (folder / "tokenizer.json").read_bytes()
    (folder / "tokenizer.json").write_bytes(whole[: len(whole) // 2])
    out = tmp_path / "out"
    words = ["data", "rows", str(home / "chats.jsonl"), "--tokenizer", str(folder)]
    assert main([*words, "--out", str(out), "--workers", "1"]) == 1
    assert "tokenizer.json is damaged, no JSON" in capsys.readouterr().err
    assert not out.exists()


def test_ids_outside_the_vocabulary_are_found_by_row(tmp_path: Path, home: Path) -> None:
    folder = tmp_path / "rows"
    shutil.copytree(home / "rows", folder)
    store = TokenStore(folder)
    assert store.outside(1_000) == []
    starts = np.cumsum(store.lengths)
    ids = np.load(folder / "shard-00000.ids.npy")
    ids[starts[2]] = -1
    ids[starts[4] + 3] = 1_000_000
    np.save(folder / "shard-00000.ids.npy", ids)
    (first, told), (second, _) = TokenStore(folder).outside(1_000)
    assert (first, second) == (3, 5)
    assert told.endswith(
        f"shard-00000.ids.npy, row 3: id -1 at {starts[2]} is none of the 1,000 of the vocabulary"
    )


@pytest.mark.parametrize(
    "name", ["index.json", "shard-00000.json", "shard-00000.ids.npy", "shard-00000.mask.npy"]
)
def test_damaged_rows_are_refused_by_name(name: str, tmp_path: Path, home: Path) -> None:
    folder = tmp_path / "rows"
    shutil.copytree(home / "rows", folder)
    whole = (folder / name).read_bytes()
    for content in (b"", whole[: len(whole) // 2], b"[]", b"{}", bytes(len(whole))):
        (folder / name).write_bytes(content)
        with pytest.raises(SettingError, match="rows"):
            TokenStore(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version": 1}', b"\xff"])
def test_a_damaged_web_is_named(content: bytes, tmp_path: Path, home: Path) -> None:
    folder = tmp_path / "web"
    shutil.copytree(home / "web", folder)
    (folder / "web.json").write_bytes(content)
    with pytest.raises(SettingError, match="web"):
        RecordedWeb(folder)


def test_weights_that_cannot_be_are_told_by_row(tmp_path: Path) -> None:
    rows = faults.chat_rows()
    for number, weight in enumerate((math.nan, -1.0, 1e7)):
        rows[number]["weight"] = weight
    file = tmp_path / "chats.jsonl"
    file.write_bytes(faults.as_lines(rows))
    count, reasons = read(file)
    assert count == faults.ROWS - 3
    assert [f"{file}, row {number}: a weight" in reasons[number] for number in range(3)] == [
        True
    ] * 3


def test_devices_are_no_files_of_text_or_json(tmp_path):
    (tmp_path / "config.json").symlink_to("/dev/zero")
    for read in (read_object, read_settings, read_system_prompt, template_source):
        for path in ("/dev/zero", tmp_path / "config.json"):
            with pytest.raises(DrvError, match="it is no regular file"):
                read(str(path))
        with pytest.raises(DrvError, match="null"):
            read("a\0b")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("? [1, 2]\n: 3\n", "line 1 is no YAML: a name must be a word"),
        ("rl:\n  ? {a: 1}\n  : 3\n", "line 2 is no YAML: a name must be a word"),
        ('out: "a\\0b"\n', "line 1 is no YAML: a text holds a zero byte"),
        ('model: {folder: "\\0"}\n', "line 1 is no YAML: a text holds a zero byte"),
    ],
)
def test_yaml_that_no_settings_have_is_one_line(tmp_path, capsys, text, said):
    file = tmp_path / "run.yaml"
    file.write_text(text)
    assert main(["train", "igpo", "--config", str(file), "--plan"]) == 1
    assert capsys.readouterr().err.strip() == f"drv: {file}, {said}" + (
        ", not a list or a mapping" if "word" in said else ""
    )
