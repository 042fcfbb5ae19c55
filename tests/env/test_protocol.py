"""The turn language: the tolerant reading, the strict verdict, what is written."""

from __future__ import annotations

import copy
import json
import pickle
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from drv_env.protocol import (
    Answer,
    Problem,
    ReadingRule,
    Search,
    ToolCall,
    Visit,
    format_verdict,
    observation_body,
    read_turn,
    render_call,
    render_observation,
    render_search,
    render_turn,
    render_visit,
)
from tests.patience import NOT_QUADRATIC

BOTH: tuple[ReadingRule, ...] = ("default", "released")
SEARCH = '{"name": "search", "arguments": {"query": ["x"]}}'
CALL = f"<tool_call>{SEARCH}</tool_call>"


def call(body: str) -> str:
    return f"<think>t</think><tool_call>{body}</tool_call>"


# ---- the two readings -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "default", "released"),
    [
        (
            "<think>I could write <answer> now</think><answer>X</answer>",
            Answer("X"),
            Answer(" now</think><answer>X"),
        ),
        ("<think>or <answer>Y</answer>?</think><answer>X</answer>", Answer("X"), Answer("Y")),
        (f"<think>or <answer>Y</answer>?</think>{CALL}", Search(("x",)), Problem.TWO_KINDS),
        (
            f"<think>a {CALL} would do</think><answer>X</answer>",
            Answer("X"),
            Problem.TWO_KINDS,
        ),
        (f"<think>no: {CALL}</think>", Problem.NO_ACTION, Search(("x",))),
        ("<think>a</think> <think><answer>Y</answer></think>", Problem.NO_ACTION, Answer("Y")),
        ("<answer>X</answer><think>late</think>", Problem.NO_ACTION, Answer("X")),
    ],
)
def test_the_readings_differ_where_a_block_stands_in_the_thought(
    text: str, default: object, released: object
) -> None:
    for rule, expected in zip(BOTH, (default, released), strict=True):
        reading = read_turn(text, rule)
        assert (reading.action or reading.problem) == expected


def test_an_unclosed_thought_ends_right_before_the_first_complete_block() -> None:
    reading = read_turn(f"<think>look, <answer> maybe. {CALL}")
    assert reading.thought == "look, <answer> maybe."
    assert reading.action == Search(("x",))
    assert read_turn("<think>so <answer>X</answer>").thought == "so"
    both = read_turn(f"<think>so <answer>X</answer> or {CALL}")
    assert (both.thought, both.problem) == ("so", Problem.TWO_KINDS)
    released = read_turn(f"<think>look {CALL}", "released")
    assert released.thought == f"look {CALL}"
    assert released.action == Search(("x",))


def test_a_run_of_thoughts_is_one_thought() -> None:
    text = f"<think> a </think>\n<think>b</think> <think>c {CALL}"
    assert read_turn(text).thought == "a\nb\nc"
    assert read_turn(text).action == Search(("x",))
    assert read_turn(text.replace("c ", "c</think>"), "released").thought == "a"


def test_stray_tags_do_not_hide_the_action() -> None:
    for text in (
        "a thought</think><answer>X</answer>",
        "<think>a</think></think><answer>X</answer>",
        "<think>a <think>b</think> c</think><answer>X</answer>",
        "hello <think>a</think> so <answer>X</answer> bye",
        "<think>a</think></answer><answer>X</answer></answer>",
        "<think>a</think><answer>X</answer><think>b</think>",
        "<think>a</think></tool_call><answer>X</answer><tool_call>",
    ):
        for rule in BOTH:
            assert read_turn(text, rule).action == Answer("X"), (text, rule)


def test_everything_from_an_invented_tool_response_on_is_cut() -> None:
    for rule in BOTH:
        text = f"<think>t</think>{CALL}<tool_response>r</tool_response><answer>X</answer>"
        assert read_turn(text, rule).action == Search(("x",))
        invented = "<think>t</think>\n<tool_response>r</tool_response><answer>X</answer>"
        assert (read_turn(invented, rule).thought, read_turn(invented, rule).action) == ("t", None)
        assert read_turn("<tool_response><think>t</think>", rule).problem is Problem.NO_THOUGHT


# ---- calls ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", Problem.NO_THOUGHT),
        ("<answer>X</answer>", Problem.NO_THOUGHT),
        ("<THINK>t</THINK><answer>X</answer>", Problem.NO_THOUGHT),
        ("<think>t</think>", Problem.NO_ACTION),
        ("<think>t</think><answer>X", Problem.NO_ACTION),
        ("<think>t</think><tool_call>{}", Problem.NO_ACTION),
        (f"<think>t</think>{CALL}<answer>X</answer>", Problem.TWO_KINDS),
        (call(""), Problem.NOT_JSON),
        (call("search(x)"), Problem.NOT_JSON),
        (call(SEARCH + SEARCH), Problem.NOT_JSON),
        (call("[1]"), Problem.NOT_A_CALL),
        (call('"search"'), Problem.NOT_A_CALL),
        (call('{"name": "search"}'), Problem.NOT_A_CALL),
        (call('{"arguments": {}}'), Problem.NOT_A_CALL),
        (call('{"name": ["search"], "arguments": {}}'), Problem.NOT_A_CALL),
        (call('{"name": "search", "arguments": {}}'), Problem.MISSING_ARGUMENT),
        (call('{"name": "search", "arguments": null}'), Problem.MISSING_ARGUMENT),
        (call('{"name": "search", "arguments": {"queries": "x"}}'), Problem.MISSING_ARGUMENT),
        (call('{"name": "visit", "arguments": {"goal": "g"}}'), Problem.MISSING_ARGUMENT),
        (call('{"name": "visit", "arguments": {"url": "u"}}'), Problem.MISSING_ARGUMENT),
        (call('{"name": "search", "arguments": {"query": 1}}'), Problem.WRONG_ARGUMENT),
        (call('{"name": "search", "arguments": {"query": ["a", 1]}}'), Problem.WRONG_ARGUMENT),
        (call('{"name": "search", "arguments": {"query": {"a": 1}}}'), Problem.WRONG_ARGUMENT),
        (call('{"name": "visit", "arguments": {"url": "u", "goal": []}}'), Problem.WRONG_ARGUMENT),
        (call('{"name": "search", "arguments": {"query": []}}'), Problem.EMPTY_QUERY),
        (call('{"name": "search", "arguments": {"query": ["", " "]}}'), Problem.EMPTY_QUERY),
        (call('{"name": "visit", "arguments": {"url": "", "goal": "g"}}'), Problem.EMPTY_QUERY),
    ],
)
def test_every_problem_is_named(text: str, problem: Problem) -> None:
    for rule in BOTH:
        reading = read_turn(text, rule)
        assert reading.problem is problem
        assert reading.action is None
        assert reading.complaint


def test_problems_have_complaints_of_their_own() -> None:
    turns = [
        "hello",
        "<think>t</think>",
        "<think>t</think><answer>X",
        "<think>t</think><tool_call>X",
        f"<think>t</think>{CALL}<answer>X</answer>",
        call("x"),
        call("[]"),
        call('{"name": "search", "arguments": {}}'),
        call('{"name": "visit", "arguments": {"url": "u"}}'),
        call('{"name": "search", "arguments": {"query": 1}}'),
        call('{"name": "search", "arguments": {"query": ""}}'),
    ]
    assert len({read_turn(text).complaint for text in turns}) == len(turns)


@pytest.mark.parametrize(
    ("body", "action"),
    [
        ("{name: 'search', arguments: {query: ['a',],},}", Search(("a",))),
        ('/* why */ {"name": "search", "arguments": {"query": "a"}} // so', Search(("a",))),
        ('{"name": "search", "arguments": {"query": [" a ", "", "b"]}}', Search(("a", "b"))),
        (
            '{"name": "visit", "arguments": {"url": "u", "goal": " g ", "more": 1}}',
            Visit(("u",), "g"),
        ),
        ('{"name": "visit", "arguments": {"url": ["u"], "goal": ""}}', Visit(("u",), "")),
        ('{"name": "calc", "arguments": {"a": [1]}}', ToolCall("calc", {"a": [1]})),
        ('{"name": "calc", "arguments": "a"}', ToolCall("calc", {})),
        (
            "PythonInterpreter <code> print(1) </code>",
            ToolCall("PythonInterpreter", {"code": "print(1)"}),
        ),
    ],
)
def test_calls_are_read_tolerantly(body: str, action: object) -> None:
    for rule in BOTH:
        assert read_turn(call(body), rule).action == action


def test_what_was_written_is_kept_where_arguments_do_not_work() -> None:
    reading = read_turn(call('{"name": "search", "arguments": {"query": 7, "n": 1}}'))
    assert reading.written == ToolCall("search", {"query": 7})
    assert read_turn("<think>t</think><answer> X\n</answer>").written == Answer(" X\n")


@pytest.mark.parametrize(
    "value", ["[" * 500 + "]" * 500, '{"a":' * 500 + "1" + "}" * 500, "0x" + "f" * 10_000]
)
def test_arguments_that_python_cannot_carry_are_no_json(value: str) -> None:
    reading = read_turn(call(f'{{"name": "calc", "arguments": {{"a": {value}}}}}'))
    assert reading.problem is Problem.NOT_JSON
    assert copy.deepcopy(reading) == reading == pickle.loads(pickle.dumps(reading))
    repr(reading)


# ---- the verdict ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tool", "answer"),
    [
        (f"<think>t</think>{CALL}", True, False),
        (f" \n<think></think>\n{CALL}\n ", True, False),
        (f"<think>a</think><think>b</think>{CALL}", True, False),
        (f"<think>a</think> so <think>b</think>{CALL}", True, False),
        ("<think>t</think><answer>X</answer>", False, True),
        ("<think>t</think><answer> \n</answer>", False, False),
        (f"x<think>t</think>{CALL}", False, False),
        (f"<think>t{CALL}", False, False),
        (f"t</think>{CALL}", False, False),
        (f"<think>a<think>b</think></think>{CALL}", False, False),
        (f"<think>a<think>b</think>{CALL}", False, False),
        (f"<think>t</think></think>{CALL}", False, False),
        (f"<think>t</think>so {CALL}", False, False),
        (f"<think>t</think>{CALL} so", False, False),
        (f"<think>t</think>{CALL}{CALL}", False, False),
        (f"<think>or <answer></think>{CALL}", False, False),
        ("<think>no </tool_call></think><answer>X</answer>", False, False),
        ("<think>an <answer></think><answer>X</answer>", False, False),
        (f"<think>{CALL}</think>", False, False),
        (f"<think>t</think>{CALL}<think>u</think>", False, False),
        ("<think>t</think></answer><answer>", False, False),
        (call("{name: 'any', arguments: {}}"), True, False),
        (call('{"name": 7, "arguments": {}}'), True, False),
        (call('{"name": "search", "arguments": []}'), False, False),
        (call('{"name": "search"}'), False, False),
        (call("no"), False, False),
        (call("pythonInterpreter <code>1</code>"), True, False),
        (call("pythonInterpreter <code>1"), False, False),
        ("", False, False),
        (" ", False, False),
    ],
)
def test_the_verdict_is_strict(text: str, tool: bool, answer: bool) -> None:
    assert format_verdict(text, final=False) is tool
    assert format_verdict(text, final=True) is answer


# ---- any text -------------------------------------------------------------------------

FRAGMENTS = st.sampled_from(
    [
        *(f"<{end}{tag}>" for end in ("", "/") for tag in ("think", "tool_call", "answer")),
        "<tool_response>",
        "</tool_response>",
        "<code>",
        "</code>",
        "pythoninterpreter",
        SEARCH,
        '{"name": "visit", "arguments": {"url": "u", "goal": "g"}}',
        '{"name": "search", "arguments": ',
        "{name:",
        "}",
        "[",
        "]",
        '"',
        "\\",
        "\ud800",
        "\udfff",
        "\x00",
        "\x1c",
        "\u2028",
        " ",
        "\n",
        "0x",
        "9" * 5000,
        "-Infinity",
        "NaN",
        "<",
        "/think>",
    ]
)
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=100)
TURNS = st.one_of(ANY_TEXT, st.lists(st.one_of(FRAGMENTS, ANY_TEXT), max_size=14).map("".join))


@given(TURNS)
@example("<think>\ud800</think><answer>\x00</answer>")
@settings(deadline=None, max_examples=400)
def test_any_text_has_a_reading_and_a_verdict(text: str) -> None:
    for rule in BOTH:
        reading = read_turn(text, rule)
        assert (reading.action is None) == (reading.problem is not None)
        assert bool(reading.complaint) == (reading.problem is not None)
        assert reading.thought == reading.thought.strip()
        if isinstance(reading.action, Search):
            assert all(query.strip() == query != "" for query in reading.action.queries)
        if isinstance(reading.action, Visit):
            assert all(url.strip() == url != "" for url in reading.action.urls)
        assert pickle.loads(pickle.dumps(reading)) == reading or "NaN" in text or "nan" in text
    assert not (format_verdict(text, final=True) and format_verdict(text, final=False))


PLAIN = st.text(st.characters(exclude_categories=(), exclude_characters="<"), max_size=60)
STRIPPED = PLAIN.map(str.strip).filter(bool)
ACTIONS = st.one_of(
    st.lists(STRIPPED, min_size=1, max_size=4).map(lambda items: Search(tuple(items))),
    st.builds(
        lambda urls, goal: Visit(tuple(urls), goal.strip()),
        st.lists(STRIPPED, min_size=1, max_size=4),
        PLAIN,
    ),
    STRIPPED.map(Answer),
    st.builds(
        ToolCall,
        st.from_regex(r"[a-z_]{1,8}", fullmatch=True).filter(
            lambda name: name not in ("search", "visit")
        ),
        st.dictionaries(PLAIN, st.one_of(PLAIN, st.integers(), st.none(), st.lists(PLAIN))),
    ),
)


@given(PLAIN, ACTIONS)
@settings(deadline=None)
def test_a_rendered_turn_reads_back(thought: str, action: Search | Visit | Answer | ToolCall):
    text = render_turn(thought, action)
    for rule in BOTH:
        reading = read_turn(text, rule)
        assert reading.thought == thought.strip()
        if isinstance(action, Answer):
            assert isinstance(reading.action, Answer)
            assert reading.action.text.strip() == action.text
        else:
            assert reading.action == action
    assert format_verdict(text, final=isinstance(action, Answer))


N = 100_000
NAMED = '{"name": "search", "arguments": '
MONSTERS = {
    "thoughts opened": "<think>" * 150_000,
    "thoughts closed": "</think>" * 130_000,
    "answers opened": "<answer>" * 130_000,
    "calls opened": "<tool_call>" * 95_000,
    "observations opened": "<tool_response>" * 70_000,
    "empty thoughts": "<think></think>" * N,
    "thoughts with spaces": "<think> </think> " * N,
    "opened with spaces": "<think> " * N,
    "opened, one close": "<think>\n" * N + "</think>",
    "closed then opened": "<think>" + "</think> <think>" * 70_000,
    "answers": "<think></think>" + "<answer>x</answer>" * 60_000,
    "calls": "<think></think>" + "<tool_call>{}</tool_call>" * 40_000,
    "blanks": "<think></think>" + " " * 1_000_000,
    "brackets": call("[" * 1_000_000),
    "braces": call("{" * 1_000_000),
    "nested lists": call(NAMED + "[" * N + "]" * N + "}"),
    "nested objects": call('{"a":' * N + "1" + "}" * N),
    "nested JSON5": call("{a:" * N + "1" + "}" * N),
    "a whole number": call(NAMED + '{"query": ' + "9" * 1_000_000 + "}}"),
    "a hexadecimal number": call(NAMED + "{query: 0x" + "f" * 1_000_000 + "}}"),
    "a fraction": call(NAMED + '{"query": 0.' + "9" * 1_000_000 + "}}"),
    "an exponent": call(NAMED + '{"query": 1e' + "9" * 1_000_000 + "}}"),
    "signs": call(NAMED + "{query: " + "-" * 1_000_000 + "}}"),
    "quotes": call('"' * 1_000_000),
    "escapes": call('"' + "\\u0041" * 160_000 + '"'),
    "comments": call("/**/" * 250_000),
    "comments opened": call("/* " * 300_000),
    "the same key": call("{" + ",".join(['"a": 1'] * 150_000) + "}"),
    "many queries": call(NAMED + '{"query": [' + ",".join(['"a"'] * 200_000) + "]}}"),
    "code opened": call("pythoninterpreter" + "<code>" * 150_000),
}


@pytest.mark.parametrize("text", MONSTERS.values(), ids=MONSTERS)
def test_a_monster_takes_linear_time(text: str) -> None:
    started = time.process_time()
    for rule in BOTH:
        read_turn(text, rule)
    for final in (True, False):
        format_verdict(text, final)
    assert time.process_time() - started < NOT_QUADRATIC


# ---- writing --------------------------------------------------------------------------


@given(ANY_TEXT)
def test_an_observation_holds_its_text_unaltered(text: str) -> None:
    message = render_observation(text)
    assert message.startswith("<tool_response>\n")
    assert observation_body(message) == text


def test_what_is_no_observation_has_no_body() -> None:
    for message in ("", "hello", "<tool_response>", "<tool_response>\n</tool_response>"):
        with pytest.raises(ValueError, match="not an observation"):
            observation_body(message)


def test_search_results_are_json_in_order_with_their_own_keys() -> None:
    pages = [{"title": "é", "url": "u", "snippet": '"', "date": "1912"}]
    text = render_search([("q", pages), ("r", [])])
    assert "é" in text
    assert json.loads(text) == [
        {"query": "q", "web_page_info_list": pages},
        {"query": "r", "web_page_info_list": []},
    ]


def test_a_visit_names_url_goal_evidence_and_summary() -> None:
    assert render_visit("u", "g", "e", "s") == "Page: u\nGoal: g\nEvidence:\ne\nSummary:\ns"
    assert render_visit("u", "", "e") == "Page: u\nEvidence:\ne"


def test_a_call_is_written_as_the_protocol_has_it() -> None:
    assert json.loads(render_call(Visit(("u",), "g"))) == {
        "name": "visit",
        "arguments": {"url": ["u"], "goal": "g"},
    }


def test_words_between_two_thoughts_do_not_end_the_thought():
    text = "<think>a</think> hm <think>or <answer>Y</answer></think><answer>X</answer>"
    assert read_turn(text).action == Answer("X")
    assert read_turn(text).thought == "a\nor <answer>Y</answer>"
    assert read_turn(text, "released").action == Answer("Y")


def test_tags_quoted_inside_a_call_are_its_text():
    turn = render_turn("a", Search(("what does <answer>42</answer> mean",)))
    assert read_turn(turn).action == Search(("what does <answer>42</answer> mean",))
    assert read_turn(turn, "released").problem is Problem.TWO_KINDS
    answer = "<think>a</think><answer>write <tool_call>{}</tool_call></answer>"
    assert read_turn(answer).action == Answer("write <tool_call>{}</tool_call>")


def test_a_call_beside_an_answer_is_still_two_kinds():
    block = CALL
    for body in (f"{block}<answer>X</answer>", f"<answer>X</answer>{block}"):
        assert read_turn(f"<think>a</think>{body}").problem is Problem.TWO_KINDS


def test_many_thoughts_with_openings_inside_are_read_in_linear_time():
    started = time.process_time()
    for piece in ("<think><answer></think>", "<think><tool_call></think> x ", "<think></think>y"):
        read_turn(piece * 40_000)
    assert time.process_time() - started < NOT_QUADRATIC
