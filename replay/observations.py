"""What recorded observations say: search results, visited pages, failures, the env's words.

Reads text only, in the forms in which search and visit results are met: this project's,
and those of the DR-Venus and REDSearcher trajectories.  Nothing here raises: what can't be
read is None or empty.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from drv_env import prompts
from drv_env.episode import FORCED, Budget, ObservationKind
from drv_env.protocol import PAGE_SEPARATOR, Search, ToolCall, Visit
from drv_env.tools.base import Status
from replay.search_text import has_header, parse_search_text


@dataclass(frozen=True, slots=True)
class Found:
    """A search result: what was seen of a page without opening it."""

    url: str
    title: str
    snippet: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A visited page: what was taken from it; ``texts`` is empty where it gave nothing."""

    url: str
    texts: tuple[str, ...]


_FAILURE = re.compile(
    r"""
      Tool\ execution\ timed\ out\b
    | The\ (?P<tool>\w+)\ call\ failed:
    | \[(?i:visit|search|browse)\]\ (?i:failed|error)
    | Google\ search\ Timeout
    | Error\ (?:executing|calling)\ (?:the\ )?tool
    """,
    re.VERBOSE,
)
_NOTHING_READ = re.compile(
    r"""
      There\ is\ no\ page\ (?:at|to\ read\ at)\ this\ url
    | The\ page\ (?:was\ not\ read|can't\ be\ read|was\ opened\ and\ holds\ no\ text)
    | The\ provided\ webpage\ content\ could\ not\ be\ accessed
    | The\ webpage\ content\ could\ not\ be\ processed
    | Part\ \d+\ of\ \d+\ of\ the\ page\ was\ not\ read
    | The\ page\ could\ not\ be\ summarised:
    """,
    re.VERBOSE,
)
_RELEASED_PAGE = re.compile(
    r"The useful information in (\S+) for user goal (.*?) as follows: ?\n", re.S
)
_OWN_PAGE = re.compile(r"Page: (\S+)\n(?:Goal: .*\n)?(?=Evidence:\n)")
_HEADING = re.compile(r"^(?:Evidence in page|Evidence|Summary): ?$", re.M)
_OWN_WORDS: tuple[tuple[str, ObservationKind], ...] = (
    (prompts.malformed("\x00").partition("\x00")[0], ObservationKind.MALFORMED),
    (prompts.refused("\x00").partition("\x00")[0], ObservationKind.REFUSED),
)
_MALFORMED_END = prompts.malformed("\x00", thought_optional=True).partition("\x00")[2]
_REQUESTS: dict[str, Budget] = {
    prompts.answer_request(budget, thought_optional): budget
    for budget in FORCED
    for thought_optional in (False, True)
}


_LONGEST_REQUEST = 2_000
"""Characters."""
_ANSWERING = re.compile(r"answer|respon[ds]|conclu|回答|答案|作答|答え|답", re.IGNORECASE)


def read_search(text: str) -> list[Found] | None:
    """The results in a search observation, or None when it is none.

    Example:
        >>> read_search('[{"query": "x", "web_page_info_list": [{"title": "T", "url": "u"}]}]')
        [Found(url='u', title='T', snippet='')]
    """
    blocks = parse_search_text(text) if has_header(text) else _json_blocks(text.lstrip())
    if not isinstance(blocks, list):
        return None
    found = []
    for block in blocks:
        pages = block.get("web_page_info_list") if isinstance(block, dict) else None
        if not isinstance(pages, list):
            return None
        for page in pages:
            if isinstance(page, dict) and isinstance(page.get("url"), str) and page["url"].strip():
                found.append(
                    Found(page["url"].strip(), _text(page, "title"), _text(page, "snippet"))
                )
    return found


def read_visit(text: str) -> list[Seen] | None:
    """The pages in a visit observation, or None when it is none.

    Example:
        >>> read_visit("Page: http://a\\nGoal: who\\nEvidence:\\nIt is Salen.")
        [Seen(url='http://a', texts=('It is Salen.',))]
    """
    found: list[Seen] = []
    for part in text.split(PAGE_SEPARATOR):
        header = _RELEASED_PAGE.match(part.lstrip()) or _OWN_PAGE.match(part.lstrip())
        if header is None:
            return found or None
        pieces = (piece.strip() for piece in _HEADING.split(part.lstrip()[header.end() :]))
        texts = tuple(piece for piece in pieces if piece and not _NOTHING_READ.match(piece))
        found.append(Seen(header[1], texts))
    return found


def own_words(text: str) -> ObservationKind | None:
    """Which of the environment's own observations the text is, if any.

    Example:
        >>> own_words("The call was not carried out: visit needs \\"goal\\".")
        <ObservationKind.REFUSED: 'refused'>
    """
    if asked_budget(text) is not None:
        return ObservationKind.BUDGET
    return next((kind for start, kind in _OWN_WORDS if text.startswith(start)), None)


def asked_budget(text: str) -> Budget | None:
    """The budget that ran out, where the text is the environment's request for the answer."""
    return _REQUESTS.get(text)


def leaves_thought_out(text: str) -> bool:
    """Whether the text is the environment's own and tells an agent that needs no thought."""
    requests = (prompts.answer_request(budget, True) for budget in FORCED)
    return text in requests or (
        own_words(text) is ObservationKind.MALFORMED and text.endswith(_MALFORMED_END)
    )


def status_of(action: Search | Visit | ToolCall, text: str) -> Status:
    """How a call went, judged by its observation: ok, empty or failed.

    Example:
        >>> status_of(Search(("x",)), "Tool execution timed out after 120 seconds.")
        <Status.FAILED: 'failed'>
    """
    if _FAILURE.match(text):
        return Status.FAILED
    empty = False
    if isinstance(action, Search):
        empty = read_search(text) == []
    elif isinstance(action, Visit):
        pages = read_visit(text)
        empty = pages is not None and not any(page.texts for page in pages)
    return Status.EMPTY if empty else Status.OK


def asks_to_answer(text: str) -> bool:
    """Whether the text may be a request for the answer, in another environment's words.

    Example:
        >>> asks_to_answer("You have reached the maximum context length. Answer now.")
        True
        >>> asks_to_answer("Doc 1: The mill is owned by Salen.")
        False
    """
    return len(text) <= _LONGEST_REQUEST and _ANSWERING.search(text) is not None


def is_of_its_tool(action: Search | Visit | ToolCall, text: str) -> bool:
    """Whether the text has the form in which the tool's results are known.

    Tools other than search and visit have no known form, and any text will do.
    """
    if isinstance(action, Search):
        return read_search(text) is not None
    if isinstance(action, Visit):
        return read_visit(text) is not None
    return True


def _json_blocks(text: str) -> object:
    if not text.startswith("["):
        return None
    try:
        # Ours may say in a line after the JSON that nothing was found.
        return json.JSONDecoder().raw_decode(text)[0]
    except (ValueError, RecursionError):
        return None


def _text(page: dict[str, object], name: str) -> str:
    value = page.get(name)
    return value.strip() if isinstance(value, str) else ""
