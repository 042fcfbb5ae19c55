"""Rows per second, and peak memory, of cleaning recorded trajectories on two cores.

The input is made by repeating and perturbing rows of the size of real raw trajectories
(some 37 tool turns, 90,000 characters); with DRV_GOLDEN set, the real ones in that folder.

    python benchmarks/clean.py [--quick] [--rows N]

Prints a table, and as its last line one JSON object with the keys ``rows_per_s`` and
``peak_rss_mb`` (all processes together, pages that they share counted for each).  Time is that
of the whole job, start of the workers and writing of the output included.
"""

import argparse
import json
import multiprocessing
import os
import random
import resource
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

VOCABULARY = (
    "river council archive museum county village painter treaty bridge station harbour "
    "Łódź Gdańsk founded century published recorded album museum novel 1912 1973 census "
    "the of in and was by with from its a according to entry page volume district"
)
WORDS = VOCABULARY.split()
MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])
SCHEMA = pa.schema(
    [
        ("meta", pa.struct([("question", pa.string()), ("answer", pa.string())])),
        ("messages", pa.list_(MESSAGE)),
    ]
)


def text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words))


def results(rng: random.Random, query: str) -> str:
    lines = [f"A Google search for '{query}' found 10 results:", "", "## Web Results"]
    for number in range(1, 11):
        url = f"https://example.org/{rng.randrange(10**6)}/{text(rng, 2).replace(' ', '_')}"
        lines += [f"{number}. [{text(rng, 7)}]({url})", "", text(rng, 26), ""]
    return "\n".join(lines)


def synthetic_row(rng: random.Random) -> dict[str, Any]:
    """A raw trajectory: thoughts, searches, visits, some code, some repeats."""
    question = text(rng, 90)
    messages = [{"role": "user", "content": question}]
    calls: list[str] = []
    for _ in range(rng.choice((24, 25, 33, 40, 49, 51))):
        kind = rng.random()
        query = text(rng, 8)
        if kind < 0.05 and calls:
            call, response = rng.choice(calls), results(rng, query)
        elif kind < 0.10:
            call = '{"name": "PythonInterpreter", "arguments": {}}\n<code>\nprint(6 * 7)\n</code>'
            response = "42"
        elif kind < 0.65:
            call = json.dumps({"name": "search", "arguments": {"query": [query]}})
            response = results(rng, query)
        else:
            url = f"https://example.org/{rng.randrange(10**6)}"
            call = f"{{'name': 'visit', 'arguments': {{'urls': '{url}', 'goal': 'Find {query}'}}}}"
            if rng.random() < 0.9:
                goal = {"url": [url], "goal": f"Find {query}"}
                call = json.dumps({"name": "visit", "arguments": goal})
            response = f"The useful information in {url} is as follows:\n{text(rng, 110)}"
        calls.append(call)
        thought = f"<think>\n{text(rng, 75)}\n</think>\n<tool_call>\n{call}\n</tool_call>"
        messages.append({"role": "assistant", "content": thought})
        content = f"<tool_response>\n{response}\n</tool_response>"
        messages.append({"role": "user", "content": content})
    answer = f"<think>\n{text(rng, 200)}\n</think>\n<answer>\n{text(rng, 3)}\n</answer>"
    messages.append({"role": "assistant", "content": answer})
    return {"meta": {"question": question, "answer": text(rng, 2)}, "messages": messages}


def perturbed(row: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The row with other words at the start of its texts and in its queries."""
    mark = f"{text(rng, 2)} {rng.randrange(10**9)}"
    changes = (("<think>\n", f"<think>\n{mark} "), ('"query": ["', f'"query": ["{mark} '))
    messages = []
    for message in row["messages"]:
        content = message["content"]
        for old, new in changes:
            content = content.replace(old, new, 1)
        messages.append({"role": message["role"], "content": content})
    return {"meta": row["meta"], "messages": messages}


def base_rows() -> tuple[str, list[dict[str, Any]]]:
    folder = os.environ.get("DRV_GOLDEN")
    if folder:
        table = pq.read_table(Path(folder) / "raw_trajectories.parquet").select(SCHEMA.names)
        return "real", table.to_pylist()
    rng = random.Random(0)
    return "synthetic", [synthetic_row(rng) for _ in range(16)]


def write_input(path: Path, bases: list[dict[str, Any]], rows: int) -> int:
    """Write the input; the number of its characters."""
    rng = random.Random(1)
    size = 0
    with pq.ParquetWriter(path, SCHEMA, compression="zstd", compression_level=1) as writer:
        for start in range(0, rows, 128):
            count = min(128, rows - start)
            made = [perturbed(bases[(start + n) % len(bases)], rng) for n in range(count)]
            size += sum(len(m["content"]) for row in made for m in row["messages"])
            writer.write_table(pa.Table.from_pylist(made, SCHEMA))
    return size


def resident_mb(root: int) -> float:
    """Resident memory of a process and all below it, in MB."""
    parents: dict[int, int] = {}
    resident: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                status = Path(f"/proc/{entry}/status").read_text()
            except OSError:
                continue
            fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
            parents[int(entry)] = int(fields["PPid"])
            resident[int(entry)] = int(fields.get("VmRSS", "0 kB").split()[0])
    family, grown = {root}, True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in family} - family
        family |= more
        grown = bool(more)
    return sum(resident.get(pid, 0) for pid in family) / 1000


def clean(source: Path, out: Path, workers: int) -> None:
    from replay.pipeline import CleanJob, run_clean

    run_clean(CleanJob((source,), out, workers=workers))


def measure(source: Path, out: Path, workers: int) -> tuple[float, float, float]:
    """Seconds of the job, in a process of its own, its CPU seconds, its peak memory in MB."""
    process = multiprocessing.get_context("spawn").Process(
        target=clean, args=(source, out, workers)
    )
    started = time.perf_counter()
    process.start()
    peak = 0.0
    ended = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not ended.wait(0.05):
            peak = max(peak, resident_mb(process.pid or 0))

    watcher = threading.Thread(target=watch)
    watcher.start()
    process.join()
    seconds = time.perf_counter() - started
    ended.set()
    watcher.join()
    if process.exitcode:
        raise SystemExit(f"the job ended with {process.exitcode}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, used.ru_utime + used.ru_stime, peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows; ends within 50 s")
    parser.add_argument("--rows", type=int, help="rows of the input")
    arguments = parser.parse_args()
    rows = arguments.rows or (3_000 if arguments.quick else 20_000)
    kind, bases = base_rows()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "raw.parquet"
        size = write_input(source, bases, rows)
        seconds, cpu, peak = measure(source, Path(folder) / "out", workers=2)
    print(f"{rows:,} {kind} rows, {size / rows:,.0f} characters each, 2 workers")
    print(f"{'seconds':<20}{seconds:>10.1f}")
    print(f"{'CPU ms a row':<20}{cpu / rows * 1000:>10.1f}")
    print(f"{'rows a second':<20}{rows / seconds:>10.1f}")
    print(f"{'peak memory, MB':<20}{peak:>10.1f}")
    print(json.dumps({"rows_per_s": round(rows / seconds, 1), "peak_rss_mb": round(peak, 1)}))


if __name__ == "__main__":
    main()
