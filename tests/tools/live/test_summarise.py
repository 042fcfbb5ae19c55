"""Reading a page for a goal, with a model and without."""

import asyncio
import json
import threading

import pytest

from drv_env.chat import ChatClient
from drv_env.errors import SettingError
from drv_env.retry import RetryPolicy
from drv_env.tools.live import PassageExtractor, ReadPage, Summariser
from drv_env.tools.live.summarise import read_fields
from drv_env.tools.live.tokens import estimate, parts_of

TEXT = "The museum was founded by Ada Tavelin. It rains in the north. "


def said(value, **more):
    text = value if isinstance(value, str) else json.dumps(value)
    return (200, {"choices": [{"message": {"content": text}}], **more})


def digest(new_site, waits, replies, text=TEXT, goal="founder", **settings):
    """A page's digest by a model that gives these replies: (digest, requests)."""

    async def main():
        async with new_site() as site:
            site.replies = list(replies)
            chat = ChatClient(f"{site.base}/v1", "small", timeout=5, prices=(1.0, 1.0))
            policy = RetryPolicy(attempts=2, sleep=waits)
            reader = Summariser(chat, retry=policy, **settings)
            found = await reader.digest(ReadPage("https://a.org", "", text), goal)
            await reader.close()
            return found, site.seen

    return asyncio.run(main())


def test_a_short_page_is_one_request(new_site, waits):
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    found, sent = digest(
        new_site, waits, [said({"evidence": "Ada Tavelin", "summary": "She did."}, usage=usage)]
    )
    assert (found.evidence, found.summary) == ("Ada Tavelin", "She did.")
    assert found.cost == pytest.approx(110e-6)
    assert found.failure is None
    assert len(sent) == 1
    assert TEXT in sent[0]["messages"][0]["content"]
    assert sent[0]["response_format"] == {"type": "json_object"}


def test_a_page_without_evidence_says_so(new_site, waits):
    found, _ = digest(new_site, waits, [said({"evidence": "", "summary": "About rain."})])
    assert found.evidence.startswith("Nothing on the page matches the goal. It begins: The museum")
    assert found.summary == "About rain."


def test_a_long_page_is_read_in_parts_and_merged(new_site, waits):
    part = said({"evidence": "E", "summary": "S"})
    text = TEXT * 30
    found, sent = digest(
        new_site,
        waits,
        [part, part, part, part, said({"summary": "all of it"})],
        text,
        part_tokens=130,
        max_page_tokens=1000,
    )
    assert found.evidence == "\n\n".join(["E"] * 4)
    assert found.summary == "all of it"
    pages = [request["messages"][0]["content"] for request in sent[:-1]]
    read = "".join(page.split("<page>\n")[1].split("\n</page>")[0] for page in pages)
    assert len(read) == len(text), "every character is read once"
    assert "Part 4: S" in sent[-1]["messages"][0]["content"]


def test_a_page_over_the_limit_is_cut_and_the_reader_is_told(new_site, waits):
    found, sent = digest(
        new_site,
        waits,
        [said({"evidence": "E", "summary": "S"})],
        TEXT * 100,
        part_tokens=200,
        max_page_tokens=200,
    )
    assert len(sent) == 1
    assert found.summary == "S The page is very long; only its beginning was read."


def test_a_part_that_failed_is_named(new_site, waits):
    part = said({"evidence": "E", "summary": "S"})
    found, _ = digest(
        new_site,
        waits,
        [part, part, said("nonsense"), said("nonsense"), said({"summary": "the rest"})],
        TEXT * 20,
        part_tokens=130,
        max_page_tokens=1000,
    )
    assert found.failure is None
    assert "of 3 of the page was not read because of a fault." in found.summary


def test_a_context_that_is_too_small_is_met_with_halves(new_site, waits):
    too_long = (400, {"error": {"message": "maximum context length is 100 tokens"}})
    part = said({"evidence": "E", "summary": "S"})
    found, sent = digest(new_site, waits, [too_long, part], TEXT * 50)
    assert found.evidence == "E\n\nE"
    assert len(sent) == 3


@pytest.mark.parametrize(
    ("reply", "kind", "requests"),
    [
        (said("I can't do that."), "bad_reply", 2),
        (said({"summary": "no evidence"}), "bad_reply", 2),
        ((500, "oops"), "server_error", 2),
        ((401, {"message": "bad key"}), "unauthorised", 1),
    ],
)
def test_when_the_model_fails_passages_are_cut_and_it_is_said(
    new_site, waits, reply, kind, requests
):
    found, sent = digest(new_site, waits, [reply], goal="who founded it?")
    assert found.evidence == TEXT.strip()
    assert found.summary.startswith("The page could not be summarised: ")
    assert found.failure.kind == kind
    assert len(sent) == requests
    assert list(found.retries) == [kind] * (requests - 1)


@pytest.mark.parametrize("attempts", [1, 2])
@pytest.mark.parametrize("content", ["", None, " \n" * 99, "{}", '{"evidence": "cut sho'])
def test_a_model_that_says_nothing_under_structured_output_is_asked_without(
    new_site, waits, content, attempts, caplog
):
    empty = (200, {"choices": [{"message": {"content": content}, "finish_reason": "length"}]})
    found = said({"evidence": "Ada Tavelin", "summary": "She did."})

    async def main():
        async with new_site() as site:
            site.replies = [empty, found]
            policy = RetryPolicy(attempts=attempts, sleep=waits)
            reader = Summariser(ChatClient(f"{site.base}/v1", "small"), retry=policy)
            page = ReadPage("https://a.org", "", TEXT)
            digests = [await reader.digest(page, "founder") for _ in range(2)]
            await reader.close()
            return digests, site.seen

    digests, sent = asyncio.run(main())
    assert [item.evidence for item in digests] == ["Ada Tavelin"] * 2
    assert [item.failure for item in digests] == [None, None]
    assert ["response_format" in request for request in sent] == [True, False, False]
    assert len(caplog.records) == 1, "said once"


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ('{"evidence": "A", "summary": "B"}', {"evidence": "A", "summary": "B"}),
        ('<think>{"evidence": "no"}</think>{"evidence": "A"}', {"evidence": "A"}),
        ('```json\n{"evidence": "A",}\n```', {"evidence": "A"}),
        ("{evidence: 'A'}", {"evidence": "A"}),
        ('{"evidence": "two\nlines"}', {"evidence": "two\nlines"}),
        ('Set {x}: {"evidence": "A"} done', {"evidence": "A"}),
        ('{"evidence": ["A", "B"], "n": 3}', {"evidence": "A\nB"}),
        ('{"evidence": "A"', None),
        ("no braces", None),
        ("[1]", None),
        ("}{", None),
        ("", None),
        ("{" * 5000, None),
        ("{" * 5000 + "}", None),
    ],
)
def test_replies_are_read_tolerantly(text, fields):
    assert read_fields(text) == fields


def test_passages_are_cut_without_a_model():
    async def main(goal):
        return await PassageExtractor(words=8).digest(ReadPage("u", "", TEXT * 3), goal)

    assert "founded by Ada Tavelin" in asyncio.run(main("who founded the museum")).evidence
    nothing = asyncio.run(main("volcano")).evidence
    assert nothing.startswith("Nothing on the page matches the goal. It begins: The museum")
    assert asyncio.run(main("")).evidence.startswith("The museum")


@pytest.mark.parametrize("long", [False, True])
def test_a_page_is_shown_whole_where_it_fits_or_that_is_set(long):
    page = ReadPage("u", "", TEXT * (1_000 if long else 3))

    async def main():
        reader = PassageExtractor(words=8 if long else 36, whole_pages=long)
        return await reader.digest(page, "volcano")

    assert asyncio.run(main()).evidence == page.text.strip()


def test_passages_of_a_long_page_are_found_by_a_process_of_its_own():
    page = ReadPage("u", "", "It rains in the north. " * 2_000 + TEXT + "Salen owns it. " * 2_000)

    async def main():
        reader = PassageExtractor(words=30)
        found = await reader.digest(page, "museums' founders")
        await reader.close()
        return found.evidence

    found = asyncio.run(main())
    assert found.startswith("… ")
    assert found.endswith(" …")
    assert TEXT.strip() in found


@pytest.mark.parametrize("unit", ["word ", "北京大学", "x", "a\n"])
def test_cutting_by_tokens_loses_and_repeats_nothing(unit):
    text = unit * 5000
    parts, more = parts_of(text, estimate, 10**6, 300)
    assert "".join(parts) == text
    assert not more
    assert all(0 < estimate(part) <= 300 for part in parts)
    parts, more = parts_of(text, estimate, 500, 300)
    assert more
    assert sum(map(estimate, parts)) <= 500 + len(parts)


def test_a_tokenizer_can_count():
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.models.WordLevel({"[UNK]": 0}, "[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    parts, more = parts_of("a b c d e f g h", tokenizer, 6, 3)
    assert parts == ["a b c ", "d e f "]
    assert more


def test_settings_that_can_not_work_are_refused():
    chat = ChatClient("http://a/v1", "m")
    with pytest.raises(SettingError, match="part_tokens must be at least 100"):
        Summariser(chat, part_tokens=10)
    with pytest.raises(SettingError, match="words must be at least 1, got 0"):
        PassageExtractor(0)


def test_counting_stops_when_nobody_waits_any_more():
    """A visit's thread ends with the visit, at the next count."""
    counted = []
    counting, going_on = threading.Event(), threading.Event()

    def count(text):
        counted.append(len(text))
        counting.set()
        going_on.wait()
        return len(text)

    async def main():
        chat = ChatClient("http://127.0.0.1:1/v1", "small")
        summariser = Summariser(chat, count=count, part_tokens=100, max_page_tokens=1_000)
        page = ReadPage("https://a.org", "", "word " * 1_000)
        digest = asyncio.create_task(summariser.digest(page, "x"))
        await asyncio.to_thread(counting.wait)
        digest.cancel()
        with pytest.raises(asyncio.CancelledError):
            await digest
        going_on.set()
        await summariser.close()

    asyncio.run(main())  # which waits for its threads
    assert len(counted) == 1
