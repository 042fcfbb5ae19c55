"""What the search service sends, and what is made of it."""

import asyncio
import json
import unicodedata

import pytest
from aiohttp import web

from drv_env.errors import SettingError, ToolError
from drv_env.http import HttpClient
from drv_env.play import run_call
from drv_env.protocol import Search
from drv_env.retry import RetryPolicy
from drv_env.tasks import Task
from drv_env.tools.base import Call, Status
from drv_env.tools.layers import Metrics
from drv_env.tools.live import LiveTools, Locale, Serper, locale_by_script
from drv_env.tools.live.serper import read_hits

TASK = Task("Q?", ("A",))


def answered(waits, status, body):
    """One search against a service that answers so: (result, metrics, requests)."""
    text = body if isinstance(body, str) else json.dumps(body)
    requests = []

    async def handler(request):
        requests.append(await request.json())
        kind = "text/html" if text.startswith("<") else "application/json"
        return web.Response(status=status, text=text, content_type=kind)

    async def main():
        app = web.Application()
        app.router.add_post("/search", handler)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        http = HttpClient()
        endpoint = f"http://127.0.0.1:{runner.addresses[0][1]}/search"
        serper = Serper("serper-key-for-tests", http=http, endpoint=endpoint)
        tools = Metrics(LiveTools(serper, retry=RetryPolicy(sleep=waits)))
        result = await run_call(tools, Call(Search(("x",)), TASK), 30)
        await tools.close()
        await http.close()
        await runner.cleanup()
        return result, tools, requests

    return asyncio.run(main())


# what was sent, by its name in the collection: status, kind, tries
EXPECTED = {
    "no organic, only a box": (Status.OK, "", 1),
    "truly nothing": (Status.EMPTY, "", 1),
    "bad key": (Status.FAILED, "unauthorised", 1),
    "no credit": (Status.FAILED, "no_credit", 1),
    "200 with an error body": (Status.FAILED, "server_error", 3),
    "entries with holes": (Status.OK, "", 1),
    "html instead of json": (Status.FAILED, "bad_reply", 3),
    "same page twice": (Status.OK, "", 1),
}


def test_the_collected_responses(cases, waits):
    rows = cases("search_responses.jsonl")
    assert {row["what"] for row in rows} == set(EXPECTED)
    for row in rows:
        status, kind, tries = EXPECTED[row["what"]]
        result, metrics, requests = answered(waits, row["http_status"], row["body"])
        assert result.status is status, row["what"]
        assert metrics.calls == {("search", status.value, kind): 1}, row["what"]
        assert len(requests) == tries, row["what"]
        if status is Status.FAILED:
            assert "The search call failed" in result.text
            assert "Nothing was found" not in result.text
            assert "[]" not in result.text
        if status is Status.EMPTY:
            assert "Nothing was found" in result.text


def test_an_answer_box_alone_is_a_result(waits):
    body = {"answerBox": {"title": "T", "answer": "A", "link": "https://e.org/a"}}
    result, _, _ = answered(waits, 200, body)
    pages = json.loads(result.text)[0]["web_page_info_list"]
    assert pages == [{"title": "T", "url": "https://e.org/a", "snippet": "A"}]


def test_entries_are_kept_with_what_they_have():
    organic = [
        {"title": "A [b] (c)", "link": "https://e.org/a_(b)", "position": 1},
        {"link": "https://e.org/n"},
        {"title": "no link", "snippet": "s"},
        {"title": "js", "link": "javascript:alert(1)", "snippet": "s"},
        {"title": None, "link": "https://e.org/z", "snippet": None, "date": "2 days ago"},
        "no entry",
        None,
        {"title": ["x"], "link": 7},
    ]
    assert read_hits({"organic": organic}) == [
        {"title": "A [b] (c)", "url": "https://e.org/a_(b)", "snippet": ""},
        {"title": "", "url": "https://e.org/n", "snippet": ""},
        {"title": "", "url": "https://e.org/z", "snippet": "", "date": "2 days ago"},
    ]


def test_a_page_is_listed_once():
    entries = [
        {"title": "A", "link": "https://e.org/a", "snippet": "s1"},
        {"title": "A", "link": "https://e.org/a#part", "snippet": "s2"},
        {"title": "A", "link": "https://E.org:443/%61", "snippet": "s3"},
    ]
    assert [hit["snippet"] for hit in read_hits({"organic": entries})] == ["s1"]


def test_boxes_come_first_and_do_not_count_among_the_ten():
    body = {
        "organic": [{"title": str(n), "link": f"https://e.org/{n}"} for n in range(20)],
        "knowledgeGraph": {
            "title": "Morvane",
            "type": "City",
            "description": "On the coast",
            "attributes": {"Mayor": "Salen", "Founded": 1312, "odd": ["x"]},
        },
        "answerBox": {"snippet": "about 1312"},
    }
    hits = read_hits(body)
    assert [hit["title"] for hit in hits] == ["", "Morvane", *map(str, range(10))]
    assert hits[1]["snippet"] == "City. On the coast. Mayor: Salen. Founded: 1312"
    assert hits[0] == {"title": "", "url": "", "snippet": "about 1312"}


@pytest.mark.parametrize("body", [None, [], "x", 3])
def test_what_is_no_object_is_no_empty_result(body):
    with pytest.raises(ToolError) as caught:
        read_hits(body)
    assert caught.value.retryable


SEARCHED = {"searchParameters": {"q": "x", "type": "search"}, "credits": 2}
ASKED = [{"question": "Who built it?", "snippet": "Ada", "link": "https://e.org/a"}]


@pytest.mark.parametrize(
    "body",
    [
        SEARCHED,
        {**SEARCHED, "organic": None},
        {**SEARCHED, "organic": []},
        {**SEARCHED, "organic": [{"title": "no link"}]},
        {**SEARCHED, "peopleAlsoAsk": ASKED, "relatedSearches": [{"query": "mill"}]},
        {**SEARCHED, "message": "", "error": None},
        {**SEARCHED, "statusCode": 200},
        {"credits": 2},
    ],
)
def test_a_reply_without_results_is_empty_at_its_price_and_asked_for_once(waits, body):
    result, _, requests = answered(waits, 200, body)
    assert result.status is Status.EMPTY
    assert "Nothing was found for 'x'" in result.text
    assert result.cost == pytest.approx(0.002)
    assert len(requests) == 1


@pytest.mark.parametrize(
    ("body", "kind", "tries"),
    [
        ({"message": "Query not allowed", "statusCode": 400}, "rejected", 1),
        ({"message": "Query not allowed"}, "rejected", 1),
        ({**SEARCHED, "error": {"message": "too odd"}}, "rejected", 1),
        ({"error": "Not enough credits"}, "no_credit", 1),
        ({"statusCode": "403"}, "unauthorised", 1),
        ({"message": "Slow down", "statusCode": 429}, "rate_limited", 3),
        ({"message": "Internal error", "statusCode": 500}, "server_error", 3),
        ({**SEARCHED, "organic": {"0": {"link": "https://e.org"}}}, "bad_reply", 1),
        ({**SEARCHED, "organic": "none"}, "bad_reply", 1),
    ],
)
def test_an_error_in_a_reply_is_a_failure_tried_again_by_its_code(waits, body, kind, tries):
    result, metrics, requests = answered(waits, 200, body)
    assert metrics.calls == {("search", "failed", kind): 1}
    assert "Nothing was found" not in result.text
    assert len(requests) == tries


@pytest.mark.parametrize(
    ("query", "country"),
    [
        ("museum", "us"),
        ("北京大学", "cn"),
        ("東京タワー", "jp"),
        ("ﾀﾜｰ", "jp"),
        ("서울 시장", "kr"),
        (unicodedata.normalize("NFD", "서울 시장"), "kr"),
        ("ﾡ", "kr"),
        ("", "us"),
    ],
)
def test_the_locale_follows_the_script(query, country):
    assert locale_by_script(query).country == country


@pytest.mark.parametrize(
    ("locale", "expected"),
    [(None, ("cn", "zh-cn")), (Locale("de", "de"), ("de", "de"))],
)
def test_the_locale_is_sent(new_site, locale, expected):
    async def main():
        async with new_site() as site:
            settings = {} if locale is None else {"locale": locale}
            serper = Serper("serper-key-for-tests", endpoint=f"{site.base}/serper", **settings)
            await serper.search("北京大学")
            await serper.close()
            return site.seen[0]

    sent = asyncio.run(main())
    assert (sent["gl"], sent["hl"]) == expected
    assert sent["num"] == 10
    assert sent["headers"]["X-API-KEY"] == "serper-key-for-tests"


def test_settings_that_can_not_work_are_refused():
    with pytest.raises(SettingError, match="SERPER_KEY_ID"):
        Serper("  ")
    with pytest.raises(SettingError, match="results must be from 1 to 100, got 0"):
        Serper("key", results=0)
