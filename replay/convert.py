"""Trajectories as JSON lines, as ShareGPT, or again as Parquet."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from drv_env.errors import SettingError
from drv_env.whole_files import output
from replay.recorded import NO_GOLD, to_messages
from replay.store import fill_trajectories
from replay.trajectory import Trajectory

Format = Literal["jsonl", "sharegpt", "parquet"]
FORMATS = ("jsonl", "sharegpt", "parquet")
_PARQUET = (".parquet", ".pq")
_JSON = (".jsonl", ".ndjson", ".json")
_ENDS = {"jsonl": _JSON, "sharegpt": _JSON, "parquet": _PARQUET}
"""How a file of each form may end, so that it can be read again."""

_SOURCE = {"file", "row"}
_CARRIED = {"request_id", "weight"}
"""Provenance that has a place of its own in a chat row, where it is read from again."""
_SPEAKERS = {"user": "human", "assistant": "gpt", "system": "system"}


def form_of(out: str | Path) -> Format:
    """The form that a file's name asks for: Parquet, or JSON lines of messages.

    Raises:
        SettingError: for a name that ends in nothing known.
    """
    suffix = Path(out).suffix.lower()
    if suffix not in (*_JSON, *_PARQUET):
        raise SettingError(f"{out}: name a file that ends in {', '.join((*_JSON, *_PARQUET))}")
    return "parquet" if suffix in _PARQUET else "jsonl"


def check_end(out: str | Path, form: Format) -> None:
    """Refuse a name as which nobody could read the form again.

    Raises:
        SettingError: naming the ends that may be.
    """
    if Path(out).suffix.lower() not in _ENDS[form]:
        raise SettingError(f"{out}: of {form} name a file that ends in {', '.join(_ENDS[form])}")


def convert(
    trajectories: Iterable[Trajectory],
    out: str | Path,
    form: Format,
    lost: Counter[str] | None = None,
    replace: bool = True,
) -> int:
    """Write trajectories to a file in another form, whole or not at all.

    Args:
        trajectories: streamed.
        out: the file; a regular one.
        form: ``jsonl`` (an object a line, see :func:`as_chat`), ``sharegpt`` (the same
            lines in ShareGPT's form, see :func:`as_sharegpt`), or ``parquet``
            (:data:`replay.schema.SCHEMA`).  A file that ends in ``.json`` gets one JSON
            list in place of lines.
        lost: counts the trajectories that had something the form has no place for, by
            what it was; see :func:`left_out`.
        replace: an existing file is replaced when all is written; otherwise it stays.

    Returns:
        How many were written.

    Raises:
        SettingError: for another form, a name of another ending, or an existing file that may
            not be replaced.
        DiskError: when the file can't be written.
    """
    if form not in FORMATS:
        raise SettingError(f"the form must be one of {', '.join(FORMATS)}, got {form!r}")
    check_end(out, form)
    if form == "parquet":
        with output(out, replace) as temporary:
            return fill_trajectories(temporary, trajectories)
    written = as_chat if form == "jsonl" else as_sharegpt
    path = Path(out)
    as_list = path.suffix.lower() == ".json"
    first, before, after = ("[\n", ",\n", "") if as_list else ("", "", "\n")
    last, empty = ("\n]\n", "[]\n") if as_list else ("", "")
    count = 0
    lost = Counter() if lost is None else lost
    with (
        output(path, replace) as temporary,
        temporary.open("w", encoding="utf-8", errors="replace", newline="\n") as file,
    ):
        for trajectory in trajectories:
            text = json.dumps(written(trajectory), ensure_ascii=False)
            file.write(f"{before if count else first}{text}{after}")
            count += 1
            lost.update(left_out(trajectory, form))
        file.write(last if count else empty)
    return count


def left_out(trajectory: Trajectory, form: Format) -> list[str]:
    """What this trajectory has and the form has no place for, in words."""
    if form == "parquet":
        return []
    task, turns, rewards = trajectory.task, trajectory.turns, trajectory.rewards
    there = {
        "tokens and log-probs": trajectory.transcript is not None,
        "task metadata": bool(task.metadata),
        "reasons of breaking": trajectory.error is not None,
    }
    if form == "sharegpt":
        there |= {
            "outcomes": any(reward.outcome is not None for reward in rewards),
            "information gains": any(reward.information_gain is not None for reward in rewards),
            "latencies": any(turn.latency for turn in turns),
            "costs": any(turn.cost for turn in turns),
            "gold answers but the first": len(_gold(trajectory)) > 1,
            "provenance": bool(trajectory.provenance.keys() - _SOURCE - _CARRIED),
        }
    return [name for name, found in there.items() if found]


def as_chat(trajectory: Trajectory) -> dict[str, Any]:
    """``question``, ``answers`` (gold), ``messages``, ``ending``, ``outcome``, and the rest.

    Also ``task_id``, ``world``, ``final_answer`` (the agent's), ``provenance``, ``request_id`` and
    ``weight`` where they are known, and one entry a turn in ``turns``: ``tool``, ``tool_status``,
    ``well_formed``, ``information_gain``, ``latency``, ``cost``.
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
    } | _carried(trajectory)


def as_sharegpt(trajectory: Trajectory) -> dict[str, Any]:
    """``conversations`` of ``from`` (human, gpt, system) and ``value``.

    Also ``gt``, ``world``, ``request_id`` and ``weight`` where they are known.
    """
    found: dict[str, Any] = {
        "conversations": [
            {"from": _SPEAKERS.get(message["role"], message["role"]), "value": message["content"]}
            for message in to_messages(trajectory)
        ]
    }
    gold = _gold(trajectory)
    world = trajectory.task.world
    found |= {"gt": gold[0]} if gold else {}
    found |= {} if world is None else {"world": world}
    return found | _carried(trajectory)


def _carried(trajectory: Trajectory) -> dict[str, Any]:
    return {
        name: trajectory.provenance[name] for name in sorted(_CARRIED & {*trajectory.provenance})
    }


def _gold(trajectory: Trajectory) -> list[str]:
    return [answer for answer in trajectory.task.answers if answer != NO_GOLD]
