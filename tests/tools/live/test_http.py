"""The HTTP client: bodies, charsets, redirects, loops, pickles."""

import asyncio
import gzip
import pickle
import threading
import zlib

import pytest
from aiohttp import web
from multidict import CIMultiDict

from drv_env.charsets import decode
from drv_env.errors import SettingError, ToolError
from drv_env.http import HttpClient
from drv_env.http_errors import kind_of_status, retry_after
from drv_env.http_reply import Unpacker
from drv_env.secrets import Secret


def packed(text, window):
    engine = zlib.compressobj(wbits=window)
    return engine.compress(text) + engine.flush()


GZIP = gzip.compress(b"hello hello", mtime=0)
BROTLI = bytes.fromhex("0b058068656c6c6f2068656c6c6f03")
ZSTD = bytes.fromhex("28b52ffd200b59000068656c6c6f2068656c6c6f")


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("", b"hello hello"),
        ("identity", b"hello hello"),
        ("gzip", gzip.compress(b"hello hello", mtime=0)),
        ("x-gzip", gzip.compress(b"hello ", mtime=0) + gzip.compress(b"hello", mtime=0)),
        ("gzip", gzip.compress(b"hello hello", mtime=0) + b"\0\0padding"),
        ("deflate", zlib.compress(b"hello hello")),
        ("deflate", packed(b"hello hello", -15)),
        # what is no coding's name is none
        ("none", b"hello hello"),
        ("UTF-8", b"hello hello"),
        ("binary", b"hello hello"),
        ("Identity, none", b"hello hello"),
        (" , ,", b"hello hello"),
        ("utf-8, gzip", GZIP),
        ('"GZip"', GZIP),
        ("X-GZIP;q=1", GZIP),
        # chains are undone from the last to the first
        ("gzip, identity", GZIP),
        ("gzip, gzip", gzip.compress(GZIP, mtime=0)),
        ("deflate, gzip", gzip.compress(zlib.compress(b"hello hello"), mtime=0)),
        ("gzip,deflate", zlib.compress(GZIP)),
        ("gzip, gzip, gzip, gzip, gzip", gzip.compress(gzip.compress(GZIP, mtime=0), mtime=0)),
        # a body that does not begin as its coding does is not packed
        ("gzip", b"hello hello"),
        ("gzip, gzip", GZIP),
        ("deflate", b"hello hello"),
        ("br", b"hello hello"),
        ("gzip, br", b"hello hello"),
        ("zstd, gzip", GZIP),
    ],
)
@pytest.mark.parametrize("step", [1, 1000])
def test_bodies_are_unpacked(encoding, body, step):
    unpacker = Unpacker(encoding, 1000)
    for at in range(0, len(body), step):
        unpacker.feed(body[at : at + step])
    assert unpacker.finish() == b"hello hello"


def test_a_bomb_is_not_unpacked_beyond_the_limit():
    unpacker = Unpacker("gzip", 1000)
    with pytest.raises(ToolError, match="larger than 1,000 bytes"):
        unpacker.feed(gzip.compress(b"\0" * 10_000_000, mtime=0))
    assert len(unpacker.taken()) <= 1001


def test_no_coding_of_a_chain_makes_more_than_the_limit():
    within = gzip.compress(gzip.compress(b"\0" * 100_000, 9, mtime=0), 9, mtime=0)
    assert len(within) < 150
    unpacker = Unpacker("gzip, gzip", 1000)
    unpacker.feed(within)
    with pytest.raises(ToolError, match="larger than 1,000 bytes"):
        unpacker.finish()
    assert len(unpacker.taken()) <= 1001


def test_several_header_lines_are_one_chain_and_only_what_is_known_is_asked_for():
    asked = []

    async def page(request):
        asked.append(request.headers["Accept-Encoding"])
        headers = CIMultiDict([("Content-Encoding", "deflate"), ("content-encoding", "GZIP")])
        return web.Response(body=gzip.compress(zlib.compress(b"hello hello")), headers=headers)

    async def main():
        app = web.Application()
        app.router.add_get("/", page)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        http = HttpClient()
        reply = await http.request("GET", f"http://127.0.0.1:{runner.addresses[0][1]}/")
        await http.close()
        await runner.cleanup()
        return reply

    assert asyncio.run(main()).body == b"hello hello"
    assert asked == ["gzip, deflate"]


@pytest.mark.parametrize(
    ("encoding", "body", "kind"),
    [
        ("br", BROTLI, "bad_reply"),
        ("zstd", ZSTD, "bad_reply"),
        ("x-compress", b"\x1f\x9d\x90" + BROTLI, "bad_reply"),
        ("br, gzip", gzip.compress(BROTLI, mtime=0), "bad_reply"),
        ("gzip", b"\x1f\x8bno gzip at all", "bad_reply"),
        ("gzip, gzip", gzip.compress(GZIP[:-3], mtime=0), "bad_reply"),
        ("deflate", b"\x00\x01\x02\x03 no deflate", "bad_reply"),
        (", ".join(["gzip"] * 6), GZIP, "too_costly"),
        ("gzip", gzip.compress(b"x" * 100, mtime=0)[:-9], "bad_reply"),
    ],
)
def test_damaged_bodies_are_a_failure(encoding, body, kind):
    def unpack():
        unpacker = Unpacker(encoding, 1000)
        unpacker.feed(body)
        return unpacker.finish()

    with pytest.raises(ToolError) as caught:
        unpack()
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("body", "declared", "text"),
    [
        ("Zürich".encode(), "iso-8859-1", "Zürich"),
        ("Zürich".encode("latin-1"), "utf-8", "Z\ufffdrich"),
        ("Zürich".encode("latin-1"), "iso-8859-1", "Zürich"),
        ("“quoted”".encode("cp1252"), "iso-8859-1", "“quoted”"),
        ("北京".encode("gb18030"), "gb2312", "北京"),
        ("北京".encode("utf-16"), None, "北京"),
        ("北京".encode("utf-16-le"), "utf-16-le", "北京"),
        ("日本".encode("iso-2022-jp"), "iso-2022-jp", "日本"),
        (b"\xef\xbb\xbfplain", None, "plain"),
        (b"plain", "klingon", "plain"),
        (b"plain", "zlib", "plain"),
        (b"plain", "punycode", "plain"),
        ('<meta charset="gbk">北京'.encode("gbk"), None, '<meta charset="gbk">北京'),
        (b"", None, ""),
    ],
)
def test_bytes_are_read_as_text_whatever_they_claim(body, declared, text):
    assert decode(body, declared) == text


@pytest.mark.parametrize(
    ("status", "said", "kind", "retryable"),
    [
        (400, "Not enough credits", "no_credit", False),
        (402, "", "no_credit", False),
        (403, "Unauthorized.", "unauthorised", False),
        (404, "", "not_found", False),
        (408, "", "timeout", True),
        (418, "", "rejected", False),
        (429, "", "rate_limited", True),
        (429, "You exceeded your current quota", "no_credit", False),
        (500, "", "server_error", True),
        (501, "", "server_error", False),
        (599, "", "server_error", True),
    ],
)
def test_statuses_have_kinds(status, said, kind, retryable):
    assert kind_of_status(status, said) == (kind, retryable)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("7", 7.0),
        ("0", 0.0),
        ("-3", 0.0),
        ("nan", None),
        ("soon", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("", None),
    ],
)
def test_retry_after_is_read(header, seconds):
    assert retry_after(header) == seconds


def serve(routes, body):
    """Run ``body(base)`` against a server with these GET routes."""

    async def main():
        app = web.Application()
        for path, handler in routes.items():
            app.router.add_route("*", path, handler)
        runner = web.AppRunner(app, shutdown_timeout=0.05, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            return await body(f"http://127.0.0.1:{runner.addresses[0][1]}")
        finally:
            await runner.cleanup()

    return asyncio.run(main())


def test_headers_stay_behind_when_a_redirect_leads_elsewhere(new_site):
    seen = []

    async def away(request):
        return web.Response(status=302, headers={"Location": away.to})

    async def here(request):
        seen.append(request.headers.get("Authorization"))
        return web.Response(text="ok")

    async def body(base):
        http = HttpClient()
        headers = {"Authorization": Secret("Bearer a-key-that-must-stay")}
        for to in ("/here", base.replace("127.0.0.1", "localhost") + "/here"):
            away.to = to
            reply = await http.request("GET", f"{base}/away", headers=headers, redirects=2)
            assert reply.text() == "ok"
        unfollowed = await http.request("GET", f"{base}/away", headers=headers)
        await http.close()
        return unfollowed

    unfollowed = serve({"/away": away, "/here": here}, body)
    assert seen == ["Bearer a-key-that-must-stay", None]
    assert unfollowed.status == 302


def test_a_deadline_of_the_callers_own_is_not_taken_for_a_failure(new_site):
    async def main():
        async with new_site() as site:
            http = HttpClient()
            request = asyncio.create_task(http.request("GET", site.url("never")))
            await site.hung.wait()
            request.cancel()
            with pytest.raises(asyncio.CancelledError):
                await request
            await http.close()

    asyncio.run(main())


def test_a_client_serves_several_loops_and_closes_them_all(new_site):
    async def main():
        async with new_site() as site:
            http = HttpClient()
            await http.request("GET", site.url("ok"))
            asked, done = threading.Event(), threading.Event()

            def elsewhere():
                async def other():
                    await http.request("GET", site.url("ok"))
                    asked.set()
                    await asyncio.to_thread(done.wait)

                asyncio.run(other())

            thread = threading.Thread(target=elsewhere)
            thread.start()
            await asyncio.to_thread(asked.wait)
            sessions = list(http._sessions.values())
            assert len(sessions) == 2
            await http.close()
            done.set()
            await asyncio.to_thread(thread.join)
            assert all(session.closed for session in sessions)
            await http.close()
            assert (await http.request("GET", site.url("ok"))).status == 200, "it may go on"
            await http.close()

    asyncio.run(main())


def test_pickling_carries_the_settings():
    http = HttpClient(limit=7, proxy="http://user:a-password@127.0.0.1:1")
    copy = pickle.loads(pickle.dumps(http))
    assert copy._limit == 7
    assert copy._proxy == http._proxy


@pytest.mark.parametrize("name", ["limit", "timeout", "connect_timeout", "max_bytes"])
def test_settings_that_can_not_work_are_refused(name):
    with pytest.raises(SettingError, match=f"{name} must be above 0, got 0"):
        HttpClient(**{name: 0})


def test_tool_errors_are_pickled_whole():
    error = ToolError("slow", kind="rate_limited", retryable=True, retry_after=3.0)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.kind, copy.retryable, copy.retry_after) == (
        "slow",
        "rate_limited",
        True,
        3.0,
    )
