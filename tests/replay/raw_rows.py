"""Raw trajectories as recorded with a Google-style search, written by the tests."""

import json

import pyarrow as pa
import pyarrow.parquet as pq

QUESTION = "Which bridge did the painter cross?"


def thought_and(body, thought="I look."):
    return f"<think>\n{thought}\n</think>\n{body}"


def call(name, thought="I look.", **arguments):
    body = json.dumps({"name": name, "arguments": arguments})
    return thought_and(f"<tool_call>\n{body}\n</tool_call>", thought)


def search(query, **more):
    return call("search", query=[query], **more)


def visit(url, goal="g"):
    return call("visit", url=[url], goal=goal)


def code():
    body = '{"name": "PythonInterpreter", "arguments": {}}\n<code>\nprint(1)\n</code>'
    return thought_and(f"<tool_call>\n{body}\n</tool_call>")


def answer(text="Long Bridge", thought="It holds."):
    return thought_and(f"<answer>\n{text}\n</answer>", thought)


def page(query="q", *entries):
    entries = entries or (("T", "https://e.org/1", "s"),)
    lines = [f"A Google search for '{query}' found {len(entries)} results:", "", "## Web Results"]
    for number, (title, url, snippet) in enumerate(entries, start=1):
        lines += [f"{number}. [{title}]({url})", "", snippet, ""]
    return "\n".join(lines)


def response(text):
    return f"<tool_response>\n{text}\n</tool_response>"


def messages(*steps, question=QUESTION, last=None):
    """The question, then turns with a response each, then the answer."""
    found = [{"role": "user", "content": question}]
    for step in steps:
        turn, text = step if isinstance(step, tuple) else (step, "Nothing much.")
        found.append({"role": "assistant", "content": turn})
        found.append({"role": "user", "content": response(text)})
    return [*found, {"role": "assistant", "content": answer() if last is None else last}]


def row(*steps, gold="Long Bridge", **more):
    return {"meta": {"question": QUESTION, "answer": gold}, "messages": messages(*steps, **more)}


def many(count, turns=3):
    """Different rows; every tenth has code and a repeat, every seventh a wrong answer."""
    rows = []
    for number in range(count):
        steps = [search(f"query {number} {turn}") for turn in range(turns + number % 5 * 20)]
        if number % 10 == 0:
            steps += [code(), steps[0]]
        wrong = number % 7 == 0
        made = row(*steps, last=answer("Short Bridge" if wrong else "Long bridge."))
        made["meta"]["question"] = f"{QUESTION} ({number})"
        rows.append(made)
    return rows


def write_parquet(path, rows, **settings):
    pq.write_table(pa.Table.from_pylist(rows), path, **settings)
    return path


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path
