"""Milliseconds to find a page's text: in this process, and in one that can be killed.

    python benchmarks/page_reading.py

Prints a line for each size of a page, and as its last line one JSON object with the keys
``here_ms`` and ``worker_ms``, each a mapping of the page's bytes to the shortest of 100 readings,
and ``start_ms``, for the first page, which starts a process.
"""

import asyncio
import json
import time

from drv_env.http_reply import HttpReply
from drv_env.tools.live.extraction import page_text
from drv_env.tools.live.page_worker import PageWorkers

SENTENCE = "The museum in Morvane was founded in 1921 by Ada Tavelin, a botanist. "
MOST = 2_000_000
TIMES = 100


def page(paragraphs: int) -> HttpReply:
    """A page of so many paragraphs."""
    text = "".join(f"<p>{SENTENCE * 4}{number}</p>" for number in range(paragraphs))
    body = f"<html><body><article><h1>Museum</h1>{text}</article></body></html>".encode()
    return HttpReply(200, {"content-type": "text/html"}, body, "https://example.org/")


async def main() -> None:
    """Measure and print."""
    workers = PageWorkers()
    start = time.perf_counter()
    await workers.read(page(1), MOST, 1)
    start_ms = 1e3 * (time.perf_counter() - start)
    here, worker = {}, {}
    for paragraphs in (1, 30, 300):
        reply = page(paragraphs)
        sizes: tuple[list[float], list[float]] = ([], [])
        for _ in range(TIMES):
            start = time.perf_counter()
            page_text(reply, max_chars=MOST, max_pdf_pages=1, seconds=60)
            middle = time.perf_counter()
            await workers.read(reply, MOST, 1)
            sizes[0].append(middle - start)
            sizes[1].append(time.perf_counter() - middle)
        size = len(reply.body)
        here[size], worker[size] = (round(1e3 * min(part), 2) for part in sizes)
        print(f"{size:7,} bytes: here {here[size]} ms, in a worker {worker[size]} ms")
    workers.close()
    print(json.dumps({"here_ms": here, "worker_ms": worker, "start_ms": round(start_ms)}))


if __name__ == "__main__":
    asyncio.run(main())
