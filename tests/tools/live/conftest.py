"""A real web server on this machine that can misbehave in every way the tools must bear."""

import asyncio
import gzip
import json
import os
from collections import Counter
from pathlib import Path

import pytest
from aiohttp import web

from drv_env.http import HttpClient
from drv_env.retry import RetryPolicy
from drv_env.tools.live import FetchReader, JinaReader, LiveTools, Serper
from drv_env.tools.live.page_worker import WORKERS

LIMIT = 200_000
"""Bytes of a body that the tests' clients accept."""

ARTICLE = (
    "The museum in Morvane was founded in 1921 by Ada Tavelin, a botanist. "
    "It holds 4,000 plants and is open from nine to five. "
)
PAGE = (
    "<html><head><title>The museum</title></head><body><nav>Menu Home</nav><article><h1>The museum"
    f"</h1><p>{ARTICLE * 4}</p></article><footer>Imprint</footer></body></html>"
)
HIT = {"title": "The museum", "link": "https://example.org/museum", "snippet": "Founded in 1921"}


class Site:
    """A server in the running loop: ``async with Site() as site``.

    What it answers is chosen by the word after ``fault:`` in the query or url asked for, or
    by the page's path.

    Attributes:
        hits: requests by fault.
        seen: the JSON bodies, and headers under ``"headers"``, of requests to services.
        replies: bodies that the chat endpoint gives in turn, each a (status, body).
    """

    def __init__(self):
        self.hits = Counter()
        self.seen = []
        self.replies = []
        self.hung = asyncio.Event()
        self.other = ""

    async def __aenter__(self):
        app = web.Application(client_max_size=10_000_000)
        app.router.add_post("/serper", self._serper)
        app.router.add_post("/jina", self._jina)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/page/{fault}", self._page)
        self._runner = web.AppRunner(
            app, shutdown_timeout=0.05, handler_cancellation=True, access_log=None
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.port = self._runner.addresses[0][1]
        self.address = f"127.0.0.1:{self.port}"
        self.base = f"http://{self.address}"
        return self

    async def __aexit__(self, *_):
        await self._runner.cleanup()

    def url(self, fault):
        return f"{self.base}/page/{fault}"

    async def _serper(self, request):
        body = await request.json()
        self.seen.append({**body, "headers": dict(request.headers)})
        fault = body["q"].partition("fault:")[2] or "ok"
        ok = {"searchParameters": {"q": body["q"]}, "organic": [HIT], "credits": 1}
        return await self._answer(request, fault, json.dumps(ok), "application/json")

    async def _jina(self, request):
        body = await request.json()
        self.seen.append({**body, "headers": dict(request.headers)})
        fault = body["url"].partition("fault:")[2] or "ok"
        data = {"title": "The museum", "url": body["url"], "content": ARTICLE * 4}
        ok = {"code": 200, "data": {**data, "usage": {"tokens": 1000}}}
        return await self._answer(request, fault, json.dumps(ok), "application/json")

    async def _chat(self, request):
        self.hits["chat"] += 1
        self.seen.append({**await request.json(), "headers": dict(request.headers)})
        status, body = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if not isinstance(body, str):
            body = json.dumps(body)
        return web.Response(status=status, text=body, content_type="application/json")

    async def _page(self, request):
        return await self._answer(request, request.match_info["fault"], PAGE, "text/html")

    async def _answer(self, request, fault, ok, kind):
        self.hits[fault] += 1
        name = fault.partition("-")[0]
        handler = getattr(self, f"fault_{name}", None)
        if handler is not None:
            return await handler(request)
        if fault.startswith("status"):
            return web.Response(status=int(fault.removeprefix("status")), text="<html>no</html>")
        return web.Response(text=ok, content_type=kind)

    # ---- faults ---------------------------------------------------------------------

    async def fault_busy(self, request):
        return web.Response(status=429, headers={"Retry-After": "7"}, text="slow down")

    async def fault_twice(self, request):
        """Busy at first, then as it should be."""
        if self.hits["twice"] < 3:
            return await self.fault_busy(request)
        return web.json_response({"organic": [HIT]})

    async def fault_nothing(self, request):
        return web.json_response({"searchParameters": {"q": "x"}, "organic": []})

    async def fault_patience(self, request):
        return web.Response(status=429, headers={"Retry-After": "86400"})

    async def fault_garbage(self, request):
        return web.Response(body=b"\x00\x01\xfe{]", content_type="application/json")

    async def fault_html(self, request):
        return web.Response(text="<html>Bad gateway</html>", content_type="text/html")

    async def fault_never(self, request):
        """Begins, and never goes on."""
        response = web.StreamResponse(headers={"Content-Type": "text/html"})
        await response.prepare(request)
        await response.write(b"<html>")
        self.hung.set()
        await asyncio.Event().wait()

    async def fault_drip(self, request):
        """A byte now and then, for ever."""
        response = web.StreamResponse(headers={"Content-Type": "text/html"})
        await response.prepare(request)
        while True:
            await response.write(b"a")
            await asyncio.sleep(0.01)  # the fault itself

    async def fault_endless(self, request):
        """Without end, as fast as it goes."""
        response = web.StreamResponse(headers={"Content-Type": "text/html"})
        await response.prepare(request)
        while True:
            await response.write(b"<p>more</p>" * 1000)

    async def fault_reset(self, request):
        request.transport.abort()
        return web.Response()

    async def fault_oversize(self, request):
        return web.Response(body=b"x" * (LIMIT + 1), content_type="text/html")

    async def fault_bomb(self, request):
        return web.Response(
            body=BOMB, headers={"Content-Encoding": "gzip", "Content-Type": "text/html"}
        )

    async def fault_redirect(self, request):
        return web.Response(status=302, headers={"Location": f"{self.other}/page/ok"})

    async def fault_loop(self, request):
        return web.Response(status=302, headers={"Location": "/page/loop"})

    async def fault_moved(self, request):
        return web.Response(status=301, headers={"Location": "/page/ok"})

    async def fault_charset(self, request):
        """Says UTF-8, is GB18030."""
        text = (
            f"<html><body><article><p>{'北京大学的校长是蔡元培。' * 20}</p></article></body></html>"
        )
        return web.Response(
            body=text.encode("gb18030"), headers={"Content-Type": "text/html; charset=utf-8"}
        )

    async def fault_nonsense(self, request):
        """Declares an encoding that nobody knows."""
        return web.Response(
            body=PAGE.replace("botanist", "botanist from Zürich").encode("utf-8"),
            headers={"Content-Type": "text/html; charset=klingon"},
        )

    async def fault_image(self, request):
        return web.Response(body=b"\x89PNG\r\n\x1a\n\x00\x00", content_type="image/png")

    async def fault_binary(self, request):
        return web.Response(body=b"\x7fELF\x00\x00\x01" * 50, content_type="text/html")

    async def fault_site503(self, request):
        """The reader service's words for a site that sends no end of redirects."""
        said = "Failed to access https://a.org/x: Too many redirections."
        body = {"code": 503, "name": "ServiceBadAttemptError", "status": 50304, "message": said}
        return web.json_response(body, status=503)

    async def fault_site422(self, request):
        said = "Failed to goto https://a.org/x: Navigation timeout of 30000 ms exceeded"
        body = {"code": 422, "name": "AssertionFailureError", "status": 42206, "message": said}
        return web.json_response({"data": None, **body}, status=422)

    async def fault_wall(self, request):
        return web.Response(
            text="<html><head><title>Just a moment...</title></head><body><h1>mills.org</h1>"
            "<p>Verify you are human by completing the action below.</p></body></html>",
            content_type="text/html",
        )

    async def fault_blank(self, request):
        return web.Response(text="<html><body></body></html>", content_type="text/html")


BOMB = gzip.compress(b"\0" * 50_000_000, 9)


class Waits(list):
    """A sleep that doesn't, and remembers how long it should have."""

    async def __call__(self, seconds):
        self.append(seconds)


@pytest.fixture(scope="session", autouse=True)
def _page_workers():
    """Keeps the processes that read pages from one test to the next."""

    class Tests:
        """Who leases them."""

    tests = Tests()
    release = WORKERS.lease(tests)
    yield
    release()


@pytest.fixture
def waits():
    return Waits()


@pytest.fixture
def new_site():
    """Makes servers, to be entered in a loop."""
    return Site


@pytest.fixture
def live(waits):
    """Makes live tools against a site: ``live(site)``."""

    def make(site, *, reader="fetch", seconds=60.0, attempts=3, **settings):
        http = HttpClient(timeout=seconds, max_bytes=LIMIT)
        serper = Serper(
            "serper-key-for-tests", http=http, endpoint=f"{site.base}/serper", timeout=seconds
        )
        if reader == "fetch":
            pages = FetchReader(allow_private=(site.address,), timeout=seconds, max_bytes=LIMIT)
        else:
            pages = JinaReader(
                ("jina-key-for-tests",),
                http=http,
                endpoint=f"{site.base}/jina",
                timeout=seconds,
                price=0.02,
            )
        policy = RetryPolicy(attempts=attempts, sleep=waits, random=lambda: 1.0)
        tools = LiveTools(serper, pages, retry=policy, **settings)
        tools.shared = http
        return tools

    return make


@pytest.fixture
def cases():
    """Reads a file of JSON lines from the folder DRV_CASES names."""
    folder = os.environ.get("DRV_CASES")
    if not folder:
        pytest.skip("DRV_CASES is unset: the collected inputs are not on this machine")

    def read(name):
        lines = (Path(folder) / name).read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.strip()]

    return read
