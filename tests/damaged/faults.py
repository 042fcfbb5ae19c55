"""Damage by a seed, the files it is done to, and what a command may say about it.

Run by hand for more of it::

    python -m tests.damaged.faults 500
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from drv_env.cassette import CassetteStore, Recorded
from drv_env.errors import DrvError
from drv_env.rewards.labelled import read_labelled
from drv_env.secrets import Keys
from drv_env.task_files import read_tasks
from replay.chat_templates import CHATML
from replay.sources import Passed, open_trajectories
from replay.store import write_trajectories
from replay.template import ChatTemplate
from replay.token_store import TokenStore
from replay.token_writer import write_documents
from replay.web import RecordedWeb, build_web
from tests.replay import recordings
from tests.replay.conftest import byte_level_bpe
from trainers.agent_file import read_agent, write_agent
from trainers.cli import main
from trainers.runs.config_files import read_settings

ROWS = 12


def damaged(data: bytes, rng: random.Random) -> bytes:
    """The bytes truncated, with some of them flipped, or with a piece cut out or put in."""
    way = rng.randrange(5)
    at = rng.randrange(len(data) + 1)
    if way == 0:
        return data[:at]
    if way == 1:
        found = bytearray(data)
        for _ in range(rng.randint(1, 8)):
            if found:
                found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
        return bytes(found)
    size = rng.randint(1, 64)
    if way == 2:
        return data[:at] + data[at + size :]
    if way == 3:
        return data[:at] + rng.randbytes(size) + data[at:]
    start = rng.randrange(len(data) + 1)
    return data[:at] + data[start : start + size] + data[at + size :]


def chat_rows() -> list[dict[str, Any]]:
    """Recordings with a gold answer."""
    made = [recordings.spaced(), recordings.tight()]
    return [
        {"question": "Who founded Ur?", "gt": "Enki", "messages": made[number % 2]}
        for number in range(ROWS)
    ]


def task_rows() -> list[dict[str, Any]]:
    """Questions with answers."""
    return [{"question": f"Question {n}?", "answer": f"answer {n}"} for n in range(ROWS)]


def labelled_rows() -> list[dict[str, Any]]:
    """Answers with labels."""
    return [
        {"question": f"Question {n}?", "answers": ["yes"], "answer": "yes", "label": True}
        for n in range(ROWS)
    ]


def as_lines(rows: list[dict[str, Any]]) -> bytes:
    """The rows as JSON lines."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def as_csv(rows: list[dict[str, Any]]) -> bytes:
    """The rows as CSV."""
    names = list(rows[0])
    cell = lambda value: value[0] if isinstance(value, list) else str(value)  # noqa: E731
    lines = [",".join(names), *(",".join(cell(row[name]) for name in names) for row in rows)]
    return ("\n".join(lines) + "\n").encode()


def as_parquet(rows: list[dict[str, Any]], group: int = 4) -> bytes:
    """The rows as Parquet, in groups of four."""
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink, row_group_size=group)
    return sink.getvalue()


def write_originals(home: Path) -> None:
    """Whole files of every kind that a command reads."""
    for name, rows in (("chats", chat_rows()), ("tasks", task_rows())):
        (home / f"{name}.jsonl").write_bytes(as_lines(rows))
        (home / f"{name}.jsonl.gz").write_bytes(gzip.compress(as_lines(rows)))
        (home / f"{name}.json").write_bytes(json.dumps(rows, indent=1).encode())
        (home / f"{name}.json.gz").write_bytes(gzip.compress(json.dumps(rows).encode()))
        (home / f"{name}.parquet").write_bytes(as_parquet(rows))
    (home / "tasks.csv").write_bytes(as_csv(task_rows()))
    (home / "labelled.jsonl").write_bytes(as_lines(labelled_rows()))
    (home / "labelled.csv").write_bytes(as_csv(labelled_rows()))
    write_trajectories(home / "own.parquet", open_trajectories([home / "chats.jsonl"]))
    folder = home / "model"
    folder.mkdir()
    byte_level_bpe().save(str(folder / "tokenizer.json"))
    special = {"eos_token": "<|im_end|>", "chat_template": CHATML}
    (folder / "tokenizer_config.json").write_text(json.dumps(special))
    write_agent(folder, {"rules": {"max_turns": 5}, "sampling": {"temperature": 0.5}})
    (home / "run.yaml").write_text("rl: {steps: 3, seed: 1}\nmodel: {folder: somewhere}\n")
    (home / ".env").write_text("SERPER_KEY_ID=abcdefghijkl\nAPI_BASE='http://host/v1'\n")
    build_web(open_trajectories([home / "chats.jsonl"]), home / "web")
    with CassetteStore(home / "calls.cassette") as store:
        for number in range(ROWS):
            store.put("search", {"query": [f"q{number}"]}, Recorded(f"found {number}"))
    write_documents(
        open_trajectories([home / "chats.jsonl"]),
        home / "rows",
        lambda: ChatTemplate.from_folder(folder),
    )


Reader = Callable[[Path, Path], Any]
"""Reads a file (the first path); may write into the folder (the second)."""


def _command(*words: str) -> Reader:
    """``drv`` with these words; ``FILE`` and ``OUT`` stand for the paths, ``MODEL`` for a
    whole tokenizer."""

    def run(file: Path, out: Path) -> int:
        model = next(parent / "model" for parent in file.parents if (parent / "model").exists())
        places = {"FILE": file, "OUT": out, "OUT.jsonl": f"{out}.jsonl", "MODEL": model}
        status = main([str(places.get(word, word)) for word in words])
        if status == 1:
            raise DrvError(f"{file}")  # what it says is checked by the caller
        return status

    return run


def _check_store(file: Path, out: Path) -> None:
    store = TokenStore(file.parent)
    store.outside(1_000)
    list(store)


def _read_cassette(file: Path, out: Path) -> None:
    with CassetteStore(file, read_only=True) as store:
        store.stats()
        for number in range(ROWS):
            store.get("search", {"query": [f"q{number}"]})


DATA = ("chats.jsonl", "chats.jsonl.gz", "chats.json", "chats.json.gz", "chats.parquet")
TRAJECTORIES = (*DATA, "own.parquet")
TASKS = ("tasks.jsonl", "tasks.jsonl.gz", "tasks.json", "tasks.json.gz", "tasks.parquet")
CASES: tuple[tuple[str, Reader, tuple[str, ...]], ...] = (
    ("data clean", _command("data", "clean", "FILE", "--out", "OUT", "--workers", "1"), DATA),
    ("data stats", _command("data", "stats", "FILE"), TRAJECTORIES),
    ("data show", _command("data", "show", "FILE", "--row", "2"), TRAJECTORIES),
    ("data convert", _command("data", "convert", "FILE", "OUT.jsonl"), TRAJECTORIES),
    (
        "data rows",
        _command(
            *("data", "rows", "FILE", "--out", "OUT", "--tokenizer", "MODEL", "--workers", "1")
        ),
        ("chats.jsonl.gz", "chats.parquet", "own.parquet"),
    ),
    (
        "data web",
        _command("data", "web", "FILE", "--out", "OUT"),
        ("chats.jsonl.gz", "chats.parquet", "own.parquet"),
    ),
    ("cassette stats", _command("cassette", "stats", "FILE"), ("calls.cassette",)),
    ("cassette export", _command("cassette", "export", "FILE", "OUT"), ("calls.cassette",)),
    ("cassette merge", _command("cassette", "merge", "OUT", "FILE"), ("calls.cassette",)),
    ("cassette", _read_cassette, ("calls.cassette",)),
    ("questions", lambda file, out: read_tasks(file), (*TASKS, "tasks.csv")),
    ("labels", lambda file, out: read_labelled(file), ("labelled.jsonl", "labelled.csv")),
    ("trajectories", lambda file, out: list(open_trajectories([file], Passed())), TRAJECTORIES),
    (
        "tokenizer",
        lambda file, out: ChatTemplate.from_folder(file.parent),
        ("model/tokenizer.json", "model/tokenizer_config.json"),
    ),
    ("agent.json", lambda file, out: read_agent(file.parent), ("model/agent.json",)),
    ("config", lambda file, out: read_settings(file), ("run.yaml",)),
    (".env", lambda file, out: Keys.from_env({}, file), (".env",)),
    ("web", lambda file, out: RecordedWeb(file.parent), ("web/web.json", "web/cassette")),
    (
        "token rows",
        _check_store,
        ("rows/index.json", "rows/shard-00000.json", "rows/shard-00000.ids.npy"),
    ),
)
"""What is tried: the name, what reads, and the files."""


def trial(reader: Reader, originals: Path, name: str, seed: int, scratch: Path) -> str | None:
    """Damage one file and read it.

    Returns:
        What is wrong with how it went, or None.
    """
    rng = random.Random(f"{name} {seed}")
    file = originals / name
    whole = file.read_bytes()
    out = scratch / f"{seed}"
    said, errors = io.StringIO(), io.StringIO()
    file.write_bytes(damaged(whole, rng))
    failed: DrvError | None = None
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
            reader(file, out)
    except DrvError as error:
        failed = error
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        return f"{name} with seed {seed}: {type(error).__name__}: {error}"
    finally:
        file.write_bytes(whole)
    told = errors.getvalue()
    if "Traceback" in told or "Traceback" in said.getvalue():
        return f"{name} with seed {seed}: a traceback was printed"
    if failed is not None:
        text = told if str(failed) == str(file) else str(failed)
        if str(failed) == str(file) and told.strip().count("\n"):
            return f"{name} with seed {seed}: more than a line: {told!r}"
        if file.name not in text and file.parent.name not in text:
            return f"{name} with seed {seed}: the file is not named: {text!r:.300}"
        if out.is_file():
            return f"{name} with seed {seed}: it failed and left {out.name}"
    return None


def trials(count: int, originals: Path, scratch: Path) -> Iterator[tuple[str, str, str | None]]:
    """Every reader on every kind of file, ``count`` times: its name, the file's, the fault."""
    for number, (title, reader, names) in enumerate(CASES):
        for name in names:
            for seed in range(count):
                place = scratch / f"{number}-{name.replace('/', '-')}"
                place.mkdir(parents=True, exist_ok=True)
                yield title, name, trial(reader, originals, name, seed, place)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        home, work = Path(folder, "originals"), Path(folder, "work")
        home.mkdir()
        write_originals(home)
        tried, wrong = 0, []
        for title, _, fault in trials(int(sys.argv[1]) if sys.argv[1:] else 100, home, work):
            tried += 1
            if fault is not None:
                wrong.append(f"{title}: {fault}")
                sys.stdout.write(wrong[-1] + "\n")
                sys.stdout.flush()
        sys.stdout.write(f"{tried:,} tried, {tried - len(wrong):,} survived\n")
        sys.exit(1 if wrong else 0)
