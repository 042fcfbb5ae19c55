"""Questions from files: every layout, every kind of bad row, every broken file."""

from __future__ import annotations

import csv
import datetime
import gzip
import json
import os
import pickle
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drv_env.errors import SettingError, TaskDataError
from drv_env.task_files import TaskFile, iter_tasks, load_tasks, read_tasks
from drv_env.task_rows import Columns
from drv_env.tasks import Task
from replay.clean import CleanRules
from replay.pipeline import CleanJob, run_clean


def verl_row(content: str, truth: Any, index: Any = "nq_1", **extra: Any) -> dict[str, Any]:
    return {
        "data_source": "nq",
        "prompt": [{"content": content, "role": "user"}],
        "ability": "search",
        "reward_model": {"ground_truth": truth, "style": "rule"},
        "extra_info": {"index": index, "split": "dev", **extra},
    }


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def write_lines(path: Path, rows: list[Any]) -> Path:
    text = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")
    return path


def reasons(found: TaskFile) -> dict[int, str]:
    return {problem.row: problem.reason for problem in found.problems}


GOOD = {"question": "Q", "answer": "A"}
ASKED = [{"role": "user", "content": "Q"}]


# ---- layouts ---------------------------------------------------------------------------


def test_verl_parquet(tmp_path: Path) -> None:
    rows = [
        verl_row("Capital of France?", "Paris", "nq_7", difficulty=2.0, world="w"),
        verl_row("Who?", "A<|answer_split|> B <|answer_split|>A<|answer_split|>", "nq_8"),
    ]
    found = read_tasks(write_parquet(tmp_path / "train.parquet", rows))
    assert found.problems == ()
    first, second = found
    assert first == Task(
        "Capital of France?",
        ("Paris",),
        "nq_7",
        "w",
        {
            "data_source": "nq",
            "ability": "search",
            "reward_model": {"style": "rule"},
            "split": "dev",
            "difficulty": 2.0,
        },
    )
    assert second.answers == ("A", "B")
    assert "difficulty" not in second.metadata
    assert second.world is None


def test_the_real_verl_file() -> None:
    folder = os.environ.get("DRV_DATA")
    if not folder:
        pytest.skip("DRV_DATA is unset: the real data are not on this machine")
    found = read_tasks(Path(folder) / "qa_verl_schema.parquet")
    assert (len(found), found.problems, dict(found.duplicate_ids)) == (300, (), {})
    columbia = next(task for task in found if task.id == "popqa_3474310")
    assert columbia.question == "What is the capital of Columbia County?"
    assert columbia.answers == ("Bloomsburg", "The Only Town in Pennsylvania", "Eyersburg")
    assert columbia.metadata["data_source"] == "popqa"


@pytest.mark.parametrize("truth", [["A", "B"], {"target": ["A", "B"]}, '["A", "B"]'])
def test_verl_answers_in_other_shapes(tmp_path: Path, truth: Any) -> None:
    (task,) = read_tasks(write_parquet(tmp_path / "t.parquet", [verl_row("Q", truth)]))
    assert task.answers == ("A", "B")


def test_redsearcher_questions(tmp_path: Path) -> None:
    rows = [{"problem": "Which village?", "answer": "Teynham", "difficulty": "hard"}]
    (task,) = read_tasks(write_parquet(tmp_path / "t.parquet", rows))
    assert (task.question, task.answers) == ("Which village?", ("Teynham",))
    assert task.metadata == {"difficulty": "hard"}


@pytest.mark.parametrize(
    "row",
    [
        {"question": "Q", "answer": "A"},
        {"question": "Q", "answers": ["A"]},
        {"query": "Q", "golden_answers": ["A"]},
        {"prompt": "Q", "label": "A"},
        {"problem": "Q", "ground_truth": "A"},
        {"prompt": [{"role": "system", "content": "S"}, *ASKED], "label": "A"},
        {"question": "Q", "prompt": "Q\nThink.", "answer": "A"},
        {"question": "", "prompt": ASKED, "answer": "A"},
        {"question": "Q", "answers": [], "answer": "A"},
        {"question": None, "problem": " Q\n", "answers": "", "answer": ["A", None, " "]},
        {"question": "Q", "answer": "['A']"},
        {"Question": "Q", "Answer": "A"},
        {"Question": "Q", "Final answer": "A"},
        {"Problem": "Q", "Correct Answer": "A"},
        {"PROMPT": "Q", "gold-answer": "A"},
        {"question": "Q", "final_answer": "what the agent said", "answer": "A"},
        {"instruction": "Q", "Ground Truth": "A"},
        {"Prompt": ASKED, "Reward Model": {"Ground_Truth": {"target": ["A"]}}},
    ],
)  # fmt: skip
def test_usual_names_need_no_naming(tmp_path: Path, row: dict[str, Any]) -> None:
    (task,) = read_tasks(write_lines(tmp_path / "t.jsonl", [row]))
    assert (task.question, task.answers) == ("Q", ("A",))


def test_a_list_in_a_list_is_text(tmp_path: Path) -> None:
    (task,) = read_tasks(
        write_lines(tmp_path / "t.jsonl", [{"question": "Q", "answer": ['["A"]']}])
    )
    assert task.answers == ('["A"]',)


@pytest.mark.parametrize("suffix", [".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet"])
def test_columns_by_name(tmp_path: Path, suffix: str) -> None:
    rows = [
        {"q": "Who?", "gold": "A|B", "key": "k1", "where": "w", "level": "3"},
        {"q": "What, then?\nNow.", "gold": 'say "C"', "key": "k2", "where": "w", "level": "1"},
    ]
    path = tmp_path / f"t{suffix}"
    if suffix == ".parquet":
        write_parquet(path, rows)
    elif suffix in (".csv", ".tsv"):
        with path.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(
                stream, list(rows[0]), delimiter="," if suffix == ".csv" else "\t"
            )
            writer.writeheader()
            writer.writerows(rows)
    else:
        write_lines(path, rows)
    found = read_tasks(
        path,
        question="q",
        answer="gold",
        id="key",
        world="where",
        difficulty="level",
        separator="|",
    )
    first, second = found
    assert first == Task("Who?", ("A", "B"), "k1", "w", {"difficulty": "3"})
    assert (second.question, second.answers) == ("What, then?\nNow.", ('say "C"',))


def test_nested_columns_by_name(tmp_path: Path) -> None:
    row = verl_row("Prompt, with advice", "A", question="Q", hops=2)
    (task,) = read_tasks(
        write_parquet(tmp_path / "t.parquet", [row]),
        question="extra_info.question",
        difficulty="extra_info.hops",
    )
    assert task.question == "Q"
    assert task.metadata["difficulty"] == 2
    assert "hops" not in task.metadata


@pytest.mark.parametrize("shape", ["list", "under a key", "lines", "one"])
def test_json(tmp_path: Path, shape: str) -> None:
    rows = [{"question": "Q1", "answer": "A"}, {"question": "Q2", "answer": ["B"]}]
    path = tmp_path / "t.json"
    if shape == "lines":
        write_lines(path, rows)
    else:
        shapes = {"list": rows, "under a key": {"version": 1, "data": rows}, "one": rows[1]}
        path.write_text(json.dumps(shapes[shape], indent=1))
    found = read_tasks(path)
    assert [task.question for task in found] == (["Q2"] if shape == "one" else ["Q1", "Q2"])


@pytest.mark.parametrize("suffix", [".jsonl.gz", ".csv.gz", ".TSV.GZ"])
def test_gzipped_text(tmp_path: Path, suffix: str) -> None:
    text = {
        ".jsonl.gz": '{"question": "Q", "answer": "A"}\n',
        ".csv.gz": "question,answer\nQ,A\n",
        ".TSV.GZ": "question\tanswer\nQ\tA\n",
    }
    path = tmp_path / f"t{suffix}"
    path.write_bytes(gzip.compress(text[suffix].encode()))
    assert [task.answers for task in read_tasks(path)] == [("A",)]


def test_a_folder_of_shards_and_a_pattern(tmp_path: Path) -> None:
    for name in ("train-00001", "train-00000", "test-00000"):
        row = {"question": name, "answer": "A"}
        write_parquet(tmp_path / f"{name}.parquet", [row])
    (tmp_path / "README.md").write_text("about")
    (tmp_path / "_SUCCESS.json").write_text("{")
    (tmp_path / ".hidden.parquet").write_text("x")
    (tmp_path / "sub").mkdir()
    names = ["test-00000", "train-00000", "train-00001"]
    assert [task.question for task in read_tasks(tmp_path)] == names
    pattern = str(tmp_path / "train-*.parquet")
    assert [task.question for task in read_tasks(pattern)] == names[1:]


def test_a_bad_row_of_a_shard_names_its_file(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"question": "Q", "answer": "A"}])
    write_lines(tmp_path / "b.jsonl", ["", {"question": "Q", "answer": "A"}, "{"])
    found = read_tasks(tmp_path)
    assert len(found) == 2
    (problem,) = found.problems
    assert str(problem).startswith(f"{tmp_path / 'b.jsonl'} line 3: not JSON")
    assert list(found.duplicate_ids.values()) == [2]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "gb18030", "cp1252"])
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".json"])
def test_encodings(tmp_path: Path, encoding: str, suffix: str) -> None:
    answer = "café" if encoding == "cp1252" else "北京 café"
    text = (
        f"question,answer\r\nQ?,{answer}\r\n"
        if suffix == ".csv"
        else json.dumps({"question": "Q?", "answer": answer}, ensure_ascii=False) + "\r\n"
    )
    path = tmp_path / f"t{suffix}"
    path.write_bytes(text.encode(encoding))
    given = "utf-8" if encoding == "utf-8-sig" else encoding
    assert [(t.question, t.answers) for t in read_tasks(path, encoding=given)] == [
        ("Q?", (answer,))
    ]


def test_a_delimiter_of_choice(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("question~answer\nA, or B?~A\n")
    with pytest.raises(TaskDataError, match="the columns are: question~answer"):
        read_tasks(path)
    assert [t.question for t in read_tasks(path, delimiter="~")] == ["A, or B?"]


@pytest.mark.parametrize(
    ("name", "encoding", "text"),
    [
        ("t.csv", "utf-8-sig", "Question;Answer\r\nA, or B?;Zürich\r\n"),
        ("t.csv", "utf-8", '"Question";"Note, in short";"Answer"\n"A, or B?";;Zürich\n'),
        ("t.csv", "utf-8", "\nquestion\tanswer\nA, or B?\tZürich\n"),
        ("t.csv", "utf-8-sig", "sep=|\r\n\r\nquestion|answer\r\nA, or B?|Zürich\r\n"),
        ("t.csv", "utf-16", "Question\tAnswer\r\nA, or B?\tZürich\r\n"),
        ("t.csv", "utf-16-le", 'question,answer\n"A, or B?",Zürich\n'),
        ("t.tsv", "utf-16-be", "question;answer\nA, or B?;Zürich\n"),
        ("t.jsonl", "utf-32", '{"question": "A, or B?", "answer": "Zürich"}\n'),
    ],
)
def test_files_as_spreadsheets_write_them(
    tmp_path: Path, name: str, encoding: str, text: str
) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    found = read_tasks(path)
    assert not found.problems
    assert [(t.question, t.answers) for t in found] == [("A, or B?", ("Zürich",))]


def test_lines_count_from_the_one_that_names_the_delimiter(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("sep=;\nquestion;answer\nQ;A\nQ;A;B\n")
    found = read_tasks(path)
    assert [str(each) for each in found.problems] == [
        f"{path} line 4: 3 fields where the header has 2"
    ]


def test_columns_that_are_missing_are_told_as_the_header_has_them(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("Frage;Antwort\nQ;A\n")
    with pytest.raises(TaskDataError, match=r"the columns are: Frage, Antwort\. "):
        read_tasks(path)
    assert [t.question for t in read_tasks(path, question="Frage", answer="Antwort")] == ["Q"]


# ---- values ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1912, "1912"),
        (1912.0, "1912"),
        (-0.5, "-0.5"),
        (1e300, "1e+300"),
        (10**30, str(10**30)),
        (Decimal("1.50"), "1.50"),
        (b"Paris", "Paris"),
        ([1, 2.5], "1"),
    ],
)
def test_numbers_become_text(value: Any, text: str) -> None:
    assert Columns.of().task({"question": "Q", "answer": value}).answers[0] == text


def test_ids_are_text_and_stable(tmp_path: Path) -> None:
    rows = [
        {"id": 7, "question": "Q", "answer": "A"},
        {"id": 7.0, "question": "R", "answer": "A"},
        {"id": None, "question": "S", "answer": "A"},
        {"id": " ", "question": "S ", "answer": ["A", "A"]},
    ]
    found = read_tasks(write_lines(tmp_path / "t.jsonl", rows))
    made = Task("S", ("A",)).id
    assert [task.id for task in found] == ["7", "7", made, made]
    assert dict(found.duplicate_ids) == {"7": 2, made: 2}


def test_metadata_is_what_json_has(tmp_path: Path) -> None:
    table = pa.table(
        {
            "question": ["Q", "R"],
            "answer": ["A", "B"],
            "at": pa.array([1_700_000_000_123_456_789, None], pa.timestamp("ns", "UTC")),
            "day": pa.array([datetime.date(2020, 1, 2), None]),
            "price": pa.array([Decimal("1.5"), None]),
            "raw": pa.array([b"\xff", None]),
            "score": pa.array([float("nan"), 0.5]),
            "tags": pa.array([["a"], []]),
            "pairs": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
            "kind": pa.array(["x", None]).dictionary_encode(),
            "clues": pa.array([[{"page": 1, "says": b"y"}], None]),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    first, second = read_tasks(tmp_path / "t.parquet")
    assert first.metadata == {
        "at": "2023-11-14T22:13:20.123456+00:00",
        "day": "2020-01-02",
        "price": "1.5",
        "raw": "�",
        "tags": ["a"],
        "pairs": [["k", 1]],
        "kind": "x",
        "clues": [{"page": 1, "says": "y"}],
    }
    assert second.metadata == {"score": 0.5, "tags": []}
    json.dumps([first.metadata, second.metadata])


def test_broken_text_in_metadata_is_mended(tmp_path: Path) -> None:
    row = '{"question": "Q", "answer": "A", "note": ["x\\ud800y"]}'
    (task,) = read_tasks(write_lines(tmp_path / "t.jsonl", [row]))
    assert task.metadata == {"note": ["x�y"]}


def test_huge_fields(tmp_path: Path) -> None:
    context = "x" * 300_000
    path = tmp_path / "t.csv"
    path.write_text(f'question,answer,context\nQ,A,{context}\n"{context}",A,\n')
    first, second = read_tasks(path)
    assert first.metadata["context"] == second.question == context


# ---- bad rows --------------------------------------------------------------------------

DEEP = "[" * 900 + "]" * 900


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("{", "not JSON: Expecting property name"),
        ('{"question": "Q", "answer": "A"} {}', "not JSON: Extra data"),
        ("[1, 2]", "not an object: [1, 2]"),
        ("null", "not an object: None"),
        ('{"question": "Q", "answer": ' + "9" * 5000 + "}", "not JSON: Exceeds the limit"),
        ("[" * 100_000, "not JSON: maximum recursion"),
        ('{"question": "Q", "answer": "A", "x": ' + DEEP + "}", "nested too deeply"),
        ({"answer": "A", "ask": "Q"}, "no question (tried question, problem"),
        ({"answer": "A", "ask": "Q"}, "the row has: answer, ask"),
        ({"question": "Q"}, "no answer (tried answers, golden_answers"),
        ({"question": None, "answer": "A"}, "the question is empty (question)"),
        ({"question": " \n", "answer": "A"}, "the question is empty (question)"),
        ({"question": "Q", "answer": ""}, "the answer is empty (answer)"),
        ({"question": "Q", "answer": []}, "the answer is empty"),
        ({"question": "Q", "answer": [None, " "]}, "the answer is empty"),
        ({"question": "Q", "answer": "<|answer_split|>"}, "the answer is empty"),
        ({"question": "Q", "answer": True}, "the answer is true or false, not a text or number"),
        ({"question": "Q", "answer": float("inf")}, "the answer is a float"),
        ({"question": "Q", "answer": [["A", True]]}, "the answer is true or false"),
        ({"question": "Q", "answer": {"a": ["A"], "b": 1}}, "fields of its own (a, b)"),
        ({"question": {"en": "Q"}, "answer": "A"}, "the question is an object"),
        ({"question": ["Q", "R"], "answer": "A"}, "a list, but not of messages"),
        ({"question": "Q\x00", "answer": "A"}, "the question has a NUL character at 1"),
        ({"question": "Q", "answer": "A\ud800"}, "half a surrogate pair at character 1"),
        ({"question": "Q", "answer": "A", "id": [1]}, "the id is a list"),
        ({"question": "Q", "answer": "A", "world": True}, "the world is true or false"),
        ({"prompt": [{"role": "user", "content": ""}], "answer": "A"}, "user message is empty"),
        ({"prompt": [{"role": "user", "content": [{}]}], "answer": "A"}, "message is a list"),
        ({"prompt": [{"role": "system", "content": "S"}], "answer": "A"}, "messages of system"),
        ({"prompt": [*ASKED, *ASKED], "answer": "A"}, "messages of user, user"),
        ({"prompt": [*ASKED, {"role": "assistant"}], "answer": "A"}, "of user, assistant"),
    ],
)  # fmt: skip
def test_a_bad_row_is_named_and_the_rest_is_read(tmp_path: Path, row: Any, reason: str) -> None:
    found = read_tasks(write_lines(tmp_path / "t.jsonl", [GOOD, row, "", GOOD]))
    assert len(found) == 2
    (problem,) = found.problems
    assert (problem.file, problem.row, problem.unit) == (str(tmp_path / "t.jsonl"), 2, "line")
    assert reason in problem.reason
    assert len(problem.reason) < 400


def test_a_question_too_long_for_the_env(tmp_path: Path) -> None:
    row = {"question": "x" * (2**24 + 1), "answer": "A"}
    found = read_tasks(write_lines(tmp_path / "t.jsonl", [GOOD, row]))
    assert reasons(found) == {2: "the question has 16,777,217 characters, over 16,777,216"}


def test_bytes_that_are_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    line = b'{"question": "Q", "answer": "A"}\n'
    path.write_bytes(line + line.replace(b"A", b"caf\xe9") + line)
    fault = "the answer has a byte that the encoding does not have at character 3; save the file "
    fault += "as UTF-8"
    assert reasons(read_tasks(path)) == {2: fault}
    path = tmp_path / "t.csv"
    path.write_bytes(b"question,answer\nQ,A\nQ,caf\xe9\nQ,A\n")
    assert reasons(read_tasks(path)) == {3: fault}


def test_bad_rows_of_csv(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        'question,answer\nQ1,A\n"Q2\nover lines",A\nQ3\nQ4,A,B\n\n,A\nQ5,\n'
        '"Q6"x,A\nQ7,A\x00\nQ8,A\n'
    )
    found = read_tasks(path)
    assert [task.question for task in found] == ["Q1", "Q2\nover lines", "Q8"]
    assert reasons(found) == {
        5: "1 fields where the header has 2",
        6: "3 fields where the header has 2",
        8: "the question is empty (question)",
        9: "the answer is empty (answer)",
        10: "not CSV: ',' expected after '\"'",
        11: "the answer has a NUL character at 1",
    }


def test_a_quote_never_closed_costs_its_own_row_only(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('question,answer\nQ1,A\n"Q2,A\nQ3,A\n\nQ4,A\n')
    found = read_tasks(path)
    assert [task.question for task in found] == ["Q1", "Q3", "Q4"]
    assert reasons(found) == {3: "not CSV: a quote is opened and never closed"}


def test_a_stray_quote_says_how_far_it_reached(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('question,answer\n"Q1,A\nQ2,A\n"Q3",A\nQ4,A\n')
    found = read_tasks(path)
    assert [task.question for task in found] == ["Q4"]
    assert reasons(found) == {2: "not CSV: ',' expected after '\"' (lines 2 to 4)"}


def test_bad_rows_of_parquet_and_json_count_from_0(tmp_path: Path) -> None:
    rows = [verl_row("Q", "A", "1"), verl_row("Q", None, "2"), verl_row("", "A", "3")]
    found = read_tasks(write_parquet(tmp_path / "t.parquet", rows * 700))
    assert len(found) == 700
    assert len(found.problems) == 1400
    assert {problem.unit for problem in found.problems} == {"row"}
    assert [problem.row for problem in found.problems[-2:]] == [2098, 2099]
    path = tmp_path / "t.json"
    path.write_text(json.dumps([GOOD, 3, {}]))
    assert [str(problem).split(": ")[0] for problem in read_tasks(path).problems] == [
        f"{path} row 1",
        f"{path} row 2",
    ]


def test_parquet_text_that_is_not_utf8_spoils_its_row_only(tmp_path: Path) -> None:
    answers = pa.array([b"A", b"\xff", b"C"]).view(pa.string())
    pq.write_table(
        pa.table({"question": ["P", "Q", "R"], "answer": answers}), tmp_path / "t.parquet"
    )
    found = read_tasks(tmp_path / "t.parquet")
    assert [task.question for task in found] == ["P", "R"]
    assert "column 'answer' can't be read" in reasons(found)[1]


def test_streaming_raises_at_the_first_bad_row_unless_told_where_to_put_it(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "t.jsonl", [GOOD, "{", GOOD])
    stream = iter_tasks(path)
    assert next(stream).question == "Q"
    with pytest.raises(TaskDataError, match=r"t\.jsonl line 2: not JSON"):
        next(stream)
    told: list[Any] = []
    assert len(list(iter_tasks(path, on_bad_row=told.append))) == 2
    assert [problem.row for problem in told] == [2]


def test_streaming_reads_no_more_than_asked(tmp_path: Path) -> None:
    fifo = tmp_path / "t.jsonl"
    fifo.write_bytes(b'{"question": "Q", "answer": "A"}\n' * 50_000)
    stream = iter_tasks(fifo)
    next(stream)
    fifo.write_bytes(b"")
    stream.close()  # type: ignore[attr-defined]


RANDOM_ROWS = b"question,answer\n" + b"".join(
    b"Q%d,%d\n" % (row, random.Random(row).getrandbits(64)) for row in range(2000)
)


# ---- broken files ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.parquet", b"not parquet at all", "ArrowInvalid"),
        ("t.parquet", b"", "ArrowInvalid"),
        ("t.jsonl", b"", "no rows"),
        ("t.jsonl", b"\n\n", "no rows"),
        ("t.json", b" ", "no rows"),
        ("t.json", b"[]", "no rows"),
        ("t.json", b"[", "JSONDecodeError"),
        ("t.json", b'"text"', "must hold a list"),
        ("t.json", b'{"a": [1], "b": [2]}', "must hold a list"),
        ("t.csv", b"", "no rows"),
        ("t.csv", b"question,answer\n", "no rows"),
        ("t.csv", b'question,"answer\nQ,A\n', "the header is not CSV"),
        ("t.csv", b"question,answer,answer\nQ,A,B\n", "column 'answer' occurs more than once"),
        ("t.csv", b"q,a\nQ,A\n", "no column for the question .* the columns are: q, a"),
        (
            "t.csv",
            b"question,a\nQ,A\n",
            "no column for the answer .*--answer-column on the command.*drv ask plays one",
        ),
        ("t.jsonl", b'{"q": 1}\n{', "no task in 2 rows, all of them bad: .*line 1: no question"),
        ("t.jsonl", "question".encode("utf-16"), "line 1: not JSON"),
        ("t.csv.gz", b"not gzip", "BadGzipFile"),
        ("t.txt", b"x", "unknown kind of file; known are .parquet"),
        ("t", b"x", "unknown kind of file"),
        ("t.parquet.gz", b"x", "unknown kind of file"),
    ],
)
def test_a_file_that_cant_be_read_is_named(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TaskDataError, match=f"(?s){name}: .*{message}|{name}: {message}"):
        read_tasks(path)


def test_missing_files_and_folders(tmp_path: Path) -> None:
    for path, message in [
        (tmp_path / "none.jsonl", "No such file"),
        (tmp_path / "none", "No such file"),
        (tmp_path, "no files of tasks there"),
        (tmp_path / "*.parquet", "no files of tasks there"),
        ("nul\x00l.csv", "null byte"),
    ]:
        with pytest.raises(TaskDataError, match=message):
            read_tasks(path)
    write_lines(tmp_path / "a.jsonl", [GOOD])
    write_parquet(tmp_path / "b.parquet", [GOOD])
    with pytest.raises(TaskDataError, match=r"several kinds \(jsonl, parquet\)"):
        read_tasks(tmp_path)
    (tmp_path / "b.parquet").unlink()
    (tmp_path / "c.jsonl").symlink_to(tmp_path / "gone.jsonl")
    with pytest.raises(TaskDataError, match=r"c\.jsonl.*No such file"):
        read_tasks(tmp_path)


def test_parquet_cut_short_or_damaged(tmp_path: Path) -> None:
    path = write_parquet(
        tmp_path / "t.parquet", [verl_row(f"Question {n}", "A") for n in range(2000)]
    )
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(TaskDataError, match=r"t\.parquet: Arrow"):
        read_tasks(path)
    path.write_bytes(whole[:200] + bytes(2000) + whole[2200:])  # the only row group's first page
    with pytest.raises(TaskDataError, match=r"t\.parquet: "):
        read_tasks(path)


def test_parquet_columns_that_are_not_there(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "t.parquet", [verl_row("Q", "A")])
    with pytest.raises(TaskDataError, match=r"no column 'extra_info\.hops'; .*extra_info\.split"):
        read_tasks(path, difficulty="extra_info.hops")
    pq.write_table(pa.table([[1], [2]], names=["question", "question"]), path)
    with pytest.raises(TaskDataError, match="column 'question' occurs more than once"):
        read_tasks(path)


def test_a_named_column_that_no_json_row_has(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "t.jsonl", [{**GOOD, "level": None}, GOOD])
    assert len(read_tasks(path, difficulty="level")) == 2
    with pytest.raises(TaskDataError, match="no row has the column levle"):
        read_tasks(path, difficulty="levle")


@pytest.mark.parametrize(
    "settings",
    [{"encoding": "utf-9"}, {"delimiter": ""}, {"delimiter": '"'}, {"separator": ""}, {"id": ""}],
)
def test_settings_that_cant_work(tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=next(iter(settings))):
        read_tasks(tmp_path / "t.csv", **settings)


# ---- the env's argument ----------------------------------------------------------------


def test_load_tasks_takes_a_path_a_file_or_values(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "t.jsonl", [GOOD])
    task = Task("Q", ("A",))
    for value in (path, str(path), read_tasks(path), [("Q", "A")], iter([task])):
        assert load_tasks(value) == [task]
    with pytest.raises(TaskDataError, match="no tasks were given"):
        load_tasks([])
    with pytest.raises(TaskDataError, match="No such file"):
        load_tasks("What is this")


def test_load_tasks_warns_of_bad_rows(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "100%s.jsonl", [GOOD, "{", "}", GOOD])
    with pytest.warns(UserWarning, match="bad rows left out|occur more than once") as caught:
        assert len(load_tasks(path)) == 2
    first, second = (str(warning.message) for warning in caught)
    assert "100%s.jsonl: 2 bad rows left out, 2 tasks read; the first: " in first
    assert "1 ids occur more than once" in second


def test_what_was_read_travels(tmp_path: Path) -> None:
    found = read_tasks(write_lines(tmp_path / "t.jsonl", [GOOD, "{"]))
    assert pickle.loads(pickle.dumps(found)) == found


# ---- whatever a file holds -------------------------------------------------------------

TEXT = st.text(st.sampled_from("aé京 []{}'\"\x00\ud800"), max_size=5)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["question", "prompt", "answer", "answers", "reward_model", "extra_info", "id", "world", "x"]
)


@given(st.dictionaries(NAMES, VALUES, max_size=6))
def test_a_row_is_a_task_or_a_reason(row: dict[str, Any]) -> None:
    try:
        task = Columns.of(difficulty="x").task(row)
    except TaskDataError as error:
        str(error).encode("utf-8")
        return
    assert task.question.strip() == task.question
    assert all(isinstance(answer, str) and answer.strip() for answer in task.answers)
    json.dumps(dict(task.metadata), ensure_ascii=False).encode("utf-8")


@given(
    data=st.binary(max_size=200), suffix=st.sampled_from([".csv", ".jsonl", ".json", ".parquet"])
)
def test_any_bytes_give_tasks_or_a_task_data_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, suffix: str
) -> None:
    path = tmp_path_factory.getbasetemp() / f"any{suffix}"
    path.write_bytes((b"question,answer\n" if suffix == ".csv" else b"") + data)
    try:
        assert len(read_tasks(path)) >= 1
    except TaskDataError as error:
        assert "any" in str(error)  # noqa: PT017 - either outcome is right


def test_what_cleaning_wrote_is_read_by_its_gold_answers(tmp_path):
    def recorded(question, gold, said):
        call = '<tool_call>\n{"name": "search", "arguments": {"query": ["x"]}}\n</tool_call>'
        result = "<tool_response>\n## Web Results\n1. [T](https://e.org/a)\n</tool_response>"
        return {
            "question": question,
            "gt": gold,
            "messages": [
                {"role": "user", "content": question},
                {"role": "assistant", "content": f"<think>\nI look.\n</think>\n{call}"},
                {"role": "user", "content": result},
                {
                    "role": "assistant",
                    "content": f"<think>\nSo.\n</think>\n<answer>{said}</answer>",
                },
            ],
        }

    rows = [
        recorded("Who owns the mill?", "Salen", "Duhuwen"),  # which the agent got wrong
        recorded("Who built it?", "Ada<|answer_split|>Ada L.", "Ada"),
    ]
    raw = tmp_path / "raw.jsonl"
    raw.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "clean"
    job = CleanJob(inputs=(raw,), out=out, rules=CleanRules(), workers=1)
    assert run_clean(job).stats.kept == 2
    assert (out / "stats.json").is_file()
    wanted = [("Who owns the mill?", ("Salen",)), ("Who built it?", ("Ada", "Ada L."))]
    for path in (out, next(out.glob("part-*")), raw):
        found = read_tasks(path)
        assert [(task.question, task.answers) for task in found.tasks] == wanted
        assert found.problems == ()
