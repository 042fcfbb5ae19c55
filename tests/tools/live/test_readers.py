"""Pages: by the reader service, directly, from PDF, and hostile ones."""

import asyncio
import html
import io
import pickle

import pytest

from drv_env.errors import ToolError
from drv_env.http_reply import HttpReply
from drv_env.tools.live import FetchReader, JinaReader, PassageExtractor, ReadPage
from drv_env.tools.live.extraction import content_kind, read_html, read_pdf

KEYS = ("first-jina-key", "second-jina-key", "third-jina-key")


def reading(new_site, urls, keys=KEYS, refuse=()):
    """Read urls one after another: (pages or errors, keys used, in order)."""

    async def main():
        async with new_site() as site:
            used = []
            answer = site._answer

            async def by_key(request, fault, ok, kind):
                key = request.headers.get("Authorization", "").removeprefix("Bearer ")
                used.append(key)
                return await answer(request, "status402" if key in refuse else fault, ok, kind)

            site._answer = by_key
            reader = JinaReader(keys, endpoint=f"{site.base}/jina", price=0.02)
            found = []
            for url in urls:
                try:
                    found.append(await reader.read(url))
                except ToolError as error:
                    found.append(error)
            await reader.close()
            return found, used

    return asyncio.run(main())


def test_keys_take_turns(new_site):
    pages, used = reading(new_site, ["https://a.org/x"] * 4)
    assert used == [*KEYS, KEYS[0]]
    assert pages[0].title == "The museum"
    assert pages[0].cost == pytest.approx(1000 * 0.02 / 1e6)


def test_a_key_without_credit_is_left_out(new_site):
    pages, used = reading(new_site, ["https://a.org/x"] * 3, refuse=KEYS[:1])
    assert used == [KEYS[0], KEYS[1], KEYS[2], KEYS[1]]
    assert all(page.text for page in pages)


def test_when_no_key_is_left_it_fails_and_says_why(new_site):
    errors, used = reading(new_site, ["https://a.org/x"] * 2, refuse=KEYS)
    assert used == list(KEYS)
    assert [error.kind for error in errors] == ["no_credit", "no_credit"]


def test_the_service_works_without_a_key(new_site):
    pages, used = reading(new_site, ["https://a.org/x"], keys=())
    assert used == [""]
    assert pages[0].text


@pytest.mark.parametrize("url", ["ftp://a.org", "http://127.0.0.1/", "http://[::1", "x"])
def test_the_service_is_not_asked_for_what_may_not_be_opened(new_site, url):
    errors, used = reading(new_site, [url])
    assert errors[0].kind == "refused_address"
    assert used == []


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (
            {"data": {"content": "x", "warning": "Target URL returned error 404: Not Found"}},
            "not_found",
        ),
        ({"data": {"content": "x", "warning": "Target URL returned error 503"}}, "server_error"),
        (
            {"data": {"content": "x", "warning": ["Target URL returned error 402: Pay"]}},
            "unauthorised",
        ),
        ({"code": 451, "message": "blocked"}, "rejected"),
        ({"code": 503, "message": "Failed to access https://a.org: ECONNRESET"}, "connection"),
        ({"code": 400, "message": "Domain 'a.org' could not be resolved"}, "no_such_host"),
        ({"code": 403, "message": "Consecutive error detected on URL https://a.org/x"}, "rejected"),
        ({"code": 403, "message": "Forbidden"}, "bad_key"),
        ({"code": 429, "message": "Failed to access: too many requests"}, "rate_limited"),
        ({"data": {"content": None}}, "bad_reply"),
        ({"data": None}, "bad_reply"),
        ([], "bad_reply"),
    ],
)
def test_what_the_service_says_of_a_page_is_understood(body, kind):
    with pytest.raises(ToolError) as caught:
        JinaReader()._read("https://a.org", body)
    assert caught.value.kind == kind


def test_a_warning_of_what_is_no_error_is_a_page():
    data = {"content": "Founded in 1921.", "warning": "Target URL returned error 200: OK"}
    assert JinaReader()._read("https://a.org", {"data": data}).text == "Founded in 1921."


def test_a_wall_that_the_service_brings_is_paid_for():
    data = {
        "title": "Just a moment...",
        "content": "Verify you are human",
        "usage": {"tokens": 500},
    }
    with pytest.raises(ToolError, match="prove that they are no robots") as caught:
        JinaReader(price=0.02)._read("https://a.org", {"data": data})
    assert caught.value.kind == "robot_wall"
    assert caught.value.cost == pytest.approx(500 * 0.02 / 1e6)


def a_pdf(text, password=None):
    """A small PDF with one page of text."""
    from pypdf import PdfWriter
    from pypdf.generic import DictionaryObject, NameObject, StreamObject

    writer = PdfWriter()
    page = writer.add_blank_page(300, 300)
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    page[NameObject("/Resources")] = DictionaryObject(
        {NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})}
    )
    stream = StreamObject()
    stream.set_data(f"BT /F1 12 Tf 20 200 Td ({text}) Tj ET".encode())
    page[NameObject("/Contents")] = writer._add_object(stream)
    writer.add_metadata({"/Title": "A paper"})
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def test_a_pdf_is_read():
    title, text, cut = read_pdf(a_pdf("Founded in 1921"), 10, 1000)
    assert title == "A paper"
    assert "Founded in 1921" in text
    assert not cut
    assert content_kind(HttpReply(200, {}, a_pdf("x"), "u")) == "pdf"


@pytest.mark.parametrize("body", [b"%PDF-1.7 nothing", b"%PDF-", a_pdf("x")[:200]])
def test_a_broken_pdf_is_no_text(body):
    with pytest.raises(ToolError, match="the PDF can't be read") as caught:
        read_pdf(body, 10, 1000)
    assert caught.value.kind == "not_text"


def test_a_locked_pdf_is_said_to_be():
    with pytest.raises(ToolError, match="locked with a password"):
        read_pdf(a_pdf("x", password="secret"), 10, 1000)


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("text/html", b"<p>x", "html"),
        ("text/plain", b"x", "text"),
        ("application/json", b"{}", "text"),
        ("application/rss+xml", b"<rss/>", "text"),
        ("", b"<!DOCTYPE html><p>", "html"),
        ("", b"words", "text"),
        ("application/octet-stream", b"words", "text"),
        ("application/octet-stream", b"\xff\xff\xff\x80", None),
        ("text/plain", b"\0\1\2", None),
        ("application/pdf", b"words", None),
    ],
)
def test_bodies_are_what_they_are(kind, body, expected):
    reply = HttpReply(200, {"content-type": kind}, body, "u")
    if expected is None:
        with pytest.raises(ToolError):
            content_kind(reply)
    else:
        assert content_kind(reply) == expected


@pytest.mark.parametrize(
    "source",
    [
        "",
        " ",
        "<" * 20_000,
        "<div>" * 20_000,
        "<title>" * 5_000,
        "<table><tr><td>" * 3_000,
        "<p>" + "&amp;" * 20_000,
        "<!--" * 10_000,
        "<html><body><script>" + "x" * 100_000,
        "\ud800<p>lone</p>",
        "<?xml version='1.0' encoding='klingon'?><html><p>text</p></html>",
    ],
)
def test_hostile_markup_raises_nothing(source):
    title, text = read_html(source)
    assert isinstance(title, str)
    assert isinstance(text, str)


@pytest.mark.parametrize(
    "source",
    [
        "<p>The founder is Ada.",
        "The founder is Ada.",
        "<title>x</title><div>The founder is Ada.</div>",
        "<html><body>" + "<br>" * 70_000 + "The founder is Ada.",
        "<html><head><script>var a = 1</script></head><body><p>The founder is Ada.</p></body>",
    ],
)
def test_odd_pages_are_read(source):
    text = read_html(source)[1]
    assert "The founder is Ada." in text
    assert "var a" not in text


def test_hostile_pages_come_through_as_text(cases):
    """Extracted from markup without a failure; cut, never altered, without a model."""

    async def digest(text):
        return await PassageExtractor().digest(ReadPage("https://a.org", "", text), "x opening")

    for row in cases("hostile_pages.jsonl"):
        text = row["text"]
        _, found = read_html(f"<html><body><pre>{html.escape(text)}</pre></body></html>")
        assert isinstance(found, str), row["what"]
        told = asyncio.run(digest(text)).evidence
        told = told.removeprefix("Nothing on the page matches the goal. It begins: ")
        assert told, row["what"]
        assert all(passage.strip() in text for passage in told.split("…")), row["what"]


def test_a_reader_is_pickled_by_its_settings():
    copy = pickle.loads(pickle.dumps(FetchReader(allow_private=("127.0.0.1:1",), timeout=3)))
    assert copy._http._timeout == 3
