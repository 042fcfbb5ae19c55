"""Cleaning one recorded trajectory: aligned, pruned, without repeats, validated.

A pure function of one row, :func:`clean_row`: what comes out is a :class:`Cleaned` row or a
:class:`~replay.layouts.Drop` with one reason of a closed set.  Rows as the release (DR-Venus,
master at 60131410) knows them, one call a turn, come out as they do there:

0. a turn that calls several tools at once becomes turns of one call each;
1. align: the first message is the question as it is; the last one the final turn; between
   them assistant messages that can't be read are left out, with the responses after them;
2. prune: turns that call a tool outside ``tools`` go, with the responses after them;
3. repeats: a turn whose call was made before goes, with its response;
4. validate: a row that had results has a call left, user and assistant alternate, the question
   holds no tool response, calls come before the last turn and the answer in it.

How one message is aligned is in :mod:`replay.align`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from drv_env.errors import SettingError
from drv_env.protocol import ANSWER, CALL, RESPONSE
from drv_env.settings import at_least, check_fields
from drv_env.unicode_text import canonical_text, sound_text
from drv_env.urls import canonical_url
from replay.align import (
    Calls,
    FinalTurn,
    Results,
    Tags,
    Thoughts,
    ToolTurn,
    calls_a_tool,
    final_turn,
    holds_turns,
    observation,
    tool_turn,
)
from replay.call_pairs import one_call_a_turn
from replay.raw_trajectory import Drop, Message, RawTrajectory, Reason

Repeats = Literal["released", "same_goal", "keep"]


@dataclass(frozen=True, slots=True)
class CleanRules:
    """How rows are cleaned; the defaults are the release's but for ``calls``.

    Attributes:
        tools: names of the tools that the deployment has.
        tags: where calls and answers are looked for; see :mod:`replay.align`.
        results: which observations are pages of search results; see there.
        repeats: ``"released"`` takes a visit for a repeat when its urls are those of an
            earlier one; ``"same_goal"`` only when its goal is the same too, in whatever
            spelling of both; ``"keep"`` removes no repeats.
        longest_message: characters of a message; a row with a longer one is dropped.
        calls: ``"all"`` keeps every call of a turn, each with its own result behind it, and
            drops a row that had results but of whose calls none could be kept; ``"released"``
            keeps a turn's first call with whatever came back, and such rows.
        thoughts: whether a turn needs a thought; see :mod:`replay.align`.

    Raises:
        SettingError: for a value that can't work.
    """

    tools: tuple[str, ...] = ("search", "visit")
    tags: Tags = "released"
    results: Results = "released"
    repeats: Repeats = "released"
    longest_message: int = 1_000_000
    calls: Calls = "all"
    thoughts: Thoughts = "required"

    def __post_init__(self) -> None:
        check_fields(self, longest_message=at_least(1))
        if not self.tools:
            raise SettingError("tools must name at least one tool", setting="tools")


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A row worth keeping.

    Attributes:
        raw: the row it was made from.
        messages: the question, then turns and responses; no system message.
        answer: the final answer.
        pruned: calls removed because the deployment lacks the tool, by tool.
        repeated: calls removed as repeats, by tool.
        unread: assistant messages left out because no thought or call could be read.
        met: assistant messages before the last that were looked at.
    """

    raw: RawTrajectory
    messages: tuple[Message, ...]
    answer: str
    pruned: Counter[str] = field(default_factory=Counter)
    repeated: Counter[str] = field(default_factory=Counter)
    unread: int = 0
    met: int = 0

    @property
    def turns(self) -> int:
        """Turns as the release counts them: (messages with the system message − 1) // 2."""
        return len(self.messages) // 2


def clean_row(raw: RawTrajectory, rules: CleanRules | None = None) -> Cleaned | Drop:
    """Clean one trajectory.

    Takes time linear in its text, and never raises.
    """
    rules = CleanRules() if rules is None else rules
    for number, message in enumerate(raw.messages):
        if len(message["content"]) > rules.longest_message:
            found = f"message {number} has {len(message['content']):,} characters"
            return Drop(Reason.MESSAGE_TOO_LONG, found)
    recorded: Sequence[Message] = raw.messages
    if rules.calls == "all":
        paired = one_call_a_turn(recorded)
        if isinstance(paired, Drop):
            return paired
        recorded = paired
    first, last = recorded[0], recorded[-1]
    if first["role"] != "user":
        return Drop(Reason.ROLES_OUT_OF_ORDER, f"the first message's role is {first['role']!r:.40}")
    if last["role"] != "assistant":
        return Drop(Reason.LAST_NOT_ASSISTANT, f"its role is {last['role']!r:.40}")
    final = final_turn(last["content"], rules.tags, rules.thoughts)
    if final == "no_thought":
        return Drop(Reason.LAST_WITHOUT_THOUGHT)
    if final == "no_answer":
        return Drop(Reason.LAST_WITHOUT_ANSWER)
    assert isinstance(final, FinalTurn)
    if rules.calls == "all" and holds_turns(last["content"]):
        return Drop(Reason.CALLS_LOST, "the last message holds several turns in tags unknown here")
    if rules.calls == "all" and calls_a_tool(last["content"], rules.thoughts):
        return Drop(Reason.CALL_AND_ANSWER, "the last message calls a tool and answers")
    aligned = _aligned(recorded, rules)
    if isinstance(aligned, Drop):
        return aligned
    pruned: Counter[str] = Counter()
    repeated: Counter[str] = Counter()
    steps = _without_repeats(_pruned(aligned.steps, rules, pruned), rules, repeated)
    if rules.calls == "all" and aligned.results and not steps:
        return aligned.lost(pruned)
    messages = [
        {"role": "user", "content": sound_text(first["content"])},
        *(_message(step) for step in steps),
        {"role": "assistant", "content": sound_text(final.text)},
    ]
    fault = _fault(messages)
    if fault is not None:
        return fault
    unread = aligned.unread.total()
    return Cleaned(
        raw, tuple(messages), sound_text(final.answer), pruned, repeated, unread, aligned.met
    )


_Step = ToolTurn | str
"""A turn, or the text of a response."""

_LACKS = {
    "no_thought": "without a thought (--thoughts optional keeps such turns)",
    "no_call": "without a call that can be read",
}


@dataclass(slots=True)
class _Aligned:
    """What stands between the question and the final turn.

    Attributes:
        steps: turns and responses.
        met: assistant messages.
        results: user messages.
        unread: assistant messages left out, by what they lack.
    """

    steps: list[_Step] = field(default_factory=list)
    met: int = 0
    results: int = 0
    unread: Counter[str] = field(default_factory=Counter)

    def lost(self, pruned: Counter[str]) -> Drop:
        """The row, of whose calls none is left."""
        told = [f"{count} turns {_LACKS[lack]}" for lack, count in self.unread.items()]
        told += [
            f"{count} calls of {tool}, which --tools doesn't name" for tool, count in pruned.items()
        ]
        detail = f"{self.results} results; {', '.join(told) or 'no turn before them'}"
        return Drop(Reason.CALLS_LOST, detail, self.met, self.unread.total())


def _aligned(recorded: Sequence[Message], rules: CleanRules) -> _Aligned | Drop:
    """Turns and responses between the question and the final turn."""
    found = _Aligned()
    for number, message in enumerate(recorded[1:-1], start=1):
        role, content = message["role"], message["content"]
        if role == "assistant":
            found.met += 1
            turn = tool_turn(content, rules.tags, rules.thoughts, rules.calls)
            if isinstance(turn, ToolTurn):
                found.steps.append(turn)
            elif rules.calls == "all" and turn == "no_call" and _answers(content, rules):
                return Drop(Reason.ROLES_OUT_OF_ORDER, f"message {number} answers before the last")
            else:
                found.unread[turn] += 1
        elif role == "user":
            found.results += 1
            before = found.steps[-1] if found.steps else None
            if isinstance(before, ToolTurn):
                found.steps.append(observation(content, before.tool, rules.results))
        else:
            return Drop(Reason.UNKNOWN_ROLE, f"message {number}: {role!r:.40}")
    return found


def _answers(content: str, rules: CleanRules) -> bool:
    return isinstance(final_turn(content, rules.tags, rules.thoughts), FinalTurn)


def _pruned(steps: list[_Step], rules: CleanRules, removed: Counter[str]) -> list[_Step]:
    kept: list[_Step] = []
    keeping = True
    for step in steps:
        if isinstance(step, ToolTurn):
            keeping = step.tool in rules.tools
            if not keeping:
                removed[step.tool] += 1
        if keeping:
            kept.append(step)
    return kept


def _repeat_key(step: ToolTurn, rules: CleanRules) -> Hashable:
    """What makes a turn's call a repeat; in the released way, texts count as they are written."""
    if rules.repeats == "released":
        return step.tool, step.call
    call = step.call
    if isinstance(call, frozenset):
        call = frozenset(map(canonical_url if step.tool == "visit" else canonical_text, call))
    return step.tool, call, canonical_text(step.goal)


def _without_repeats(steps: list[_Step], rules: CleanRules, removed: Counter[str]) -> list[_Step]:
    if rules.repeats == "keep":
        return steps
    kept: list[_Step] = []
    seen = set()
    keeping = True
    for step in steps:
        if isinstance(step, ToolTurn):
            key = _repeat_key(step, rules)
            keeping = key not in seen
            if not keeping:
                removed[step.tool] += 1
            seen.add(key)
        if keeping:
            kept.append(step)
    return kept


def _message(step: _Step) -> Message:
    if isinstance(step, ToolTurn):
        return {"role": "assistant", "content": sound_text(step.text)}
    return {"role": "user", "content": sound_text(step)}


def _fault(messages: list[Message]) -> Drop | None:
    """What is wrong with the aligned messages; thoughts, calls and responses are there."""
    for number, message in enumerate(messages):
        if message["role"] != ("assistant" if number % 2 else "user"):
            return Drop(Reason.ROLES_OUT_OF_ORDER, f"at message {number} of the cleaned ones")
    if len(messages) % 2:
        return Drop(Reason.ROLES_OUT_OF_ORDER, "a turn has no response")
    if RESPONSE in messages[0]["content"]:
        return Drop(Reason.RESPONSE_IN_QUESTION)
    for number, message in enumerate(messages[1::2]):
        forbidden = CALL if number == len(messages) // 2 - 1 else ANSWER
        if forbidden in message["content"]:
            return Drop(Reason.CALL_AND_ANSWER, f"turn {number + 1} mentions {forbidden}")
    return None
