"""Trajectories as JSON lines, as ShareGPT, or again as Parquet."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from drv_env.errors import SettingError
from replay.recorded import NO_GOLD, to_messages
from replay.store import write_trajectories
from replay.trajectory import Trajectory

Format = Literal["jsonl", "sharegpt", "parquet"]
FORMATS = ("jsonl", "sharegpt", "parquet")

_SPEAKERS = {"user": "human", "assistant": "gpt", "system": "system"}


def convert(trajectories: Iterable[Trajectory], out: str | Path, form: Format) -> int:
    """Write trajectories to a file in another form, whole or not at all.

    Args:
        trajectories: streamed.
        out: the file; an existing one is replaced when all is written.
        form: ``jsonl`` (an object a line, see :func:`as_chat`), ``sharegpt`` (the same
            lines in ShareGPT's form, see :func:`as_sharegpt`), or ``parquet``
            (:data:`replay.schema.SCHEMA`).  A file that ends in ``.json`` gets one JSON
            list in place of lines.

    Returns:
        How many were written.

    Raises:
        SettingError: for another form.
    """
    if form not in FORMATS:
        raise SettingError(f"the form must be one of {', '.join(FORMATS)}, got {form!r}")
    if form == "parquet":
        return write_trajectories(out, trajectories)
    written = as_chat if form == "jsonl" else as_sharegpt
    path = Path(out)
    path.parent.mkdir(parents=True, exist_ok=True)
    as_list = path.suffix == ".json"
    first, before, after = ("[\n", ",\n", "") if as_list else ("", "", "\n")
    last, empty = ("\n]\n", "[]\n") if as_list else ("", "")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    count = 0
    try:
        with temporary.open("w", encoding="utf-8", errors="replace", newline="\n") as file:
            for trajectory in trajectories:
                text = json.dumps(written(trajectory), ensure_ascii=False)
                file.write(f"{before if count else first}{text}{after}")
                count += 1
            file.write(last if count else empty)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return count


def as_chat(trajectory: Trajectory) -> dict[str, Any]:
    """``question``, ``answers`` (gold), ``messages``, ``ending``, ``outcome``, and the rest.

    Also ``task_id``, ``world``, ``final_answer`` (the agent's), ``provenance``, and one entry a
    turn in ``turns``: ``tool``, ``tool_status``, ``well_formed``, ``information_gain``,
    ``latency``, ``cost``.
    """
    task = trajectory.task
    return {
        "question": task.question,
        "answers": _gold(trajectory),
        "messages": to_messages(trajectory),
        "ending": str(trajectory.ending),
        "outcome": trajectory.outcome,
        "final_answer": trajectory.answer,
        "task_id": task.id,
        "world": task.world,
        "turns": [
            {
                "tool": turn.tool,
                "tool_status": turn.tool_status,
                "well_formed": turn.well_formed,
                "information_gain": reward.information_gain,
                "latency": turn.latency,
                "cost": turn.cost,
            }
            for turn, reward in zip(trajectory.turns, trajectory.rewards, strict=True)
        ],
        "provenance": dict(trajectory.provenance),
    }


def as_sharegpt(trajectory: Trajectory) -> dict[str, Any]:
    """``conversations`` of ``from`` (human, gpt, system) and ``value``; ``gt`` where known."""
    found: dict[str, Any] = {
        "conversations": [
            {"from": _SPEAKERS.get(message["role"], message["role"]), "value": message["content"]}
            for message in to_messages(trajectory)
        ]
    }
    gold = _gold(trajectory)
    return found | ({"gt": gold[0]} if gold else {})


def _gold(trajectory: Trajectory) -> list[str]:
    return [answer for answer in trajectory.task.answers if answer != NO_GOLD]
