"""Pages of search results: text to blocks and back."""

import json
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replay.search_text import (
    blocks_json,
    has_header,
    parse_search_text,
    render_search_text,
)

SLOW_MACHINE = settings(
    deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
HEADER = "A Google search for 'q' found 1 results:\n\n## Web Results\n"


def one(text):
    (block,) = parse_search_text(HEADER + text)
    return block["web_page_info_list"]


def test_each_header_opens_a_block():
    text = HEADER + "1. [T](u)\n\ns\n" + HEADER.replace("'q'", "'O'Neill'") + "2. [V](w)\nx"
    assert parse_search_text(text) == [
        {"query": "q", "web_page_info_list": [{"title": "T", "url": "u", "snippet": "s"}]},
        {"query": "O'Neill", "web_page_info_list": [{"title": "V", "url": "w", "snippet": "x"}]},
    ]


def test_brackets_and_parentheses_balance():
    (page,) = one("1. [A [b] c](https://e.org/Foo_(bar)) rest\nmore")
    assert page == {"title": "A [b] c", "url": "https://e.org/Foo_(bar)", "snippet": "rest\nmore"}


def test_blanks_around_titles_and_urls_go():
    expected = [{"title": "T", "url": "u", "snippet": ""}]
    assert one("1. [ T ]( u )") == expected
    assert one("1. [ [T] ]( u )") == [{**expected[0], "title": "[T]"}]


def test_leading_dates_and_blank_lines_go():
    (page,) = one("1. [T](u)\nDate published: 2021\nDate updated: 2022\n\n a \n\nDate published: x")
    assert page["snippet"] == "a\nDate published: x"


@pytest.mark.parametrize("entry", ["1. [](u)\ns", "1. [T]()\ns", "1. [T\ns", "1. T (u)"])
def test_entries_without_title_or_url_are_left_out(entry):
    assert one(f"{entry}\n2. [V](w)") == [{"title": "V", "url": "w", "snippet": ""}]


@pytest.mark.parametrize("entry", ["1. [](u)\ns", "1. [T]()\ns"])
def test_the_last_entry_is_left_out_likewise(entry):
    assert one(f"2. [V](w)\n{entry}") == [{"title": "V", "url": "w", "snippet": ""}]


def test_a_link_within_a_line_is_part_of_the_snippet():
    (page,) = one("1. [T](u)\n\nsee 1. [fake](link)\n2. no link")
    assert page["snippet"] == "see 1. [fake](link)\n2. no link"


def test_text_without_a_header_is_one_block_without_a_query():
    assert parse_search_text("Nothing for 'x'.") == [{"query": "", "web_page_info_list": []}]
    (block,) = parse_search_text("## Web Results\n1. [T](u)")
    assert block["query"] == ""
    assert len(block["web_page_info_list"]) == 1
    assert not has_header("he said: A Google search for 'x' found 1 results: none")


def test_the_separator_stays_only_where_the_release_leaves_it():
    text = f"{HEADER}1. [T](u)\n\ns\n=======\n{HEADER}1. [V](w)\n\nx"
    kept, dropped = parse_search_text(text), parse_search_text(text, separators=False)
    assert kept[0]["web_page_info_list"][0]["snippet"] == "s\n======="
    assert dropped[0]["web_page_info_list"][0]["snippet"] == "s"


WORD = st.text("abc é東.,'-", min_size=1, max_size=12).map(str.strip).filter(bool)
PAGE = st.fixed_dictionaries({"title": WORD, "url": WORD, "snippet": WORD | st.just("")})
BLOCK = st.fixed_dictionaries(
    {
        "query": WORD.filter(lambda query: query[0] != "'" and query[-1] != "'"),
        "web_page_info_list": st.lists(PAGE, max_size=4),
    }
)


@SLOW_MACHINE
@given(st.lists(BLOCK, min_size=1, max_size=4))
def test_rendered_blocks_are_read_back(blocks):
    assert parse_search_text(render_search_text(blocks), separators=False) == blocks


PAGES = st.lists(st.tuples(st.text(), st.text(), st.text()), max_size=3)


@SLOW_MACHINE
@given(st.lists(st.tuples(st.text(), PAGES), max_size=3))
def test_blocks_are_written_as_json_writes_them(found):
    blocks = [
        {
            "query": query,
            "web_page_info_list": [
                dict(zip(("title", "url", "snippet"), page, strict=True)) for page in pages
            ],
        }
        for query, pages in found
    ]
    assert blocks_json(blocks) == json.dumps(blocks, ensure_ascii=False)


@SLOW_MACHINE
@given(st.text("A Google search for'#WebResults1.[]()\n=", max_size=200))
def test_nothing_raises(text):
    parse_search_text(text)


@pytest.mark.parametrize(
    "text",
    [
        HEADER + "1. [" * 300_000,
        HEADER + "1. [T](u)\n" + "x\n" * 500_000,
        HEADER + "\n1. [" * 200_000,
        "A Google search for '" * 50_000,
        HEADER + "1. [T](" + "(" * 1_000_000,
    ],
)
def test_time_is_linear(text):
    started = time.process_time()
    parse_search_text(text)
    assert time.process_time() - started < 3
