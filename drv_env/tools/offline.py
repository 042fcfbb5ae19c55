"""Search and visit over offline pages: the worlds made from seeds, or a user's own.

Each world has its own Tantivy index in memory, built when it is first asked and then
kept by the process, so that making many tools over the same worlds costs nothing.  A
call is answered from the world that its task names.

A call on a world's short pages takes some 50 to 300 microseconds, all of it processor
work; therefore it runs inline on the event loop, and the clock stands still.  Cutting
long pages takes longer, in proportion.  Only the first call to a world waits for its
pages and index: 10 milliseconds for a small world, half a second for 10,000 pages.

A query is never parsed: its terms are looked up, whatever signs stand between them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import gymnasium
import tantivy

from drv_env import prompts
from drv_env.errors import SettingError, ToolError
from drv_env.protocol import PAGE_SEPARATOR, Search, Visit, render_search, render_visit
from drv_env.settings import at_least, checked_whole
from drv_env.tasks import Task
from drv_env.tools.base import (
    SEARCH_SCHEMA,
    VISIT_SCHEMA,
    Call,
    Clock,
    Status,
    ToolResult,
    ToolSchema,
    still_clock,
)
from drv_env.tools.passages import WORDS_SHOWN, excerpt, snippet
from drv_env.unicode_text import query_terms, sound_text, terms
from drv_env.urls import canonical_url, near_spellings
from drv_env.worlds.recipe import WorldRecipe
from drv_env.worlds.world import Page

FIELDS = ("title", "url", "snippet")
"""What a search result can hold."""

LONGEST_QUERY = 2_000
"""Characters of a query that are read, and repeated in the observation."""

MOST_TERMS = 64
"""Different terms of a query that are looked up."""

TITLE_WEIGHT = 4.0
"""How much more a term in a title counts than one in the text."""

NOTHING_FOUND = "Nothing was found. Try other words."
NO_SUCH_PAGE = "There is no page at this url."
NOT_ON_PAGE = "Nothing on the page matches the goal. It begins: "


class PageIndex:
    """The pages of one world with a search index in memory.

    Args:
        pages: the pages, each with a url of its own.

    Raises:
        SettingError: when two pages have the same url, in whatever spelling
            (:func:`~drv_env.urls.canonical_url`); the same page twice counts once.
    """

    def __init__(self, pages: Sequence[Page]) -> None:
        self._by_url: dict[str, Page] = {}
        for page in sorted(pages, key=lambda page: page.url):
            standing = self._by_url.setdefault(canonical_url(page.url), page)
            if standing is not page and replace(page, url=standing.url) != standing:
                raise SettingError(_said_twice(standing.url, page.url))
        self._ordered = list(self._by_url.values())
        builder = tantivy.SchemaBuilder()
        for name in ("title", "text"):
            # Terms are cut by drv_env.unicode_text on both sides and stored apart by blanks.
            builder.add_text_field(name, tokenizer_name="whitespace", index_option="freq")
        builder.add_unsigned_field("order", stored=True)
        self._schema = builder.build()
        index = tantivy.Index(self._schema)
        # Registered here: not every version of Tantivy knows it by this name.
        blanks = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace()).build()
        index.register_tokenizer("whitespace", blanks)
        size = sum(len(page.title) + len(page.text) for page in self._ordered)
        # One thread and room for everything make one segment, in which equal scores
        # come in the order of insertion: by url.
        room = min(max(32_000_000, 20 * size), 4_000_000_000)
        writer = index.writer(room, 1)
        for order, page in enumerate(self._ordered):
            document = tantivy.Document()
            document.add_text("title", " ".join(terms(page.title)))
            document.add_text("text", " ".join(terms(page.text)))
            document.add_unsigned("order", order)
            writer.add_document(document)
        writer.commit()
        writer.wait_merging_threads()
        index.reload()
        self._searcher = index.searcher()

    def page(self, url: str) -> Page | None:
        """The page at a url, in any spelling of it."""
        return self._by_url.get(canonical_url(url))

    def near_page(self, url: str) -> Page | None:
        """The page that most servers would redirect to from a url at which there is none."""
        found = map(self._by_url.get, near_spellings(url))
        return next((page for page in found if page is not None), None)

    def search(self, query: str, limit: int) -> list[Page]:
        """The best ``limit`` pages for any text, best first, equals by url.

        A page matches when it holds one of the query's terms, in its title or text.
        """
        wanted = dict.fromkeys(query_terms(query))
        should = tantivy.Occur.Should
        parts = []
        for term in list(wanted)[:MOST_TERMS]:
            title = tantivy.Query.term_query(self._schema, "title", term, "freq")
            parts.append((should, tantivy.Query.boost_query(title, TITLE_WEIGHT)))
            parts.append((should, tantivy.Query.term_query(self._schema, "text", term, "freq")))
        if not parts:
            return []
        found = self._searcher.search(tantivy.Query.boolean_query(parts), limit, count=False)
        ranked = [
            (-score, self._searcher.doc(address)["order"][0]) for score, address in found.hits
        ]
        return [self._ordered[order] for _, order in sorted(ranked)]


@lru_cache(maxsize=64)
def _world_index(recipe: WorldRecipe) -> PageIndex:
    return PageIndex(tuple(recipe.build().pages.values()))


class OfflineTools:
    """``search`` and ``visit`` over the pages of one or more worlds.

    Pickling carries the worlds' recipes and the settings, never an index; a user's own
    pages are carried whole.  The copy answers alike.

    Args:
        worlds: recipes, with different names.
        results: most pages per query, at least 1.
        snippet_words: most words of a snippet, at least 1.
        evidence_words: of a visited page, the most words that are shown, at least 1; a page
            that has no more is shown whole, of a longer one passages are
            (:func:`drv_env.tools.passages.excerpt`).
        whole_pages: every page is shown whole, however long.
        fields: what a search result holds, of ``title``, ``url`` and ``snippet``; the
            url is always among them.
        links: how many of a page's links a visit shows after the evidence, 0 or more.
        pages: a user's own pages, by the name of their world; see :meth:`from_pages`.

    Raises:
        SettingError: when a setting can't work, or there is no world at all.

    Example:
        For a tiny model, observations of a dozen words:

        >>> tools = OfflineTools([WorldRecipe(0)], results=1, fields=("url",), evidence_words=8)
        >>> tools.worlds
        ('world-0',)
    """

    def __init__(
        self,
        worlds: Sequence[WorldRecipe] = (),
        results: int = 10,
        snippet_words: int = 30,
        evidence_words: int = WORDS_SHOWN,
        fields: Sequence[str] = FIELDS,
        links: int = 0,
        pages: Mapping[str, Sequence[Page]] | None = None,
        *,
        whole_pages: bool = False,
    ) -> None:
        for name, value, least in (
            ("results", results, 1),
            ("snippet_words", snippet_words, 1),
            ("evidence_words", evidence_words, 1),
            ("links", links, 0),
        ):
            checked_whole(name, value, at_least(least))
        unknown = [field for field in fields if field not in FIELDS]
        if isinstance(fields, str) or unknown or "url" not in fields:
            raise SettingError(
                f"fields must hold 'url' and otherwise be of {', '.join(FIELDS)}, got {fields!r}"
            )
        self._settings: dict[str, Any] = {
            "results": results,
            "snippet_words": snippet_words,
            "evidence_words": evidence_words,
            "fields": tuple(fields),
            "links": links,
            "whole_pages": whole_pages,
        }
        self._recipes = {recipe.name: recipe for recipe in worlds}
        self._own = {name: tuple(own) for name, own in (pages or {}).items()}
        if not self.worlds:
            raise SettingError("no worlds were given; pass at least one recipe, or pages")
        if len({*self.worlds}) != len(worlds) + len(self._own):
            raise SettingError("two of the worlds have the same name; pass each once")
        self._own_index: dict[str, PageIndex] = {}

    @classmethod
    def from_pages(
        cls, worlds: Mapping[str, Sequence[Page]] | Sequence[Page], **settings: Any
    ) -> OfflineTools:
        """Tools over a user's own pages.

        Args:
            worlds: pages by the name of their world, which tasks give as ``world``; a
                single world also answers tasks that name none.  Or just pages: a single
                world named ``pages``.
            settings: as for the constructor.

        Raises:
            SettingError: when a setting can't work, or two pages share a url (found when
                the world is first asked).

        Example:
            >>> page = Page("https://example.org/a", "A", "The owner is Salen.")
            >>> OfflineTools.from_pages({"mine": [page]}).worlds
            ('mine',)
        """
        named = worlds if isinstance(worlds, Mapping) else {"pages": worlds}
        return cls(pages=named, **settings)

    @classmethod
    def from_files(cls, path: str | os.PathLike[str], **settings: Any) -> OfflineTools:
        """Tools over the pages of a file or folder (:mod:`drv_env.tools.page_files`).

        Rows and documents that are no pages are left out, and told with a warning.

        Args:
            path: a table with the columns url, title and text, or a folder of documents.
            settings: as for the constructor.

        Raises:
            TaskDataError: when there is no page, or a file can't be read.
            SettingError: when a setting can't work.
        """
        from drv_env.tools.page_files import read_pages

        found = read_pages(path)
        if found.problems:
            gymnasium.logger.warn(
                "%s: %d rows or files are no pages and left out; the first: %s",
                os.fspath(path),
                len(found.problems),
                found.problems[0],
            )
        return cls(pages=found.worlds, **settings)

    @property
    def worlds(self) -> tuple[str, ...]:
        """Names of the worlds that can be asked."""
        return (*self._recipes, *self._own)

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """``search`` and ``visit``."""
        return (SEARCH_SCHEMA, VISIT_SCHEMA)

    @property
    def instant(self) -> bool:
        """True: no call waits."""
        return True

    @property
    def clock(self) -> Clock:
        """Stands still: the offline world takes no time."""
        return still_clock

    async def call(self, call: Call) -> ToolResult:
        """Carry out one call, inline.

        The result's ``data`` is, for a search, a list of ``{"query", "pages"}`` with each
        page's ``title``, ``url`` and, where shown, ``snippet``; for a visit, a list of ``{"url",
        "found", "evidence"}`` with the evidence as a list of passages.

        A search that found nothing for any query, and a visit of which no url exists,
        has status ``EMPTY``.

        Raises:
            ToolError: for another tool, or a world that is not here.
        """
        match call.action:
            case Search(queries):
                return self._search(self._index(call.task), queries)
            case Visit(urls, goal):
                return self._visit(self._index(call.task), urls, goal)
        raise ToolError(f"there is no tool {call.name!r} offline; there are search and visit")

    async def close(self) -> None:
        """Nothing to give back: indexes belong to the process."""

    def __reduce__(self) -> tuple[Callable[..., OfflineTools], tuple[Any, ...]]:
        return _restore, (tuple(self._recipes.values()), self._own, self._settings)

    def _index(self, task: Task) -> PageIndex:
        name = task.world
        if name is None and len(self.worlds) == 1:
            name = self.worlds[0]
        if name in self._recipes:
            return _world_index(self._recipes[name])
        if name in self._own:
            if name not in self._own_index:
                self._own_index[name] = PageIndex(self._own[name])
            return self._own_index[name]
        known = ", ".join(self.worlds[:5]) + (", …" if len(self.worlds) > 5 else "")
        if name is None:
            raise ToolError(f"the task names no world and there are several: {known}")
        raise ToolError(f"there is no world {name!r}; there are: {known}")

    def _search(self, index: PageIndex, queries: Sequence[str]) -> ToolResult:
        fields, words = self._settings["fields"], self._settings["snippet_words"]
        shown, data = [], []
        for query in queries:
            query = sound_text(query[:LONGEST_QUERY])
            wanted = frozenset(query_terms(query, MOST_TERMS))
            pages = []
            for page in index.search(query, self._settings["results"]):
                found = {"title": page.title, "url": page.url}
                if "snippet" in fields:
                    # The title says what it matches; the snippet shows the rest.
                    rest = wanted.difference(terms(page.title)) or wanted
                    found["snippet"] = snippet(page.text, rest, words)
                pages.append(found)
            shown.append((query, [{name: page[name] for name in fields} for page in pages]))
            data.append({"query": query, "pages": pages})
        text = render_search(shown)
        if any(pages for _, pages in shown):
            return ToolResult(text, data=data)
        return ToolResult(f"{text}\n{NOTHING_FOUND}", Status.EMPTY, data=data)

    def _visit(self, index: PageIndex, urls: Sequence[str], goal: str) -> ToolResult:
        words, links = self._settings["evidence_words"], self._settings["links"]
        if self._settings["whole_pages"]:
            words = None
        goal = sound_text(goal[:LONGEST_QUERY])
        shown, data = [], []
        for url in urls:
            page = index.page(url)
            if page is None:
                near = index.near_page(url)
                told = (
                    NO_SUCH_PAGE if near is None else f"{NO_SUCH_PAGE} There is one at {near.url}"
                )
                url = sound_text(url[:LONGEST_QUERY])
                shown.append(render_visit(url, goal, told))
                data.append({"url": url, "found": False, "evidence": []})
                continue
            found = excerpt(page.text, goal, words)
            text = found.text or prompts.empty_page()
            if goal and not found.matched:
                text = f"{NOT_ON_PAGE}{text}"
            if links and page.links:
                text += "\nLinks: " + " ".join(page.links[:links])
            shown.append(render_visit(url, goal, text))
            passages = list(found.passages) if found.matched else []
            data.append({"url": url, "found": True, "evidence": passages})
        status = Status.OK if any(item["found"] for item in data) else Status.EMPTY
        return ToolResult(PAGE_SEPARATOR.join(shown), status, data=data)


def _said_twice(url: str, other: str) -> str:
    if url == other:
        return f"two pages have the url {url!r}; every page needs its own"
    return (
        f"two pages have one url in two spellings, {url!r} and {other!r}; every page needs its "
        "own (a part after # names a place within a page)"
    )


def _restore(
    recipes: tuple[WorldRecipe, ...],
    own: Mapping[str, tuple[Page, ...]],
    settings: Mapping[str, Any],
) -> OfflineTools:
    return OfflineTools(recipes, pages=own, **settings)
