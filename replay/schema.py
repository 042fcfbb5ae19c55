"""The columns of a trajectory file, and a trajectory as one row of them.

Knows no files.  Metadata columns hold JSON text.  ``ending``, ``outcome``, ``world`` and
``turn_count`` stand beside the nested turns, so that readers can filter by them without
reading the rest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from drv_env.episode import Ending
from drv_env.rewards.records import TurnReward
from drv_env.tasks import Task
from replay.trajectory import Trajectory, TurnRecord
from replay.transcript import Transcript

SCHEMA_VERSION = 3
"""Written to every file.  Version 1 lacks ``outcome`` and ``turn_count`` as columns; 1 and 2
lack a transcript's ``attempts``, ``seconds`` and ``reencoded``."""

READABLE_VERSIONS = (1, 2, 3)

_MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string())])
_TURN = pa.struct(
    [
        ("text", pa.string()),
        ("thought", pa.string()),
        ("action", pa.string()),
        ("problem", pa.string()),
        ("well_formed", pa.bool_()),
        ("tool", pa.string()),
        ("tool_status", pa.string()),
        ("latency", pa.float64()),
        ("cost", pa.float64()),
        ("duplicate", pa.bool_()),
        ("observation", pa.string()),
        ("observation_kind", pa.string()),
        ("tokens", pa.int32()),
        ("information_gain", pa.float64()),
        ("outcome", pa.float64()),
    ]
)
_TRANSCRIPT = pa.struct(
    [
        ("ids", pa.list_(pa.int32())),
        ("span_kinds", pa.list_(pa.string())),
        ("span_starts", pa.list_(pa.int32())),
        ("span_stops", pa.list_(pa.int32())),
        ("log_probs", pa.list_(pa.list_(pa.float32()))),
        ("weight_versions", pa.list_(pa.int64())),
        ("finishes", pa.list_(pa.string())),
        ("attempts", pa.list_(pa.int32())),
        ("seconds", pa.list_(pa.float64())),
        ("reencoded", pa.bool_()),
    ]
)
SCHEMA = pa.schema(
    [
        ("task_id", pa.string()),
        ("question", pa.string()),
        ("answers", pa.list_(pa.string())),
        ("world", pa.string()),
        ("task_metadata", pa.string()),
        ("opening", pa.list_(_MESSAGE)),
        ("turns", pa.list_(_TURN)),
        ("turn_count", pa.int32()),
        ("ending", pa.string()),
        ("outcome", pa.float64()),
        ("answer", pa.string()),
        ("error", pa.string()),
        ("transcript", _TRANSCRIPT),
        ("provenance", pa.string()),
    ],
    metadata={"drv_schema_version": str(SCHEMA_VERSION)},
)
"""Columns of a trajectory file."""


def to_row(trajectory: Trajectory) -> dict[str, Any]:
    """The trajectory as a row of :data:`SCHEMA`.

    Lone surrogates, which Parquet's UTF-8 text can't hold, become U+FFFD.
    """
    task = trajectory.task
    row = {
        "task_id": task.id,
        "question": task.question,
        "answers": list(task.answers),
        "world": task.world,
        "task_metadata": json.dumps(dict(task.metadata)),
        "opening": [dict(message) for message in trajectory.opening],
        "turns": [
            {
                **{name: getattr(turn, name) for name in TurnRecord.__slots__},
                "information_gain": reward.information_gain,
                "outcome": reward.outcome,
            }
            for turn, reward in zip(trajectory.turns, trajectory.rewards, strict=True)
        ],
        "turn_count": len(trajectory.turns),
        "ending": str(trajectory.ending),
        "outcome": trajectory.outcome,
        "answer": trajectory.answer,
        "error": trajectory.error,
        "transcript": None if trajectory.transcript is None else trajectory.transcript.to_record(),
        "provenance": json.dumps(dict(trajectory.provenance)),
    }
    return {name: _storable(value) for name, value in row.items()}


def from_row(row: Mapping[str, Any]) -> Trajectory:
    """The trajectory of a row, of any version that can be read."""
    turns, rewards = [], []
    for stored in row["turns"]:
        turn = dict(stored)
        gain, outcome = turn.pop("information_gain"), turn.pop("outcome")
        turns.append(TurnRecord(**turn))
        rewards.append(TurnReward(gain, turn["well_formed"], outcome))
    record = row.get("transcript")
    return Trajectory(
        task=Task(
            row["question"],
            tuple(row["answers"]),
            row["task_id"],
            row["world"],
            json.loads(row["task_metadata"]),
        ),
        opening=tuple(row["opening"]),
        turns=tuple(turns),
        rewards=tuple(rewards),
        ending=Ending(row["ending"]),
        answer=row["answer"],
        error=row["error"],
        transcript=None if record is None else Transcript.from_record(record),
        provenance=json.loads(row["provenance"]),
    )


def row_bytes(row: Mapping[str, Any]) -> int:
    """Roughly how much memory a row takes, for closing row groups in time."""
    size = 1_000
    for turn in row["turns"]:
        size += 200 + len(turn["text"]) + len(turn["thought"]) + len(turn["observation"] or "")
    record = row["transcript"]
    return size if record is None else size + 8 * len(record["ids"])


def _storable(value: Any) -> Any:
    """``value`` with lone surrogates in its strings replaced."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {key: _storable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_storable(item) for item in value]
    return value
