"""Pages of one's own from files: tables of pages, and folders of documents.

Tables (JSON lines, JSON, CSV, TSV, Parquet; text ones also gzipped) have a row a page, with the
columns ``url``, ``title`` and ``text``, and where they are there ``world`` and ``links``.
Documents (``.txt``, ``.md``, ``.html``) are a page each; its url is its path within the folder.
A row or document that is no page is left out and told; where nothing is left, that is an error.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drv_env.cells import cell_text, is_missing, listed
from drv_env.charsets import decode_page
from drv_env.column_names import find, has_column
from drv_env.errors import TaskDataError, boundary
from drv_env.json_files import why_unread
from drv_env.task_files import BadRow
from drv_env.task_formats import KINDS, TextFormat, kind_of, rows_of
from drv_env.unicode_text import sound_text
from drv_env.urls import canonical_url
from drv_env.worlds.world import Page

DOCUMENTS = (".txt", ".text", ".md", ".markdown", ".html", ".htm", ".xhtml")
"""Ends of the names of documents."""

WORLD = "pages"
"""The world of pages that name none."""

_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "url": ("url", "link", "uri", "docid", "doc_id", "id", "_id"),
    "title": ("title", "name"),
    "text": ("text", "content", "contents", "body", "markdown"),
    "world": ("world",),
    "links": ("links",),
}
_TOLD = 3
"""Problems that an error shows where there is no page at all."""


@dataclass(frozen=True, slots=True)
class PageFiles:
    """What was read.

    Attributes:
        worlds: pages by the name of their world; :data:`WORLD` for those that name none.
        problems: rows and documents that are no pages.
        passed_over: files of a folder that are of no known kind.
    """

    worlds: Mapping[str, tuple[Page, ...]]
    problems: tuple[BadRow, ...] = ()
    passed_over: int = 0

    def __len__(self) -> int:
        return sum(map(len, self.worlds.values()))


def read_pages(path: str | os.PathLike[str]) -> PageFiles:
    """The pages of a file, or of a folder and those within it.

    Args:
        path: a table or document, or a folder of any of them; what begins with ``.`` or ``_``
            is left out.

    Raises:
        TaskDataError: when nothing is there, a file can't be read or lacks a column, or no
            page is left.

    Example:
        >>> import tempfile, pathlib
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder, "mill.md")
        ...     _ = file.write_text("# The mill\\n\\nIts owner is Salen.\\n")
        ...     (page,) = read_pages(folder).worlds["pages"]
        >>> page.url, page.title
        ('mill.md', 'The mill')
    """
    whole = Path(path)
    with boundary(TaskDataError, str(path)):
        files, passed_over = _files(whole)
    worlds: dict[str, dict[str, Page]] = {}
    problems: list[BadRow] = []
    for file in files:
        for place, found in _pages(file, whole):
            world, page = ("", found) if isinstance(found, str) else found
            if isinstance(page, Page):
                there = worlds.setdefault(world or WORLD, {})
                if (url := canonical_url(page.url)) not in there:
                    there[url] = page
                    continue
                page = f"the url {page.url!r:.200} is there already"
            problems.append(BadRow(str(file), place[0], page, place[1]))
    if not worlds:
        told = "; ".join(str(problem) for problem in problems[:_TOLD]) or "there are no rows"
        raise TaskDataError(f"{path}: no page was found: {told}")
    kept = {name: tuple(pages.values()) for name, pages in worlds.items()}
    return PageFiles(kept, tuple(problems), passed_over)


def _files(path: Path) -> tuple[list[Path], int]:
    known = f"tables ({', '.join(KINDS)}) and documents ({', '.join(DOCUMENTS)})"
    if not path.exists():
        raise TaskDataError(f"{path}: there is no such file or folder")
    if not path.is_dir():
        if kind_of(path) is None and not _is_document(path):
            raise TaskDataError(f"{path}: unknown kind of file; known are {known}")
        return [path], 0
    inner = (file for file in sorted(path.rglob("*")) if file.is_file())
    there = [
        file
        for file in inner
        if not any(part.startswith((".", "_")) for part in file.relative_to(path).parts)
    ]
    files = [file for file in there if kind_of(file) is not None or _is_document(file)]
    if not files:
        raise TaskDataError(f"{path}: no pages there; known are {known}")
    return files, len(there) - len(files)


def _is_document(file: Path) -> bool:
    return file.suffix.lower() in DOCUMENTS


_Found = tuple[str, Page] | str
"""A page with the name of its world, "" for none; or why it is none."""


def _pages(file: Path, whole: Path) -> Iterator[tuple[tuple[int, str], _Found]]:
    if _is_document(file):
        name = file.relative_to(whole).as_posix() if whole.is_dir() else file.name
        yield (1, "line"), _document(file, name)
        return
    for number, unit, row in rows_of(file, _Table(), TextFormat()):
        if isinstance(row, str):
            yield (number, unit), row
            continue
        try:
            yield (number, unit), _row(row)
        except TaskDataError as error:
            yield (number, unit), str(error)


class _Table:
    """What a table of pages must have; see :class:`drv_env.task_formats.TableColumns`."""

    row_mark = _COLUMNS["text"]

    def check(self, names: Sequence[str]) -> None:
        """Refuse a table without urls or texts."""
        for what in ("url", "text"):
            if not any(has_column(names, name) for name in _COLUMNS[what]):
                raise TaskDataError(
                    f"no column for the {what} of a page (tried {', '.join(_COLUMNS[what])}); the "
                    f"columns are: {listed(names)}"
                )


def _row(row: Mapping[str, Any]) -> tuple[str, Page]:
    """The page of a row.

    Raises:
        TaskDataError: saying why it is none.
    """
    cells = {what: _cell(row, names) for what, names in _COLUMNS.items()}
    for what in ("url", "text"):
        if is_missing(cells[what]):
            raise TaskDataError(f"the {what} is missing or empty")
    texts = {
        what: "" if is_missing(cells[what]) else cell_text(cells[what], f"the {what}")
        for what in ("url", "title", "text", "world")
    }
    links = cells["links"]
    if not (links is None or isinstance(links, list | tuple)):
        links = [] if is_missing(links) else str(links).split()
    kept = tuple(cell_text(link, "a link") for link in links or ())
    return texts["world"], Page(texts["url"], texts["title"], texts["text"], kept)


def _cell(row: Mapping[str, Any], names: Sequence[str]) -> Any:
    """The first value that is there under one of the names."""
    found = (find(row, name) for name in names)
    return next((cell[1] for cell in found if cell is not None and not is_missing(cell[1])), None)


def _document(file: Path, name: str) -> _Found:
    try:
        text = sound_text(decode_page(file.read_bytes()))
    except OSError as error:
        return f"it can't be read: {why_unread(error)}"
    if "\0" in text:
        return "it is no text"
    title = file.stem
    if file.suffix.lower() in (".html", ".htm", ".xhtml"):
        from drv_env.tools.live.extraction import read_html

        title, text = read_html(text)
        title = title or file.stem
    elif file.suffix.lower() in (".md", ".markdown"):
        first = next((line.strip() for line in text.splitlines() if line.strip()), "")
        title = first.lstrip("#").strip() if first.startswith("#") else title
    if not text.strip():
        return "it has no text"
    return "", Page(name, title, text.strip())
