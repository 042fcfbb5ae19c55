"""Pages of one's own from tables and folders of documents."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drv_env.errors import TaskDataError
from drv_env.protocol import Search, Visit
from drv_env.tools.base import Call
from drv_env.tools.offline import OfflineTools
from drv_env.tools.page_files import read_pages
from drv_env.worlds import Page

ROWS = [
    {"url": "https://e.org/mill", "title": "The mill", "text": "Its owner is Salen."},
    {
        "url": "https://e.org/inn",
        "title": "The inn, “Zur Mühle”",
        "text": "It is shut.\nSince 1912.",
    },
]
PAGES = tuple(Page(row["url"], row["title"], row["text"]) for row in ROWS)


def csv_text(rows: list[dict[str, str]]) -> str:
    cells = [["url", "title", "text"], *([*row.values()] for row in rows)]
    return "".join(",".join(f'"{cell}"' for cell in line) + "\n" for line in cells)


def json_lines(rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


WRITERS: dict[str, Callable[[Path], object]] = {
    "p.jsonl": lambda file: file.write_text(json_lines(ROWS)),
    "p.json": lambda file: file.write_text(json.dumps(ROWS)),
    "wrapped.json": lambda file: file.write_text(json.dumps({"pages": ROWS})),
    "p.csv": lambda file: file.write_text(csv_text(ROWS), encoding="utf-8-sig"),
    "p.parquet": lambda file: pq.write_table(pa.Table.from_pylist(ROWS), file),
    "p.jsonl.gz": lambda file: file.write_bytes(gzip.compress(json_lines(ROWS).encode())),
}


@pytest.mark.parametrize("name", WRITERS)
def test_tables_of_every_kind_give_the_same_pages(name: str, tmp_path: Path) -> None:
    WRITERS[name](tmp_path / name)
    assert read_pages(tmp_path / name).worlds == {"pages": PAGES}
    assert read_pages(tmp_path).worlds == {"pages": PAGES}  # the folder around it


def test_columns_by_their_other_names_worlds_and_links(tmp_path: Path) -> None:
    rows = [
        {"Link": "a", "Name": "A", "Content": "x", "World": "north", "links": ["b", "c"]},
        {"Link": "a", "Name": None, "Content": "y", "World": "south", "links": None},
        {"Link": 7, "Content": 12.0},
    ]
    (tmp_path / "p.jsonl").write_text(json_lines(rows))
    assert read_pages(tmp_path / "p.jsonl").worlds == {
        "north": (Page("a", "A", "x", ("b", "c")),),
        "south": (Page("a", "", "y"),),
        "pages": (Page("7", "", "12"),),
    }


def test_a_folder_of_documents(tmp_path: Path) -> None:
    inner = tmp_path / "notes"
    inner.mkdir()
    (tmp_path / "mill.txt").write_bytes("Die Mühle gehört Salen.".encode("latin-1"))
    (inner / "inn.md").write_text("# The inn\n\nIt is shut.\n")
    (inner / "plain.md").write_text("No heading here.\n")
    (tmp_path / "ford.html").write_text(
        "<html><head><title>The &amp; ford</title></head><body><article><p>The ford is deep and "
        "nobody crosses it in spring.</p></article></body></html>"
    )
    (tmp_path / "more.jsonl").write_text(json_lines(ROWS[:1]))
    (tmp_path / "image.png").write_bytes(b"\x89PNG")
    (tmp_path / ".hidden.txt").write_text("no")
    (tmp_path / "_draft.md").write_text("no")
    (tmp_path / "empty.txt").write_text(" \n")
    found = read_pages(tmp_path)
    pages = {page.url: page for page in found.worlds["pages"]}
    assert set(pages) == {"mill.txt", "notes/inn.md", "notes/plain.md", "ford.html", ROWS[0]["url"]}
    assert pages["mill.txt"] == Page("mill.txt", "mill", "Die Mühle gehört Salen.")
    assert pages["notes/inn.md"].title == "The inn"
    assert pages["notes/plain.md"].title == "plain"
    assert pages["ford.html"].title == "The & ford"
    assert "nobody crosses it in spring" in pages["ford.html"].text
    assert "<p>" not in pages["ford.html"].text
    assert found.passed_over == 1
    assert [str(problem) for problem in found.problems] == [
        f"{tmp_path / 'empty.txt'} line 1: it has no text"
    ]


def test_one_document_is_a_web_of_one_page(tmp_path: Path) -> None:
    (tmp_path / "mill.txt").write_text("Its owner is Salen.")
    assert read_pages(tmp_path / "mill.txt").worlds == {
        "pages": (Page("mill.txt", "mill", "Its owner is Salen."),)
    }


def test_rows_that_are_no_pages_are_told_and_left_out(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    bad = [{"url": "", "text": "x"}, {"url": "u"}, ROWS[0], {**ROWS[0], "text": "again"}, [1]]
    bad.append({"url": "HTTPS://E.org:443/mill#owner", "text": "the same page"})
    file.write_text(json_lines(bad) + "{broken\n")
    found = read_pages(file)
    assert found.worlds == {"pages": PAGES[:1]}
    told = {problem.row: problem.reason for problem in found.problems}
    assert told[1] == "the url is missing or empty"
    assert told[2] == "the text is missing or empty"
    assert told[4] == "the url 'https://e.org/mill' is there already"
    assert told[6] == "the url 'HTTPS://E.org:443/mill#owner' is there already"
    assert set(told) == {1, 2, 4, 5, 6, 7}


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("p.csv", "address,text\na,b\n", "no column for the url of a page"),
        ("p.csv", "url,title\na,b\n", "no column for the text of a page"),
        ("p.jsonl", '{"url": "a"}\n', "no page was found: .* the text is missing or empty"),
        ("p.jsonl", "", "no page was found"),
        ("p.docx", "x", "unknown kind of file"),
        ("p.txt", " ", "no page was found: .* it has no text"),
    ],
)
def test_what_holds_no_page_is_one_error_that_names_the_file(
    name: str, content: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(TaskDataError, match=says) as told:
        read_pages(tmp_path / name)
    assert name in str(told.value)


def test_folders_without_pages_and_paths_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(TaskDataError, match="no such file or folder"):
        read_pages(tmp_path / "nowhere")
    (tmp_path / "image.png").write_bytes(b"x")
    with pytest.raises(TaskDataError, match="no pages there"):
        read_pages(tmp_path)


def test_tools_over_files_answer(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text(json_lines(ROWS))
    tools = OfflineTools.from_files(tmp_path, results=1)
    task = ("Who owns the mill?", "Salen")
    found = asyncio.run(tools.call(Call(Search(("owner of the mill",)), task)))
    assert "https://e.org/mill" in found.text
    page = asyncio.run(tools.call(Call(Visit(("https://e.org/mill",), "owner"), task)))
    assert "Salen" in page.text
