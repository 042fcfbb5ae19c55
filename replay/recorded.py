"""Trajectories from recorded chat messages: other people's runs, and our own as text.

A recording is messages: an optional system message, the question, then assistant turns,
each followed by a user message with the observation; the last may have none.  Texts are
taken byte for byte.  Turns are read by :func:`drv_env.protocol.read_turn` under
:func:`reading_rule`; how a call went is judged by its observation
(:mod:`replay.observations`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from drv_env.call_keys import call_key
from drv_env.episode import Ending, Message, ObservationKind, forced_ending
from drv_env.errors import TaskDataError
from drv_env.protocol import (
    END_RESPONSE,
    END_THINK,
    RESPONSE,
    THINK,
    UNUSABLE_ARGUMENTS,
    Answer,
    Problem,
    Reading,
    ReadingRule,
    Search,
    ToolCall,
    Visit,
    format_verdict,
    observation_body,
    read_turn,
    render_observation,
)
from drv_env.rewards.records import TurnReward
from drv_env.tasks import Task
from replay.observations import (
    asked_budget,
    asks_to_answer,
    is_of_its_tool,
    leaves_thought_out,
    own_words,
    status_of,
)
from replay.trajectory import Trajectory, TurnRecord

NO_GOLD = "(no gold answer was recorded)"
"""Stands for the gold answer of a recording that came without one."""


def from_messages(
    messages: Sequence[Mapping[str, Any]],
    answers: Sequence[str] = (),
    *,
    world: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> Trajectory:
    """The trajectory of recorded messages; it has no transcript, latency, cost or outcome.

    An observation is the text inside ``<tool_response>``; a message that lacks the tags is
    an observation as a whole.  The line break next to a tag belongs to the tag.

    Args:
        messages: ``role`` and ``content``.
        answers: gold answers, or none: then the task's is :data:`NO_GOLD`.
        world: of the task.
        metadata: of the task.
        provenance: where the recording comes from.

    Raises:
        TaskDataError: when the roles don't follow each other as above, or a content is
            no text.

    Example:
        >>> trajectory = from_messages([
        ...     {"role": "user", "content": "Capital of France?"},
        ...     {"role": "assistant", "content": "<think>Known.</think><answer>Paris</answer>"},
        ... ])
        >>> trajectory.ending, trajectory.answer
        (<Ending.ANSWERED: 'answered'>, 'Paris')
    """
    opening, rest = _checked(messages)
    said = [
        (
            rest[start]["content"],
            body_of(rest[start + 1]["content"]) if start + 1 < len(rest) else None,
        )
        for start in range(0, len(rest), 2)
    ]
    rule = reading_rule(said)
    turns: list[TurnRecord] = []
    seen: set[tuple[object, ...]] = set()
    for text, observation in said:
        turns.append(_turn(text, observation, len(turns) + 1 == len(said), seen, rule))
    final = read_turn(turns[-1].text, rule).action if turns else None
    answer = final.text.strip() if isinstance(final, Answer) else None
    return Trajectory(
        task=Task(
            opening[-1]["content"],
            tuple(answers) or (NO_GOLD,),
            world=world,
            metadata=dict(metadata or {}),
        ),
        opening=tuple(opening),
        turns=tuple(turns),
        rewards=tuple(TurnReward(None, turn.well_formed, None) for turn in turns),
        ending=_ending(turns, answer),
        answer=answer,
        provenance=dict(provenance or {}),
    )


def to_messages(trajectory: Trajectory) -> list[Message]:
    """The trajectory as chat messages: the inverse of :func:`from_messages`."""
    messages = [dict(message) for message in trajectory.opening]
    for turn in trajectory.turns:
        messages.append({"role": "assistant", "content": turn.text})
        if turn.observation is not None:
            content = render_observation(turn.observation)
            messages.append({"role": "user", "content": content})
    return messages


def body_of(content: str) -> str:
    """The observation in a user message, with tags or without.

    Example:
        >>> body_of("<tool_response>\\nx\\n</tool_response>"), body_of("x")
        ('x', 'x')
    """
    try:
        return observation_body(content)
    except ValueError:
        inner = content.strip()
        if not (inner.startswith(RESPONSE) and inner.endswith(END_RESPONSE)):
            return content
        inner = inner[len(RESPONSE) : -len(END_RESPONSE)]
        return inner.removeprefix("\n").removesuffix("\n")


def reading_rule(turns: Iterable[tuple[str, str | None]]) -> ReadingRule:
    """How a recording's turns are read: by whether its model needed to think in tags.

    Args:
        turns: texts with their observations.  No thought is needed where a turn without one
            was carried out or taken for the answer, or where the environment says so; nor
            where no turn has a thought's tag and nobody asked for one.
    """
    thinks = asked = False
    for text, observation in turns:
        if observation is not None and leaves_thought_out(observation):
            return "thought_optional"
        own = None if observation is None else own_words(observation)
        if own is None and not (asked and observation is None):
            bare = read_turn(text).problem is Problem.NO_THOUGHT
            if bare and read_turn(text, "thought_optional").action is not None:
                return "thought_optional"
        asked = own is ObservationKind.BUDGET
        complained = own in (ObservationKind.MALFORMED, ObservationKind.BUDGET)
        thinks = thinks or complained or THINK in text or END_THINK in text
    return "default" if thinks else "thought_optional"


def rule_of(trajectory: Trajectory) -> ReadingRule:
    """:func:`reading_rule` of a trajectory."""
    return reading_rule((turn.text, turn.observation) for turn in trajectory.turns)


def recording_id(trajectory: Trajectory) -> str:
    """Names a recording by what it says: the same in every file and order.

    Of the world, the opening and every turn with its observation; 16 hexadecimal digits.
    """
    digest = hashlib.sha256((trajectory.task.world or "").encode("utf-8", "surrogatepass"))
    for message in to_messages(trajectory):
        text = f"\x00{message['role']}\x00{message['content']}"
        digest.update(text.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]


def calls_of(
    trajectory: Trajectory,
) -> Iterator[tuple[int, Search | Visit | ToolCall, TurnRecord]]:
    """Every tool interaction: the turn's number from 1, the call, and the turn.

    Turns without an observation, and those that the environment itself answered, are left
    out.
    """
    rule = rule_of(trajectory)
    for number, turn in enumerate(trajectory.turns, start=1):
        action = read_turn(turn.text, rule).action
        if action is None or isinstance(action, Answer) or turn.observation is None:
            continue
        if turn.observation_kind in (None, ObservationKind.RESULT):
            yield number, action, turn


def asked_for_answer(
    turns: Sequence[TurnRecord], calls: Sequence[tuple[int, Search | Visit | ToolCall, TurnRecord]]
) -> int | None:
    """The turn, from 1, whose observation is taken for a request to answer in foreign words.

    It stands right before the answer, and has no form in which its tool's results are known.
    Where other results of the recording have one, that will do; where its tools write in a
    form of their own, the text has to be short and to speak of answering.

    Args:
        turns: of a recording.
        calls: what :func:`calls_of` finds in it.
    """
    if not calls or calls[-1][0] != len(turns) - 1 or turns[-1].action != "answer":
        return None
    number, action, turn = calls[-1]
    text = turn.observation or ""
    if is_of_its_tool(action, text):
        return None
    known = any(
        isinstance(action, Search | Visit) and is_of_its_tool(action, turn.observation or "")
        for _, action, turn in calls
    )
    return number if known or asks_to_answer(text) else None


def _checked(messages: Sequence[Mapping[str, Any]]) -> tuple[list[Message], list[Message]]:
    """The opening and what follows it, as plain messages."""
    plain: list[Message] = []
    for number, message in enumerate(messages):
        role, content = message.get("role"), message.get("content")
        if not isinstance(role, str) or not isinstance(content, str):
            raise TaskDataError(f"message {number} has no role and text: {message!r:.200}")
        plain.append({"role": role, "content": content})
    first = 2 if plain and plain[0]["role"] == "system" else 1
    wanted = ["system", "user"][2 - first :]
    wanted += ["user" if number % 2 else "assistant" for number in range(len(plain) - first)]
    for number, (message, role) in enumerate(zip(plain, wanted, strict=False)):
        if message["role"] != role:
            raise TaskDataError(
                f"message {number} is of role {message['role']!r}, expected {role!r}: a recording "
                "is an optional system message, the question, then turns and observations in turn"
            )
    if len(plain) <= first:
        raise TaskDataError(f"a recording needs a question and a turn, got {len(plain)} messages")
    if not plain[first - 1]["content"].strip():
        raise TaskDataError("the question of the recording is blank")
    return plain[:first], plain[first:]


def _turn(
    text: str,
    observation: str | None,
    last: bool,
    seen: set[tuple[object, ...]],
    rule: ReadingRule,
) -> TurnRecord:
    reading = read_turn(text, rule)
    final = isinstance(reading.action, Answer) or (last and observation is None)
    record: dict[str, Any] = {
        "text": text,
        "thought": reading.thought,
        "action": _name(reading),
        "problem": None if reading.problem is None else str(reading.problem),
        "well_formed": format_verdict(text, final, rule),
        "observation": observation,
    }
    action = reading.action
    if observation is None:
        return TurnRecord(**record)
    kind = own_words(observation)
    if isinstance(action, Search | Visit | ToolCall) and kind is None:
        key = call_key(action)
        record |= {
            "tool": action.name if isinstance(action, ToolCall) else _name(reading),
            "tool_status": str(status_of(action, observation)),
            "duplicate": key in seen,
        }
        seen.add(key)
        kind = ObservationKind.RESULT
    elif kind is None:
        unusable = reading.problem in UNUSABLE_ARGUMENTS
        kind = ObservationKind.REFUSED if unusable else ObservationKind.MALFORMED
    return TurnRecord(**record, observation_kind=str(kind))


def _name(reading: Reading) -> str | None:
    if isinstance(reading.written, Answer):
        return "answer"
    return None if reading.written is None else reading.written.name


def _ending(turns: Sequence[TurnRecord], answer: str | None) -> Ending:
    before = turns[-2].observation if len(turns) > 1 else None
    budget = None if before is None else asked_budget(before)
    if budget is not None:
        return forced_ending(budget, answer is not None)
    return Ending.NO_ANSWER if answer is None else Ending.ANSWERED
