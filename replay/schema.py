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
from drv_env.errors import TaskDataError
from drv_env.parquet_batches import check_columns
from drv_env.rewards.records import TurnReward
from drv_env.settings import shown
from drv_env.tasks import Task
from drv_env.unicode_text import sound_text
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
    """The trajectory of a row, of any version that can be read.

    Raises:
        TaskDataError: saying what the row lacks, or has that can't be.
    """
    try:
        return _from_row(row)
    except KeyError as error:
        raise TaskDataError(f"there is no {error}") from error
    except (TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise TaskDataError(f"the row is damaged: {error}") from error


def _from_row(row: Mapping[str, Any]) -> Trajectory:
    _there(row, "turns", "answers", "opening", "ending")
    if not row["opening"] and row["ending"] != Ending.BROKEN:
        raise TaskDataError("the opening is empty")
    for message in row["opening"]:
        _there(message, "role", "content")
    turns, rewards = [], []
    for stored in row["turns"]:
        _there(stored, "text", "thought", "well_formed", "latency", "cost", "duplicate")
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
            _object(row, "task_metadata"),
        ),
        opening=tuple(row["opening"]),
        turns=tuple(turns),
        rewards=tuple(rewards),
        ending=Ending(row["ending"]),
        answer=row["answer"],
        error=row["error"],
        transcript=None if record is None else Transcript.from_record(record),
        provenance=_object(row, "provenance"),
    )


def check_schema(there: pa.Schema) -> None:
    """Refuse a table whose columns are not those of a trajectory file.

    Raises:
        TaskDataError: naming a column that is missing, there twice, or of another type.
    """
    check_columns(there.names)
    for field in SCHEMA:
        if field.name in there.names:
            found = there.field(field.name).type
            if not _may_be(found, field.type):
                raise TaskDataError(f"column {field.name!r} is of type {found}, not {field.type}")
        elif field.name not in _LATER:
            raise TaskDataError(f"no column {field.name!r}; the columns are {there.names}")


_LATER = ("turn_count", "outcome", "transcript")
"""Columns that are not in every file, for its age or for what was left out of it."""


def _may_be(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a column of this type holds what is wanted, in fewer fields perhaps."""
    kinds = pa.types
    if kinds.is_null(found) or found == wanted:
        return True
    if kinds.is_dictionary(found):
        return _may_be(found.value_type, wanted)
    if kinds.is_struct(wanted):
        return kinds.is_struct(found) and all(
            _may_be(found.field(each.name).type, each.type)
            for each in wanted
            if found.get_field_index(each.name) >= 0
        )
    if kinds.is_list(wanted):
        listed = kinds.is_list(found) or kinds.is_large_list(found)
        return listed and _may_be(found.value_type, wanted.value_type)
    alike = (kinds.is_integer, kinds.is_floating, kinds.is_boolean)
    texts = kinds.is_string(found) or kinds.is_large_string(found)
    return any(is_one(found) and is_one(wanted) for is_one in alike) or (
        texts and kinds.is_string(wanted)
    )


def _there(row: Any, *names: str) -> None:
    """Refuse a row, or a part of one, in which one of these is null."""
    if not isinstance(row, Mapping):
        raise TaskDataError(f"a part of the row is {shown(row)}")
    for name in names:
        if row[name] is None:
            raise TaskDataError(f"{name} is null")


def _object(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = json.loads(row[name])
    if not isinstance(value, dict):
        raise TaskDataError(f"{name} is no JSON object: {shown(value)}")
    return value


def row_bytes(row: Mapping[str, Any]) -> int:
    """Roughly how much memory a row takes, for closing row groups in time."""
    size = 1_000
    for turn in row["turns"]:
        size += 200 + len(turn["text"]) + len(turn["thought"]) + len(turn["observation"] or "")
    record = row["transcript"]
    return size if record is None else size + 8 * len(record["ids"])


def _storable(value: Any) -> Any:
    """``value`` with its strings as Parquet's UTF-8 can hold them."""
    if isinstance(value, str):
        return sound_text(value)
    if isinstance(value, dict):
        return {key: _storable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_storable(item) for item in value]
    return value
