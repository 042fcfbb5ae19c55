"""Whole transcripts written as one text: thoughts, searches and what came back, by their tags.

Search-R1 and its kin (``<search>``, ``<information>``), ReSearch (``<result>``), R1-Searcher and
Search-o1 (``<|begin_of_query|>``, ``<|begin_search_query|>``, …), ASearcher (``<access>``),
MiroThinker (``<use_mcp_tool>``), ReAct's lines (:mod:`replay.react_logs`), and turns in
``<tool_call>`` and ``<tool_response>`` that stand in one text.  A text is cut into turns
and observations in the deployment's tags; one that holds no such log stays as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from drv_env.calls import parse_body, render_call
from drv_env.protocol import (
    ANSWER,
    CALL,
    END_ANSWER,
    END_CALL,
    END_THINK,
    RESPONSE,
    THINK,
    Search,
    ToolCall,
    call_block,
    render_observation,
    thought_block,
)
from replay.raw_trajectory import Message
from replay.react_logs import is_react, observed, turns_of_react

SEARCH, VISIT, MCP, CALLED, RESULT = "search", "visit", "mcp", "called", "result"


def _angles(kind: str, names: str) -> dict[str, tuple[str, str]]:
    return {f"<{name}>": (kind, f"</{name}>") for name in names.split()}


def _pipes(kind: str, names: str) -> dict[str, tuple[str, str]]:
    return {f"<|begin_{name}|>": (kind, f"<|end_{name}|>") for name in names.split()}


_TAGS: dict[str, tuple[str, str]] = {
    **_angles(SEARCH, "search web_search"),
    **_pipes(SEARCH, "of_query search_query"),
    **_angles(VISIT, "access visit crawl_page browse"),
    **_pipes(VISIT, "click_link of_url"),
    **_angles(RESULT, "information result results search_result search_results"),
    **_angles(RESULT, "observation documents"),
    **_pipes(RESULT, "of_documents search_result click_result of_content"),
    **_angles(MCP, "use_mcp_tool"),
    CALL: (CALLED, END_CALL),
    RESPONSE: (RESULT, "</tool_response>"),
}
_COMMON = {"<result>", "<results>", "<observation>", "<documents>"}
"""Tags that mean results only where a search stands before them."""
_CLOSINGS = re.compile(
    "|".join(
        f"</{re.escape(closing[2:])}"
        for tag, (_, closing) in _TAGS.items()
        if tag != CALL and tag not in _COMMON and closing.startswith("</")
    )
)
_MCP = re.compile(
    r"<tool_name>\s*(.*?)\s*</tool_name>.*?<arguments>\s*(.*?)\s*</arguments>", re.DOTALL
)
_TOKEN = re.compile("|".join(map(re.escape, (*_TAGS, THINK, END_THINK, ANSWER))))
_ROLE_LINES = re.compile(
    rf"\n?(?:<\|im_end\|>\s*)?(?:<\|im_start\|>)?user\n(?={RESPONSE})"
    rf"|(?<=</tool_response>)(?:<\|im_end\|>)?\s*(?:<\|im_start\|>)?assistant\n"
)
_END_OF_TURN = re.compile(r"(?:<\|im_end\|>|<\|endoftext\|>|</s>|<\|eot_id\|>)\s*\Z")


@dataclass(slots=True)
class _Turn:
    thought: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    results: list[str] = field(default_factory=list)


def is_log(text: str) -> bool:
    """Whether an assistant's text may be a log: it closes a search of one, or results.

    Example:
        >>> is_log("<think>a</think><search>mill</search>"), is_log("<answer>X</answer>")
        (True, False)
    """
    return "<|begin_" in text or _CLOSINGS.search(text) is not None or is_react(text)


def is_transcript(text: str) -> bool:
    """Whether a text that stands where messages are expected is a transcript."""
    return THINK in text or "<|im_start|>" in text or is_log(text)


def turns_of_log(text: str) -> list[Message] | None:
    """Turns and observations of a log, in order; None where the text is a turn like any other.

    Example:
        >>> found = turns_of_log("<think>a</think><search>q</search>"
        ...     "<information>r</information><think>b</think><answer>X</answer>")
        >>> [message["role"] for message in found]
        ['assistant', 'user', 'assistant']
        >>> found[1]["content"]
        '<tool_response>\\nr\\n</tool_response>'
    """
    text = _END_OF_TURN.sub("", _ROLE_LINES.sub("", text))
    if is_react(text):
        return turns_of_react(text)
    log = _Log(text)
    said = any(turn.thought or turn.calls for turn in log.turns) or log.answer is not None
    if not (log.found and said):
        return None
    messages: list[Message] = []
    for turn in log.turns:
        parts = [*_thought(turn.thought), *turn.calls]
        if turn is log.turns[-1] and log.answer is not None:
            parts.append(f"{ANSWER}\n{log.answer}\n{END_ANSWER}")
        if parts:
            messages.append({"role": "assistant", "content": "\n".join(parts)})
        if turn.results:
            texts = [render_observation(result) for result in turn.results]
            messages.append({"role": "user", "content": "\n".join(texts)})
    return messages


def with_logs_cut(messages: Sequence[Message]) -> list[Message]:
    """The messages, each log of the assistant's in turns, and results after it in our tags."""
    made: list[Message] = []
    searching = False
    for message in messages:
        role, content = message["role"], message["content"]
        found = turns_of_log(content) if role == "assistant" and is_log(content) else None
        if found is not None:
            made += found
            searching = found[-1]["role"] == "assistant"
        elif role == "user" and searching:
            made.append({"role": role, "content": render_observation(_without_tags(content))})
        else:
            made.append(message)
            searching = False if role == "assistant" else searching
    return made


class _Log:
    """A text cut at its tags.

    Attributes:
        turns: at least one; each ends before the first word after its results.
        answer: what is tagged or, where nothing is, boxed; None where nothing is.
        found: there was a search, a visit or a result that stands in no thought or answer.
    """

    def __init__(self, text: str) -> None:
        self.turns = [_Turn()]
        self.answer: str | None = None
        self.found = False
        self._unclosed: set[str] = set()
        self._open_until = 0
        place = 0
        while (token := _TOKEN.search(text, place)) is not None:
            self._say(text[place : token.start()])
            place = self._read(text, token[0], token.end())
        self._say(text[place:])
        if self.found and self.answer is None and not self.turns[-1].calls:
            self.answer = _boxed(text[-2_000:])

    def _read(self, text: str, tag: str, place: int) -> int:
        """Take what the tag opens; where to go on."""
        if tag == THINK:
            end = -1 if place < self._open_until else self._find(text, END_THINK, place)
            if end < 0:
                return place
            inside = text[place:end]
            if _holds_a_log(inside):  # searches stand inside of the thought
                self._open_until = end
                return place
            self._say(inside)
            return end + len(END_THINK)
        if tag == END_THINK:
            return place
        kind, closing = ("", END_ANSWER) if tag == ANSWER else _TAGS[tag]
        end = self._find(text, closing, place)
        if end < 0:
            self._say(tag)
            return place
        inner = text[place:end].strip()
        if kind == RESULT:
            self.turns[-1].results.append(inner)
            self.found = self.found or tag not in _COMMON or bool(self.turns[-1].calls)
        elif tag == ANSWER:
            self._open()
            self.answer = inner
        else:
            self._open().calls.append(call_block(_body(kind, inner)))
            self.found = self.found or kind != CALLED
        return end + len(closing)

    def _find(self, text: str, closing: str, place: int) -> int:
        """Where the closing tag stands next; one that isn't there is looked for once."""
        end = -1 if closing in self._unclosed else text.find(closing, place)
        if end < 0:
            self._unclosed.add(closing)
        return end

    def _say(self, said: str) -> None:
        if said.strip():
            self._open().thought.append(said.strip())

    def _open(self) -> _Turn:
        """The turn under way; a new one after results."""
        if self.turns[-1].results:
            self.turns.append(_Turn())
        return self.turns[-1]


def _holds_a_log(thought: str) -> bool:
    """Whether a whole search with its result right behind it stands in the thought."""
    called = -1
    unclosed = {""}
    place = 0
    while (token := _TOKEN.search(thought, place)) is not None:
        place = token.end()
        kind, closing = _TAGS.get(token[0], ("", ""))
        end = -1 if closing in unclosed else thought.find(closing, place)
        if end < 0:
            unclosed.add(closing)
            continue
        if kind == RESULT and called >= 0 and not thought[called : token.start()].strip():
            return True
        place = end + len(closing)
        called = -1 if kind == RESULT else place
    return False


def _body(kind: str, inner: str) -> str:
    if kind == CALLED:
        return inner
    if kind == MCP:
        found = _MCP.search(inner)
        if found is None:
            return inner
        arguments = parse_body(found[2])
        written = arguments if isinstance(arguments, dict) else found[2]
        return json.dumps({"name": found[1], "arguments": written}, ensure_ascii=False)
    texts = _listed(inner)
    if kind == SEARCH:
        return render_call(Search(texts))
    return render_call(ToolCall("visit", {"url": list(texts), "goal": ""}))


def _listed(inner: str) -> tuple[str, ...]:
    """The query, or queries where the text is a JSON list of them."""
    if inner.startswith("["):
        try:
            value = json.loads(inner)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
            return tuple(value)
    return (inner,)


def _thought(said: Iterable[str]) -> list[str]:
    thought = "\n\n".join(said)
    return [thought_block(thought)] if thought else []


def _boxed(text: str) -> str | None:
    r"""What the last ``\boxed{…}`` holds."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    depth = 0
    for place in range(start + len("\\boxed"), len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return text[start + len("\\boxed{") : place].strip() or None
    return None


def _without_tags(text: str) -> str:
    """A result in a message of its own, without the tags around it."""
    inner = text.strip()
    for opening, (kind, closing) in _TAGS.items():
        if kind == RESULT and inner.startswith(opening) and inner.endswith(closing):
            return inner[len(opening) : -len(closing)].strip()
    return observed(text)
