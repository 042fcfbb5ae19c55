"""Raw trajectories out of invented words, in the sizes and shapes of recorded ones.

Measured on 16 recorded rows (12 that cleaning keeps, four that it drops): the turns of each,
the deciles of the lengths of thoughts and visited pages, the mean lengths of the parts of a
result, the shares of the tools, of repeated calls, of calls in other forms, and of texts that
hold letters beyond Latin-1, which cost more.
"""

import json
import random
from typing import Any

Row = dict[str, Any]

TURNS = (25, 33, 40, 54, 49, 71, 25, 35, 33, 44, 25, 25)
"""Of the rows that are kept."""
THOUGHTS = (20, 40, 80, 160, 260, 390, 600, 980, 1_500, 2_700)
VISITS = (400, 500, 560, 580, 630, 710, 790, 850, 930, 1_200)
FINALS = (700, 2_100, 2_400, 4_600, 6_000)
"""Characters; each is as likely as the next."""

VOCABULARY = (
    "river council archive museum county village painter treaty bridge station harbour founded "
    "century published recorded album novel 1912 1973 census volume district the of in and was "
    "by with from its a according to entry page birthplace seaport biography historical"
)
WORDS = VOCABULARY.split()
FOREIGN = ("Łódź", "Gdańsk", "–", "“Lübeck”")


def text(rng: random.Random, length: int, foreign: float = 0.0) -> str:
    """Words of about ``length`` characters; ``foreign`` is the chance of one beyond Latin-1."""
    words = rng.choices(WORDS, k=max(1, length // 7))
    if rng.random() < foreign:
        words[rng.randrange(len(words))] = rng.choice(FOREIGN)
    return " ".join(words)


def results(rng: random.Random, query: str) -> str:
    """A page of ten search results."""
    lines = [f"A Google search for '{query}' found 10 results:", "", "## Web Results"]
    for number in range(1, rng.choice((10, 10, 10, 9, 8)) + 1):
        title, path = text(rng, 40), text(rng, 50).replace(" ", "_")
        if rng.random() < 0.025:
            title, path = f"[{title}] – archive", f"{path}_(county)"
        lines += [f"{number}. [{title}](https://example.org/{rng.randrange(10**6)}/{path})", ""]
        lines += [text(rng, 76) for _ in range(1 + (rng.random() < 0.1))]
        lines[-1] += f" {text(rng, 84, foreign=0.2)}"
        lines.append("")
    return "\n".join(lines)


def step(rng: random.Random, earlier: list[str]) -> tuple[str, str]:
    """A call and its response."""
    kind, query = rng.random(), text(rng, 38)
    if kind < 0.06 and earlier:
        return rng.choice(earlier), results(rng, query)
    if kind < 0.67:
        return json.dumps({"name": "search", "arguments": {"query": [query]}}), results(rng, query)
    if kind < 0.92:
        url, goal = (
            f"https://example.org/{rng.randrange(10**6)}/{text(rng, 40)[:40]}",
            text(rng, 50),
        )
        arguments: Row = {"url": [url], "goal": goal}
        if rng.random() < 0.05:
            arguments = {"urls": url, "goal": [goal]}
        found = text(rng, rng.choice(VISITS) - 100, foreign=0.38)
        page = f"The useful information in {url} for user goal {goal} as follows: \n\n{found}"
        return json.dumps({"name": "visit", "arguments": arguments}), page
    if kind < 0.985:
        code = '{"name": "PythonInterpreter", "arguments": {}}\n<code>\nprint(6 * 7)\n</code>'
        return code, "42"
    if kind < 0.994:
        return json.dumps({"name": "google_scholar", "arguments": {"query": [query]}}), "nothing"
    return "{'name': 'search', 'arguments': ", "nothing"


def kept_row(rng: random.Random, turns: int) -> Row:
    """A raw trajectory that cleaning keeps."""
    question = text(rng, 627)
    messages = [{"role": "user", "content": question}]
    calls: list[str] = []
    for _ in range(turns - 1):
        call, response = step(rng, calls)
        calls.append(call)
        thought = text(rng, rng.choice(THOUGHTS), foreign=0.15)
        turn = f"<think>\n{thought}\n</think>\n<tool_call>\n{call}\n</tool_call>"
        messages.append({"role": "assistant", "content": turn})
        body = f"<tool_response>\n{response}\n</tool_response>"
        messages.append({"role": "user", "content": body})
    thought = text(rng, rng.choice(FINALS), foreign=0.15)
    last = f"<think>\n{thought}\n</think>\n<answer>\n{text(rng, 20)}\n</answer>"
    messages.append({"role": "assistant", "content": last})
    return {"meta": {"question": question, "answer": text(rng, 14)}, "messages": messages}


def made_rows(seed: int = 0) -> list[Row]:
    """Sixteen rows: 12 that are kept and, among them, four that are dropped."""
    rng = random.Random(seed)
    rows = [kept_row(rng, turns) for turns in TURNS]
    unfinished, unknown, unanswered = (kept_row(rng, turns) for turns in (25, 25, 25))
    unfinished["messages"].pop()
    unknown["meta"]["answer"] = ""
    unanswered["messages"][-1]["content"] = f"<think>\n{text(rng, 600)}\n</think>"
    empty: Row = {"meta": {"question": text(rng, 627), "answer": "x"}, "messages": []}
    return [*rows[:10], unfinished, unknown, unanswered, *rows[10:], empty]
