"""What a chat template writes around messages, found by rendering probe conversations.

Knows text only.  The probes have the shape of an episode: an optional system message, a
question, then assistant turns with a thought and a reply, each followed by a user
message inside ``<tool_response>``.  Their contents are marks that are searched in the
rendered text; what stands between marks is the template's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from drv_env.errors import SettingError
from drv_env.protocol import END_RESPONSE, END_THINK, RESPONSE, THINK, thought_block

Render = Callable[..., str]
"""``render(messages, generate=True)``: messages to text, with a generation prompt or not."""

_LENGTHS = (1, 2, 3, 5)
_ADVICE = (
    "nothing could be appended to its text; use a template that keeps earlier turns as they "
    "were, such as replay.chat_templates.QWEN3_THINKING or CHATML, by passing chat_template="
)


@dataclass(frozen=True, slots=True)
class Scaffold:
    """The template's text around one turn.

    Attributes:
        closing: what stands behind an assistant's reply when nothing follows it.
        turn_end: from an assistant's reply to the next user message's content.
        turn_start: from a user message's content to where the assistant's turn begins:
            the generation prompt.
        generation_prefix: the part of ``turn_start`` that already belongs to the
            assistant's message.
        opens_think: whether that part leaves a ``<think>`` open.
    """

    closing: str
    turn_end: str
    turn_start: str
    generation_prefix: str
    opens_think: bool


def locate(text: str, marks: Sequence[str]) -> list[str] | str:
    """The texts before, between and after marks; or a mark that isn't there once, in order."""
    parts, position = [], 0
    for mark in marks:
        at = text.find(mark, position)
        if at < 0 or text.count(mark) != 1:
            return mark
        parts.append(text[position:at])
        position = at + len(mark)
    return [*parts, text[position:]]


def learn_scaffold(render: Render, name: str) -> Scaffold:
    """Learn the scaffold and check that it is the same in every conversation.

    Args:
        render: the template.
        name: what error messages call it.

    Raises:
        SettingError: when the template isn't append-only or can't be rendered.
    """
    try:
        render(_probe(0, with_system=True)[0])
        systems = [False, True]
    except SettingError:
        systems = [False]  # some templates have no system role
    shapes = {_shape(render, name, turns, system) for turns in _LENGTHS for system in systems}
    if len(shapes) != 1:
        raise SettingError(
            f"{name} is not append-only: what it writes around a turn depends on how many turns "
            f"there are, or on a system message; {_ADVICE}"
        )
    thought_start, turn_end, turn_start = shapes.pop()
    header = thought_start[: thought_start.rfind(THINK)]
    if not turn_start.startswith(header):
        raise SettingError(
            f"{name} is not append-only: it opens a turn to be generated with {turn_start!r}, but "
            f"writes {header!r} in front of a past one; {_ADVICE}"
        )
    prefix = turn_start[len(header) :]
    messages, marks = _probe(1, with_system=False)
    closing = render(messages[:-1], generate=False).partition(marks[-2])[2]
    opens_think = prefix.rfind(THINK) > prefix.rfind(END_THINK)
    return Scaffold(closing, turn_end, turn_start, prefix, opens_think)


def _shape(render: Render, name: str, turns: int, with_system: bool) -> tuple[str, str, str]:
    """(text from a user message to a past thought, reply to user message, generation prompt)."""

    def refuse(what: str) -> SettingError:
        return SettingError(
            f"{name} is not append-only: in a conversation of {turns} turns it {what}; {_ADVICE}"
        )

    messages, marks = _probe(turns, with_system)
    parts = locate(render(messages), marks)
    if isinstance(parts, str):
        kind = "thought" if parts.startswith("Thought") else "text"
        raise refuse(f"drops, moves or rewrites the {kind} {parts.splitlines()[0]!r}")
    parts = parts[1 + with_system :]
    starts, inners, ends = parts[0::3], parts[1::3], parts[2::3]
    opening, closing = f"{RESPONSE}\n", f"\n{END_RESPONSE}"
    if not all(start.startswith(closing) for start in starts[1:]) or not all(
        end.endswith(opening) for end in ends
    ):
        raise refuse(f"takes {RESPONSE} off an observation")
    starts = [starts[0], *(start.removeprefix(closing) for start in starts[1:])]
    turn_start = starts.pop()
    if any(THINK not in start for start in starts) or any(END_THINK not in i for i in inners):
        raise refuse(f"takes {THINK} or {END_THINK} off an earlier turn")
    if len(set(starts)) > 1 or len(set(inners)) > 1 or len(set(ends)) > 1:
        raise refuse("does not write the same text around every turn")
    question, question_marks = _probe(0, with_system)
    first = locate(render(question), question_marks)
    if isinstance(first, str) or first[-1] != turn_start:
        raise refuse("asks for the first turn differently from the others")
    return starts[0], ends[0].removesuffix(opening), turn_start


def _probe(turns: int, with_system: bool) -> tuple[list[dict[str, str]], list[str]]:
    """Messages, and the marks in them in order."""
    messages, marks = [], []
    if with_system:
        marks.append(_mark("System", 0))
        messages.append({"role": "system", "content": marks[-1]})
    marks.append(_mark("Question", 0))
    messages.append({"role": "user", "content": marks[-1]})
    for turn in range(1, turns + 1):
        thought, reply, seen = (_mark(kind, turn) for kind in ("Thought", "Reply", "Seen"))
        content = f"{thought_block(thought)}\n{reply}"
        messages.append({"role": "assistant", "content": content})
        messages.append({"role": "user", "content": f"{RESPONSE}\n{seen}\n{END_RESPONSE}"})
        marks += [thought, reply, seen]
    return messages, marks


def _mark(kind: str, turn: int) -> str:
    """A text that a template which alters texts would alter."""
    return f"{kind}{turn} é <i> & \"q\" 'q'\n\n  end of {kind}{turn}"
