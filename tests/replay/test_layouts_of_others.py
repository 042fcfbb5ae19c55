"""Recordings as other people lay them out: calls, results, thoughts in their fields and tags.

Every layout tells the same story, of a mill, and must come out as the same turns.
"""

import itertools
import json
import re

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drv_env.errors import TaskDataError
from replay.clean import CleanRules, clean_row
from replay.layouts import Drop, Reason, Source, layout_of, read_row
from replay.read import read_raw
from replay.search_logs import with_logs_cut
from replay.sources import Passed, open_trajectories
from tests.replay import raw_rows as raw

Q = "When was the mill built?"
HERE = Source("f", 0)
SEARCH = {"name": "search", "arguments": {"query": ["mill"]}}
VISIT = {"name": "visit", "arguments": {"url": ["https://e.org/mill"], "goal": "year"}}
LIST, PAGE = "A LIST OF PAGES", "PAGE: built in 1912"


def asked(text=Q):
    return {"role": "user", "content": text}


def said(text, **more):
    return {"role": "assistant", "content": text, **more}


def call(name, arguments, call_id=None):
    made = {"type": "function", "function": {"name": name, "arguments": arguments}}
    return made if call_id is None else {**made, "id": call_id}


def result(text, call_id=None):
    made = {"role": "tool", "content": text}
    return made if call_id is None else {**made, "tool_call_id": call_id}


def spoken(who, value):
    return {"from": who, "value": value}


def think(text):
    return f"<think>\n{text}\n</think>"


FINAL = f"{think('It says so.')}\n<answer>\n1912\n</answer>"
TEXT_ARGUMENTS = json.dumps(SEARCH["arguments"])
STORY = [
    Q,
    raw.search("mill", thought="I look."),
    raw.response(LIST),
    raw.call("visit", thought="I open it.", url=["https://e.org/mill"], goal="year"),
    raw.response(PAGE),
    FINAL,
]

THOUGHT = {"reasoning_content": "I look."}
OPENED = {"reasoning": "I open it."}
SHAREGPT = [
    spoken("human", Q),
    spoken("function_call", f"{think('I look.')}\n\n{json.dumps(SEARCH)}"),
    spoken("observation", LIST),
    spoken("function_call", f"{think('I open it.')}\n{json.dumps([VISIT])}"),
    spoken("observation", PAGE),
    spoken("gpt", FINAL),
]
LOG = (
    f"<think>I look.</think>\n<tool_call>\n{json.dumps(SEARCH)}\n</tool_call>\n"
    f"<tool_response>\n{LIST}\n</tool_response>\n<think>I open it.</think>\n"
    f"<tool_call>{json.dumps(VISIT)}</tool_call><tool_response>{PAGE}</tool_response>\n{FINAL}"
)
CHATML = (
    f"<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n{Q}<|im_end|>\n<|im_start|>assistant\n"
)
CHATML_REPLY = LOG.replace(
    "<tool_response>", "<|im_end|>\n<|im_start|>user\n<tool_response>"
).replace("</tool_response>", "</tool_response><|im_end|>\n<|im_start|>assistant\n")
BARE_REPLY = LOG.replace("<tool_response>", "\nuser\n<tool_response>").replace(
    "</tool_response>", "</tool_response>\nassistant\n"
)

ROWS = {
    "openai, arguments as text": {
        "messages": [
            asked(),
            said(None, tool_calls=[call("search", TEXT_ARGUMENTS, "a")], **THOUGHT),
            result(LIST, "a"),
            said("", tool_calls=[call("visit", json.dumps(VISIT["arguments"]), "b")], **OPENED),
            result(PAGE, "b"),
            said("1912", reasoning_content="It says so."),
        ]
    },
    "openai, arguments as objects, no ids": {
        "messages": [
            {"role": "developer", "content": "S"},
            asked(),
            said("I look.", tool_calls=[call("search", SEARCH["arguments"])]),
            result([{"type": "text", "text": LIST}]),
            said(think("I open it."), tool_calls=json.dumps([VISIT])),
            result(PAGE),
            said(FINAL),
        ]
    },
    "openai, function_call of old": {
        "messages": [
            asked(),
            said("I look.", function_call={"name": "search", "arguments": TEXT_ARGUMENTS}),
            {"role": "function", "name": "search", "content": LIST},
            said("I open it.", function_call=VISIT),
            {"role": "function", "name": "visit", "content": PAGE},
            said(FINAL),
        ]
    },
    "anthropic's parts": {
        "messages": [
            asked([{"type": "text", "text": Q}]),
            said(
                [
                    {"type": "thinking", "thinking": "I look."},
                    {"type": "tool_use", "id": "a", "name": "search", "input": {"query": ["mill"]}},
                ]
            ),
            asked([{"type": "tool_result", "tool_use_id": "a", "content": LIST}]),
            said(
                [
                    {"type": "text", "text": "I open it."},
                    {"type": "tool_use", "id": "b", "name": "visit", "input": VISIT["arguments"]},
                ]
            ),
            asked(
                [
                    {
                        "type": "tool_result",
                        "tool_use_id": "b",
                        "content": [{"type": "text", "text": PAGE}],
                    }
                ]
            ),
            said([{"type": "text", "text": FINAL}]),
        ]
    },
    "llama-factory's sharegpt": {"conversations": SHAREGPT, "system": "S", "tools": "[]"},
    "sharegpt, the thought in a message of its own": {
        "conversations": [
            SHAREGPT[0],
            spoken("gpt", "I look."),
            spoken("function_call", json.dumps(SEARCH)),
            SHAREGPT[2],
            spoken("gpt", "I open it."),
            spoken("function_call", json.dumps(VISIT)),
            *SHAREGPT[4:],
        ]
    },
    "hermes": {
        "conversations": [
            spoken("system", "S"),
            SHAREGPT[0],
            spoken("gpt", f"{think('I look.')}<tool_call>\n{SEARCH}\n</tool_call>"),
            spoken("tool", f"<tool_response>\n{LIST}\n</tool_response>"),
            spoken("gpt", f"{think('I open it.')}\n<tool_call>\n{json.dumps(VISIT)}\n</tool_call>"),
            spoken("tool", f"<tool_response>\n{PAGE}\n</tool_response>"),
            spoken("gpt", FINAL),
        ]
    },
    "llama-factory's openai variant": {
        "messages": [
            asked(),
            {"role": "function_call", "content": f"{think('I look.')}{json.dumps(SEARCH)}"},
            {"role": "observation", "content": LIST},
            {"role": "function_call", "content": f"{think('I open it.')}{json.dumps(VISIT)}"},
            {"role": "observation", "content": PAGE},
            said(FINAL),
        ]
    },
    "alpaca": {"instruction": Q, "input": "", "output": LOG},
    "a log in one text": {"question": Q, "response": LOG},
    "a log in one message": {"messages": [asked(), said(LOG)]},
    "a prompt with chatml's marks": {"prompt": CHATML, "response": CHATML_REPLY + "<|im_end|>"},
    "prompt and reply in one text": {"text": CHATML + CHATML_REPLY},
    "special tokens skipped": {
        "input": f"system\nS\nuser\n{Q}\nassistant\n",
        "output": BARE_REPLY,
        "gts": {"target": ["1912"]},
        "score": 1.0,
    },
    "a prompt in front of the reply": {
        "question": Q,
        "output": f"Think in <think> and </think> first. Question: {Q}\n{LOG}",
    },
    "the question in front of the reply": {"question": Q, "response": f"{Q}\n{LOG}"},
    "a list of one reply": {"question": Q, "responses": [LOG]},
    "prompt and completion as messages": {
        "prompt": [asked()],
        "completion": [
            said("I look.", tool_calls=[call("search", SEARCH["arguments"])]),
            result(LIST),
            said("I open it.", tool_calls=[call("visit", VISIT["arguments"])]),
            result(PAGE),
            said(FINAL),
        ],
    },
    "instructions before the question": {
        "messages": [
            asked(f"Tools: <tools>{{}}</tools>. Write <answer> and </answer>.\n\nUser: {Q}"),
            *(
                {"role": ("assistant", "user")[n % 2], "content": text}
                for n, text in enumerate(STORY[1:])
            ),
        ],
        "answer": [["1912"]],
    },
    "asearcher": {
        "question": Q,
        "output": f"<think>I look.</think><search>mill</search><information>{LIST}</information>"
        "<think>I open it.</think><access>https://e.org/mill</access>"
        f"<information>{PAGE}</information>{FINAL}",
    },
    "miroverse": {
        "messages": [
            asked(),
            said(
                "I look.\n<use_mcp_tool>\n<server_name>s</server_name>\n<tool_name>search"
                f"</tool_name>\n<arguments>\n{TEXT_ARGUMENTS}\n</arguments>\n</use_mcp_tool>"
            ),
            asked(LIST),
            said(
                "I open it.\n<use_mcp_tool><server_name>s</server_name><tool_name>visit</tool_name>"
                f"<arguments>{json.dumps(VISIT['arguments'])}</arguments></use_mcp_tool>"
            ),
            asked(PAGE),
            said(FINAL),
        ]
    },
}

LLAMA = json.dumps({"name": "search", "parameters": {"query": ["mill"]}})
BARE = {
    "llama": f"<|python_tag|>{LLAMA}<|eom_id|>",
    "llama, a list": f"[{LLAMA}]",
    "mistral": f"[TOOL_CALLS] [{json.dumps(SEARCH)}]</s>",
    "glaive": '<functioncall> {"name": "search", "arguments": '
    f"'{TEXT_ARGUMENTS}'}} <|endoftext|>",
    "fenced": f"```json\n{LLAMA}\n```",
    "python": "{'name': 'search', 'arguments': {'query': ['mill'], 'safe': True}}",
}
ROWS.update(
    {
        f"a call that is all of a message, {name}": {
            "messages": [
                asked(),
                said(f"{think('I look.')}\n{text}"),
                {"role": "ipython", "content": LIST},
                said(think("I open it."), function_call=VISIT),
                {"role": "function", "name": "visit", "content": PAGE},
                said(FINAL),
            ]
        }
        for name, text in BARE.items()
        if name != "python"  # keeps what it knows nothing of
    }
)
ROWS["thoughts in details"] = {
    "messages": [
        asked(),
        said(
            None,
            reasoning_details=[{"type": "reasoning.text", "text": "I look."}],
            tool_calls=[call("search", TEXT_ARGUMENTS)],
        ),
        result(LIST),
        said("", thinking="I open it.", tool_calls=[call("visit", json.dumps(VISIT["arguments"]))]),
        result(PAGE),
        said(FINAL),
    ]
}
ROWS["calls as Python writes them"] = {
    "messages": [
        asked(),
        said("I look.", tool_calls=str([call("search", str(SEARCH["arguments"]), "1")])),
        result(LIST, "1"),
        said("I open it.", tool_calls=[call("visit", str({**VISIT["arguments"], "page": None}))]),
        result(PAGE),
        said(FINAL),
    ]
}


def test_a_message_that_is_a_call_stands_without_results_as_it_is():
    for text in BARE.values():
        found = read({"messages": [asked(), said(text)]})
        assert found.messages[-1] == said(text)
    several = f"[{LLAMA}, {json.dumps(VISIT)}]"
    steps = [said(f"{think('Both.')}{several}"), result(LIST), result(PAGE), said(FINAL)]
    found = texts({"messages": [asked(), *steps]})
    assert [LIST in found[2], '"visit"' in found[3], PAGE in found[4]] == [True, True, True]


REACT = (
    f"Thought: I look.\nAction: search\nAction Input: mill\nObservation: {LIST}\n"
    f"Thought: I open it.\nAction: visit\nAction Input: {json.dumps(VISIT['arguments'])}\n"
    f"Observation: {PAGE}\n"
    "Thought: It says so.\nFinal Answer: 1912"
)
ROWS |= {
    "react": {"question": Q, "output": REACT},
    "react, its first thought opened by the prompt": {
        "prompt": "Answer the following questions as best you can. You have tools: search, visit."
        "\n\nUse this format:\n\nQuestion: the question you must answer\nThought: what to do\n"
        "Action: one of [search, visit]\nAction Input: its input\nObservation: its result\n"
        "... (this can repeat)\nThought: I now know the final answer\nFinal Answer: the answer\n\n"
        f"Begin!\n\nQuestion: {Q}\nThought:",
        "completion": REACT.removeprefix("Thought:"),
    },
    "react, as messages": {
        "messages": [
            asked(),
            *(
                asked(text) if text.startswith("Observation") else said(text)
                for text in re.split(r"\n(?=Observation|Thought)", REACT)
            ),
        ]
    },
}


def read(row):
    layout = layout_of(row)
    assert not isinstance(layout, str), layout
    return read_row(row, layout, HERE)


def cleaned(row, **rules):
    found = read(row)
    return found if isinstance(found, Drop) else clean_row(found, CleanRules(**rules))


def texts(row, **rules):
    made = cleaned(row, **rules)
    assert not isinstance(made, Drop), made
    return [message["content"] for message in made.messages]


@pytest.mark.parametrize("name", ROWS)
def test_the_same_story_in_every_layout(name):
    story = STORY
    if name == "asearcher":  # its visits have no goal
        story = [text.replace('"goal": "year"', '"goal": ""') for text in STORY]
    assert texts(ROWS[name]) == story
    assert read(ROWS[name]).question == Q


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_other_commands_read_the_same_turns(tmp_path, name, suffix):
    path = tmp_path / f"rows{suffix}"
    if suffix == ".parquet":
        try:
            raw.write_parquet(path, [ROWS[name]])
        except pa.ArrowInvalid:  # fields of several types: people keep such columns as JSON
            columns = {k: v if isinstance(v, str) else json.dumps(v) for k, v in ROWS[name].items()}
            raw.write_parquet(path, [columns])
    else:
        path.write_text(json.dumps([ROWS[name]] if suffix == ".json" else ROWS[name]))
    (trajectory,) = open_trajectories([path])
    assert trajectory.task.question == Q
    assert [turn.tool for turn in trajectory.turns] == ["search", "visit", None]
    assert [turn.observation for turn in trajectory.turns] == [LIST, PAGE, None]
    assert trajectory.answer == "1912"
    (row,) = [row for _, row in read_raw(path)]
    assert [m["content"] for m in clean_row(row).messages][1::2][-1] == FINAL


def test_gold_answers_and_system_prompts_come_along():
    found = read(ROWS["special tokens skipped"])
    assert (found.answers, found.system_prompt) == (("1912",), "S")
    behind = read(ROWS["instructions before the question"])
    assert behind.answers == ("1912",)
    assert behind.system_prompt.startswith("Tools: <tools>")
    assert read(ROWS["llama-factory's sharegpt"]).system_prompt == "S"
    nested = {**ROWS["a log in one text"], "reward_model": {"ground_truth": {"target": [1912]}}}
    assert read(nested).answers == ("1912",)


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        (("a", "z"), "a result is of 'z', which is no call's id in its turn"),
        (("b", "b"), "two results are of 'b'"),
    ],
)
def test_results_of_no_call_or_of_one_call_are_told_by_id(ids, told):
    calls = [call("search", TEXT_ARGUMENTS, "a"), call("search", TEXT_ARGUMENTS, "b")]
    row = {
        "messages": [asked(), said("I look.", tool_calls=calls)]
        + [result(LIST, each) for each in ids]
        + [said("1912")]
    }
    found = read(row)
    assert isinstance(found, Drop)
    assert (found.reason, found.detail) == (Reason.UNPAIRED_RESULTS, told)


SEARCH_LOGS = {
    "search-r1": f"<think>I look.</think>\n<search> mill </search>\n\n<information>{LIST}"
    f"</information>\n\n{FINAL}",
    "research": f"<think>I look.</think><search>mill</search><result>\n{LIST}\n</result>{FINAL}",
    "r1-searcher": f"<think>I look.<|begin_of_query|>mill<|end_of_query|>\n\n"
    f"<|begin_of_documents|>\n{LIST}<|end_of_documents|>\n\nIt says so.</think>"
    "<answer>1912</answer>",
    "search-o1": f"I look.\n<|begin_search_query|>mill<|end_search_query|>\n<|begin_search_result|>"
    f"{LIST}<|end_search_result|>\n\nIt says so.\n\\boxed{{1912}}",
    "several queries": '<think>I look.</think><search>["mill"]</search>'
    f"<result>{LIST}</result>{FINAL}",
}


SEARCH_LOGS["react, numbered"] = (
    f"Thought 1: I look.\nAction 1: Search[mill]\nObservation 1: {LIST}\n"
    "Thought 2: It says so.\nAction 2: Finish[1912]"
)


def test_a_page_that_speaks_of_actions_and_thoughts_of_tags_end_nothing():
    page = f"{LIST}\nAction: a film\nAction Input\nDirector: Ann"
    found = texts({"question": Q, "output": REACT.replace(LIST, page)})
    assert found[2] == raw.response(page)
    assert len(found) == len(STORY)
    for text in (FINAL, "<think>Action: search[mill]</think>", "Action: a film of 1912.", "1912"):
        (kept,) = with_logs_cut([said(text)])
        assert kept["content"] == text


@pytest.mark.parametrize("name", SEARCH_LOGS)
def test_logs_of_searches(name):
    found = texts({"question": Q, "output": SEARCH_LOGS[name]})
    final = FINAL
    if name == "search-o1":
        final = FINAL.replace("It says so.", "It says so.\n\\boxed{1912}")
    assert found == [Q, STORY[1], raw.response(LIST), final]


def test_a_log_may_be_cut_into_messages():
    steps = [asked(), said("<think>I look.</think><search>mill</search>")]
    steps += [asked(f"\n<information>{LIST}</information>\n"), said(FINAL)]
    assert texts({"messages": steps}) == [Q, STORY[1], raw.response(LIST), FINAL]


@pytest.mark.parametrize(
    "turn",
    [
        raw.search(
            "mill", thought="I may write <search>mill</search> or <information>.</information>"
        ),
        raw.search("what does <search>x</search> mean", thought="I look."),
        raw.search("mill", thought="After it comes <tool_response>a</tool_response>, I know."),
    ],
)
def test_a_turn_that_mentions_the_tags_of_logs_stays_a_turn(turn):
    row = {"messages": [asked(), said(turn), asked(raw.response(LIST)), said(FINAL)]}
    assert texts(row)[1] == turn
    assert list(read(row).messages) == row["messages"]


@pytest.mark.parametrize(
    "piece",
    ["<search>", "<search>a</search>", "<think>", "<|begin_of_query|>", "<tool_call>", "</think>x"],
)
def test_a_monstrous_log_is_read_through(piece):
    """A reading of quadratic time would take hours."""
    text = piece * (1_000_000 // len(piece))
    assert isinstance(
        cleaned({"question": Q, "output": f"{text}<information>a</information>"}), Drop
    )


# ---- several calls a turn ---------------------------------------------------------------


def both(results, ids=("a", "b"), calls=(SEARCH, VISIT)):
    listed = [
        call(made["name"], made["arguments"], call_id)
        for made, call_id in zip(calls, ids, strict=True)
    ]
    return {"messages": [asked(), said("Both.", tool_calls=listed), *results, said(FINAL)]}


BLOCKS = "\n".join(f"<tool_call>\n{json.dumps(made)}\n</tool_call>" for made in (SEARCH, VISIT))
TWO = [raw.response(LIST), raw.response(PAGE)]
PARALLEL = {
    "by id": both([result(LIST, "a"), result(PAGE, "b")]),
    "by id, out of order": both([result(PAGE, "b"), result(LIST, "a")]),
    "in order, without ids": both([result(LIST), result(PAGE)], ids=(None, None)),
    "qwen's blocks": {
        "messages": [
            asked(),
            said(f"{think('Both.')}\n{BLOCKS}"),
            asked("\n".join(TWO)),
            said(FINAL),
        ]
    },
    "a message for each result": {
        "messages": [
            asked(),
            said(f"{think('Both.')}\n{BLOCKS}"),
            *map(asked, TWO),
            said(FINAL),
        ]
    },
    "a list in one block": {
        "messages": [
            asked(),
            said(f"{think('Both.')}\n<tool_call>\n{json.dumps([SEARCH, VISIT])}\n</tool_call>"),
            asked(raw.response(json.dumps([LIST, PAGE]))),
            said(FINAL),
        ]
    },
    "a list in one block, with a block for each result": {
        "messages": [
            asked(),
            said(f"{think('Both.')}\n<tool_call>{json.dumps([SEARCH, VISIT])}</tool_call>"),
            asked("\n".join(TWO)),
            said(FINAL),
        ]
    },
    "a list in sharegpt": {
        "conversations": [
            spoken("human", Q),
            spoken("function_call", think("Both.") + json.dumps([SEARCH, VISIT])),
            spoken("observation", json.dumps([LIST, PAGE])),
            spoken("gpt", FINAL),
        ]
    },
    "calls one after another": {
        "conversations": [
            spoken("human", Q),
            spoken("function_call", think("Both.") + json.dumps(SEARCH)),
            spoken("function_call", json.dumps(VISIT)),
            spoken("observation", LIST),
            spoken("observation", PAGE),
            spoken("gpt", FINAL),
        ]
    },
    "a log": {
        "question": Q,
        "response": f"{think('Both.')}<search>mill</search><tool_call>{json.dumps(VISIT)}"
        f"</tool_call><information>{LIST}</information><information>{PAGE}</information>{FINAL}",
    },
}


@pytest.mark.parametrize("name", PARALLEL)
def test_each_call_of_a_turn_gets_a_turn_with_its_own_result(tmp_path, name):
    expected = [
        Q,
        raw.search("mill", thought="Both."),
        raw.response(LIST),
        raw.call("visit", thought="Both.", **VISIT["arguments"]),
        raw.response(PAGE),
        FINAL,
    ]
    assert texts(PARALLEL[name]) == expected
    (trajectory,) = open_trajectories([raw.write_lines(tmp_path / "a.jsonl", [PARALLEL[name]])])
    assert [(turn.tool, turn.observation) for turn in trajectory.turns] == [
        ("search", LIST),
        ("visit", PAGE),
        (None, None),
    ]


def test_a_list_of_calls_that_nothing_answers_is_a_turn_that_cannot_be_read(tmp_path):
    turn = f"{think('Both.')}\n<tool_call>\n{json.dumps([SEARCH, VISIT])}\n</tool_call>"
    steps = [asked(), said(turn), asked("No call."), said(raw.search("mill")), asked(TWO[0])]
    assert texts({"messages": [*steps, said(FINAL)]}) == [Q, raw.search("mill"), TWO[0], FINAL]
    path = raw.write_lines(tmp_path / "a.jsonl", [{"messages": [*steps, said(FINAL)]}])
    (trajectory,) = open_trajectories([path])
    assert [turn.tool for turn in trajectory.turns] == [None, "search", None]
    assert trajectory.turns[0].text == turn


def test_a_call_with_a_thought_of_its_own_keeps_it():
    turn = f"{think('First.')}{BLOCKS.replace('</tool_call>', '</tool_call>' + think('Then.'), 1)}"
    row = {"messages": [asked(), said(turn), asked("\n".join(TWO)), said(FINAL)]}
    assert [text.split("\n")[1] for text in texts(row)[1:4:2]] == ["First.", "Then."]


@pytest.mark.parametrize(
    "row",
    [
        both([result(LIST, "a")]),
        both([result(LIST, "a"), result(PAGE, "c")]),
        both([result(LIST, "a"), result(PAGE, "a")]),
        both([result(LIST, "a"), result(PAGE, "b"), result("more", "b")]),
        both([], ids=("a", "b")),
        both([result(f"{LIST}\n{PAGE}")], ids=(None, None)),
        both([result(LIST, "a"), result(PAGE, "b")], ids=("a",), calls=(SEARCH,)),
        {"messages": [asked(), said(f"{think('Both.')}\n{BLOCKS}"), asked(TWO[0]), said(FINAL)]},
        {"messages": [asked(), said(raw.search("mill")), asked("\n".join(TWO)), said(FINAL)]},
    ],
)
def test_results_that_cannot_be_told_to_calls_drop_the_row(row):
    dropped = cleaned(row)
    assert isinstance(dropped, Drop)
    assert dropped.reason == Reason.UNPAIRED_RESULTS


def test_released_keeps_the_first_call_with_all_that_came_back():
    found = texts(PARALLEL["qwen's blocks"], calls="released")
    assert len(found) == 4
    assert [LIST in found[2], PAGE in found[2]] == [True, True]


def test_a_turn_with_one_result_for_its_calls_is_read_as_the_environment_does(tmp_path):
    row = {"messages": [asked(), said(f"{think('Both.')}\n{BLOCKS}"), asked(TWO[0]), said(FINAL)]}
    (trajectory,) = open_trajectories([raw.write_lines(tmp_path / "a.jsonl", [row])])
    assert [turn.tool for turn in trajectory.turns] == ["search", None]


STEPS = st.lists(
    st.lists(st.sampled_from(["search", "visit", "bad"]), min_size=1, max_size=3),
    min_size=1,
    max_size=4,
)


@settings(deadline=None, max_examples=100)
@given(STEPS, st.data())
def test_in_whatever_layout_a_result_stands_only_behind_its_call(steps, data):
    """Results are numbered as their calls are; what is kept must agree, call by call."""
    structured = data.draw(st.booleans())
    numbers = itertools.count()
    rows, kept = [asked()], []
    for kinds in steps:
        calls, results = [], []
        for kind in kinds:
            number = next(numbers)
            made = {
                "search": ("search", {"query": [f"q{number}"]}),
                "visit": ("visit", {"url": [f"https://e.org/{number}"], "goal": f"q{number}"}),
                "bad": ("search", "no JSON"),
            }[kind]
            calls.append((number, made))
            results.append((number, f"result {number}."))
            kept += [number] if kind != "bad" else []
        if structured:
            listed = [call(*made, f"id{number}") for number, made in calls]
            rows.append(said("I look.", tool_calls=listed))
            order = data.draw(st.permutations(results))
            rows += [result(text, f"id{number}") for number, text in order]
        else:
            blocks = [
                f"<tool_call>\n{json.dumps(dict(zip(('name', 'arguments'), made, strict=True)))}"
                "\n</tool_call>"
                for _, made in calls
            ]
            rows.append(said("\n".join([think("I look."), *blocks])))
            rows.append(asked("\n".join(raw.response(text) for _, text in results)))
    made = cleaned({"messages": [*rows, said(FINAL)]})
    if not kept:
        assert isinstance(made, Drop)
        assert made.reason == Reason.CALLS_LOST
        return
    found = [message["content"] for message in made.messages][1:-1]
    for number, turn, reply in zip(kept, found[::2], found[1::2], strict=True):
        assert f"q{number}" in turn
        assert f"result {number}." in reply


# ---- calls that are lost ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (
            {"conversations": [*SHAREGPT[:1], spoken("gpt", "look"), *SHAREGPT[2:3], SHAREGPT[5]]},
            "1 results; 1 turns without a thought (--thoughts optional",
        ),
        (
            {
                "messages": [
                    asked(),
                    said(raw.thought_and("look up mill")),
                    asked(LIST),
                    said(FINAL),
                ]
            },
            "1 results; 1 turns without a call that can be read",
        ),
        (
            {
                "messages": [
                    asked(),
                    said("I look.", tool_calls=[call("google_search", {"q": "mill"})]),
                    result(LIST),
                    said(FINAL),
                ]
            },
            "1 results; 1 calls of google_search, which --tools doesn't name",
        ),
        (
            {"question": Q, "response": f"<information>{LIST}</information>{FINAL}"},
            "1 results; no turn before them",
        ),
    ],
)
def test_a_row_whose_calls_are_lost_is_dropped_and_says_why(row, told):
    dropped = cleaned(row)
    assert isinstance(dropped, Drop)
    assert dropped.reason == Reason.CALLS_LOST
    assert told in dropped.detail
    assert not isinstance(cleaned(row, calls="released"), Drop)


def test_turns_in_tags_that_nobody_knows_are_no_answer_out_of_nothing():
    unknown = f"{think('I look.')}\nAction: Search[mill]\nObservation: {LIST}\n{FINAL}"
    row = {"question": Q, "output": unknown}
    assert cleaned(row).reason == Reason.CALLS_LOST
    assert texts(row, calls="released") == [
        Q,
        f"{think('I look.')}\n<answer>\n1912\n</answer>",
    ]
    calm = f"{think('I know.')}\n<summary>S</summary>\n{think('Sure.')}<answer>1912</answer>"
    assert len(texts({"question": Q, "output": calm})) == 2


def test_a_second_question_after_an_answer_is_no_trajectory():
    steps = [asked(), said(FINAL), asked("And the dam?"), said(raw.search("dam")), asked(LIST)]
    dropped = cleaned({"messages": [*steps, said(FINAL)]})
    assert dropped.reason == Reason.ROLES_OUT_OF_ORDER
    assert "message 1 answers before the last" in dropped.detail


def test_an_answer_without_any_search_is_no_lost_call():
    assert texts({"messages": [asked(), said(FINAL)]}) == [Q, FINAL]


@pytest.mark.parametrize(
    ("body", "query"),
    [
        (
            '{"name": "search", "arguments": {"query": ["what is </tool_call>"]}}',
            "what is </tool_call>",
        ),
        ('{"name": "search", "arguments": {"query": ["the\nmill"]}}', "the\nmill"),
        ('{"name": "search", "arguments": "{\\"query\\": [\\"mill\\"]}"}', "mill"),
    ],
)
def test_what_the_live_reading_reads_is_no_lost_call(body, query):
    turn = f"{think('I look.')}\n<tool_call>\n{body}\n</tool_call>"
    row = {"messages": [asked(), said(turn), asked(raw.response(LIST)), said(FINAL)]}
    assert texts(row)[1] == raw.search(query)


def test_turns_without_thoughts_are_kept_on_request(tmp_path):
    row = {
        "conversations": [
            SHAREGPT[0],
            spoken("function_call", json.dumps(SEARCH)),
            SHAREGPT[2],
            spoken("gpt", "It was built in 1912."),
        ]
    }
    assert cleaned(row).reason == Reason.LAST_WITHOUT_THOUGHT
    assert texts(row, thoughts="optional") == [
        Q,
        f"<tool_call>\n{json.dumps(SEARCH)}\n</tool_call>",
        raw.response(LIST),
        "<answer>\nIt was built in 1912.\n</answer>",
    ]
    (trajectory,) = open_trajectories([raw.write_lines(tmp_path / "a.jsonl", [row])])
    assert [turn.tool for turn in trajectory.turns] == ["search", None]
    assert [turn.well_formed for turn in trajectory.turns] == [True, True]
    assert trajectory.answer == "It was built in 1912."


def test_a_dialogue_of_several_questions_is_no_trajectory():
    row = {
        "messages": [
            *ROWS["openai, arguments as text"]["messages"],
            asked("And the dam?"),
            said("1913"),
        ]
    }
    assert cleaned(row).reason == Reason.ROLES_OUT_OF_ORDER


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None},
        {"role": None, "content": "x"},
        {"role": "user", "content": [{"type": "image_url", "image_url": "x"}]},
        {"content": "x"},
        "x",
    ],
)
def test_messages_that_hold_no_text_are_named(message):
    found = cleaned({"messages": [asked(), message, said(FINAL)]})
    assert found.reason == Reason.WRONG_TYPE
    assert "message 1" in found.detail


def test_a_table_that_gives_every_call_all_arguments_leaves_no_nulls(tmp_path):
    row = both([result(LIST, "a"), result(PAGE, "b")])
    path = raw.write_parquet(tmp_path / "a.parquet", [row])
    (made,) = [clean_row(found) for _, found in read_raw(path)]
    assert [m["content"] for m in made.messages] == texts(row)


def test_nothing_read_is_an_error_for_every_reader(tmp_path):
    lost = raw.write_lines(tmp_path / "a.jsonl", [{"text": "no question, no tags"}])
    with pytest.raises(TaskDataError, match="nothing could be read"):
        open_trajectories([lost], Passed())
    with pytest.raises(TaskDataError, match="nothing could be read: no file was named"):
        open_trajectories([], Passed())


UNANSWERED = {
    "no result": "<think>a</think><search>mill</search><think>b</think><answer>1912</answer>",
    "a result that is not closed": "<think>a</think><search>mill</search><information>R "
    "<think>b</think><answer>1912</answer>",
    "a result in a tag unknown here": "<think>a</think><search>mill</search>"
    "<information id=1>R</information><think>b</think><answer>1912</answer>",
    "a second search without one": "<think>a</think><search>mill</search><information>R"
    "</information><think>b</think><search>weir</search><answer>1912</answer>",
}


@pytest.mark.parametrize("name", UNANSWERED)
@pytest.mark.parametrize("thoughts", ["required", "optional"])
def test_a_log_whose_search_has_no_result_is_no_row(name, thoughts):
    made = cleaned({"question": Q, "output": UNANSWERED[name]}, thoughts=thoughts)
    assert isinstance(made, Drop)
    assert made.reason == Reason.CALL_AND_ANSWER


def test_a_last_message_that_calls_a_tool_too_is_no_final_turn():
    steps = [asked(), said(STORY[1]), asked(raw.response(LIST))]
    last = said(f"{STORY[1]}\n<answer>1912</answer>")
    made = cleaned({"messages": [*steps, last]})
    assert isinstance(made, Drop)
    assert made.reason == Reason.CALL_AND_ANSWER
    assert not isinstance(cleaned({"messages": [*steps, last]}, calls="released"), Drop)
    quoted = said(f"{think('I would <tool_call>{}</tool_call> again.')}\n<answer>1912</answer>")
    assert not isinstance(cleaned({"messages": [*steps, quoted]}, tags="after_thought"), Drop)


def test_a_second_result_in_a_message_of_its_own_drops_the_row_too():
    steps = [asked(), said(STORY[1]), asked(raw.response(LIST)), asked(raw.response(PAGE))]
    made = cleaned({"messages": [*steps, said(FINAL)]})
    assert isinstance(made, Drop)
    assert made.reason == Reason.UNPAIRED_RESULTS
    words = [*steps[:3], asked("Please go on."), said(FINAL)]
    assert texts({"messages": words}) == [Q, *STORY[1:3], FINAL]
