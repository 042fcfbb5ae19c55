"""Trajectories to and from Parquet: one schema, versioned.

A file is written under a temporary name and renamed when it is whole.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from drv_env.episode import Ending
from drv_env.errors import TaskDataError
from drv_env.rewards.records import TurnReward
from drv_env.tasks import Task
from replay.trajectory import Trajectory, TurnRecord
from replay.transcript import Transcript

SCHEMA_VERSION = 1

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
        ("ending", pa.string()),
        ("answer", pa.string()),
        ("error", pa.string()),
        ("transcript", _TRANSCRIPT),
        ("provenance", pa.string()),
    ],
    metadata={"drv_schema_version": str(SCHEMA_VERSION)},
)
"""Columns of a trajectory file; metadata columns hold JSON text."""


def write_trajectories(path: str | Path, trajectories: Iterable[Trajectory]) -> int:
    """Write a Parquet file of trajectories, whole or not at all.

    Lone surrogates, which Parquet's UTF-8 text can't hold, become U+FFFD.

    Returns:
        How many were written.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    count = 0
    try:
        with pq.ParquetWriter(temporary, SCHEMA, compression="zstd") as writer:
            batch: list[dict[str, Any]] = []
            for trajectory in trajectories:
                batch.append(_to_row(trajectory))
                count += 1
                if len(batch) == 256:
                    writer.write_table(pa.Table.from_pylist(batch, SCHEMA))
                    batch = []
            writer.write_table(pa.Table.from_pylist(batch, SCHEMA))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return count


def read_trajectories(path: str | Path) -> Iterator[Trajectory]:
    """Trajectories of a file, in order, read batch by batch.

    Raises:
        TaskDataError: naming the file, when it is no trajectory file of this version.
    """
    try:
        file = pq.ParquetFile(path)
    except (OSError, pa.ArrowException) as error:
        raise TaskDataError(f"{path} can't be read as Parquet: {error}") from error
    with file:
        version = (file.schema_arrow.metadata or {}).get(b"drv_schema_version")
        if version != str(SCHEMA_VERSION).encode():
            found = "no trajectory file" if version is None else f"version {version.decode()}"
            raise TaskDataError(f"{path}: expected trajectories of version 1, it is {found}")
        for batch in file.iter_batches(batch_size=256):
            yield from map(_from_row, batch.to_pylist())


def _to_row(trajectory: Trajectory) -> dict[str, Any]:
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
        "ending": str(trajectory.ending),
        "answer": trajectory.answer,
        "error": trajectory.error,
        "transcript": None if trajectory.transcript is None else trajectory.transcript.to_record(),
        "provenance": json.dumps(dict(trajectory.provenance)),
    }
    return _storable(row)


def _storable(value: Any) -> Any:
    """``value`` with lone surrogates in its strings replaced."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {key: _storable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_storable(item) for item in value]
    return value


def _from_row(row: dict[str, Any]) -> Trajectory:
    turns, rewards = [], []
    for turn in row["turns"]:
        gain, outcome = turn.pop("information_gain"), turn.pop("outcome")
        turns.append(TurnRecord(**turn))
        rewards.append(TurnReward(gain, turn["well_formed"], outcome))
    record = row["transcript"]
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
