"""One trajectory, written out for a person to read.

Control characters, which pages may hold, are written out and never sent to a terminal.
"""

from __future__ import annotations

from drv_env.printable import printable
from replay.trajectory import Trajectory, TurnRecord


def show(trajectory: Trajectory, most: int | None = 1_500) -> str:
    """The trajectory as plain text.

    Args:
        trajectory: from any source.
        most: characters shown of the system prompt and of each observation; None for all.
    """
    task = trajectory.task
    facts = [
        f"task {task.id}" + (f" in world {task.world}" if task.world else ""),
        f"{len(trajectory.turns)} turns",
        f"ending {trajectory.ending}",
        f"outcome {_number(trajectory.outcome)}",
    ]
    if trajectory.transcript is not None:
        facts.append(f"{len(trajectory.transcript):,} tokens")
    lines = [", ".join(facts)]
    if trajectory.error:
        lines.append(f"error: {trajectory.error}")
    lines.append(f"gold: {' | '.join(task.answers)}")
    if trajectory.provenance:
        lines.append("from: " + ", ".join(f"{k}={v}" for k, v in trajectory.provenance.items()))
    for message in trajectory.opening:
        limit = most if message["role"] == "system" else None
        lines += ["", f"[{message['role']}]", _cut(message["content"], limit)]
    for number, turn in enumerate(trajectory.turns, start=1):
        gain = trajectory.rewards[number - 1].information_gain
        lines += ["", f"[turn {number}: {_facts(turn, gain)}]", turn.text]
        if turn.observation is not None:
            lines += ["", f"[{turn.observation_kind}]", _cut(turn.observation, most)]
    if trajectory.answer is not None:
        lines += ["", f"answer: {trajectory.answer}"]
    return printable("\n".join(lines)) + "\n"


def _facts(turn: TurnRecord, gain: float | None) -> str:
    facts = [turn.action or f"no action ({turn.problem})"]
    if turn.tool_status is not None:
        facts.append(turn.tool_status)
    if turn.duplicate:
        facts.append("made before")
    if not turn.well_formed:
        facts.append("malformed")
    if turn.tokens is not None:
        facts.append(f"{turn.tokens:,} tokens")
    if turn.latency:
        facts.append(f"{turn.latency:.1f} s")
    if gain is not None:
        facts.append(f"gain {gain:+.3f}")
    return ", ".join(facts)


def _cut(text: str, most: int | None) -> str:
    if most is None or len(text) <= most:
        return text
    return f"{text[:most]}\n… {len(text) - most:,} more characters"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"
