"""Offline tools: routing, search for any text, evidence for a goal, pickling."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import pickle
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drv_env.errors import SettingError, ToolError
from drv_env.protocol import PAGE_SEPARATOR, Search, ToolCall, Visit
from drv_env.tasks import Task
from drv_env.tools import Call, Status, ToolResult, Tools, still_clock
from drv_env.tools.offline import LONGEST_QUERY, OfflineTools
from drv_env.worlds import Page, WorldRecipe, questions, url_of

ONE, TWO = WorldRecipe(1), WorldRecipe(2)


def ask(
    tools: OfflineTools, action: Search | Visit | ToolCall, world: str | None = None
) -> ToolResult:
    task = Task("What?", ("that",), world=world)
    return asyncio.run(tools.call(Call(action, task)))


def urls(result: ToolResult) -> list[str]:
    return [page["url"] for block in result.data for page in block["pages"]]


def own(**texts: str) -> OfflineTools:
    pages = [Page(f"https://x/{title}", title, text) for title, text in texts.items()]
    return OfflineTools.from_pages({"mine": pages}, snippet_words=6, evidence_words=12)


def test_it_has_the_face_of_tools() -> None:
    tools = OfflineTools([ONE])
    assert isinstance(tools, Tools)
    assert [schema.name for schema in tools.schemas] == ["search", "visit"]
    assert tools.clock is still_clock
    assert tools.instant
    asyncio.run(tools.close())
    asyncio.run(tools.close())


TEXTS = {
    "Młyn w Łodzi": "Młyn zbudował Gérard Nguyễn w 1912 roku.",
    "나루": "나루는 1931년에 세워진 방앗간이다. 주인은 한별이다.",
    "가람": "가람을 지나는 강은 넓다.",
    "水車小屋": "水車小屋はカナガワの川沿いにある。",
    "กังหัน": "กังหันน้ำอยู่ที่เชียงใหม่มาตั้งแต่ปีนั้น",
    "Değirmen": "Değirmen DİYARBAKIR ilindedir.",
    "الطاحونة": "بناها مُحَمَّد في الرياض.",
}


@pytest.mark.parametrize(
    ("query", "title"),
    [
        ("Gérard Nguyễn", "Młyn w Łodzi"),
        ("ŁODZI", "Młyn w Łodzi"),
        ("１９１２", "Młyn w Łodzi"),
        ("방앗간", "나루"),
        ("한별", "나루"),
        ("강", "가람"),
        ("水車", "水車小屋"),
        ("ｶﾅｶﾞﾜ", "水車小屋"),
        ("川", "水車小屋"),
        ("เชียงใหม่", "กังหัน"),
        ("diyarbakır", "Değirmen"),
        ("محمد", "الطاحونة"),
    ],
)
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_pages_of_any_language_are_found_in_any_normal_form(
    query: str, title: str, form: Literal["NFC", "NFD"]
) -> None:
    tools = own(**{name: unicodedata.normalize(form, text) for name, text in TEXTS.items()})
    for asked in ("NFC", "NFD"):
        found = ask(tools, Search((unicodedata.normalize(asked, query),)))
        assert urls(found)[:1] == [f"https://x/{title}"]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_evidence_for_a_goal_in_another_normal_form(form: Literal["NFC", "NFD"]) -> None:
    text = "Il y a une forêt. " * 9 + "Le moulin est à Gérard Nguyễn. " + "La mer est loin. " * 9
    tools = own(page=unicodedata.normalize(form, text))
    for asked in ("NFC", "NFD"):
        found = ask(tools, Visit(("https://x/page",), unicodedata.normalize(asked, "Gérard")))
        assert unicodedata.normalize(form, "Gérard Nguyễn") in found.text


def test_a_page_is_visited_in_any_spelling_of_its_url() -> None:
    page = Page("https://example.org/Łódź?q=a b", "Mill", "Built in 1912.")
    tools = OfflineTools.from_pages([page, Page("https://bücher.example", "B", "Books.")])
    for url in (
        unicodedata.normalize("NFD", page.url),
        "https://Example.org:443/%c5%81%c3%b3d%c5%ba?q=a%20b#x",
        "https://xn--bcher-kva.example/",
    ):
        found = ask(tools, Visit((url,), ""))
        assert found.status is Status.OK
        assert f"Page: {url}" in found.text, "in the spelling that was asked for"
    another = ask(tools, Visit(("https://example.org/Łódź?q=A b",), ""))
    assert another.status is Status.EMPTY


def test_what_a_server_would_redirect_to_is_named() -> None:
    tools = OfflineTools.from_pages([Page("https://example.org/a", "A", "Text.")])
    for url in ("http://example.org/a", "https://example.org/a/", "http://example.org/a/#x"):
        found = ask(tools, Visit((url,), ""))
        assert found.status is Status.EMPTY
        assert "There is no page at this url. There is one at https://example.org/a" in found.text
    nowhere = ask(tools, Visit(("https://example.org/b",), ""))
    assert nowhere.text.endswith("There is no page at this url.")


def test_one_page_twice_counts_once_and_two_at_one_url_are_named() -> None:
    page = Page("https://example.org/a", "A", "The mill.")
    again = dataclasses.replace(page, url="https://example.org/a#part")
    tools = OfflineTools.from_pages([page, again])
    assert urls(ask(tools, Search(("mill",)))) == [page.url]
    other = dataclasses.replace(again, text="Another mill.")
    tools = OfflineTools.from_pages([page, other])
    with pytest.raises(SettingError, match=r"'https://example.org/a' and 'https://.*#part'"):
        ask(tools, Search(("mill",)))


def test_an_entitys_own_page_comes_first_for_its_name() -> None:
    recipe = WorldRecipe(3, size=1_000, distractors=1, repeats=1)
    tools, world = OfflineTools([recipe]), recipe.build()
    for name in list(world.kinds)[::5]:
        for query in (name, f"{name} founder", f"What is {name}'s birthplace?"):
            assert urls(ask(tools, Search((query,))))[0] == url_of(name)


def test_a_call_is_answered_from_the_world_of_its_task() -> None:
    tools = OfflineTools([ONE, TWO])
    name = ONE.build().entities["company"][0]
    for recipe in (ONE, TWO):
        result = ask(tools, Visit((url_of(name),), "founder"), recipe.name)
        founder = recipe.build().facts[name]["founder"]
        assert result.data[0]["evidence"] == [recipe.build().pages[url_of(name)].text]
        assert f"The founder is {founder}." in result.text
    assert ONE.build().facts[name] != TWO.build().facts[name]


def test_a_single_world_answers_tasks_that_name_none() -> None:
    name = ONE.build().entities["city"][0]
    assert ask(OfflineTools([ONE]), Search((name,))).status is Status.OK
    with pytest.raises(ToolError, match="names no world"):
        ask(OfflineTools([ONE, TWO]), Search((name,)))


def test_an_unknown_world_or_tool_is_an_error_that_names_it() -> None:
    tools = OfflineTools([ONE])
    with pytest.raises(ToolError, match=r"'world-9'.*world-1"):
        ask(tools, Search(("x",)), "world-9")
    with pytest.raises(ToolError, match="'calculate'"):
        ask(tools, ToolCall("calculate", {}))


def test_search_results_are_the_deployments_json() -> None:
    tools = OfflineTools([ONE], results=3)
    person, city = ONE.build().entities["person"][0], ONE.build().entities["city"][0]
    blocks = json.loads(ask(tools, Search((person, city))).text)
    assert [block["query"] for block in blocks] == [person, city]
    for block, name in zip(blocks, (person, city), strict=True):
        pages = block["web_page_info_list"]
        assert 1 <= len(pages) <= 3
        assert list(pages[0]) == ["title", "url", "snippet"]
        assert pages[0]["title"] == name


def test_fields_leave_parts_of_the_results_out() -> None:
    name = ONE.build().entities["person"][0]
    tools = OfflineTools([ONE], results=1, fields=("url",))
    text = ask(tools, Search((name,))).text
    assert json.loads(text) == [{"query": name, "web_page_info_list": [{"url": url_of(name)}]}]


def test_nothing_found_is_said_and_has_its_status() -> None:
    tools = OfflineTools([ONE])
    result = ask(tools, Search(("zzzz", "()")))
    assert result.status is Status.EMPTY
    assert "Nothing was found" in result.text
    assert '"web_page_info_list": []' in result.text
    name = ONE.build().entities["person"][0]
    assert ask(tools, Search(("zzzz", name))).status is Status.OK


def test_equal_matches_come_in_the_order_of_their_urls() -> None:
    pages = [Page(f"u{number:03}", "same", "the same words") for number in (5, 3, 99, 0, 41)]
    tools = OfflineTools.from_pages({"mine": pages}, results=4)
    assert urls(ask(tools, Search(("words",)))) == ["u000", "u003", "u005", "u041"]


def test_a_snippet_stands_around_the_match() -> None:
    text = (
        " ".join(f"w{n}" for n in range(100)) + " here is the lighthouse keeper Olaf " + "z " * 50
    )
    tools = own(tower=text)
    page = ask(tools, Search(("tower lighthouse Olaf",))).data[0]["pages"][0]
    assert "lighthouse" in page["snippet"]
    assert "Olaf" in page["snippet"]
    assert len(page["snippet"].split()) == 6
    assert page["snippet"] in text


def test_a_page_that_fits_is_shown_whole_whatever_the_goal() -> None:
    page = "The mill of Tavel is old.\n\nIts owner is Salen."
    for goal in ("who owns the mill", "zebra", ""):
        result = ask(own(a=page), Visit(("https://x/a",), goal))
        assert result.data[0]["evidence"] == [page]
        assert result.text.endswith(f"Evidence:\n{page}")


def test_a_longer_page_is_shown_by_passages_that_bear_on_the_goal() -> None:
    tools = own(a="Rain fell for 3.5 days. " * 4 + "The first owner of the mill was Al. It is old.")
    result = ask(tools, Visit(("https://x/a",), "first owner of the mill"))
    passage = "The first owner of the mill was Al. It is old."
    assert result.data[0]["evidence"] == [passage]
    assert result.text == (
        f"Page: https://x/a\nGoal: first owner of the mill\nEvidence:\n… {passage}"
    )


def test_pages_are_whole_where_that_is_set() -> None:
    text = "The mill is old. " * 500 + "Its owner is Salen."
    pages = [Page("https://x/a", "a", text), Page("https://x/b", "b", "")]
    tools = OfflineTools.from_pages(pages, evidence_words=5, whole_pages=True)
    assert ask(tools, Visit(("https://x/a",), "owner")).data[0]["evidence"] == [text]
    assert "holds no text" in ask(tools, Visit(("https://x/b",), "owner")).text
    assert (
        ask(pickle.loads(pickle.dumps(tools)), Visit(("https://x/a",), "x")).text.count(text) == 1
    )


def test_evidence_keeps_to_its_limit() -> None:
    tools = own(a="owner " * 500, b="The owner is Bo. " * 50, c="x" * 100_000 + " owner")
    for url in ("https://x/a", "https://x/b", "https://x/c"):
        result = ask(tools, Visit((url,), "owner"))
        assert 2 <= len(" ".join(result.data[0]["evidence"]).split()) <= 12
        assert len(result.text) < 1_000


def test_a_page_without_a_match_shows_its_beginning() -> None:
    tools = own(a="It is old. " * 20)
    assert (
        "Nothing on the page matches the goal" in ask(tools, Visit(("https://x/a",), "mayor")).text
    )
    blank = ask(tools, Visit(("https://x/a",), "")).text
    assert blank == "Page: https://x/a\nEvidence:\n" + "It is old. " * 4 + "…"


def test_a_dead_link_is_an_answer_and_not_a_failure() -> None:
    world = ONE.build()
    dead = next(
        link for page in world.pages.values() for link in page.links if link not in world.pages
    )
    alive = next(iter(world.pages))
    tools = OfflineTools([ONE])
    result = ask(tools, Visit((dead,), "founder"))
    assert result.status is Status.EMPTY
    assert dead in result.text
    assert "no page at this url" in result.text
    both = ask(tools, Visit((dead, alive), "country"))
    assert both.status is Status.OK
    assert [item["found"] for item in both.data] == [False, True]
    assert both.text.count(PAGE_SEPARATOR) == 1


def test_a_visit_can_show_links() -> None:
    page = next(page for page in ONE.build().pages.values() if len(page.links) > 2)
    text = ask(OfflineTools([ONE], links=2), Visit((page.url,), "")).text
    assert text.endswith("\nLinks: " + " ".join(page.links[:2]))


def test_pages_of_any_text_can_be_found_and_read() -> None:
    tools = own(
        tower="灯塔的主人是王明。" + "他住在北京的一个小房子里。" * 2, odd="a\ud800b \x00 owner"
    )
    assert urls(ask(tools, Search(("王明",)))) == ["https://x/tower"]
    assert ask(tools, Visit(("https://x/tower",), "主人")).data[0]["evidence"] == [
        "灯塔的主人是王明。"
    ]
    assert urls(ask(tools, Search(("OWNER",)))) == ["https://x/odd"]


HOSTILE = [
    'title:x AND (text:"y OR',
    '+ - && || ! ( ) { } [ ] ^ " ~ * ? : \\ /',
    "\x00",
    "a\ud800b",
    "Tavelin~2^1e9",
    "[a TO *]",
    "İ" * 50,
    "x" * 1_000_000,
    "founder AND " * 90_000,
    "\U0010ffff 🦉 ́",
]


@pytest.mark.parametrize("query", HOSTILE, ids=range(len(HOSTILE)))
def test_operators_and_monsters_are_only_text(query: str) -> None:
    result = ask(OfflineTools([ONE]), Search((query,)))
    result.text.encode("utf-8")
    assert len(result.text) < 2 * LONGEST_QUERY + 10_000


@given(
    st.lists(st.text(st.characters(exclude_categories=()), max_size=200), min_size=1, max_size=3)
)
@settings(deadline=None, max_examples=200)
def test_any_text_can_be_searched_visited_and_wanted(texts: list[str]) -> None:
    tools = OfflineTools([ONE], snippet_words=3, evidence_words=3)
    page = next(iter(ONE.build().pages))
    actions: list[Search | Visit] = [Search(tuple(texts)), Visit((*texts, page), texts[0])]
    for action in actions:
        result = ask(tools, action)
        result.text.encode("utf-8")
        assert result.text == ask(tools, action).text
        assert len(result.data) >= len(texts)


@given(st.text(st.characters(exclude_categories=()), max_size=300), st.text(max_size=20))
@settings(deadline=None, max_examples=100)
def test_any_text_can_be_a_page(text: str, goal: str) -> None:
    tools = OfflineTools.from_pages({"mine": [Page("u", text[:20], text)]}, evidence_words=5)
    ask(tools, Search((text, goal)))
    for passage in ask(tools, Visit(("u",), goal)).data[0]["evidence"]:
        assert passage in text


@pytest.mark.parametrize("tools", [OfflineTools([ONE, TWO], results=2, links=1), own(a="b c")])
def test_a_pickled_copy_answers_alike(tools: OfflineTools) -> None:
    world = tools.worlds[0]
    name = ONE.build().entities["person"][0]
    actions: list[Search | Visit] = [
        Search((name, "b")),
        Visit((url_of(name), "https://x/a"), "mentor c"),
    ]
    before = [ask(tools, action, world) for action in actions]
    carried = pickle.dumps(tools)
    assert len(carried) < 2_000
    copy = pickle.loads(carried)
    assert copy.worlds == tools.worlds
    assert [ask(copy, action, world) for action in actions] == before


def test_ten_thousand_pages_can_be_searched() -> None:
    recipe = WorldRecipe(0, size="large")
    tools, world = OfflineTools([recipe]), recipe.build()
    task = questions(world, hops=(1,), starts=set(world.entities["work"][-1:]))[0]
    start, found = task.metadata["entities"]
    first = asyncio.run(tools.call(Call(Search((start,)), task)))
    assert urls(first)[0] == url_of(start)
    visit = Visit((url_of(start),), task.metadata["path"][0])
    assert found in asyncio.run(tools.call(Call(visit, task))).text


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"worlds": []}, "no worlds"),
        ({"worlds": [ONE, ONE]}, "same name"),
        ({"results": 0}, "results"),
        ({"snippet_words": 0}, "snippet_words"),
        ({"evidence_words": 0}, "evidence_words"),
        ({"links": -1}, "links"),
        ({"fields": ("title",)}, "'url'"),
        ({"fields": "url"}, "fields"),
        ({"fields": ("url", "text")}, "fields"),
    ],
)
def test_settings_that_cannot_work_are_named(arguments: dict, named: str) -> None:
    with pytest.raises(SettingError, match=named):
        OfflineTools(**{"worlds": [ONE], **arguments})


def test_threads_can_ask_at_once() -> None:
    world = TWO.build()
    tools = OfflineTools([TWO])
    searches = [Search((name,)) for name in world.kinds]
    alone = [ask(tools, search) for search in searches]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda search: ask(tools, search), searches * 3))
    assert together == alone * 3


def test_two_pages_at_one_url_are_refused() -> None:
    tools = OfflineTools.from_pages({"mine": [Page("u", "a", "b"), Page("u", "c", "d")]})
    with pytest.raises(SettingError, match="'u'"):
        ask(tools, Search(("a",)))
