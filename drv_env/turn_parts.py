"""Where thought, call and answer of a turn stand, by structure.

A tag counts where it structures the turn, and not where it is quoted: inside a thought,
inside a JSON string of a call, inside the code of the interpreter's, inside an answer.
:func:`parts_of` finds the parts; what a call says is :mod:`drv_env.calls`'s, and what the
whole turn comes to is :mod:`drv_env.protocol`'s.

Takes time linear in the text: what costs a walk over the text for one tag (a call's JSON,
an answer that quotes its own tags) is done for the first :data:`_WALKS` of them, and the
next closing tag is taken for the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from drv_env.calls import call_object, code_call, find_call_end
from drv_env.markdown_code import code_spans

THINK, END_THINK = "<think>", "</think>"
CALL, END_CALL = "<tool_call>", "</tool_call>"
ANSWER, END_ANSWER = "<answer>", "</answer>"
RESPONSE, END_RESPONSE = "<tool_response>", "</tool_response>"

_WALKS = 16
_CALL_START = re.compile(r"\s*+(?:`++\w*+\s*+)?(?:[{\[\"/]|<function=|pythoninterpreter)", re.I)
_ANY_TAG = re.compile(r"</?(?:think|tool_call|answer|tool_response)>")
_BEFORE_MENTION = " \t\"'([“‘«"
"""What stands before a tag in a sentence; one that ends an answer stands at its last word."""
_ANSWER_TAG = re.compile(r"</?answer>")


@dataclass(frozen=True, slots=True)
class Block:
    """A complete ``<tool_call>`` or ``<answer>``.

    Attributes:
        opening: its opening tag.
        start: where that begins.
        inner: the text between its tags.
        end: behind the closing tag.
        certain: whether that tag closes it whatever follows.
    """

    opening: str
    start: int
    inner: str
    end: int
    certain: bool

    @property
    def is_answer(self) -> bool:
        """Whether it is an answer."""
        return self.opening == ANSWER


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a turn.

    Attributes:
        thought: the text of its thoughts, or None where it has none.
        block: the call or answer, or None.
        two_kinds: whether a block of the other kind follows.
        body: what stands behind the thoughts.
    """

    thought: str | None
    block: Block | None
    two_kinds: bool
    body: str


def parts_of(text: str, thought_optional: bool = False) -> Parts:
    """Find the parts of a turn.

    Args:
        text: the turn, whole or as far as it is written.
        thought_optional: a call or an answer may stand without a thought.
    """
    return _Scan(text).parts(thought_optional)


class _Scan:
    def __init__(self, text: str) -> None:
        self._text = text
        self._walks = _WALKS
        self._firsts: dict[str, tuple[int, Block | None]] = {}

    def parts(self, thought_optional: bool) -> Parts:
        text = self._text
        if text.lstrip().startswith(RESPONSE):
            return Parts(None, None, False, "")  # an observation, invented
        opening, closing = text.find(THINK), self._thought_end(0)
        if thought_optional:
            bare = self._bare(opening, closing)
            if bare is not None:
                return bare
        if opening < 0 and closing < 0:
            return Parts(None, None, False, text)
        if opening < 0 or 0 <= closing < opening:
            start, end = 0, closing  # the template has opened it
        else:
            start = opening + len(THINK)
            end = self._thought_end(start)
        return self._after_thought(start, end)

    def _bare(self, opening: int, closing: int) -> Parts | None:
        """The parts of a turn without a thought; None where it has one."""
        text = self._text
        block = self._first_block(0)
        if block is None or text[: block.start].strip():
            unopened = closing >= 0 and (opening < 0 or closing < opening)
            before = opening >= 0 and (block is None or opening < block.start)
            if unopened or before:
                return None
        if block is None:
            return Parts("", None, False, text)
        if self._invented(0, block.start) >= 0:
            return Parts("", None, False, text)
        block = self._if_certain(block, 0)
        return Parts(text[: block.start], block, self._is_followed(block), text)

    def _after_thought(self, start: int, end: int) -> Parts:
        """The parts of a turn whose first thought is ``text[start:end]``; -1 is left open."""
        text = self._text
        thoughts: list[str] = []
        position = start
        block: Block | None = None
        known = False  # whether ``block`` is the first behind ``position``
        first = end
        while True:
            if end < 0:  # it ends right before the first block
                block = self._first_block(start)
                if block is not None:
                    block = replace(block, certain=False)
                stop = self._invented(start, len(text) if block is None else block.start)
                if stop >= 0:
                    block = None
                else:
                    stop = len(text) if block is None else block.start
                thoughts.append(text[start:stop])
                position = stop
                break
            thoughts.append(text[start:end])
            position = end + len(END_THINK)
            if not known or (block is not None and block.start < position):
                block, known = self._first_block(position), True
            after = text.find(THINK, position)
            if after < 0 or (block is not None and after > block.start):
                break
            start = after + len(THINK)
            end = self._thought_end(start)
        if block is None and end >= 0:
            found = self._answer_over(start, end)
            if found is not None:
                thoughts[-1] = text[start : found.start]
                block, position = found, found.start
        if block is not None and self._invented(position, block.start) >= 0:
            block = None
        if block is not None and first >= 0:
            block = self._if_certain(block, first)
        position, block = self._ran_on(thoughts, position, block)
        followed = block is not None and self._is_followed(block)
        return Parts("\n".join(part.strip() for part in thoughts), block, followed, text[position:])

    def _if_certain(self, block: Block, first: int) -> Block:
        """Not certain where it may be quoted: in a call or an answer that is not closed yet."""
        text = self._text
        open_call = text.rfind(CALL, 0, first)
        inner = open_call + len(CALL)
        if open_call >= 0 and _CALL_START.match(text, inner):
            closed = find_call_end(text, inner)
            if closed is None or closed > first:
                return replace(block, certain=False)
        if any(text.find(tag, first, block.start) >= 0 for tag in (CALL, ANSWER)):
            return replace(block, certain=False)
        return block

    def _ran_on(
        self, thoughts: list[str], position: int, block: Block | None
    ) -> tuple[int, Block | None]:
        """A thought that quotes ``</think>`` goes on to the next one, and past what it quotes."""
        text = self._text
        if block is None:
            return position, block
        last = text.rfind(END_THINK, position, block.start)
        if last >= 0:
            thoughts.append(text[position:last])
            position = last + len(END_THINK)
        for _ in range(_WALKS):
            end = self._thought_end(block.end)
            if (
                end < 0
                or self._find(THINK, block.end) < end
                or self._find(RESPONSE, block.end) < end
            ):
                break
            later = self._first_block(end + len(END_THINK))
            if later is None or not text[block.end : end].strip():
                break
            if text[end + len(END_THINK) : later.start].strip():
                break
            thoughts.append(text[position:end])
            position, block = end + len(END_THINK), later
        return position, block

    def _is_followed(self, block: Block) -> bool:
        """Whether a block of the other kind stands behind, outside of thoughts."""
        text, position = self._text, block.end
        stop = self._find(RESPONSE, position)
        for _ in range(_WALKS):
            other = self._first_block(position)
            if other is None or other.end > stop:
                return False
            thought = text.find(THINK, position, other.start)
            if thought >= 0:
                end = self._thought_end(thought)
                if end < 0:
                    return False
                position = end + len(END_THINK)
            elif other.opening != block.opening:
                return True
            else:
                position = other.end
        return False

    def _find(self, tag: str, start: int) -> int:
        """Where the tag stands next, else the text's end."""
        at = self._text.find(tag, start)
        return len(self._text) if at < 0 else at

    def _invented(self, start: int, stop: int) -> int:
        """Where an observation begins that the agent has invented, between blocks; or -1.

        It stands at the beginning of a line; a tag in a sentence is only mentioned.
        """
        text = self._text
        at = text.find(RESPONSE, start, stop)
        while at >= 0:
            line = max(start, text.rfind("\n", start, at) + 1)
            if not text[line:at].strip():
                return at
            start = at + len(RESPONSE)
            at = text.find(RESPONSE, start, stop)
        return -1

    def _thought_end(self, start: int) -> int:
        """Where the thought's ``</think>`` stands, or -1; one inside a call's JSON is quoted."""
        end = self._text.find(END_THINK, start)
        while end >= 0:
            over = self._call_over(start, end)
            if over is None:
                return end
            start = over
            end = self._text.find(END_THINK, start)
        return -1

    def _call_over(self, start: int, position: int) -> int | None:
        """Where a call ends that begins behind ``start`` and has ``position`` inside."""
        text, before = self._text, position
        for _ in range(4):
            at = text.rfind(CALL, start, before)
            if at < 0 or self._walks <= 0:
                return None
            inner = at + len(CALL)
            if _CALL_START.match(text, inner):
                self._walks -= 1
                end = find_call_end(text, inner)
                if end is not None and end > position and _is_call(text[inner:end]):
                    return end
            before = at
        return None

    def _answer_over(self, start: int, position: int) -> Block | None:
        """An answer that has ``position`` inside and ends the turn."""
        block = self._first(ANSWER, start)
        if block is None or not block.start < position < block.end:
            return None
        rest = self._text[block.end :].lstrip()
        return replace(block, certain=False) if not rest or rest.startswith(RESPONSE) else None

    def _first(self, opening: str, start: int) -> Block | None:
        """The first block of a kind; what was found before is not looked for again."""
        since, block = self._firsts.get(opening, (start + 1, None))
        if since <= start and (block is None or block.start >= start):
            return block
        find = self._first_call if opening == CALL else self._first_answer
        block = find(start)
        self._firsts[opening] = start, block
        return block

    def _first_block(self, start: int) -> Block | None:
        call, answer = self._first(CALL, start), self._first(ANSWER, start)
        if call is None or answer is None:
            return call or answer
        if call.start < answer.start:
            return call
        overlap = call.start < answer.end < call.end and call.certain
        return call if overlap else answer

    def _first_call(self, start: int) -> Block | None:
        """The first complete call; an opening tag before a sentence is only mentioned."""
        text = self._text
        plain: Block | None = None
        at = text.find(CALL, start)
        first = -1
        while at >= 0:
            inner = at + len(CALL)
            if first < inner:
                first = text.find(END_CALL, inner)
                if first < 0:
                    break
            if plain is None:
                plain = _block(text, CALL, at, first, END_CALL, False)
            if _CALL_START.match(text, inner):
                if self._walks <= 0:
                    return _block(text, CALL, at, first, END_CALL, False)
                self._walks -= 1
                end = find_call_end(text, inner)
                if end == first:
                    return _block(text, CALL, at, first, END_CALL, True)
                if end is not None and _is_call(text[inner:end]):
                    return _block(text, CALL, at, end, END_CALL, True)
                return _block(text, CALL, at, first, END_CALL, False)
            at = text.find(CALL, inner)
        return plain

    def _first_answer(self, start: int) -> Block | None:
        """The first complete answer, with the tags that it quotes."""
        text = self._text
        at = text.find(ANSWER, start)
        first = -1 if at < 0 else text.find(END_ANSWER, at + len(ANSWER))
        if first < 0:
            return None
        inner = at + len(ANSWER)
        if self._walks <= 0:
            return _block(text, ANSWER, at, first, END_ANSWER, False)
        if "`" not in text[inner:first] and ANSWER not in text[inner:first]:
            end, certain = first, True
        else:
            self._walks -= 1
            end, certain = self._answer_end(inner)
            if end < 0:
                end, certain = first, False
                line = max(start, text.rfind("\n", start, at) + 1)
                innermost = text.rfind(ANSWER, inner, first)
                if innermost >= 0 and text[line:at].strip():
                    at, inner = innermost, innermost + len(ANSWER)  # the first is a mention
        end = self._answer_goes_on(inner, end)
        return _block(text, ANSWER, at, end, END_ANSWER, certain)

    def _answer_end(self, inner: int) -> tuple[int, bool]:
        """Where the answer's closing tag stands, or -1, and whether nothing can change that.

        Tags in pairs, and tags in Markdown's code, are the answer's text.
        """
        text = self._text
        spans = list(code_spans(text, inner))
        number, quoted, depth = 0, 0, 1
        for tag in _ANSWER_TAG.finditer(text, inner):
            while number < len(spans) and spans[number][1] <= tag.start():
                quoted += text.count("`", *spans[number])
                number += 1
            if number < len(spans) and spans[number][0] < tag.start():
                continue
            depth += 1 if tag[0] == ANSWER else -1
            if depth == 0:
                return tag.start(), text.count("`", inner, tag.start()) == quoted
        return -1, False

    def _answer_goes_on(self, inner: int, end: int) -> int:
        """Past closing tags that the answer mentions: a sentence goes on to another one."""
        text = self._text
        while True:
            behind = end + len(END_ANSWER)
            tag = _ANY_TAG.search(text, behind)
            if tag is None or tag[0] != END_ANSWER:
                return end
            line = text[behind : tag.start()].partition("\n")[0]
            apart = text[end - 1] in _BEFORE_MENTION and line.strip()
            if text[inner:end].strip() and not apart:
                return end
            end = tag.start()


def _block(text: str, opening: str, at: int, end: int, closing: str, certain: bool) -> Block:
    return Block(opening, at, text[at + len(opening) : end], end + len(closing), certain)


def _is_call(inner: str) -> bool:
    return call_object(inner) is not None or code_call(inner) is not None
