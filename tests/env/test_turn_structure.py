"""Turns read by structure: what mentions a tag loses neither its call nor its answer."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from drv_env.protocol import (
    UNUSABLE_ARGUMENTS,
    Answer,
    Problem,
    Search,
    ToolCall,
    Visit,
    action_end,
    format_verdict,
    read_turn,
    render_turn,
)
from replay.align import ToolTurn, tool_turn
from tests.patience import NOT_QUADRATIC

TAGS = [
    f"<{end}{tag}>"
    for tag in ("think", "tool_call", "answer", "tool_response")
    for end in ("", "/")
]
TAGS += ["<code>", "</code>"]
WHOLE = (
    '<think>a</think>\n<tool_call>\n{"name": "search", "arguments": {"query": ["b"]}}\n</tool_call>'
)
ANSWERED = "<think>a</think><answer>b</answer>"
MILL = '<tool_call>\n{"name": "search", "arguments": {"query": ["mill"]}}\n</tool_call>'


def searching(query: str, thought: str = "t") -> str:
    return render_turn(thought, Search((query,)))


# ---- tags inside the strings of a call ------------------------------------------------


@pytest.mark.parametrize(
    "mention", [*TAGS, WHOLE, ANSWERED, "<tool_call></tool_call>", "".join(TAGS)]
)
@pytest.mark.parametrize("frame", ["{}", "what is {}?", "\\ {} \\", 'say "{}" and "no"', "it's {}"])
def test_a_query_may_hold_any_tag(mention: str, frame: str) -> None:
    query = frame.format(mention)
    assert read_turn(searching(query)).action == Search((query.strip(),))
    assert read_turn(searching(query).replace("\n", "\r\n")).action is not None
    visit = Visit(("https://example.org/",), query.strip())
    assert read_turn(render_turn("t", visit)).action == visit
    assert read_turn(render_turn("t", ToolCall("calc", {"a": [query]}))).action == ToolCall(
        "calc", {"a": [query]}
    )


@pytest.mark.parametrize("mention", TAGS)
def test_a_thought_left_open_ends_before_a_call_with_any_tag(mention: str) -> None:
    text = searching(mention).replace("\n</think>", "")
    reading = read_turn(text)
    assert (reading.thought, reading.action) == ("t", Search((mention,)))


def test_tags_in_json5_strings_and_comments_and_escapes() -> None:
    def read(body: str) -> object:
        return read_turn(f"<think>t</think><tool_call>{body}</tool_call> bye").action

    assert read("{name: 'search', arguments: {query: ['a </tool_call> \\' b']}}") == Search(
        ("a </tool_call> ' b",)
    )
    assert read("/* don't */ {name: 'search', arguments: {query: ['</tool_call>']}} // it's") == (
        Search(("</tool_call>",))
    )
    escaped = (
        r'{"name": "search", "arguments": {"query": ["\u003c/tool_call\u003e \" </tool_call>"]}}'
    )
    assert read(escaped) == Search(('</tool_call> " </tool_call>',))
    assert read(r'{"name": "search", "arguments": {"query": ["ends in \\"]}}') == (
        Search(("ends in \\",))
    )


def test_code_may_hold_any_tag() -> None:
    code = "print('</tool_call>', '</code>', \"<answer>x</answer>\")"
    text = f"<think>t</think><tool_call>\nPythonInterpreter\n<code>\n{code}\n</code>\n</tool_call>"
    assert read_turn(text).action == ToolCall("PythonInterpreter", {"code": code})
    query = "how does PythonInterpreter use <code>x</code>"
    assert read_turn(searching(query)).action == Search((query,))


# ---- tags inside thoughts -------------------------------------------------------------


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("block", [MILL, "<answer>X</answer>"])
def test_a_thought_may_mention_any_tag(tag: str, block: str) -> None:
    action = Search(("mill",)) if block == MILL else Answer("X")
    for thought in (
        f"The {tag} tag.",
        f"`{tag}`",
        f"{tag}\n{tag}",
        f"a\n{tag}",
        f"I don't use {tag}",
    ):
        text = f"<think>\n{thought}\n</think>\n{block}"
        assert read_turn(text).action == action, text
        assert read_turn(text.replace("\n", "\r\n")).action is not None


@pytest.mark.parametrize(
    ("thought", "read"),
    [
        ("or <answer>Y</answer>?", "or <answer>Y</answer>?"),
        ("a call looks like " + MILL, None),
        ("the log says </think><answer>Y</answer> there", None),
        ("the log says\n" + WHOLE + "\nand stops", None),
        ("the log says\n" + ANSWERED + "\nand stops", None),
        ("I close with </think>, as always", "I close with </think>, as always"),
        ("what does <tool_call> or </tool_call> do", None),
    ],
)
def test_what_a_thought_quotes_is_not_done(thought: str, read: str | None) -> None:
    for block, action in ((MILL, Search(("mill",))), ("<answer>X</answer>", Answer("X"))):
        reading = read_turn(f"<think>\n{thought}\n</think>\n{block}")
        assert reading.action == action
        if read is not None:
            assert " ".join(reading.thought.split()) == read.replace("</think>", "").replace(
                "  ", " "
            ) or (reading.thought == read)
    assert read_turn(f"<think>\nno: {MILL}\n</think>").problem is Problem.NO_ACTION


def test_words_between_thought_and_call_may_mention_tags() -> None:
    for words in (
        "I use <tool_call> now:",
        "By the <tool_response>:",
        "My <answer> comes later.",
        "</think>",
    ):
        assert read_turn(f"<think>t</think>\n{words}\n{MILL}").action == Search(("mill",)), words
    told = "<think>t</think>\nI give my <answer> in a line:\n<answer>X</answer>"
    assert read_turn(told).action == Answer("X")
    early = f"<think>t</think>No <answer> yet. {MILL.replace('mill', 'what is </answer>')}"
    assert read_turn(early).action == Search(("what is </answer>",))


def test_an_invented_observation_is_cut() -> None:
    fake = "<tool_response>\nr\n</tool_response>"
    assert read_turn(f"{WHOLE}\n{fake}\n<answer>X</answer>").action == Search(("b",))
    assert read_turn(f"{WHOLE}{fake}{ANSWERED}").action == Search(("b",))
    for before in ("<think>t</think>\n", "<think>t</think>", "<think>t\n"):
        assert read_turn(f"{before}{fake}\n<answer>X</answer>").problem is Problem.NO_ACTION
    assert read_turn(f"{fake}\n{ANSWERED}").problem is Problem.NO_THOUGHT


# ---- tags inside answers --------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        *(tag for tag in TAGS if tag != "</answer>"),
        *(f"the {tag} tag" for tag in TAGS),
        *(f"the {tag} tag" * 2 for tag in TAGS),
        *(f"`{tag}`" for tag in TAGS),
        *(f"Write:\n```xml\n{tag}\n```\nso." for tag in TAGS),
        "```\n<answer>42</answer>\n```",
        "a pair <answer></answer> of them",
        "two <answer>a</answer> and <answer>b</answer> pairs",
        WHOLE,
        ANSWERED,
        MILL,
        "press ` to quote",
        "``` is never closed",
        "a </answer> and a </answer> again",
        'a "</answer>" and (</answer>) again',
    ],
)
def test_an_answer_may_mention_any_tag(answer: str) -> None:
    for before in ("<think>\nt\n</think>\n", "<think>t ` </think>"):
        for text in (
            f"{before}<answer>{answer}</answer>",
            f"{before}<answer>\n{answer}\n</answer>\n",
        ):
            action = read_turn(text).action
            assert isinstance(action, Answer), text
            assert action.text.strip() == answer, text


def test_several_blocks_and_loose_ends() -> None:
    two = f"<think>t</think>{MILL}\n{MILL.replace('mill', 'weir')}"
    assert read_turn(two).action == Search(("mill",))
    quoting = f"<think>t</think>{MILL}\n{MILL.replace('mill', '<answer>X</answer>')}"
    assert read_turn(quoting).action == Search(("mill",))
    assert (
        read_turn(f"<think>t</think>{MILL}\nThen <answer>X</answer>").problem is Problem.TWO_KINDS
    )
    assert read_turn(f"<think>t</think>{MILL}\n<think>or <answer>X</answer>").action is not None
    assert read_turn("<think>t</think><answer>X</answer>\nI hope </answer>").action == Answer("X")
    for after in (". Done </answer>", " Done </answer>", "\n Done </answer>", "</answer>"):
        for answer in ("X", "\nX\n"):
            told = f"<think>t</think>So: <answer>{answer}</answer>{after}"
            assert read_turn(told).action == Answer(answer)
    unclosed = read_turn("<think>t</think><tool_call>" + '{"name": "search"')
    assert unclosed.problem is Problem.NO_ACTION
    assert read_turn("<think>so\n<answer>It is </think>.</answer>").action == Answer(
        "It is </think>."
    )
    assert read_turn("I saw <tool_response>.\n</think>\n" + MILL).action == Search(("mill",))


# ---- what is inside a call ------------------------------------------------------------


@pytest.mark.parametrize("raw", ["\n", "\t", "\r\n", "\x00", "\x0b", "\x1f"])
def test_strings_may_hold_control_characters_as_they_are(raw: str) -> None:
    for quote in "\"'":
        body = f"{{name: 'search', arguments: {{query: [{quote}a{raw}b{quote}]}}}}"
        assert read_turn(f"<think>t</think><tool_call>{body}</tool_call>").action == (
            Search((f"a{raw}b",))
        )
    strict = f'{{"name": "search", "arguments": {{"query": ["a{raw}b", "\\n"]}}}}'
    text = f"<think>t</think><tool_call>{strict}</tool_call>"
    assert read_turn(text).action == Search((f"a{raw}b",))
    assert read_turn(text.replace("\\n", "c\\\nd")).action == Search((f"a{raw}b", "cd"))


ARGUMENTS = {"query": ["mill </tool_call>"]}


@pytest.mark.parametrize(
    "arguments",
    [
        json.dumps(ARGUMENTS),
        json.dumps(json.dumps(ARGUMENTS)),
        "{query: ['mill </tool_call>']}",
        '{"query": "[\\"mill </tool_call>\\"]"}',
        {"query": '["mill </tool_call>"]'},
        {"query": json.dumps('["mill </tool_call>"]')},
        '{"query":\n["mill </tool_call>"]}',
    ],
)
def test_arguments_may_be_json_in_a_string(arguments: object) -> None:
    body = json.dumps({"name": "search", "arguments": arguments})
    for inner in (body, json.dumps(body)):
        text = f"<think>t</think><tool_call>{inner}</tool_call>"
        assert read_turn(text).action == Search(("mill </tool_call>",))


TEXT = '{"name": "search", "arguments": {"query": ["mill"]}}'
FORMS = {
    "a fence": f"```json\n{TEXT}\n```",
    "a fence on the call's line": f"```{TEXT}```",
    "ticks": f"`{TEXT}`",
    "parameters": TEXT.replace("arguments", "parameters"),
    "args": TEXT.replace("arguments", "args"),
    "input": TEXT.replace("arguments", "input"),
    "OpenAI's wrapper": f'{{"id": "c1", "type": "function", "function": {TEXT}}}',
    "OpenAI's wrapper, arguments as text": json.dumps(
        {"type": "function", "function": {"name": "search", "arguments": '{"query": ["mill"]}'}}
    ),
    "a list of one": f"[{TEXT}]",
    "stray braces": f"{TEXT}}}}}",
    "words behind": f"{TEXT}\nI wait for the results; it's a mill.",
    "Python": "{'name': 'search', 'arguments': {'query': ['mill'], 'safe': True, 'of': None}}",
    "Python in text": json.dumps(
        {"name": "search", "arguments": "{'query': ['mill'], 'x': False}"}
    ),
    "Qwen3-Coder": "<function=search>\n<parameter=query>\nmill\n</parameter>\n</function>",
    "Qwen3-Coder, a list": "<function=search><parameter=query>['mill']</parameter></function>",
    "Qwen3-Coder, cut": "<function=search>\n<parameter=query>mill</parameter>",
    "a byte order mark": f"\ufeff{TEXT}",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("before", ["<think>t</think>", "<think>the <tool_call> tag</think>\n"])
def test_a_call_may_have_the_forms_that_models_give_it(form: str, before: str) -> None:
    text = f"{before}<tool_call>\n{FORMS[form]}\n</tool_call>"
    assert read_turn(text).action == Search(("mill",))
    assert read_turn(text, "thought_optional").action == Search(("mill",))
    if "Python" not in form and form != "a byte order mark":
        assert read_turn(text, "released").action is None
    made = tool_turn(text)
    assert isinstance(made, ToolTurn)
    assert made.text.endswith(MILL)


@pytest.mark.parametrize(
    "body",
    [
        f"{TEXT}\n{TEXT.replace('mill', 'weir')}",
        f"[{TEXT}, {TEXT}]",
        "[]",
        "```",
        '{"function": "search"}',
        '{"name": "search"}',
        "<function=search><parameter=query>mill",
        "<function=search",
        "<function=a></function><function=b></function>",
        "True",
        '{"True": None} None',
    ],
)
def test_what_is_no_call_or_several_is_told(body: str) -> None:
    reading = read_turn(f"<think>t</think><tool_call>{body}</tool_call>")
    assert reading.action is None
    assert reading.problem in (Problem.NOT_JSON, Problem.NOT_A_CALL)


def test_a_fenced_call_may_hold_any_tag() -> None:
    for tag in TAGS[:8]:
        body = json.dumps({"name": "search", "parameters": {"query": [f"what is {tag}"]}})
        text = f"<think>t</think><tool_call>\n```json\n{body}\n```\n</tool_call>"
        assert read_turn(text).action == Search((f"what is {tag}",))


def test_words_of_python_inside_strings_stay() -> None:
    body = (
        "{'name': 'search', 'arguments': {'query': ['True or None, it\\'s \"False\"'], 'x': None}}"
    )
    read = read_turn(f"<think>t</think><tool_call>{body}</tool_call>").action
    assert read == Search(('True or None, it\'s "False"',))


def test_arguments_of_any_tool_may_be_text_and_a_text_may_look_like_a_list() -> None:
    def read(name: str, arguments: object) -> object:
        body = json.dumps({"name": name, "arguments": arguments})
        return read_turn(f"<think>t</think><tool_call>{body}</tool_call>").action

    assert read("calc", '{"a": "[1]"}') == ToolCall("calc", {"a": "[1]"})
    assert read("visit", '{"url": "[\\"u\\", \\"v\\"]", "goal": "[g]"}') == Visit(("u", "v"), "[g]")
    for query in ("[sic] mill", "[1, 2]", "[", '["a", 1]', '"[a"'):
        assert read("search", {"query": query}) == Search((query,))
    for nothing in ("", "null", "[]", "7", "mill", json.dumps([ARGUMENTS])):
        assert read("calc", nothing) == ToolCall("calc", {})


# ---- the sentence ---------------------------------------------------------------------

WORDS = st.sampled_from(
    [*TAGS, "", " ", "\n", "\r\n", "so", "`", "```", '"', "'", "\\", "{", "}", "//", "/*"]
)
PIECES = st.lists(WORDS, max_size=6).map("".join)
CALLS = st.one_of(
    st.tuples(PIECES, st.booleans()).map(
        lambda made: json.dumps(
            {"name": "search", "arguments": {"query": [made[0]]}}, indent=1 if made[1] else None
        )
    ),
    PIECES.map(lambda code: f"PythonInterpreter <code>{code}</code>"),
    PIECES.map(lambda words: f"{{name: 'calc', arguments: {{}}}} /*{words}*/"),
)
BLOCKS = st.one_of(
    CALLS.map(lambda body: f"<tool_call>{body}</tool_call>"),
    PIECES.map(lambda text: f"<answer>{text}</answer>"),
)
THOUGHTS = st.lists(PIECES.map(lambda text: f"<think>{text}</think>"), max_size=3)
GENERATED = st.builds(
    lambda thoughts, between, block, end: between.join(thoughts) + "\n" + block + end,
    THOUGHTS,
    PIECES,
    BLOCKS,
    st.sampled_from(["", "", "\n", "</answer>", " <tool_response>"]),
)


MENTIONS = st.lists(
    WORDS.filter(lambda word: "think" not in word and "call" not in word and "answer" not in word),
    max_size=6,
).map("".join)
SOUND = st.builds(
    lambda thoughts, between, block, before: between.join(thoughts) + before + block,
    st.lists(MENTIONS.map(lambda text: f"<think>{text}</think>"), min_size=1, max_size=3),
    MENTIONS,
    st.one_of(
        MENTIONS.map(lambda text: f"<answer>{text}.</answer>"),
        MENTIONS.map(lambda text: render_turn("", Search((f"x{text}x",))).partition("</think>")[2]),
    ),
    st.sampled_from(["", " ", "\r\n"]),
)
"""Mostly well formed: every tag may be mentioned that a strict verdict lets pass."""


@given(st.one_of(GENERATED, SOUND))
@example("<think>a</think> <tool_response>r</tool_response> <think>b</think>" + MILL)
@example("<think>a</think>\n<tool_response>\n<think>b</think><answer>X</answer>")
@example("<think></think><answer>`</answer>")
@example(
    '<think><tool_response></think><tool_call>{"name":"a","arguments":{"b":"<tool_response>"}}</tool_call>'
)
@settings(deadline=None, max_examples=300)
def test_what_is_well_formed_is_read(text: str) -> None:
    for rule in ("default", "thought_optional"):
        if format_verdict(text, True, rule):
            assert isinstance(read_turn(text, rule).action, Answer)
        if format_verdict(text, False, rule):
            reading = read_turn(text, rule)
            assert isinstance(reading.written, ToolCall)
            assert reading.problem is None or reading.problem in UNUSABLE_ARGUMENTS


@given(st.one_of(GENERATED, SOUND), PIECES)
@settings(deadline=None, max_examples=300)
def test_a_turn_that_may_end_reads_alike_however_it_goes_on(text: str, more: str) -> None:
    for stop in ("<tool_response>", "</tool_call>"):
        at = text.find(stop)
        while at >= 0:
            written = text[: at + len(stop)]
            if action_end(written) is not None:
                assert (
                    read_turn(written).action
                    == read_turn(written + "<tool_response>" + more).action
                )
                if format_verdict(text, False) or format_verdict(text, True):
                    assert read_turn(written).action == read_turn(text).action
            at = text.find(stop, at + 1)


def test_a_turn_may_end_behind_its_action_and_not_before() -> None:
    for text in (WHOLE, ANSWERED, searching("a </tool_call> b"), searching(WHOLE)):
        assert action_end(text) == len(text)
        assert action_end(text + "\n<tool_response>") == len(text)
        for end in range(len(text)):
            assert action_end(text[:end]) is None, text[:end]


# ---- a thought is optional ------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "thought", "action"),
    [
        (MILL, "", Search(("mill",))),
        (f"Let me look.\n{MILL}", "Let me look.", Search(("mill",))),
        ("<answer>X</answer>", "", Answer("X")),
        (
            "I use the <tool_response>. <answer>X</answer>",
            "I use the <tool_response>.",
            Answer("X"),
        ),
        ("<answer>the <think> tag</answer>", "", Answer("the <think> tag")),
        ("<answer>the </think> tag</answer>", "", Answer("the </think> tag")),
        (f"<think>t</think>{MILL}", "t", Search(("mill",))),
        (f"t, or <answer>Y</answer></think>{MILL}", "t, or <answer>Y</answer>", Search(("mill",))),
        (f"<think>no <answer>Y</answer></think>{MILL}", "no <answer>Y</answer>", Search(("mill",))),
        (MILL.replace("mill", "what is </think>"), "", Search(("what is </think>",))),
        (f"So: {MILL.replace('mill', '<think>')}", "So:", Search(("<think>",))),
    ],
)
def test_a_rule_makes_the_thought_optional(text: str, thought: str, action: object) -> None:
    reading = read_turn(text, "thought_optional")
    assert (reading.thought, reading.action) == (thought, action)


def test_the_verdict_knows_whether_a_thought_is_needed() -> None:
    for text, final in ((MILL, False), (f"\n{MILL}\n", False), ("<answer>X</answer>", True)):
        assert not format_verdict(text, final)
        assert format_verdict(text, final, "thought_optional")
        assert format_verdict(f"<think>t</think>{text}", final, "thought_optional")
    for text in (
        f"So: {MILL}",
        f"{MILL} so",
        MILL + MILL,
        f"t</think>{MILL}",
        "<tool_call>{}</tool_call>",
    ):
        assert not format_verdict(text, False, "thought_optional")
    assert read_turn("hello", "thought_optional").problem is Problem.NO_ACTION
    assert "after the thought" not in read_turn("hello", "thought_optional").complaint


# ---- time -----------------------------------------------------------------------------

N = 20_000
OPEN = '<tool_call>{"a'
MONSTERS = [
    "<think>" + f"{OPEN}</think>" * N,
    f'<think>{OPEN}"</think></tool_call>' * N,
    "<think><answer>`</answer></think>" * N,
    "<think><answer><answer></answer></think>" * N,
    "<think></think>" + "<answer>" * N + "</answer>" * (N - 1),
    "<think></think>" + "<tool_call>so " * N + "</tool_call>",
    "<think></think>" + OPEN * N + "</tool_call>",
    "<think></think>so <answer>" + "` `` " * N + "</answer>",
    "<think></think><answer>" + "```\n" * N + "</answer>",
    "<think></think><answer>x" + "</answer> y" * N + "</answer>",
    "<think></think>" + "<answer>x</answer> y</think>" * N,
    "<think></think><tool_call>PythonInterpreter" + "<code>" * N + "</code>" * N + "</tool_call>",
    "<think></think><tool_call>{" + "<code>" * N + "</tool_call>",
    "<think></think>" + "a <tool_response>" * N + "<answer>x</answer>",
    '<think></think><tool_call>{"a": "' + "\n\\" * N * 4 + '"}</tool_call>',
]


@pytest.mark.parametrize("text", MONSTERS, ids=range(len(MONSTERS)))
def test_quoting_takes_linear_time(text: str) -> None:
    started = time.process_time()
    read_turn(text)
    read_turn(text, "thought_optional")
    action_end(text)
    assert time.process_time() - started < NOT_QUADRATIC
