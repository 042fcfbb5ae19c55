"""Reading recorded trajectories: layouts, formats, chunks, damage."""

import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drv_env.errors import TaskDataError
from replay import json_texts, read
from replay.json_texts import json_lines, json_objects
from replay.layouts import Drop, Reason, Source
from replay.read import chunks_of, input_files, read_raw
from tests.replay import raw_rows as raw

STEPS = raw.messages(raw.search("a"), raw.visit("u"))
SYSTEM = {"role": "system", "content": "S"}
ROLES = {"user": "human", "assistant": "gpt", "system": "system"}
SHAREGPT = [{"from": ROLES[m["role"]], "value": m["content"]} for m in [SYSTEM, *STEPS]]
GOLD = ("Long Bridge",)

LAYOUTS = {
    "raw": ({**raw.row(raw.search("a"), raw.visit("u")), "system_prompt": "S"}, GOLD, "S"),
    "raw without a prompt": (raw.row(raw.search("a"), raw.visit("u")), GOLD, None),
    "clean": (
        {"question": raw.QUESTION, "messages": [SYSTEM, *STEPS], "gt": "Long Bridge"},
        GOLD,
        "S",
    ),
    "several answers": (
        {"question": raw.QUESTION, "messages": STEPS, "gt": "A<|answer_split|>B"},
        ("A", "B"),
        None,
    ),
    "rollout": ({"request_id": "r", "num_turns": 3, "messages": [SYSTEM, *STEPS]}, (), "S"),
    "sharegpt": ({"conversations": SHAREGPT}, (), "S"),
    "sharegpt with answers": ({"conversations": SHAREGPT[1:], "answer": "X"}, ("X",), None),
}


def write(path, rows):
    if path.suffix == ".parquet":
        return raw.write_parquet(path, rows)
    if path.suffix == ".json":
        path.write_text(json.dumps(rows, indent=1), encoding="utf-8")
        return path
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
        return path
    return raw.write_lines(path, rows)


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl", "a.json", "a.jsonl.gz"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_in_every_format(tmp_path, layout, name):
    row, answers, system = LAYOUTS[layout]
    path = write(tmp_path / name, [row, row])
    first = 1 if "jsonl" in name else 0
    found = list(read_raw(path))
    assert [source for source, _ in found] == [Source(str(path), first + n) for n in (0, 1)]
    for _, trajectory in found:
        assert trajectory.question == raw.QUESTION
        assert list(trajectory.messages) == STEPS
        assert (trajectory.answers, trajectory.system_prompt) == (answers, system)


def test_nested_columns_may_be_json_text(tmp_path):
    row = raw.row(raw.search("a"))
    path = write(tmp_path / "a.parquet", [{k: json.dumps(v) for k, v in row.items()}])
    ((_, trajectory),) = read_raw(path)
    assert list(trajectory.messages) == row["messages"]


def test_content_may_come_in_parts(tmp_path):
    row = raw.row()
    row["messages"][0]["content"] = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    ((_, trajectory),) = read_raw(raw.write_lines(tmp_path / "a.jsonl", [row]))
    assert trajectory.messages[0]["content"] == "ab"


def test_a_folder_is_read_in_order_without_hidden_files_and_tells_strays(tmp_path):
    for name in ("b.jsonl", "a.parquet", "_left.parquet", ".hidden.jsonl"):
        write(tmp_path / name, [raw.row()])
    (tmp_path / "README.md").write_text("x")
    (tmp_path / "folder").mkdir()
    problems = []
    files = input_files([tmp_path, tmp_path / "nowhere"], problems.append)
    assert [file.name for file in files] == ["a.parquet", "b.jsonl"]
    assert [problem.file for problem in problems] == [
        str(tmp_path / "README.md"),
        str(tmp_path / "nowhere"),
    ]
    with pytest.raises(TaskDataError, match="README"):
        list(read_raw(tmp_path))


# ---- chunks ---------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [1, 10, 1000])
def test_chunks_are_bounded_whatever_the_row_groups(tmp_path, monkeypatch, groups):
    monkeypatch.setattr(read, "CHUNK_ROWS", 16)
    path = raw.write_parquet(tmp_path / "a.parquet", raw.many(100), row_group_size=groups)
    chunks = list(chunks_of(path, pytest.fail))
    assert sum(chunk.rows for chunk in chunks) == 100
    assert max(chunk.rows for chunk in chunks) <= 16
    assert [chunk.first for chunk in chunks[1:]] == [chunk.last + 1 for chunk in chunks[:-1]]


def test_chunks_are_bounded_in_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(read, "CHUNK_BYTES", 50_000)
    rows = [raw.row((raw.search("a"), "x" * 20_000)) for _ in range(12)]
    for path in (write(tmp_path / "a.parquet", rows), write(tmp_path / "a.jsonl", rows)):
        assert {chunk.rows for chunk in chunks_of(path, pytest.fail)} <= {1, 2, 3}


# ---- JSON texts -----------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('a"\\{}[],:é\n', max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.dictionaries(st.text('k"\\', max_size=3), JSON, max_size=3)), st.booleans())
def test_a_list_is_cut_into_its_objects(objects, indented):
    text = json.dumps(objects, indent=1 if indented else None).encode()
    found = list(json_objects(io.BytesIO(text)))
    assert [json.loads(part) for _, part in found] == objects
    assert [number for number, _ in found] == list(range(len(objects)))


@pytest.mark.parametrize("size", [1, 3, 7, 64])
def test_objects_are_cut_at_any_block_size(monkeypatch, size):
    monkeypatch.setattr(json_texts, "_BLOCK", size)
    rows = raw.many(3)
    text = json.dumps(rows).encode()
    assert [json.loads(part) for _, part in json_objects(io.BytesIO(text))] == rows
    lined = b"\n".join(json.dumps(row).encode() for row in rows)
    assert [json.loads(part) for _, part in json_objects(io.BytesIO(lined))] == rows


def test_a_damaged_object_does_not_hide_the_others(tmp_path):
    good = json.dumps(raw.row())
    (tmp_path / "a.json").write_text(f'[{good}, {{"a": nonsense}}, {good}, {good[:100]}')
    rows = [row for _, row in read_raw(tmp_path / "a.json")]
    assert [isinstance(row, Drop) and row.reason for row in rows] == [
        False,
        Reason.UNREADABLE,
        False,
        Reason.UNREADABLE,
    ]


def test_a_row_that_is_too_long_is_dropped_and_the_next_one_read(tmp_path, monkeypatch):
    monkeypatch.setattr(json_texts, "MAX_ROW_BYTES", 5_000)
    lines = [json.dumps(raw.row()), '{"x": "' + "y" * 20_000_000 + '"}', json.dumps(raw.row())]
    stream = io.BytesIO("\n".join(lines).encode())
    assert [(number, text is None) for number, text in json_lines(stream)] == [
        (1, False),
        (2, True),
        (3, False),
    ]
    with pytest.raises(TaskDataError, match="row 0 is longer than"):
        list(json_objects(io.BytesIO(b'[{"x": "' + b"y" * 3_000_000)))


# ---- damage ---------------------------------------------------------------------------


def told(path):
    problems, reasons, kept = [], [], 0
    for _, row in read_raw(path, problems.append):
        if isinstance(row, Drop):
            reasons.append(row.reason)
        else:
            kept += 1
    return problems, reasons, kept


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl", "a.json", "a.json.gz"])
def test_an_empty_file_is_told(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    problems, _, _ = told(tmp_path / name)
    assert [problem.message for problem in problems] == ["the file is empty"]


@pytest.mark.parametrize("text", ["[]", "{", "\n\n", "[1, 2]", "]"])
def test_a_file_without_rows_is_told_or_counted(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    problems, reasons, kept = told(tmp_path / "a.json")
    assert len(problems) + len(reasons) == 1
    assert kept == 0


def test_a_truncated_parquet_file_is_told(tmp_path):
    path = raw.write_parquet(tmp_path / "a.parquet", raw.many(20))
    path.write_bytes(path.read_bytes()[:-100])
    problems, _, kept = told(path)
    assert (len(problems), kept) == (1, 0)
    assert str(path) in str(problems[0])


def test_parquet_with_a_broken_page_gives_what_comes_before(tmp_path, monkeypatch):
    monkeypatch.setattr(read, "CHUNK_ROWS", 10)
    rows = raw.many(60)
    path = raw.write_parquet(tmp_path / "a.parquet", rows, row_group_size=20, compression="zstd")
    group = pq.ParquetFile(path).metadata.row_group(2)
    start = group.column(3).data_page_offset
    content = bytearray(path.read_bytes())
    content[start + 20 : start + 200] = b"\xff" * 180
    path.write_bytes(content)
    problems, _, kept = told(path)
    assert len(problems) == 1
    assert kept == 40
    assert "after 40 rows" in problems[0].message


def test_a_truncated_gzip_file_gives_what_comes_before(tmp_path):
    path = write(tmp_path / "a.jsonl.gz", raw.many(2000))
    path.write_bytes(path.read_bytes()[:-2000])
    problems, reasons, kept = told(path)
    assert len(problems) == 1
    assert kept > 10
    assert len(reasons) <= 1


def test_text_that_is_not_utf8_in_parquet_is_read(tmp_path):
    row = raw.row()
    contents = [m["content"].encode() for m in row["messages"]]
    contents[0] += b" \xed\xa0\xbd\xed\xb8\x80 \xff"
    texts = pa.array(contents, pa.binary()).view(pa.string())
    roles = pa.array([m["role"] for m in row["messages"]])
    items = pa.StructArray.from_arrays([roles, texts], names=["role", "content"])
    messages = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), items)
    table = pa.table({"meta": pa.array([row["meta"]]), "messages": messages})
    pq.write_table(table, tmp_path / "a.parquet")
    ((_, trajectory),) = read_raw(tmp_path / "a.parquet")
    assert trajectory.messages[0]["content"].startswith(raw.QUESTION)


def test_null_rows_and_nested_nulls_do_not_shift_their_neighbours(tmp_path):
    good = raw.row(raw.search("a"))
    nulls = {"meta": good["meta"], "messages": [None, *good["messages"][1:]]}
    rows = [good, {"meta": None, "messages": None}, nulls, good]
    path = raw.write_parquet(tmp_path / "a.parquet", rows)
    problems, reasons, kept = told(path)
    assert (problems, kept) == ([], 2)
    assert reasons == [Reason.NO_QUESTION, Reason.WRONG_TYPE]


@pytest.mark.parametrize(
    ("columns", "missing"),
    [
        (["meta"], "no column messages"),
        (["question", "messages"], "no column for the gold answer"),
        (["x"], "the columns are x"),
    ],
)
def test_a_missing_column_is_told(tmp_path, columns, missing):
    row = {**raw.row(), "question": "q", "x": 1}
    path = raw.write_parquet(tmp_path / "a.parquet", [{name: row[name] for name in columns}])
    (problem,), _, _ = told(path)
    assert missing in problem.message


def test_utf16_is_told(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps(raw.row()), encoding="utf-16")
    (problem,), _, _ = told(tmp_path / "a.jsonl")
    assert "UTF-16" in problem.message
