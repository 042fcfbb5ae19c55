"""The released reading and the strict verdict, case by case."""

import json5
import pyjson5

from drv_env.protocol import CALL, END_CALL, Answer, ToolCall, format_verdict, read_turn


def test_released_reading_equals_the_reference(golden):
    cases = golden("protocol.json")["cases"]
    wrong = []
    for case in cases:
        reading = read_turn(case["text"], "released")
        match reading.written:
            case Answer(text):
                found = ("answer", text.strip())
            case ToolCall(name, arguments):
                found = ("tool_call", {"name": name, "arguments": arguments})
            case None:
                found = ("error", None)
        payload = case["payload"]
        if case["status"] == "answer":
            payload = payload.strip()
        if found != (case["status"], payload):
            wrong.append((case["text"], found))
    assert not wrong
    assert len(cases) > 50


def test_strict_verdict_equals_the_reference(golden):
    for case in golden("protocol.json")["cases"]:
        assert format_verdict(case["text"], final=False) is case["valid_tool_turn"], case["text"]
        assert format_verdict(case["text"], final=True) is case["valid_answer_turn"], case["text"]


def test_pyjson5_reads_every_call_body_like_json5(golden):
    bodies = [
        case["text"].split(CALL, 1)[1].split(END_CALL, 1)[0]
        for case in golden("protocol.json")["cases"]
        if CALL in case["text"] and END_CALL in case["text"]
    ]
    for body in bodies:
        try:
            expected = json5.loads(body)
        except ValueError:
            expected = None
        try:
            found = pyjson5.decode(body)
        except pyjson5.Json5Exception:
            found = None
        assert found == expected, body
