"""What recorded observations say, in every form they are met in."""

import pytest

from drv_env import prompts
from drv_env.episode import ObservationKind
from drv_env.protocol import PAGE_SEPARATOR, Search, ToolCall, Visit, render_search, render_visit
from drv_env.tools.base import Status
from drv_env.tools.offline import NO_SUCH_PAGE, NOTHING_FOUND
from replay.observations import (
    Found,
    Seen,
    is_of_its_tool,
    own_words,
    read_search,
    read_visit,
    status_of,
)
from tests.replay.recordings import visit_result

SEARCH, VISIT = Search(("x",)), Visit(("u",), "g")


def test_searches_as_json_and_as_text():
    page = {"title": "T", "url": "https://a", "snippet": "s"}
    assert read_search(render_search([("x", [page])])) == [Found("https://a", "T", "s")]
    text = "A Google search for 'x' found 1 results:\n\n## Web Results\n1. [T](https://a)\n\ns"
    assert read_search(text) == [Found("https://a", "T", "s")]
    nothing = f"{render_search([('x', [])])}\n{NOTHING_FOUND}"
    assert read_search(nothing) == []
    assert status_of(SEARCH, nothing) is Status.EMPTY


@pytest.mark.parametrize("text", ["", "error", "[1, 2", "[1]", '[{"web_page_info_list": 3}]', "{}"])
def test_what_is_no_search_result(text):
    assert read_search(text) is None
    assert not is_of_its_tool(SEARCH, text)
    assert status_of(SEARCH, text) is Status.OK


def test_visits_in_both_forms_and_several_pages():
    assert read_visit(visit_result("https://a", "g", "Body.")) == [
        Seen("https://a", ("Body.", "In short: Body."))
    ]
    own = [render_visit("https://a", "g", "One.", "Sum."), render_visit("https://b", "", "Two.")]
    assert read_visit(PAGE_SEPARATOR.join(own)) == [
        Seen("https://a", ("One.", "Sum.")),
        Seen("https://b", ("Two.",)),
    ]
    assert read_visit("Body.") is None


@pytest.mark.parametrize(
    "evidence",
    [
        NO_SUCH_PAGE,
        prompts.missing_page("404"),
        prompts.failed_page("away"),
        prompts.refused_page("a film"),
        prompts.empty_page(),
        "The provided webpage content could not be accessed. Please check the URL.",
    ],
)
def test_pages_that_were_not_read_give_no_text(evidence):
    text = render_visit("https://a", "g", evidence)
    assert read_visit(text) == [Seen("https://a", ())]
    assert status_of(VISIT, text) is Status.EMPTY


@pytest.mark.parametrize(
    "text",
    [
        "Tool execution timed out after 120 seconds.",
        prompts.failed_call("visit", "no reply"),
        "[visit] Failed to read page.",
    ],
)
def test_failures_are_failures(text):
    assert status_of(VISIT, text) is Status.FAILED
    assert status_of(ToolCall("other", {}), text) is Status.FAILED


def test_the_environments_own_words_are_known():
    assert own_words(prompts.malformed("why")) is ObservationKind.MALFORMED
    assert own_words(prompts.refused("why")) is ObservationKind.REFUSED
    assert own_words(prompts.answer_request("time")) is ObservationKind.BUDGET
    assert own_words("anything else") is None
