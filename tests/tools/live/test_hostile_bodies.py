"""Pages that are made to cost much, from a real server: none costs the next one anything.

The bodies are in ``hostile_bodies.py``; ``-m slow`` sends all of them.
"""

import asyncio
import os
import random
import subprocess
import sys
from collections import Counter
from contextlib import suppress

import pytest
from aiohttp import web

from drv_env.errors import ToolError
from drv_env.http_reply import HttpReply
from drv_env.play import run_call
from drv_env.protocol import Visit
from drv_env.tasks import Task
from drv_env.tools.base import Call, Status
from drv_env.tools.live import FetchReader, LiveTools
from drv_env.tools.live.page_worker import WORKERS, PageWorkers

GOOD = (
    "<html><body><article><p>"
    + "The founder is Ada Tavelin. " * 20
    + "</p></article></body></html>"
)
COSTLY = {"too_costly", "not_text", "too_large", "bad_reply"}
EVERY_TIME = (
    "60,000 attributes",
    "25,000 cells in a row",
    "100,000 nested <div>",
    "a gzip of 400,000 members",
    "a stream of 120 MB in 120 kB",
    "2,000,000 words",
    "a tree of pages 20,000 deep",
    "billion laughs",
    "an entity from a file",
    "an entity of 1,000,000 signs",
    "nested JSON",
    "bytes of no encoding",
)


@pytest.fixture(scope="module")
def hostile():
    """The bodies by name."""
    import importlib.util
    from pathlib import Path

    path = Path(__file__).with_name("hostile_bodies.py")
    spec = importlib.util.spec_from_file_location("hostile_bodies", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {name: rest for name, *rest in module.bodies()}


def visited(bodies, seconds):
    """Each body is read, and a good page after it: (outcomes by name, good pages read)."""

    async def main():
        async def page(request):
            kind, encoding, body = bodies[request.query["name"]]
            headers = {"Content-Type": kind[:4_000]}
            if encoding:
                headers["Content-Encoding"] = encoding
            return web.Response(body=body, headers=headers)

        async def good(request):
            return web.Response(text=GOOD, content_type="text/html")

        app = web.Application()
        app.router.add_get("/page", page)
        app.router.add_get("/good", good)
        runner = web.AppRunner(app, shutdown_timeout=0.05, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        reader = FetchReader(
            allow_private=(f"127.0.0.1:{port}",),
            timeout=60,
            parse_seconds=seconds,
            parse_memory=600_000_000,
        )
        outcomes, goods = {}, 0
        for name in bodies:
            try:
                outcomes[name] = await reader.read(f"http://127.0.0.1:{port}/page?name={name}")
            except ToolError as error:
                outcomes[name] = error
            page = await reader.read(f"http://127.0.0.1:{port}/good")
            goods += "The founder is Ada Tavelin." in page.text
        await reader.close()
        await runner.cleanup()
        return outcomes, goods

    return asyncio.run(main())


def check(outcomes):
    for name, outcome in outcomes.items():
        if isinstance(outcome, ToolError):
            assert outcome.kind in COSTLY, (name, outcome)
            assert str(outcome), name
        else:
            assert len(outcome.text) <= 2_000_000, name
            assert "root:" not in outcome.text, name
            assert outcome.text.count("lol") < 1_000_000, name


def test_a_page_that_costs_too_much_costs_no_later_visit(hostile):
    bodies = {name: hostile[name] for name in EVERY_TIME}
    outcomes, goods = visited(bodies, 1.5)
    assert goods == len(bodies)
    check(outcomes)
    assert outcomes["60,000 attributes"].kind == "too_costly"
    assert outcomes["a gzip of 400,000 members"].kind == "too_costly"


IN_LITTLE_TIME = """
import sys
from drv_env.errors import ToolError
from drv_env.tools.live.extraction import read_html, read_pdf
markup, pdf = (open(path, "rb").read() for path in sys.argv[1:])
print(read_html(markup.decode(), 0.05)[1].count("cell"))
try:
    read_pdf(pdf, 10, 1_000, 0.05)
except ToolError as error:
    print(error.kind)
print(read_html("<p>The founder is Ada.", 600.0)[1])
"""


def test_when_time_is_short_the_finer_parts_are_left_out(hostile, tmp_path):
    """In a process of its own: the timer belongs to its main thread."""
    (tmp_path / "markup").write_bytes(hostile["25,000 cells in a row"][2])
    (tmp_path / "pdf").write_bytes(hostile["2,000,000 words"][2])
    done = subprocess.run(
        [sys.executable, "-c", IN_LITTLE_TIME, str(tmp_path / "markup"), str(tmp_path / "pdf")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert done.stdout.splitlines() == ["25000", "too_costly", "The founder is Ada."]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_no_hostile_page_costs_a_later_visit(hostile):
    outcomes, goods = visited(hostile, 3.0)
    assert goods == len(hostile)
    check(outcomes)


def test_a_visit_that_times_out_leaves_nothing_working(hostile):
    """The call's deadline passes while the page is read: its process is gone with it."""
    kind, _, body = hostile["60,000 attributes"]

    async def main():
        asked = []

        async def page(request):
            asked.append(request.path)
            return web.Response(body=body, content_type=kind)

        app = web.Application()
        app.router.add_get("/page", page)
        runner = web.AppRunner(app, shutdown_timeout=0.05, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        reader = FetchReader(allow_private=(f"127.0.0.1:{port}",), parse_seconds=600)
        tools = LiveTools(reader=reader, deadline=0.5)
        before = children()
        result = await run_call(
            tools, Call(Visit((f"http://127.0.0.1:{port}/page",), "x"), Task("Q?", ("A",))), 60
        )
        after = children()
        await tools.close()
        await runner.cleanup()
        return asked, result, before, after

    asked, result, before, after = asyncio.run(main())
    assert asked
    assert result.status is Status.REFUSED
    assert "not done within 0.5 seconds" in result.text
    assert after <= before
    assert not WORKERS._idle or WORKERS._idle[0].alive()


def children():
    """Processes that this one has started and not yet seen the end of."""
    found = set()
    for task in os.listdir("/proc/self/task"):
        with suppress(FileNotFoundError), open(f"/proc/self/task/{task}/children") as file:
            found |= set(file.read().split())
    return found


def test_a_page_that_is_refused_is_told_of_with_its_reason(hostile):
    kind, _, body = hostile["60,000 attributes"]

    async def main():
        async def page(request):
            return web.Response(body=body, content_type=kind)

        app = web.Application()
        app.router.add_get("/page", page)
        runner = web.AppRunner(app, shutdown_timeout=0.05, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        reader = FetchReader(allow_private=(f"127.0.0.1:{port}",), parse_seconds=1)
        tools = LiveTools(reader=reader)
        asked = Visit((f"http://127.0.0.1:{port}/page",), "x")
        result = await run_call(tools, Call(asked, Task("Q?", ("A",))), 60)
        await tools.close()
        await runner.cleanup()
        return result

    result = asyncio.run(main())
    assert result.status is Status.REFUSED
    assert "finding its text takes over 1 seconds" in result.text
    assert result.data[0]["kind"] == "too_costly"


PIECES = (
    *("<p>", "</p>", "<div>", "</div>", "<table>", "<tr>", "<td>", "</table>", "<li>", "<br/>"),
    *("<!--", "-->", "<![CDATA[", "]]>", "<script>", "</script>", "<style>", "<title>"),
    *("</title>", "<a href='http://a.org'>", '<img alt="x', "<svg><math>", "<html", "<?xml "),
    *("<!DOCTYPE ", "&#0;", "&amp", "&nbsp;", "\ufffe", "\ud800", "\u202e", "🙂", "é", "北"),
    *("word ", "A sentence. ", "<meta charset=utf-16>", "<base href=//x>", "<iframe>"),
    *("<p class='x' ", "=", '"', "'", "<", ">"),
)
PAGES = 400


def made_up_page(rng):
    """Bytes of a page out of pieces, sometimes with bytes of no meaning in it."""
    text = "".join(rng.choice(PIECES) for _ in range(rng.randint(1, 300)))
    codec = rng.choice(("utf-8", "utf-8", "cp1252", "gb18030", "utf-16"))
    body = bytearray(text.encode(codec, "surrogatepass" if codec[:3] == "utf" else "replace"))
    for _ in range(rng.choice((0, 0, 1, 20))):
        body[rng.randrange(len(body))] = rng.randrange(256)
    return bytes(body)


def damaged_pdf(rng, whole):
    """A PDF with some bytes changed, taken out or doubled."""
    body = bytearray(whole)
    for _ in range(rng.randint(1, 30)):
        at = rng.randrange(len(body))
        what = rng.randrange(3)
        if what == 0:
            body[at] = rng.randrange(256)
        elif what == 1:
            del body[at : at + rng.randint(1, 20)]
        else:
            body[at:at] = body[at : at + rng.randint(1, 50)]
    return bytes(body)


def test_made_up_pages_are_read_or_refused_and_the_worker_lives_on(hostile):
    rng = random.Random(17)
    whole = hostile["forms that draw themselves"][2].replace(b"/X Do", b"(a)Tj")
    kinds = ("text/html", "text/plain", "application/xhtml+xml", "application/json", "")

    async def main():
        workers = PageWorkers(30.0, 600_000_000)
        read = 0
        for number in range(PAGES):
            pdf = number % 4 == 3
            body = damaged_pdf(rng, whole) if pdf else made_up_page(rng)
            kind = "application/pdf" if pdf else rng.choice(kinds)
            reply = HttpReply(200, {"content-type": kind}, body, "https://a.org/")
            try:
                page = await workers.read(reply, 100_000, 10)
            except ToolError as error:
                kinds_of_failure[error.kind] += 1
            else:
                assert len(page.text) <= 100_000
                read += 1
        workers.close()
        return read

    kinds_of_failure = Counter()
    read = asyncio.run(main())
    assert set(kinds_of_failure) <= {"not_text"}
    assert read + kinds_of_failure.total() == PAGES
    assert read > PAGES // 3
