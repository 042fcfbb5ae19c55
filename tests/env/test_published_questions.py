"""Question files as they are published: names of columns, nested answers, prompts, ciphertext."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drv_env.errors import TaskDataError
from drv_env.instructions import question_behind
from drv_env.task_files import load_tasks, read_tasks

ASKED = [{"role": "user", "content": "Q"}]


def write_lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows), encoding="utf-8")
    elif path.suffix == ".csv":
        with path.open("w", encoding="utf-8-sig", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        return write_lines(path, rows)
    return path


@pytest.mark.parametrize(
    ("gold", "answers"),
    [
        (1912, ("1912",)),
        (3.0, ("3",)),
        ([["English race", "Derby"]], ("English race", "Derby")),
        ([[1912], ["1913"]], ("1912", "1913")),
        ({"target": [1912]}, ("1912",)),
        ({"ground_truth": {"target": ["A"]}, "style": "rule"}, ("A",)),
        ({"value": "NYC", "aliases": ["New York", "NYC"]}, ("NYC", "New York")),
        ({"text": ["A", "B"], "answer_start": [3, 9]}, ("A", "B")),
        ([{"answer": "A"}, {"answer": "B"}], ("A", "B")),
        ('{"target": ["A"]}', ("A",)),
        ("{'target': ['A']}", ("A",)),
        ('[["A"]]', ("A",)),
        ("[1, 2]", ("[1, 2]",)),
        ("{1, 2}", ("{1, 2}",)),
        ("a<|answer_split|>[b]", ("a", "[b]")),
    ],
)
def test_gold_answers_as_people_nest_them(
    tmp_path: Path, gold: Any, answers: tuple[str, ...]
) -> None:
    for row in ({"question": "Q", "answer": gold}, {"question": "Q", "Final answer": gold}):
        (task,) = read_tasks(write_lines(tmp_path / "t.jsonl", [row]))
        assert task.answers == answers


def test_beside_gold_answers_that_are_empty_the_final_answer_is_the_agents(tmp_path: Path) -> None:
    rows = [{"question": "Q", "answers": [], "final_answer": "said"}]
    with pytest.raises(TaskDataError, match="the answer is empty"):
        read_tasks(write_lines(tmp_path / "t.jsonl", rows))


def test_a_named_column_is_found_whatever_its_case_and_one_with_exactly_the_name_first(
    tmp_path: Path,
) -> None:
    rows = [{"frage": "no", "Frage": "Q", "Die Antwort": "A", "UID": 7}]
    (task,) = read_tasks(
        write_lines(tmp_path / "t.jsonl", rows), question="Frage", answer="die_antwort", id="uid"
    )
    assert (task.question, task.answers, task.id) == ("Q", ("A",), "7")
    assert task.metadata == {"frage": "no"}


@pytest.mark.parametrize(
    "prompt",
    [
        "Use <search> and </search>. For example, <answer> Rome </answer>. Question: Q\n",
        "Tools: <tools>{}</tools>\n\nUser: Q\nAssistant: <think>",
        "You are an expert. Answer the following question.\n\nQuestion: Q",
        "Write \\boxed{} around it.\n## Question\nQ",
        "Think in <think> tags.\n<question>\nQ\n</question>",
    ],
)
def test_a_question_behind_instructions_is_the_question(tmp_path: Path, prompt: str) -> None:
    rows = [
        {"prompt": prompt, "answer": "A"},
        {"prompt": [{"role": "user", "content": prompt}], "answer": "A"},
        {"prompt": json.dumps([{"role": "user", "content": prompt}]), "answer": "A"},
    ]
    tasks = read_tasks(write_lines(tmp_path / "t.jsonl", rows)).tasks
    assert [task.question for task in tasks] == ["Q"] * 3
    assert all(task.metadata["instructions"] for task in tasks)


@pytest.mark.parametrize(
    "question",
    ["Which tag, <b> or <i>: 1?", "Read it.\nQuestion: who?", "In HTML: what does <a> do?"],
)
def test_a_question_without_instructions_stays_whole(tmp_path: Path, question: str) -> None:
    (task,) = read_tasks(write_lines(tmp_path / "t.jsonl", [{"prompt": question, "answer": "A"}]))
    assert task.question == question


@pytest.mark.parametrize(
    "piece", ["Question: ", "<question>", "<think>", " ", "You are\nUser: ", "Assistant:\n", "*"]
)
def test_a_monstrous_prompt_is_read_through(piece: str) -> None:
    """A reading of quadratic time would take hours."""
    text = f"Use <think>. {piece * (1_000_000 // len(piece))}"
    behind = question_behind(f"{text} Q", "Q")
    assert behind is not None
    assert behind[0] == "Q"
    alone = question_behind(piece * (1_000_000 // len(piece)))
    assert (alone is None) is ("You are" not in piece)


def hidden(text: str, key: bytes) -> str:
    """XOR with the key repeated, in base64."""
    data = text.encode()
    return base64.b64encode(bytes(byte ^ key[n % len(key)] for n, byte in enumerate(data))).decode()


KEYS = [b"MILLS-2026", hashlib.sha256(b"mills").digest()]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    ("columns", "canary"),
    [
        (("problem", "answer"), True),
        (("Question", "Answer"), True),
        (("prompt", "answer"), True),
        (("prompt", "answer"), False),
    ],
)
@pytest.mark.parametrize(
    "asked", ["In which year was mill {} built?", "第{}座磨坊是哪一年建成的？"]
)
def test_an_encrypted_file_is_refused(
    tmp_path: Path, key: bytes, columns: tuple[str, str], canary: bool, asked: str
) -> None:
    rows = []
    for number in range(4):
        cells = dict(zip(columns, (asked.format(number), str(1900 + number)), strict=True))
        row = {name: hidden(text, key) for name, text in cells.items()}
        rows.append({"Topic": "mills", **row} | ({"canary": "mills:2026"} if canary else {}))
    for name in ("t.jsonl", "t.csv", "t.parquet", "t.json"):
        path = write_rows(tmp_path / name, rows)
        with pytest.raises(TaskDataError, match=f"{name} is encrypted: the questions are base64"):
            read_tasks(path)
    with pytest.raises(TaskDataError, match="the tasks given is encrypted"):
        load_tasks([{"question": row[columns[0]], "answer": row[columns[1]]} for row in rows])


@pytest.mark.parametrize(
    "prompt",
    [
        [{"role": "user", "content": [{"type": "text", "text": "Q"}]}],
        [{"role": "system", "content": "S"}, {"role": "user", "content": [{"text": "Q"}]}],
        "<|im_start|>system\nYou are S.<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n",
        "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n<think>\n",
        "<|im_start|>user\nYou have <search>.\nQuestion: Q<|im_end|>\n<|im_start|>assistant\n",
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nQ<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
    ],
)
def test_a_prompt_in_parts_or_by_a_chat_template_is_its_question(
    tmp_path: Path, prompt: Any
) -> None:
    rows = [{"prompt": prompt, "reward_model": {"ground_truth": "1912"}}]
    (task,) = read_tasks(write_lines(tmp_path / "t.jsonl", rows))
    assert (task.question, task.answers) == ("Q", ("1912",))


def test_a_prompt_with_a_picture_or_several_turns_is_told(tmp_path: Path) -> None:
    picture = [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]
    several = "<|im_start|>user\nA<|im_end|>\n<|im_start|>assistant\nB<|im_end|>\n"
    for prompt in (picture, f"{several}<|im_start|>user\nC<|im_end|>\n"):
        with pytest.raises(TaskDataError, match="the prompt"):
            read_tasks(write_lines(tmp_path / "t.jsonl", [{"prompt": prompt, "answer": "A"}]))


def xored(text: str) -> bytes:
    return base64.b64decode(hidden(text, KEYS[1]))


CODES: dict[str, Callable[[bytes], str]] = {
    "base64 for urls": lambda data: base64.urlsafe_b64encode(data).decode(),
    "base64 without its padding": lambda data: base64.b64encode(data).decode().rstrip("="),
    "base64 in lines": lambda data: base64.encodebytes(data).decode(),
    "a data url": lambda data: f"data:text/plain;base64,{base64.b64encode(data).decode()}",
    "hex": lambda data: data.hex(),
    "hex in capitals": lambda data: data.hex().upper(),
    "hex as a number": lambda data: f"0x{data.hex()}",
    "base32": lambda data: base64.b32encode(data).decode(),
    "Python's bytes": lambda data: str(data),
    "numbers": lambda data: str(list(data)),
    "characters": lambda data: data.decode("latin-1"),
    "packed": lambda data: base64.b64encode(zlib.compress(data)).decode(),
    "OpenSSL": lambda data: base64.b64encode(b"Salted__" + data).decode(),
    "Fernet": lambda data: base64.urlsafe_b64encode(b"\x80" + bytes(7) + data * 3).decode(),
    "age": lambda data: f"age-encryption.org/v1\n{data.hex()}",
    "PGP": lambda data: f"-----BEGIN PGP MESSAGE-----\n\n{base64.b64encode(data).decode()}",
    "SOPS": lambda data: f"ENC[{base64.b64encode(data).decode()}]",
}


@pytest.mark.parametrize("code", CODES)
def test_whatever_code_hides_the_questions_the_file_is_refused(tmp_path: Path, code: str) -> None:
    asked = [xored(f"In which year was mill number {number} built?") for number in range(4)]
    for more in ({}, {"canary": "mills"}):
        rows = [{"question": CODES[code](data), "answer": "1912", **more} for data in asked]
        with pytest.raises(TaskDataError, match=r"t\.jsonl is encrypted: the questions"):
            read_tasks(write_lines(tmp_path / "t.jsonl", rows))
    rows = [{"question": "When?", "answer": CODES[code](data)} for data in asked]
    path = write_lines(tmp_path / "a.jsonl", rows)
    if code in ("OpenSSL", "Fernet", "age", "PGP", "SOPS"):
        with pytest.raises(TaskDataError, match=r"a\.jsonl is encrypted: the answers"):
            read_tasks(path)
    else:  # such an answer may be what was asked for
        assert len(read_tasks(path)) == 4


@pytest.mark.parametrize(
    "answer",
    [
        hashlib.sha1(b"mill").hexdigest(),
        hashlib.md5(b"mill").hexdigest().upper(),
        "0x52908400098527886E0F7030069857D2E4169EE7",
        "1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa",
        "dQw4w9WgXcQ",
        "[1, 2, 3]",
        "b'mill'",
        "ACGTACGTACGTACGTACGTACGT",
    ],
)
def test_codes_are_answers_to_plain_questions(tmp_path: Path, answer: str) -> None:
    rows = [{"question": f"Which one, {n}?", "answer": answer, "canary": "k"} for n in range(4)]
    assert len(read_tasks(write_lines(tmp_path / "t.jsonl", rows))) == 4


def test_an_encrypted_shard_beside_a_plain_one_is_refused(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", [{"question": "Q", "answer": "A"}] * 40)
    row = {"question": hidden("In which year was it built?", KEYS[1]), "answer": "A"}
    write_lines(tmp_path / "b.jsonl", [row])
    with pytest.raises(TaskDataError, match=r"b\.jsonl is encrypted"):
        read_tasks(tmp_path)


def test_encrypted_answers_beside_a_canary_are_refused(tmp_path: Path) -> None:
    rows = [
        {"question": f"Mill {n}?", "answer": hidden(f"in {1900 + n}", KEYS[1]), "Canary": "k"}
        for n in range(3)
    ]
    with pytest.raises(TaskDataError, match="the answers are base64"):
        read_tasks(write_lines(tmp_path / "t.jsonl", rows))


def test_puzzles_and_canaries_in_plain_files_stay(tmp_path: Path) -> None:
    noise = hidden("In which year was it built?", KEYS[1])
    rows = [
        {"question": "Who built the mill?", "answer": "Salen", "canary": "k"},
        {"question": "When?", "answer": "1912", "canary": "k"},
        {"question": noise, "answer": "noise", "canary": "k"},
        {"question": base64.b64encode(b"What is the capital of France?").decode(), "answer": "P"},
        {"question": "Photosynthesis in mills-2026", "answer": "A"},
        {"question": "Donaudampfschifffahrtsgesellschaft42"[:36], "answer": "A"},
    ]
    assert len(read_tasks(write_lines(tmp_path / "t.jsonl", rows))) == 6
    puzzle = [row for row in rows if row["answer"] == "P"]
    assert len(read_tasks(write_lines(tmp_path / "p.jsonl", puzzle))) == 1
