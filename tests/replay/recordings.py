"""Recorded chat messages as other people's agents leave them, written by the tests."""

import json

SYSTEM = "You research. Tools: <tools>search, visit</tools>"
QUESTION = "Who founded the naïve city of Ur — and 東京?"


def search_result(query, *urls, date=None):
    pages = [
        {"title": f"Title of {url}", "url": url, "snippet": f"{query}: about {url} ..."}
        | ({} if date is None else {"date": date})
        for url in urls
    ]
    return json.dumps([{"query": query, "web_page_info_list": pages}], ensure_ascii=False)


def visit_result(url, goal, text):
    return (
        f"The useful information in {url} for user goal {goal} as follows: \n\n"
        f"Evidence in page: \n{text}\n\nSummary: \nIn short: {text}\n\n"
    )


def call(name, thought="I look.", tight=False, **arguments):
    body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    if tight:  # spaced as the RL rollouts are
        return f"<think>{thought}</think>\n\n<tool_call>\n{body}\n</tool_call>"
    return f"<think>\n{thought}\n</think>\n<tool_call>\n{body}\n</tool_call>"


def answer(text="Enki", tight=False):
    if tight:
        return f"<think>So it is.</think>\n\n<answer>\n\n**{text}**\n\n</answer>"
    return f"<think>\nSo it is.\n</think>\n<answer>\n{text}\n</answer>"


def chat(*turns, system=SYSTEM, question=QUESTION):
    """Messages from turns and observation bodies in turn."""
    messages = [] if system is None else [{"role": "system", "content": system}]
    messages.append({"role": "user", "content": question})
    for number, text in enumerate(turns):
        if number % 2:
            text = f"<tool_response>\n{text}\n</tool_response>"
        role = "user" if number % 2 else "assistant"
        messages.append({"role": role, "content": text})
    return messages


def spaced():
    """Spaced like published SFT data."""
    return chat(
        call("search", query=["founder of Ur"]),
        search_result("founder of Ur", "https://e.org/ur", "https://e.org/enki"),
        call("visit", url=["https://e.org/ur"], goal="find the founder"),
        visit_result("https://e.org/ur", "find the founder", "Ur was founded by Enki. <|im_end|>"),
        answer(),
    )


def tight():
    """Spaced like published RL rollouts, with a failure and one call that gave two results."""
    again = {"query": ["founder of Ur"], "tight": True}
    return chat(
        call("search", **again),
        search_result("founder of Ur", "https://e.org/ur", date="2020"),
        call("visit", url=["https://e.org/x"], goal="read", tight=True),
        "Tool execution timed out after 120 seconds.",
        call("search", **again),
        search_result("founder of Ur", "https://e.org/other", date=""),
        call("visit", url=["https://e.org/x"], goal="read", tight=True),
        visit_result("https://e.org/x", "read", "Nothing but </tool_response> tags."),
        answer(tight=True),
    )
