"""Every fault of a server: what the model sees, what is counted, whether it is tried again."""

import asyncio

import pytest

from drv_env.play import run_call
from drv_env.protocol import Search, Visit
from drv_env.tasks import Task
from drv_env.tools.base import Call, Status
from drv_env.tools.layers import Metrics

TASK = Task("Who founded the museum?", ("Ada Tavelin",))
FAULT = "This is a fault of the tool and says nothing about what exists"


def play(new_site, live, action, seconds=60.0, reader="fetch", **settings):
    """One call against a fresh site: (result, metrics, site)."""

    async def main():
        async with new_site() as site, new_site() as other:
            site.other = other.base
            tools = Metrics(live(site, seconds=seconds, reader=reader, **settings))
            asked = action(site) if callable(action) else action
            result = await run_call(tools, Call(asked, TASK), 300)
            await tools.close()
            await tools.tools.shared.close()
            site.elsewhere = other.hits
            return result, tools, site

    return asyncio.run(main())


def was_hit(site, fault, tries):
    """Whether each try reached the server; one that is out of time may not have come so far."""
    if fault in ("never", "drip"):
        return site.hits[fault] <= tries
    return site.hits[fault] == tries


SEARCHES = [
    # fault, kind, what the model reads, tries
    ("busy", "rate_limited", "answered 429 (Too Many Requests)", 3),
    ("status500", "server_error", "answered 500 (Internal Server Error)", 3),
    ("garbage", "bad_reply", "something else than JSON", 3),
    ("html", "bad_reply", "something else than JSON", 3),
    ("never", "timeout", "no full reply within 0.05 seconds", 3),
    ("drip", "timeout", "no full reply within 0.05 seconds", 3),
    ("endless", "too_large", "larger than 4,000,000 bytes", 1),
    ("reset", "connection", "the connection failed", 3),
    ("bomb", "too_large", "larger than 4,000,000 bytes", 1),
    ("patience", "rate_limited", "answered 429", 1),
    ("status403", "unauthorised", "answered 403 (Forbidden)", 1),
    ("status402", "no_credit", "answered 402", 1),
    ("redirect", "bad_reply", "something else than JSON", 3),
]


@pytest.mark.parametrize(("fault", "kind", "told", "tries"), SEARCHES)
def test_a_search_that_fails_is_told_as_failed(new_site, live, waits, fault, kind, told, tries):
    seconds = 0.05 if kind == "timeout" else 60.0
    result, metrics, site = play(new_site, live, Search((f"x fault:{fault}",)), seconds)
    assert result.status is Status.FAILED
    assert result.text.startswith("The search call failed: ")
    assert told in result.text
    assert FAULT in result.text
    assert "Nothing was found" not in result.text
    assert metrics.calls == {("search", "failed", kind): 1}
    assert metrics.parts == {("search", "failed", kind): 1}
    assert was_hit(site, fault, tries)
    assert metrics.retries.total() == len(waits) == tries - 1
    assert site.elsewhere.total() == 0


VISITS = [
    # fault, status, kind, what the model reads, tries
    ("busy", "refused", "rate_limited", "answered 429 (Too Many Requests)", 3),
    ("status500", "refused", "server_error", "answered 500 (Internal Server Error)", 3),
    ("status404", "empty", "not_found", "There is no page to read at this url", 1),
    ("status403", "refused", "unauthorised", "answered 403 (Forbidden)", 1),
    ("status402", "refused", "unauthorised", "answered 402", 1),
    ("never", "refused", "timeout", "no full reply within 0.05 seconds", 3),
    ("drip", "refused", "timeout", "no full reply within 0.05 seconds", 3),
    ("endless", "refused", "too_large", "larger than 200,000 bytes", 1),
    ("oversize", "refused", "too_large", "larger than 200,000 bytes", 1),
    ("bomb", "refused", "too_large", "larger than 200,000 bytes", 1),
    ("reset", "refused", "connection", "the connection failed", 3),
    ("redirect", "refused", "refused_address", "not on the public internet", 1),
    ("loop", "refused", "redirects", "more than 5 redirects", 6),
    ("image", "refused", "not_text", "it is image/png, not text", 1),
    ("binary", "refused", "not_text", "its bytes are not text", 1),
    ("garbage", "refused", "not_text", "its bytes are not text", 1),
]


@pytest.mark.parametrize(("fault", "status", "kind", "told", "tries"), VISITS)
def test_a_page_that_can_not_be_had_is_told_of(
    new_site, live, waits, fault, status, kind, told, tries
):
    seconds = 0.05 if kind == "timeout" else 60.0
    result, metrics, site = play(
        new_site, live, lambda site: Visit((site.url(fault),), "founder"), seconds
    )
    assert result.status == status
    assert told in result.text
    assert FAULT not in result.text
    passing = kind in ("rate_limited", "server_error", "timeout", "connection")
    assert ("This is a fault of the site" in result.text) == passing
    assert "match the goal" not in result.text
    assert metrics.calls == {("visit", status, kind): 1}
    if fault == "reset":  # aiohttp sends a GET whose connection was reset once more by itself
        assert site.hits[fault] in (tries, 2 * tries)
    else:
        assert was_hit(site, fault, tries)
    if fault != "loop":
        assert metrics.retries.total() == len(waits) == tries - 1
    assert site.elsewhere.total() == 0, "the redirect reached a server that it must not reach"


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("ok", "founded in 1921 by Ada Tavelin"),
        ("moved", "founded in 1921 by Ada Tavelin"),
        ("nonsense", "botanist from Zürich"),
        ("charset", "北京大学的校长是蔡元培。"),
    ],
)
def test_a_page_that_can_be_read_is_read(new_site, live, fault, told):
    goal = "校长" if fault == "charset" else "founded botanist"
    result, metrics, _ = play(new_site, live, lambda site: Visit((site.url(fault),), goal))
    assert result.status is Status.OK
    assert told in result.text
    assert "Menu Home" not in result.text
    assert metrics.calls == {("visit", "ok", ""): 1}


def test_a_page_without_text_is_empty_and_said_to_be(new_site, live):
    result, metrics, _ = play(new_site, live, lambda site: Visit((site.url("blank"),), "x"))
    assert result.status is Status.EMPTY
    assert "holds no text" in result.text
    assert metrics.calls == {("visit", "empty", ""): 1}


def test_retry_after_is_waited_for_and_success_ends_the_tries(new_site, live, waits):
    result, metrics, site = play(new_site, live, Search(("x fault:twice",)))
    assert result.status is Status.OK
    assert waits == [7.5, 8.0], "seven seconds as asked, and the back-off on top"
    assert metrics.retries == {("search", "rate_limited"): 2}
    assert site.hits["twice"] == 3
    assert result.cost == pytest.approx(0.001)


def test_parts_have_fates_of_their_own(new_site, live):
    result, metrics, _ = play(
        new_site, live, Search(("museum", "x fault:status500", "y fault:status403"))
    )
    assert result.status is Status.OK
    listed, first, second = result.text.split("\n")
    assert "https://example.org/museum" in listed
    assert "fault:" not in listed, "a failed query must not stand there with no results"
    assert first.startswith("The search for 'x fault:status500' failed: the server answered 500")
    assert second.startswith("The search for 'y fault:status403' failed")
    assert metrics.parts == {
        ("search", "ok", ""): 1,
        ("search", "failed", "server_error"): 1,
        ("search", "failed", "unauthorised"): 1,
    }
    assert [part["status"] for part in result.data] == ["ok", "failed", "failed"]


def test_pages_have_fates_of_their_own(new_site, live):
    result, _, _ = play(
        new_site,
        live,
        lambda site: Visit((site.url("status404"), site.url("ok"), "ftp://a.org/x"), "founded"),
    )
    assert result.status is Status.OK
    gone, read, refused = result.text.split("\n=======\n")
    assert "There is no page" in gone
    assert "Ada Tavelin" in read
    assert "only http and https" in refused
    assert [part["found"] for part in result.data] == [False, True, False]


def test_nothing_found_and_a_failure_are_kept_apart(new_site, live):
    async def main():
        async with new_site() as site:
            tools = live(site)

            both = await tools.call(Call(Search(("a fault:nothing", "b fault:status500")), TASK))
            alone = await tools.call(Call(Search(("a fault:nothing",)), TASK))
            await tools.close()
            await tools.shared.close()
            return both, alone

    both, alone = asyncio.run(main())
    assert alone.status is Status.EMPTY
    assert "Nothing was found for 'a fault:nothing'" in alone.text
    assert both.status is Status.EMPTY
    assert "Nothing was found for 'a" in both.text
    assert "The search for 'b fault:status500' failed" in both.text


def test_the_deadline_fails_what_is_late_and_keeps_the_rest(new_site, live):
    result, metrics, _ = play(
        new_site, live, Search(("museum", "x fault:never")), seconds=60.0, deadline=2.0
    )
    assert result.status is Status.OK
    assert "https://example.org/museum" in result.text
    assert "not done within 2 seconds" in result.text
    assert metrics.parts["search", "failed", "timeout"] == 1


def test_many_parts_are_carried_out_up_to_a_bound(new_site, live):
    result, metrics, site = play(new_site, live, Search(tuple(f"q{n}" for n in range(25))))
    assert site.hits["ok"] == 20
    assert metrics.parts["search", "refused", "too_many"] == 5
    assert "There was no search for 'q24'" in result.text


def test_a_cancelled_call_leaves_nothing_behind(new_site, live):
    async def main():
        async with new_site() as site:
            tools = Metrics(live(site))
            call = asyncio.create_task(tools.call(Call(Search(("x fault:never",)), TASK)))
            await site.hung.wait()
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            assert call.cancelled()
            await tools.close()
            await tools.tools.shared.close()
            assert tools.calls == {("search", "cancelled", ""): 1}
            assert tools.in_flight == 0
            return asyncio.current_task()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("fault", "status", "kind", "tries"),
    [
        ("ok", "ok", "", 1),
        ("site503", "refused", "redirects", 1),
        ("site422", "refused", "timeout", 3),
        ("busy", "failed", "rate_limited", 3),
        ("status500", "failed", "server_error", 3),
        ("garbage", "failed", "bad_reply", 3),
        ("status401", "failed", "bad_key", 1),
        ("status402", "failed", "no_credit", 1),
        ("status422", "refused", "rejected", 1),
        ("reset", "failed", "connection", 3),
        ("never", "failed", "timeout", 3),
    ],
)
def test_the_reader_service_fails_like_a_service(new_site, live, fault, status, kind, tries):
    seconds = 0.05 if fault == "never" else 60.0
    result, metrics, site = play(
        new_site, live, Visit((f"https://a.org/fault:{fault}",), "founder"), seconds, "jina"
    )
    assert metrics.calls == {("visit", status, kind): 1}
    assert was_hit(site, fault, tries)
    assert (FAULT in result.text) == (status == "failed")


def test_a_url_is_opened_whole_or_not_at_all(new_site, live):
    def urls(site):
        base = site.url("ok")
        whole = f"{base}?x=" + "y" * (2_000 - len(base) - 3)
        return Visit(
            (whole, whole + "z", f"{base}?\ud800", "http://127.0.0.1/" + "a" * 9_999), "ok"
        )

    result, _, site = play(new_site, live, urls)
    assert [part["status"] for part in result.data] == ["ok", "refused", "refused", "refused"]
    assert [part.get("kind") for part in result.data] == [None, "bad_url", "bad_url", "bad_url"]
    assert "the url has 2,001 characters, and 2,000 at most are opened" in result.text
    assert "the url has 10,016 characters" in result.text
    assert "holds characters that can't be sent" in result.text
    assert site.hits["ok"] == 1
    assert all(len(part["url"]) <= 2_000 for part in result.data)
