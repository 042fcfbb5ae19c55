"""Search results as a page of text, and as the deployment's list of blocks; both ways.

The text is what the raw trajectories hold:

* a line ``A Google search for 'QUERY' found N results:`` opens a block;
* its entries come after a line ``## Web Results``, each beginning with a line
  ``K. [title](url)`` whose brackets and parentheses balance; what follows on that line and on
  the lines up to the next entry or block is the snippet;
* leading lines ``Date published:`` and ``Date updated:`` of a snippet and its blank lines are
  dropped;
* an entry without title or url is left out;
* text without an opening line is one block with an empty query.

Time is linear in the text, and nothing raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from json.encoder import encode_basestring as _quoted
from typing import Any

MARK = "Web Results"
"""What the release takes for the sign of such text."""

_HEADER_START, _RESULTS = "A Google search for ", "## Web Results"
_HEADER = re.compile(r"A Google search for (.*) found \d+ results?:\s*$")
_ENTRY = re.compile(r"\n\d+\. \[(?:([^][\n]*)\]\(([^()\n]*)\))?")
"""An entry's number, and the link where no brackets are nested in it."""
_SQUARE, _ROUND = re.compile(r"[][]"), re.compile(r"[()]")
_DATES = ("Date published:", "Date updated:")
_SEPARATOR = "======="


Block = dict[str, Any]
"""``query`` and ``web_page_info_list``: pages with ``title``, ``url`` and ``snippet``."""


def has_header(text: str) -> bool:
    """Whether a line of the text opens a block."""
    return next(_headers(text), None) is not None


def parse_search_text(text: str, *, separators: bool = True) -> list[Block]:
    """The blocks of a page of results.

    Args:
        text: the page.
        separators: keep the line ``=======`` between two blocks at the end of the snippet
            before it, as the release does; False drops it.

    Example:
        >>> text = "A Google search for 'x' found 1 results:\\n\\n## Web Results\\n1. [T](u)\\n\\ns"
        >>> parse_search_text(text)
        [{'query': 'x', 'web_page_info_list': [{'title': 'T', 'url': 'u', 'snippet': 's'}]}]
    """
    headers = list(_headers(text))
    if not headers:
        return [_block("", text, separators)]
    ends = [start for start, _, _ in headers[1:]] + [len(text)]
    return [
        _block(query, text[after:end], separators)
        for (_, after, query), end in zip(headers, ends, strict=True)
    ]


def blocks_json(blocks: Iterable[Block]) -> str:
    """What ``json.dumps(blocks, ensure_ascii=False)`` gives, in three quarters of the time."""
    written = (
        f'{{"query": {_quoted(block["query"])}, '
        f'"web_page_info_list": [{", ".join(map(_page_json, block["web_page_info_list"]))}]}}'
        for block in blocks
    )
    return f"[{', '.join(written)}]"


def render_search_text(blocks: Iterable[Mapping[str, Any]]) -> str:
    """A page that :func:`parse_search_text` reads back, with ``separators=False``.

    Only where each text is one that the page can hold: no line break in a query, title or
    url, no blank line or opening line of an entry or block in a snippet, no spaces around a
    line, brackets that balance.
    """
    parts = []
    for block in blocks:
        pages = block["web_page_info_list"]
        lines = [f"A Google search for '{block['query']}' found {len(pages)} results:", ""]
        lines.append("## Web Results")
        for number, page in enumerate(pages, start=1):
            lines += [f"{number}. [{page['title']}]({page['url']})", "", page["snippet"], ""]
        parts.append("\n".join(lines).rstrip("\n") + "\n")
    return f"{_SEPARATOR}\n".join(parts)


def _page_json(page: Mapping[str, str]) -> str:
    title, url, snippet = page["title"], page["url"], page["snippet"]
    return f'{{"title": {_quoted(title)}, "url": {_quoted(url)}, "snippet": {_quoted(snippet)}}}'


def _headers(text: str) -> Iterator[tuple[int, int, str]]:
    """(start, end, query without its quotes) of every line that opens a block."""
    start = text.find(_HEADER_START)
    while start >= 0:
        end = _line_end(text, start)
        if start == 0 or text[start - 1] == "\n":
            match = _HEADER.match(text[start:end])
            if match is not None:
                query = match[1].strip()
                if len(query) >= 2 and query[0] == query[-1] and query[0] in "'\"":
                    query = query[1:-1]
                yield start, end, query
        start = text.find(_HEADER_START, start + 1)


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def _block(query: str, text: str, separators: bool) -> Block:
    """The block whose text, after its opening line, this is."""
    pages: list[dict[str, str]] = []
    title = url = ""  # of the entry before
    after = 0
    listing = _listing(text)
    for match in () if listing is None else _ENTRY.finditer(text, listing):
        link = _link(text, match)
        if link is not None:
            if title and url:
                snippet = _snippet(text[after : match.start()], separators)
                pages.append({"title": title, "url": url, "snippet": snippet})
            title, url, after = link
    if title and url:
        pages.append({"title": title, "url": url, "snippet": _snippet(text[after:], separators)})
    return {"query": query, "web_page_info_list": pages}


def _listing(text: str) -> int | None:
    """Where the line ends that entries come after."""
    start = text.find(_RESULTS)
    while start >= 0:
        end = _line_end(text, start)
        if (start == 0 or text[start - 1] == "\n") and text[start:end].rstrip() == _RESULTS:
            return end
        start = text.find(_RESULTS, start + 1)
    return None


def _link(text: str, match: re.Match[str]) -> tuple[str, str, int] | None:
    """(title, url, where it ends) of the link that opens an entry, within its line."""
    title, url = match.groups()
    if title is not None:
        return title.strip(), url.strip(), match.end()
    start = match.end() - 1
    stop = _line_end(text, start)
    middle = _closing(text, start, stop, _SQUARE, "[")
    if middle is None or not text.startswith("(", middle + 1):
        return None
    end = _closing(text, middle + 1, stop, _ROUND, "(")
    if end is None:
        return None
    return text[start + 1 : middle].strip(), text[middle + 2 : end].strip(), end + 1


def _closing(
    text: str, start: int, stop: int, brackets: re.Pattern[str], opening: str
) -> int | None:
    """Where the bracket that opens at ``start`` is closed."""
    depth = 0
    for match in brackets.finditer(text, start, stop):
        depth += 1 if match[0] == opening else -1
        if depth == 0:
            return match.start()
    return None


def _snippet(text: str, separators: bool) -> str:
    text = text.strip()
    if "\n" not in text and not text.startswith((*_DATES, _SEPARATOR)):
        return text
    kept = [line for line in map(str.strip, text.split("\n")) if line]
    if not separators and kept and kept[-1] == _SEPARATOR:
        kept.pop()
    first = 0
    while first < len(kept) and kept[first].startswith(_DATES):
        first += 1
    return "\n".join(kept[first:])
