"""Cleaning one row: the released rules, where they do harm, and the better ones."""

import json
import time
import unicodedata

import pytest

from drv_env.errors import SettingError
from drv_env.protocol import format_verdict
from replay.clean import CleanRules, clean_row
from replay.layouts import RAW, Drop, Reason, Source, read_row
from tests.replay import raw_rows as raw

HERE = Source("f", 0)


def clean(made, **rules):
    found = read_row(made, RAW, HERE)
    return found if isinstance(found, Drop) else clean_row(found, CleanRules(**rules))


def contents(cleaned):
    return [message["content"] for message in cleaned.messages]


def reason(made, **rules):
    found = clean(made, **rules)
    assert isinstance(found, Drop), found
    return found.reason


# ---- alignment ------------------------------------------------------------------------


def test_a_row_is_brought_into_the_deployment_form():
    made = raw.row((raw.search("q"), raw.page()), (raw.visit("u"), "Summary."))
    cleaned = clean(made)
    assert contents(cleaned) == [
        raw.QUESTION,
        raw.search("q"),
        "<tool_response>\n"
        '[{"query": "q", "web_page_info_list": '
        '[{"title": "T", "url": "https://e.org/1", "snippet": "s"}]}]\n</tool_response>',
        raw.visit("u"),
        "<tool_response>\nSummary.\n</tool_response>",
        raw.answer(),
    ]
    assert (cleaned.turns, cleaned.answer) == (3, "Long Bridge")
    for text in contents(cleaned)[1::2]:
        assert format_verdict(text, final=text == raw.answer())


@pytest.mark.parametrize(
    ("arguments", "written"),
    [
        ('{"query": "a"}', {"query": ["a"]}),
        ('{"queries": ["a", "b"]}', {"query": ["a", "b"]}),
        ("{query: ['a'],}", {"query": ["a"]}),
        ('{"query": ["a"], "top": 3}', {"query": ["a"]}),
    ],
)
def test_searches_are_written_in_one_form(arguments, written):
    body = f'<tool_call>{{"name": "search", "arguments": {arguments}}}</tool_call>'
    turn = contents(clean(raw.row(raw.thought_and(body))))[1]
    assert json.loads(turn.split("<tool_call>")[1].split("</tool_call>")[0]) == {
        "name": "search",
        "arguments": written,
    }


def test_visits_are_written_in_one_form():
    turn = raw.call("visit", urls="u", goal=["first", "second"])
    assert contents(clean(raw.row(turn)))[1] == raw.visit("u", "first")


@pytest.mark.parametrize(
    "turn",
    [
        "no thought",
        "<think> <answer></answer> </think><tool_call>{}</tool_call>",
        raw.thought_and("no call"),
        raw.thought_and('<tool_call>{"name": search</tool_call>'),
        raw.thought_and("<tool_call>[1]</tool_call>"),
        raw.call("search", query=[]),
        raw.call("search", query=[1]),
        raw.call("visit", url=["u"]),
        raw.thought_and('<tool_call>{"name": "search", "arguments": "q"}</tool_call>'),
        raw.thought_and("<tool_call>" + "[" * 50_000 + "</tool_call>"),
    ],
)
def test_a_turn_that_cannot_be_read_goes_with_its_response(turn):
    cleaned = clean(raw.row(raw.search("a"), turn, raw.search("b")))
    assert contents(cleaned)[1::2] == [raw.search("a"), raw.search("b"), raw.answer()]
    assert cleaned.unread == 1


def test_summaries_after_the_thought_join_it_and_tags_in_it_go():
    last = (
        "<think>It <answer>is</answer> so.</think><summary> S </summary><answer>no</answer>"
        "<answer> yes </answer>"
    )
    cleaned = clean(raw.row(last=last))
    assert contents(cleaned)[-1] == ("<think>\nIt is so.\n\nS\n</think>\n<answer>\nyes\n</answer>")
    assert cleaned.answer == "yes"


def test_lone_surrogates_are_replaced_and_pairs_joined():
    made = raw.row((raw.search("a"), "x \ud800 y \ud83d\ude00"))
    assert "x � y 😀" in contents(clean(made))[2]


def test_results_that_are_json_already_stay():
    text = '[{"query": "q", "web_page_info_list": [{"title": "Web Results", "url": "u"}]}]'
    assert text in contents(clean(raw.row((raw.search("q"), text))))[2]


# ---- pruning and repeats --------------------------------------------------------------


def test_turns_with_other_tools_go_with_their_responses():
    scholar = raw.call("google_scholar", query=["x"])
    cleaned = clean(raw.row(raw.search("a"), raw.code(), scholar, raw.search("b")))
    assert contents(cleaned)[1::2] == [raw.search("a"), raw.search("b"), raw.answer()]
    assert cleaned.pruned == {"PythonInterpreter": 1, "google_scholar": 1}


def test_a_tool_that_the_deployment_has_stays_as_it_was_written():
    tools = ("search", "visit", "PythonInterpreter")
    cleaned = clean(raw.row(raw.search("a"), raw.code()), tools=tools)
    assert contents(cleaned)[3] == raw.code()
    assert not cleaned.pruned


def test_repeats_go_whatever_their_order_and_spaces():
    twice = raw.call("search", query=[" b", "a"])
    made = raw.row(raw.call("search", query=["a", "b"]), twice, raw.visit("u"), raw.visit("u"))
    cleaned = clean(made)
    assert cleaned.repeated == {"search": 1, "visit": 1}
    assert cleaned.turns == 3
    assert clean(made, repeats="keep").turns == 5


@pytest.mark.parametrize(
    ("call", "written"),
    [
        (raw.call("search", query=["", " a ", "b"]), {"query": ["", " a ", "b"]}),
        (raw.call("search", query=" "), None),
        (raw.call("search", query=["", " \t"]), None),
        (raw.call("search", query=[], queries=["b"]), {"query": ["b"]}),
        (raw.call("search", query=["a", 1]), None),
        (raw.call("visit", url=["https://b", "https://a"], goal="g"), "as it is"),
        (raw.call("visit", url=[" ", ""], goal="g"), None),
        (raw.call("visit", url=["https://a"], goal=[]), None),
        (
            raw.call("visit", url=["https://a"], goal=["g", "h"]),
            {"url": ["https://a"], "goal": "g"},
        ),
        (raw.call("visit", url=["https://a"], goal=""), "as it is"),
        (raw.call("visit", url=["https://a"], goal=7), None),
    ],
)
def test_blanks_stay_among_others_and_order_is_kept(call, written):
    turns = contents(clean(raw.row(raw.search("first"), call)))[1:-1:2]
    if written is None:
        assert turns == [raw.search("first")]
        return
    body = turns[1].split("<tool_call>")[1].split("</tool_call>")[0]
    if written == "as it is":
        assert turns[1] == call
    else:
        assert json.loads(body)["arguments"] == written


def test_visits_of_the_same_pages_in_another_order_are_repeats():
    both = raw.call("visit", url=["https://b", "https://a"], goal="g")
    again = raw.call("visit", url=["https://a", "https://b"], goal="other")
    other = raw.call("visit", url=["https://a"], goal="g")
    cleaned = clean(raw.row(both, again, other))
    assert cleaned.repeated == {"visit": 1}
    assert contents(cleaned)[1:-1:2] == [both, other]


# ---- where the release does harm ------------------------------------------------------


def test_harm_an_answer_mentioned_in_the_thought_swallows_the_rest_of_it():
    last = "<think>I could write <answer> now</think>\n<answer>X</answer>"
    made = raw.row(raw.search("a"), last=last)
    harmed = clean(made)
    assert harmed.answer == "now</think>\n<answer>X"
    assert not format_verdict(contents(harmed)[-1], final=True)
    better = clean(made, tags="after_thought")
    assert better.answer == "X"
    assert format_verdict(contents(better)[-1], final=True)


def test_harm_a_call_mentioned_in_the_thought_is_taken_for_the_call():
    mention = raw.call("search", query=["only mused about"]).split("</think>")[1]
    turn = raw.search("meant", thought=f"Perhaps {mention}? No.")
    made = raw.row(turn)
    harmed = contents(clean(made, calls="released"))[1]
    assert harmed.count("only mused about") == 2
    assert not format_verdict(harmed, final=False)
    meant = raw.search("meant").split("</think>")[1]
    assert contents(clean(made))[1].endswith(meant)  # but the tags stay in the thought
    better = contents(clean(made, tags="after_thought"))[1]
    assert better.endswith(raw.search("meant").split("</think>")[1])
    assert format_verdict(better, final=False)


def test_harm_a_second_visit_with_another_goal_is_lost_with_what_it_found():
    made = raw.row(
        (raw.visit("u", "who painted it"), "A. Painter"), (raw.visit("u", "in which year"), "1912")
    )
    assert "1912" not in "".join(contents(clean(made)))
    better = clean(made, repeats="same_goal")
    assert "1912" in "".join(contents(better))
    assert not better.repeated


def test_harm_another_spelling_of_a_call_is_no_repeat():
    decomposed = unicodedata.normalize("NFD", "né à Łódź")
    made = raw.row(
        (raw.visit("https://e.org/Łódź", "né à Łódź"), "A. Painter"),
        (raw.visit("HTTPS://E.org:443/%c5%81%C3%B3d%C5%BA#x", decomposed), "A. Painter again"),
        (raw.visit("https://e.org/Lodz", "né à Łódź"), "Another page"),
    )
    assert "again" in "".join(contents(clean(made)))
    better = clean(made, repeats="same_goal")
    assert "again" not in "".join(contents(better))
    assert "Another page" in "".join(contents(better))
    assert better.repeated == {"visit": 1}


def test_harm_a_page_that_mentions_web_results_is_replaced_by_an_empty_search():
    summary = "The museum's catalogue has a section 'Web Results'. The year is 1912."
    made = raw.row((raw.visit("u"), summary))
    assert "1912" not in contents(clean(made))[2]
    assert summary in contents(clean(made, results="searches"))[2]


def test_harm_a_separator_is_left_in_the_last_snippet_of_a_page():
    made = raw.row((raw.search("a"), f"{raw.page('a')}=======\n{raw.page('b')}"))
    assert "=======" in contents(clean(made))[2]
    assert "=======" not in contents(clean(made, results="searches"))[2]


# ---- dropped rows ---------------------------------------------------------------------


def with_roles(*roles):
    made = raw.row(raw.search("a"), raw.search("b"))
    for message, role in zip(made["messages"], roles, strict=False):
        message["role"] = role
    return made


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ({"meta": None, "messages": []}, Reason.NO_QUESTION),
        ({"meta": {"question": " ", "answer": "a"}, "messages": [1]}, Reason.WRONG_TYPE),
        ({**raw.row(), "meta": {"question": " ", "answer": "a"}}, Reason.NO_QUESTION),
        (raw.row(gold=None), Reason.NO_GOLD_ANSWER),
        (raw.row(gold=" "), Reason.NO_GOLD_ANSWER),
        (raw.row(gold=True), Reason.WRONG_TYPE),
        ({**raw.row(), "meta": {"question": 5, "answer": "a"}}, Reason.WRONG_TYPE),
        ({**raw.row(), "messages": None}, Reason.NO_MESSAGES),
        ({**raw.row(), "messages": []}, Reason.NO_MESSAGES),
        ({**raw.row(), "messages": "hello"}, Reason.WRONG_TYPE),
        ({**raw.row(), "messages": [{"role": "user", "content": None}]}, Reason.WRONG_TYPE),
        (with_roles("user", "assistant", "critic"), Reason.UNKNOWN_ROLE),
        (with_roles("user", "assistant", "assistant"), Reason.ROLES_OUT_OF_ORDER),
        (with_roles("assistant", "user"), Reason.ROLES_OUT_OF_ORDER),
        (raw.row(last=raw.thought_and("nothing")), Reason.LAST_WITHOUT_ANSWER),
        (raw.row(last=raw.thought_and("<answer> </answer>")), Reason.LAST_WITHOUT_ANSWER),
        (raw.row(last="<answer>X</answer>"), Reason.LAST_WITHOUT_THOUGHT),
        (raw.row(question="<tool_response>x</tool_response>"), Reason.RESPONSE_IN_QUESTION),
        (raw.row(last=raw.answer(thought="or <tool_call>?")), Reason.CALL_AND_ANSWER),
        (raw.row(raw.search("what is <answer>")), Reason.CALL_AND_ANSWER),
        (raw.row(raw.search("x" * 1_000_001)), Reason.MESSAGE_TOO_LONG),
    ],
)
def test_a_dropped_row_has_its_reason(made, expected):
    assert reason(made) == expected


def test_a_row_that_ends_with_a_response_is_dropped():
    made = raw.row(raw.search("a"))
    made["messages"].pop()
    assert reason(made) == Reason.LAST_NOT_ASSISTANT


def test_settings_that_cannot_work_are_refused():
    for bad in ({"tags": "x"}, {"repeats": "x"}, {"results": "x"}, {"tools": ()}):
        with pytest.raises(SettingError):
            CleanRules(**bad)
    with pytest.raises(SettingError, match="at least 1, got 0"):
        CleanRules(longest_message=0)


@pytest.mark.parametrize("piece", ["<think>", "<answer>", "<tool_call>", "</think>", "\\u0041<"])
def test_time_is_linear_in_a_monstrous_turn(piece):
    turn = piece * (5_000_000 // len(piece))
    made = raw.row(raw.search("a"), turn, last=f"<think>t</think>{turn}<answer>X</answer>")
    started = time.process_time()
    clean(made, longest_message=10**8)
    assert time.process_time() - started < 3
