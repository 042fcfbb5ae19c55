"""Rows per second, and peak memory, of cleaning recorded trajectories on two cores.

The input repeats and perturbs sixteen rows, twelve of which cleaning keeps: with DRV_GOLDEN set
the recorded ones in that folder, else made ones of their sizes and shapes (made_rows.py).

    python benchmarks/clean.py [--quick] [--rows N] [--shuffle]

Prints a table, and as its last line one JSON object with the keys ``rows_per_s`` (rows of the
input, dropped ones too) and ``peak_rss_mb`` (all processes together, pages that they share
counted for each).  Time is that of the whole job, start of the workers and writing of the output
included.
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
from made_rows import made_rows, text

MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])
SCHEMA = pa.schema(
    [
        ("meta", pa.struct([("question", pa.string()), ("answer", pa.string())])),
        ("messages", pa.list_(MESSAGE)),
    ]
)


def perturbed(row: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The row with other words at the start of its texts and in its queries."""
    mark = f"{text(rng, 14)} {rng.randrange(10**9)}"
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
    return "made", made_rows()


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
    family, pages = [root], 0
    for pid in family:  # grows while it is gone through
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                family += map(int, children.read_text().split())
        except OSError:
            continue  # it has ended
    return pages * resource.getpagesize() / 1e6


def kept_rows(out: Path) -> int:
    return int(json.loads((out / "stats.json").read_text(encoding="utf-8"))["kept"])


def clean(source: Path, out: Path, workers: int, shuffle: bool) -> None:
    from replay.pipeline import CleanJob, run_clean

    seed = 0 if shuffle else None
    run_clean(CleanJob((source,), out, workers=workers, shuffle=seed, copies=shuffle))


def measure(source: Path, out: Path, workers: int, shuffle: bool) -> tuple[float, float, float]:
    """Seconds of the job, in a process of its own, its CPU seconds, its peak memory in MB."""
    process = multiprocessing.get_context("spawn").Process(
        target=clean, args=(source, out, workers, shuffle)
    )
    started = time.perf_counter()
    process.start()
    peak = 0.0
    ended = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not ended.wait(0.1):
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
    parser.add_argument("--shuffle", action="store_true", help="also shuffle, and write copies")
    arguments = parser.parse_args()
    rows = arguments.rows or (3_000 if arguments.quick else 20_000)
    kind, bases = base_rows()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "raw.parquet"
        size = write_input(source, bases, rows)
        out = Path(folder) / "out"
        seconds, cpu, peak = measure(source, out, 2, arguments.shuffle)
        kept = kept_rows(out)
    print(f"{rows:,} rows from {kind} ones, {size / rows:,.0f} characters each, 2 workers")
    print(f"{'seconds':<20}{seconds:>10.1f}")
    print(f"{'CPU ms a row':<20}{cpu / rows * 1000:>10.1f}")
    print(f"{'rows a second':<20}{rows / seconds:>10.1f}")
    print(f"{'of them kept':<20}{kept / seconds:>10.1f}")
    print(f"{'peak memory, MB':<20}{peak:>10.1f}")
    print(json.dumps({"rows_per_s": round(rows / seconds, 1), "peak_rss_mb": round(peak, 1)}))


if __name__ == "__main__":
    main()
