"""Replies of judges → verdicts."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from drv_env.rewards.verdict import read_verdict, read_verdicts

READABLE = [
    ("correct: yes", True),
    ("CORRECT: NO", False),
    ("correct: true", True),
    ("  correct :  No.  ", False),
    ("correct：yes", True),
    ("**Correct**: **yes**", True),
    ("**correct: yes**", True),
    ("## Correct: `no`", False),
    ("- correct: yes", True),
    ('correct: "yes"', True),
    ("Correct: no, the gold answer has another year.", False),
    ("correct: yes (the same person)", True),
    ("correct: yes — the same river", True),
    ("correct: yes, there is no difference", True),
    ("extracted: 7\r\ncorrect: yes\r\nconfidence: 90%", True),
    ("correct: yes\n\nThe spelling differs, the person is the same.", True),
    ("correct: yes/no\ncorrect: yes", True),
    ("I would say correct: no at first.\ncorrect: yes", True),
    ("correct: yes\ncorrect: yes", True),
    ("答案一致\ncorrect: yes", True),
    ('{"correct": true}', True),
    ('{"Correct": "No"}', False),
    ('{"correct": "yes, the same"}', True),
    ('{\n  "reason": "a {brace} and\n a line",\n  "correct": false\n}', False),
    ('Here it is:\n```json\n{"correct": "no"}\n```\nDone.', False),
    ('```{"correct": true}```', True),
    ('{"reason": "r"}\ncorrect: no', False),
    ('{"correct": true}\ncorrect: yes', True),
    ("<think>correct: no</think>correct: yes", True),
    ("correct: no, in a thought that the server opened</think>\n\ncorrect: yes", True),
    ('<THINK>a</THINK><think>correct: no</think>\n{"correct": true}', True),
    ("<think>it says </think>\ncorrect: yes</think>\ncorrect: no", False),
]

UNREADABLE = [
    "",
    " \n\t",
    "yes",
    "true",
    "The answer is correct.",
    "incorrect: yes",
    "not correct: yes",
    "The verdict is correct: yes",
    "correct - yes",
    "correct = yes",
    "correct yes",
    "correct:",
    "correct: unsure",
    "correct: partially",
    "correct: yes/no",
    "correct: yes or no",
    "correct: yes, no",
    "correct: no, wait, yes.",
    "correct: no-one knows",
    "correct: yes only for an exact match",
    "correct: yesterday",
    "correct: [yes/no]",
    "correct:\nyes",
    "correct: yes\ncorrect: no",
    "correct: no\n\nOn second thoughts:\n\ncorrect: yes",
    "correct: yes\ncorrect: unsure",
    "| correct | yes |",
    "> correct: yes",
    '"correct": "yes"',
    '{"correct": "yes"',
    '{\n"correct": "yes",\n"reason": "cut',
    '{"reason": "\ncorrect: yes\n',
    '{"correct": null}',
    '{"correct": 1}',
    '{"correct": "unsure"}',
    '{"incorrect": true}',
    '{"verdict": {"correct": true}}',
    '[{"correct": true}]',
    '{"correct": true, "correct": false}',
    '{"correct": true}\n{"correct": false}',
    '{"correct": true}\ncorrect: no',
    'I might say {"correct": true} but the year differs.',
    "<think>correct: yes",
    "<think>correct: yes</think>",
    "correct: yes\n<think>or not",
    "<think>a</think> correct: yes <think>",
    "Error: 429 Too Many Requests",
    "正确：是",
]


@pytest.mark.parametrize(("reply", "verdict"), READABLE)
def test_a_verdict_is_read(reply: str, verdict: bool) -> None:
    assert read_verdict(reply) is verdict


@pytest.mark.parametrize("reply", UNREADABLE)
def test_anything_else_is_unreadable(reply: str) -> None:
    assert read_verdict(reply) is None


WORDS = ["correct", "yes", "no", "true", "fact", "facts", "1", "2", "json", "<think>", "</think>"]
MARKS = [":", ",", "*", "{", "}", "[", "]", '"', "```", " ", "\n", "\r", "\u2028"]
PIECES = st.sampled_from([*WORDS, *MARKS])


@given(st.lists(PIECES | st.text(max_size=3), max_size=40).map("".join))
@example("[" * 100_000)
@example('{"a":' + "[" * 100_000 + "\n}")
@example("\ud800{\udfff}")
def test_any_text_has_a_verdict_or_none_and_an_opposite_one_makes_it_unreadable(text: str) -> None:
    verdict = read_verdict(text)
    assert verdict in (True, False, None)
    read_verdicts(text, 2)
    if verdict is not None:
        opposite = "no" if verdict else "yes"
        assert read_verdict(f"{text}\ncorrect: {opposite}") is None


@given(st.text(), st.booleans())
def test_thoughts_never_count(thought: str, verdict: bool) -> None:
    word = "yes" if verdict else "no"
    assert read_verdict(f"<think>{thought}</think>\ncorrect: {word}") is verdict


@given(st.text(), st.booleans())
def test_whatever_stands_in_a_json_string_decides_nothing(reason: str, verdict: bool) -> None:
    reply = json.dumps({"reason": f"{reason}\ncorrect: yes", "correct": verdict})
    if "think" not in reply:
        assert read_verdict(reply) is verdict


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{\n",
        "}\n",
        '{"a":',
        "[",
        " ",
        "*",
        "`",
        "correct: ",
        "correct",
        "correct: yes\n",
        "correct: yes, no ",
        "<think>",
        "</think>",
        "<think",
        "\n",
        "fact 1: yes\n",
        "-",
    ],
)
def test_long_replies_take_time_linear_in_them(text: str) -> None:
    """Quadratic work on a million characters would meet the suite's time limit."""
    long = text * (1_000_000 // len(text))
    for reply in (long, "correct: yes" + long, f'{{"a": "{long}"}}'):
        read_verdict(reply)
        read_verdicts(reply, 3)


# ---- facts ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "verdicts"),
    [
        ("fact 1: yes\nfact 2: no", (True, False)),
        ("- **Fact 2**: no, it is denied\n- **Fact 1**: yes", (True, False)),
        ('{"reason": "r", "facts": [true, false]}', (True, False)),
        ('```json\n{"facts": ["yes", "no"]}\n```', (True, False)),
        ("<think>fact 1: no</think>fact 1: yes\nfact 2: yes", (True, True)),
        ('{"facts": [true, false]}\nfact 2: no', (True, False)),
        ("", None),
        ("fact 1: yes", None),
        ("fact 1: yes\nfact 2: unsure", None),
        ("fact 1: yes\nfact 2: no\nfact 2: yes", None),
        ("fact 1: yes\nfact 2: no\nfact 3: yes", None),
        ("fact 0: yes\nfact 1: yes\nfact 2: no", None),
        ('{"facts": [true]}', None),
        ('{"facts": [true, false, true]}', None),
        ('{"facts": [true, null]}', None),
        ('{"facts": "yes"}', None),
        ('{"facts": {"1": true, "2": false}}', None),
        ('{"facts": [true, false', None),
        ('{"facts": [true, false]}\nfact 2: yes', None),
    ],
)
def test_each_fact_needs_one_verdict(reply: str, verdicts: tuple[bool, ...] | None) -> None:
    assert read_verdicts(reply, 2) == verdicts
