"""Labelled answers, the judge's agreement with them, and the command that tells it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tyro
from hypothesis import given
from hypothesis import strategies as st

from drv_env import background
from drv_env.cassette import CassetteError, CassetteStore
from drv_env.errors import JudgeError, SettingError, TaskDataError
from drv_env.rewards.calibration import (
    Agreement,
    Checked,
    Confusion,
    agreement,
    check_judge,
    wilson_interval,
)
from drv_env.rewards.judge import Judge, Verdict
from drv_env.rewards.labelled import LabelledAnswer, read_labelled
from drv_env.tasks import Task
from tests.patience import HANGS
from tests.rewards.conftest import KEY, Endpoint
from trainers.commands.judge import JudgeCommand

# ---- the file -------------------------------------------------------------------------


def written(path: Path, text: str) -> Path:
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


def lines(*rows: object) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_json_lines_are_read_under_any_of_the_names(tmp_path: Path) -> None:
    labelled = read_labelled(
        written(
            tmp_path / "a.jsonl",
            lines(
                {"question": "Q1", "answers": ["A", "B"], "answer": "x", "label": True, "id": "q1"},
                {"question": "Q2", "gold": "A<|answer_split|>B", "answer": "x", "label": 0},
                {"question": "Q3", "answer": "A", "prediction": "", "correct": "Yes"},
                {"question": "Q4", "ground_truth": "A", "prediction": "y", "label": "incorrect"},
            ),
        )
    )
    assert labelled.problems == []
    assert [row.task.answers for row in labelled.rows] == [("A", "B"), ("A", "B"), ("A",), ("A",)]
    assert [row.answer for row in labelled.rows] == ["x", "x", "", "y"]
    assert [row.label for row in labelled.rows] == [True, False, True, False]
    assert labelled.rows[0].task.id == "q1"


def test_csv_is_read_with_its_quotes_and_lines(tmp_path: Path) -> None:
    text = (
        "\ufeffid,question,gold_answer,answer,label\r\n"
        '1,"Q, one?","A ""a""","first\nsecond",yes\r\n'
        ",Q2,A<|answer_split|>B,,no\r\n"
    )
    labelled = read_labelled(written(tmp_path / "a.CSV", text))
    assert labelled.problems == []
    first, second = labelled.rows
    assert (first.task.question, first.answer, first.label) == ("Q, one?", "first\nsecond", True)
    assert first.task.answers == ('A "a"',)
    assert (second.task.answers, second.answer, second.label) == (("A", "B"), "", False)


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("utf-8-sig", 'Question;Gold Answer;Answer;Label\r\n"Q; one";A;x, y;yes\r\n'),
        ("utf-16", "Question\tGold Answer\tAnswer\tLabel\r\nQ; one\tA\tx, y\tyes\r\n"),
        ("utf-8", '\nsep=;\nquestion;gold;prediction;CORRECT\n"Q; one";A;x, y;1\n'),
    ],
)
def test_labels_as_spreadsheets_write_them(tmp_path: Path, encoding: str, text: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode(encoding))
    found = read_labelled(path)
    assert not found.problems
    (row,) = found.rows
    assert (row.task.question, row.task.answers, row.answer) == ("Q; one", ("A",), "x, y")
    assert row.label


def test_a_bad_row_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    good = {"question": "Q", "gold": "A", "answer": "x", "label": True}
    path = written(
        tmp_path / "a.jsonl",
        lines(good)
        + "{\n\n"
        + lines(
            [1],
            {**good, "label": "perhaps"},
            {**good, "gold": None},
            {**good, "question": " "},
            {**good, "answer": 7},
            {**good, "gold": ["A", " "]},
        )
        + lines(good).rstrip(),
    )
    labelled = read_labelled(path)
    assert [row.where for row in labelled.rows] == [f"{path}, row 1", f"{path}, row 10"]
    found = [problem.removeprefix(f"{path}, row ").split(":")[0] for problem in labelled.problems]
    assert found == ["2", "4", "5", "6", "7", "8", "9"]
    for problem, part in zip(
        labelled.problems,
        ["not JSON", "named columns", "'perhaps'", "no answers or gold", "question", "7", "blank"],
        strict=True,
    ):
        assert part in problem


def test_a_csv_row_with_the_wrong_number_of_cells_is_named(tmp_path: Path) -> None:
    text = "question,gold,answer,label\nQ,A,x,1\nQ,A,with, a comma,1\nQ,A\nQ,A,y,0\n"
    labelled = read_labelled(written(tmp_path / "a.csv", text))
    assert [row.answer for row in labelled.rows] == ["x", "y"]
    first, second = labelled.problems
    assert "row 2: it has more cells" in first
    assert "row 3: it has no" in second


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("a.txt", "x", ".jsonl and .csv"),
        ("a.jsonl", "", "no labelled answer"),
        ("a.jsonl", "{}\n", "the first problem"),
        ("a.csv", "a,b\n1,2\n", "the first problem"),
        ("a.jsonl", "\ud800", "can't be read"),
    ],
)
def test_a_file_of_no_use_is_an_error(tmp_path: Path, name: str, text: str, part: str) -> None:
    with pytest.raises(TaskDataError, match=part) as caught:
        read_labelled(written(tmp_path / name, text))
    assert str(tmp_path / name) in str(caught.value)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TaskDataError, match="can't be read"):
        read_labelled(tmp_path / "none.csv")


def test_encrypted_questions_are_refused(tmp_path: Path) -> None:
    hidden = "pQ4m9zXb3kH+0aVn4cGZ7w=="
    rows = [{"question": hidden, "gold": "1912", "prediction": "1912", "label": True}]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    with pytest.raises(TaskDataError, match="is encrypted: the questions are base64"):
        read_labelled(written(tmp_path / "a.jsonl", text))


# ---- the interval ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hits", "total", "low", "high"),
    [
        # R. G. Newcombe, Statistics in Medicine 17 (1998), table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_the_interval_is_wilsons(hits: int, total: int, low: float, high: float) -> None:
    assert wilson_interval(hits, total) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(0, 400), st.integers(0, 400), st.floats(0.01, 0.999))
def test_the_interval_holds_the_share(hits: int, misses: int, confidence: float) -> None:
    total = hits + misses
    low, high = wilson_interval(hits, total, confidence)
    share = hits / total if total else 0.5
    assert 0.0 <= low <= share + 1e-12
    assert share - 1e-12 <= high <= 1.0
    mirrored = wilson_interval(misses, total, confidence)
    assert mirrored == pytest.approx((1 - high, 1 - low))


@pytest.mark.parametrize(("hits", "total", "confidence"), [(2, 1, 0.9), (-1, 1, 0.9), (1, 2, 1.0)])
def test_numbers_that_cannot_be_are_refused(hits: int, total: int, confidence: float) -> None:
    with pytest.raises(SettingError):
        wilson_interval(hits, total, confidence)


# ---- agreement ------------------------------------------------------------------------

ROWS = [
    # the judge's reply, as the answer says it, and the label
    ("right", True),
    ("right", True),
    ("right", False),
    ("wrong", True),
    ("wrong", False),
    ("unsure", True),
    ("lost", False),
    ("Paris", True),
    ("paris", False),
    (" ", False),
]


def replies(body: dict) -> str | int:
    answer = json.loads(body["messages"][1]["content"].split("\n")[0])["answer"].split()[0]
    return {"right": "correct: yes", "wrong": "correct: no", "unsure": "hm", "lost": 401}[answer]


@pytest.fixture
def labelled_file(tmp_path: Path) -> Path:
    rows = [
        {"question": "Capital?", "gold": "Paris", "answer": f"{answer} {number}", "label": label}
        if answer in ("right", "wrong", "unsure", "lost")
        else {"question": "Capital?", "gold": "Paris", "answer": answer, "label": label}
        for number, (answer, label) in enumerate(ROWS)
    ]
    return written(tmp_path / "labelled.jsonl", lines(*rows) + "not a row\n")


def test_a_lost_verdict_is_never_counted_as_wrong(
    endpoint: Endpoint, judge_of: Callable[..., Judge], labelled_file: Path
) -> None:
    endpoint.script = [replies]
    rows = read_labelled(labelled_file).rows
    seen: list[Checked] = []
    checked = background.run(check_judge(judge_of(), rows, seen.append, at_once=4))
    assert [item.row for item in checked] == rows
    assert len(seen) == len(rows)
    found = agreement(checked, confidence=0.9)
    assert found == Agreement(
        confusion=Confusion(2, 1, 1, 1),
        without_judge=Confusion(1, 0, 1, 1),
        unreadable=1,
        failed=1,
        recorded=0,
        confidence=0.9,
    )
    assert found.share == 3 / 5
    assert found.interval == wilson_interval(3, 5, 0.9)


def test_nothing_judged_has_no_share() -> None:
    found = agreement([])
    assert (found.share, found.interval) == (None, (0.0, 1.0))


def test_a_stopped_check_goes_on_from_its_cassette(
    endpoint: Endpoint, judge_of: Callable[..., Judge], labelled_file: Path, tmp_path: Path
) -> None:
    endpoint.script = [replies]
    rows = read_labelled(labelled_file).rows
    with CassetteStore(tmp_path / "c") as store:
        background.run(check_judge(judge_of(cassette=store), rows[:3]))
        assert len(endpoint.bodies) == 3
        found = agreement(background.run(check_judge(judge_of(cassette=store), rows[:5])))
    assert len(endpoint.bodies) == 5
    assert (found.recorded, found.confusion.total) == (3, 5)


def test_a_cassette_that_cannot_be_used_stops_the_check(
    judge_of: Callable[..., Judge], labelled_file: Path, tmp_path: Path
) -> None:
    store = CassetteStore(written(tmp_path / "c", "no cassette " * 100))
    with store, pytest.raises(CassetteError):
        background.run(check_judge(judge_of(cassette=store), read_labelled(labelled_file).rows))


# ---- the command ----------------------------------------------------------------------


@pytest.fixture
def at_the_endpoint(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Endpoint:
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "JUDGE_MODEL_NAME": "judge-model",
        "JUDGE_API_BASE": endpoint.url,
        "JUDGE_API_KEY": KEY,
    }.items():
        monkeypatch.setenv(name, value)
    endpoint.script = [replies]
    return endpoint


def test_the_command_prints_a_table_and_what_the_judge_sees_otherwise(
    at_the_endpoint: Endpoint, labelled_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    JudgeCommand("check", labelled_file, attempts=1).run()
    told = capsys.readouterr()
    assert "judge-model against 10 labelled answers" in told.out
    assert "agreement 60.0% of 5 judged" in " ".join(told.out.split())
    assert "1 unreadable" in told.out
    assert "1 rows left out" in " ".join(told.out.split())
    assert f"{labelled_file}, row 3: labelled wrong, found right: 'right 2'" in told.out
    assert f"{labelled_file}, row 6: judge judge-model gave no readable verdict" in told.out
    assert f"left out: {labelled_file}, row 11: not JSON" in told.err
    assert KEY not in told.out + told.err


def test_the_command_prints_json_and_goes_on_from_its_cassette(
    at_the_endpoint: Endpoint, labelled_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = []
    for _ in range(2):
        JudgeCommand("check", labelled_file, attempts=1, json=True).run()
        reports.append(json.loads(capsys.readouterr().out))
    first, second = reports
    assert first["agreement"] == second["agreement"] == 0.6
    assert first["confusion"] == {
        "right_right": 2,
        "right_wrong": 1,
        "wrong_right": 1,
        "wrong_wrong": 1,
    }
    assert (first["unreadable"], first["failed"], len(first["problems"])) == (1, 1, 1)
    assert (first["from_cassette"], second["from_cassette"]) == (0, 5)
    # What was lost is asked again; what can't be read, each time also without structured output.
    assert len(at_the_endpoint.bodies) == (7 + 1) + (2 + 1)
    assert [item["verdict"] for item in first["disagreements"]] == [True, False, True]
    assert {item["where"] for item in first["lost"]} == {
        f"{labelled_file}, row 6",
        f"{labelled_file}, row 7",
    }


def test_the_command_fails_where_nothing_could_be_judged(
    at_the_endpoint: Endpoint, tmp_path: Path
) -> None:
    row = {"question": "Q", "gold": "A", "answer": "lost", "label": True}
    path = written(tmp_path / "a.jsonl", lines(row))
    with pytest.raises(JudgeError, match="no answer could be judged"):
        JudgeCommand("check", path, cassette=None).run()


def test_the_command_imports_nothing_heavy() -> None:
    code = "import sys, trainers.commands.judge; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=HANGS
    )
    heavy = {"aiohttp", "torch", "gymnasium", "rich.table", "sqlite3", "drv_env"}
    assert not heavy & set(done.stdout.split())


def test_the_command_is_read_from_its_arguments() -> None:
    arguments = ["check", "a.csv", "--cassette", "None", "--json", "--model", "m"]
    command = tyro.cli(JudgeCommand, args=arguments)
    assert command == JudgeCommand("check", Path("a.csv"), model="m", cassette=None, json=True)


def test_each_pair_of_label_and_verdict_has_its_own_count() -> None:
    task = Task("Q", ("A",))
    pairs = [(True, True)] * 4 + [(True, False)] * 3 + [(False, True)] * 2 + [(False, False)]
    checked = [
        Checked(LabelledAnswer(task, "x", label, "here"), Verdict(correct, "judge"))
        for label, correct in pairs
    ]
    assert agreement(checked).confusion == Confusion(4, 3, 2, 1)
    assert agreement(checked).share == 5 / 10
