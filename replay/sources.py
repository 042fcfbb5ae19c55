"""Trajectories from any file: the project's own, or recorded chat messages.

Chat files are Parquet, JSON lines or JSON in the layouts of :mod:`replay.layouts`; beside
their columns a row may hold ``world``, ``weight`` and ``request_id``.  Rows are streamed and
numbered from 0, in JSON lines too.  What is no recording, be it a row or a file, is counted
and passed over, not repaired: that is what cleaning is for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from drv_env.errors import SettingError, TaskDataError
from replay.call_pairs import one_call_a_turn
from replay.layouts import Layout, layout_of, read_row
from replay.raw_trajectory import Drop, Source
from replay.read import chunks_of, input_files, plain_rows
from replay.recorded import from_messages
from replay.schema import from_row
from replay.store import is_trajectory_file, read_rows, trajectories_in
from replay.trajectory import Trajectory, weight_of

_BESIDE = ("world", "weight", "request_id")
_HELD = 64
"""Trajectories of chat files that are held until a turn of one of them can be read."""


@dataclass(slots=True)
class Passed:
    """What was no recording: how much, why the first few weren't, and the last."""

    count: int = 0
    reasons: list[str] = field(default_factory=list)
    last: str = ""

    def add(self, reason: str) -> None:
        """Count one."""
        self.count += 1
        self.last = reason
        if len(self.reasons) < 5:
            self.reasons.append(reason)


def open_trajectories(
    paths: Iterable[str | Path], passed: Passed | None = None
) -> Iterator[Trajectory]:
    """Trajectories of files and folders, in order, streamed; the first is read at once.

    Args:
        paths: trajectory files or folders of their parts, and chat files or folders.
        passed: counts what is no recording: rows, and files that can't be read or not whole;
            without it the first of them raises.

    Raises:
        TaskDataError: naming a file that can't be read, or a row that is no recording; where
            nothing at all could be read, be it that there are no trajectories or, in chat
            files, that no call or answer can be read in any turn.
    """
    named = list(map(Path, paths))
    found = (item for item in _items(named, passed) if item.trajectory is not None)
    held: list[Trajectory] = []
    for item in found:
        assert item.trajectory is not None
        held.append(item.trajectory)
        if item.own or _says_something(item.trajectory) or len(held) == _HELD:
            rest = (item.trajectory for item in found if item.trajectory is not None)
            return chain(held, rest)
    raise TaskDataError(f"nothing could be read: {_why_nothing(named, passed, held)}")


def _says_something(trajectory: Trajectory) -> bool:
    """Whether a call or an answer could be read in one of its turns."""
    return any(turn.action is not None for turn in trajectory.turns)


def _why_nothing(named: list[Path], passed: Passed | None, held: list[Trajectory]) -> str:
    if held:
        problem = held[0].turns[0].problem if held[0].turns else "no turns"
        return (
            f"in none of the {len(held):,} trajectories a turn holds a call or an answer "
            f"(the first: {problem}); docs/data.md lists what is read"
        )
    if passed is not None and passed.count:
        return f"the first problem: {passed.reasons[0]}"
    where = ", ".join(map(str, named[:3]))
    return f"no trajectories in {where}" if named else "no file was named"


def trajectory_at(path: str | Path, row: int) -> Trajectory:
    """One trajectory of a file or folder, by its number from 0.

    Rows that can't be read count as rows.

    Raises:
        TaskDataError: when there are fewer, or the row is no recording.
    """
    path = Path(path)
    if row < 0:
        raise SettingError(f"rows are counted from 0, got {row}")
    passed = Passed()
    count = read = 0
    for item in _items([path], passed):
        if count == row:
            if item.trajectory is None:
                raise TaskDataError(passed.last)
            return item.trajectory
        count += 1
        read += item.trajectory is not None
    has = f"its last is row {count - 1:,}" if count else "it has none that can be read"
    lost = passed.count > count - read  # a file, or the rest of one
    raise TaskDataError(f"{path} has no row {row:,}; {passed.last if lost else has}")


@dataclass(frozen=True, slots=True)
class _Item:
    """A row: its trajectory, or None where it is none and was counted; whether it is our own."""

    trajectory: Trajectory | None
    own: bool


def _items(paths: Iterable[Path], passed: Passed | None) -> Iterator[_Item]:
    """Every row of every file."""

    def tell(problem: object) -> None:
        if passed is None:
            raise TaskDataError(str(problem))
        passed.add(str(problem))

    for path in paths:
        if not path.exists():
            raise TaskDataError(f"there is no file or folder {path}")
        for file in input_files([_home(path)], tell):
            own = _is_store(file)
            for trajectory in _of_store(file, tell) if own else _of_chats(file, tell):
                yield _Item(trajectory, own)


def _of_store(file: Path, tell: Callable[[object], None]) -> Iterator[Trajectory | None]:
    for number, row in read_rows(file, tell):
        try:
            trajectory = from_row(row)
            weight_of(trajectory)
        except TaskDataError as error:
            tell(f"{file}, row {number}: {error}")
            yield None
        else:
            yield trajectory


def _of_chats(file: Path, tell: Callable[[object], None]) -> Iterator[Trajectory | None]:
    rows = (item for chunk in chunks_of(file, tell, _layout, _BESIDE) for item in plain_rows(chunk))
    for index, (source, row) in enumerate(rows):
        line = ""
        if source.of_lines:
            line, source = f" (line {source.row})", Source(source.file, index)
        try:
            trajectory = _trajectory(row, source)
            weight_of(trajectory)
        except TaskDataError as error:
            tell(f"{file}, row {source.row}: {error}{line}")
            yield None
        else:
            yield trajectory


def _home(path: Path) -> Path:
    """Where the files are: a folder that a rollout or a run filled has them below."""
    return path if not path.is_dir() else trajectories_in(path)


def _is_store(file: Path) -> bool:
    return file.suffix.lower() in (".parquet", ".pq") and is_trajectory_file(file)


def _layout(columns: Collection[str]) -> Layout | str:
    """The layout; without a gold answer a row can be replayed and shown all the same."""
    return layout_of(columns, needs_gold=False)


def _trajectory(row: Mapping[str, Any] | Drop, source: Source) -> Trajectory:
    if isinstance(row, Drop):
        raise TaskDataError(_told(row))
    layout = _layout(row.keys())
    if isinstance(layout, str):
        raise TaskDataError(layout)
    raw = read_row(row, layout, source)
    if isinstance(raw, Drop):
        raise TaskDataError(_told(raw))
    recorded = one_call_a_turn(raw.messages, first_alone=True)
    if isinstance(recorded, Drop):
        raise TaskDataError(_told(recorded))
    system = raw.system_prompt
    opening = [] if system is None else [{"role": "system", "content": system}]
    provenance: dict[str, Any] = {"file": Path(source.file).name, "row": source.row}
    for name in ("request_id", "weight"):
        if isinstance(row.get(name), str | int | float):
            provenance[name] = row[name]
    world = row.get("world")
    return from_messages(
        [*opening, *recorded],
        raw.answers,
        world=world if isinstance(world, str) else None,
        provenance=provenance,
    )


def _told(drop: Drop) -> str:
    return f"{drop.reason}: {drop.detail}" if drop.detail else str(drop.reason)
