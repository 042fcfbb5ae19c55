"""The recorded web: every tool interaction of recorded trajectories, to be met again.

:func:`build_web` writes a folder:

* ``cassette``: recorded results (:mod:`drv_env.cassette`).  In the *shared* namespace (the
  world's name, "" without one) the first result of every call stands, where
  :class:`drv_env.tools.cassette.CassetteTools` finds it too.  What a trajectory got
  otherwise (another result of the same call, a failure, words that are no result) is kept
  for that trajectory and turn alone, so that it replays byte for byte.
* ``pages.sqlite``: what was seen of every page (:mod:`replay.pages`).
* ``web.json``: what is in it; written last, so that an unfinished web is known as one;
  ``.building.json`` stands there meanwhile.

:class:`RecordedWeb` are the tools over such a folder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from drv_env.call_keys import call_arguments, earlier_call_arguments
from drv_env.cassette import CassetteStore, Entry, Recorded, canonical
from drv_env.errors import SettingError, ToolError
from drv_env.json_files import read_object
from drv_env.protocol import Search, ToolCall, Visit
from drv_env.tools.base import (
    SEARCH_SCHEMA,
    VISIT_SCHEMA,
    Call,
    Clock,
    Status,
    ToolResult,
    ToolSchema,
    still_clock,
)
from drv_env.tools.offline import OfflineTools
from drv_env.whole_files import disk_faults_told, write_json
from replay.observations import read_search, read_visit
from replay.own_folder import FolderKind, FolderLock
from replay.pages import PageFile, Sighting
from replay.recorded import asked_for_answer, calls_of, recording_id
from replay.trajectory import Trajectory

RECORDING = "recording"
"""Key of a task's metadata: which recorded trajectory an episode replays."""

_VERSION = 1
_FAILURE = "failure"
_CASSETTE, _PAGES, _ABOUT = "cassette", "pages.sqlite", "web.json"
_BUILDING = ".building.json"
_FILES = (
    _CASSETTE,
    f"{_CASSETTE}-wal",
    f"{_CASSETTE}-shm",
    _PAGES,
    f"{_PAGES}-journal",
)
KIND = FolderKind(
    "a recorded web",
    {_ABOUT: {"version": int, "tools": list}, _BUILDING: {"recorded_web": int}},
    files=_FILES,
)


@dataclass(slots=True)
class WebStats:
    """What went into a web.

    Attributes:
        trajectories: how many were read.
        calls: their tool interactions.
        shared: calls whose result anyone gets who makes them again.
        own: results kept for one turn of one trajectory, failures among them.
        failures: calls that had failed.
        pages: pages of the corpus.
        tools: calls by tool.
    """

    trajectories: int
    calls: int
    shared: int
    own: int
    failures: int
    pages: int
    tools: dict[str, int]

    @property
    def repeated(self) -> int:
        """Calls that got what the web had for them already."""
        return self.calls - self.shared - self.own


def build_web(trajectories: Iterable[Trajectory], out: str | Path) -> WebStats:
    """Write the web of trajectories into a folder, or add them to the web that is there.

    The same trajectories again change nothing but the counts of what was read; a build
    that was cut short is run again.  One process at a time.

    Returns:
        What this call read, and the pages there are now.

    Raises:
        SettingError: when the folder holds something else, or another process fills it.
        DiskError: when the disk is full.
    """
    folder = Path(out)
    KIND.record(folder)
    busy = f"another process fills {folder}; wait for it, or name another folder"
    with FolderLock(folder, busy), disk_faults_told(folder):
        KIND.record(folder)
        finished = (folder / _ABOUT).exists()
        tools = set(_about(folder)["tools"]) if finished else set()
        if not finished and (folder / _BUILDING).exists():
            for name in _FILES:  # of a build that was cut short
                (folder / name).unlink(missing_ok=True)
        write_json(folder / _BUILDING, {"recorded_web": _VERSION})
        stats = WebStats(0, 0, 0, 0, 0, 0, {})
        with CassetteStore(folder / _CASSETTE) as store, PageFile(folder / _PAGES) as pages:
            store.check()  # makes the file, even for no call
            for trajectory in trajectories:
                _add(trajectory, store, pages, stats)
            stats.pages = pages.count()
        names = sorted(tools | set(stats.tools))
        about = {"version": _VERSION, "tools": names, "last": asdict(stats)}
        write_json(folder / _ABOUT, about, indent=1)
        (folder / _BUILDING).unlink()
    return stats


class RecordedWeb:
    """Tools that answer from a recorded web.

    A call is answered by, in this order:

    1. what the trajectory named in ``task.metadata["recording"]`` got for this call in
       this turn, failures included;
    2. the first recorded result of the call in the task's world;
    3. ``search`` and ``visit``: a search of all recorded pages, or what is known of the
       page (:class:`drv_env.tools.offline.OfflineTools`).

    A result's ``data`` is ``{"source": "recording"}``, or the corpus's own.  Pickling
    carries the path and the settings; a process reads the pages of a world once.

    Args:
        path: a folder made by :func:`build_web`.
        corpus: False raises :class:`ToolError` for what was never asked.
        recorded_tools: also offer the other tools that were called, which answer only
            what was recorded.
        settings: of the corpus, as for :class:`OfflineTools`.

    Raises:
        SettingError: when there is no finished web at the path.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        corpus: bool = True,
        recorded_tools: bool = False,
        **settings: Any,
    ) -> None:
        self.path = Path(path).absolute()
        names = _about(self.path)["tools"]
        self._arguments = (corpus, recorded_tools, settings)
        self._corpus = corpus
        self._settings = settings
        self._store = CassetteStore(self.path / _CASSETTE, read_only=True)
        self._store.check()
        others = [_recorded_schema(name) for name in names if name not in ("search", "visit")]
        self._schemas = (SEARCH_SCHEMA, VISIT_SCHEMA, *(others if recorded_tools else ()))

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """``search`` and ``visit``, and with ``recorded_tools`` what else was called."""
        return self._schemas

    @property
    def clock(self) -> Clock:
        """Stands still."""
        return still_clock

    async def call(self, call: Call) -> ToolResult:
        """Answer one call.

        Raises:
            ToolError: for what was never recorded and can't be searched.
        """
        world = call.task.world or ""
        recording = call.task.metadata.get(RECORDING)
        if recording is not None:
            own = await self._own(call, str(recording))
            if own is not None:
                return own
        for arguments in _spellings(call.action):
            found = await self._store.aget(call.name, arguments, world)
            if found is not None:
                return _result(found, Status(found.status))
        if self._corpus and isinstance(call.action, Search | Visit):
            tools = _corpus(self.path, world, canonical(self._settings))
            if tools is not None:
                return await tools.call(call)
        raise ToolError(await self._missing(call, call_arguments(call.action), world))

    async def close(self) -> None:
        """Close the cassette; a later call opens it again."""
        await self._store.aclose()

    async def _own(self, call: Call, recording: str) -> ToolResult | None:
        """What the trajectory itself got in this turn, where it is kept apart."""
        place = _place(recording)
        for arguments in _spellings(call.action):
            found = await self._store.aget(call.name, _own_key(arguments, call.turn), place)
            if found is not None:
                return _result(found, Status(found.status))
            key = _failure_key(call.name, arguments, call.turn)
            failure = await self._store.aget(_FAILURE, key, place)
            if failure is not None:
                return _result(failure, Status.FAILED)
        return None

    async def _missing(self, call: Call, arguments: Mapping[str, Any], world: str) -> str:
        said = f"{canonical(arguments):.300} was never recorded in {self.path.name}"
        near = await self._store.anearest(call.name, arguments, world)
        return said if near is None else f"{said}; the nearest is {canonical(near.key):.300}"

    def __reduce__(self) -> tuple[Callable[..., RecordedWeb], tuple[Any, ...]]:
        return _restore, (self.path, *self._arguments)


def _restore(
    path: Path, corpus: bool, recorded_tools: bool, settings: Mapping[str, Any]
) -> RecordedWeb:
    return RecordedWeb(path, corpus=corpus, recorded_tools=recorded_tools, **settings)


@lru_cache(maxsize=64)
def _corpus(path: Path, world: str, settings: str) -> OfflineTools | None:
    """Tools over the pages of one world, which answer tasks of any; None without pages."""
    with PageFile(path / _PAGES, read_only=True) as file:
        pages = list(file.pages(world))
    if not pages:
        return None
    return OfflineTools.from_pages({world: pages}, **json.loads(settings))


def _about(folder: Path) -> dict[str, Any]:
    file = folder / _ABOUT
    if not file.is_file():
        raise SettingError(
            f"there is no finished recorded web at {folder}; make one, or run it again to its end: "
            "drv data web TRAJECTORIES… --out WEB"
        )
    about = read_object(file)
    if about.get("version") != _VERSION:
        raise SettingError(
            f"{folder} is a recorded web of version {about.get('version')}, this drv-env reads "
            f"version {_VERSION}; make it anew"
        )
    tools = about.get("tools")
    if not isinstance(tools, list) or not all(isinstance(name, str) for name in tools):
        raise SettingError(f"{file} is damaged: it names no tools; make the web anew")
    return about


# ---- building -------------------------------------------------------------------------


def _add(trajectory: Trajectory, store: CassetteStore, pages: PageFile, stats: WebStats) -> None:
    """Put the calls of one trajectory into the web, in one transaction each file."""
    recording, world = recording_id(trajectory), trajectory.task.world or ""
    provenance = {RECORDING: recording, **trajectory.provenance}
    entries: list[Entry] = []
    standing: dict[tuple[str, str], Recorded] = {}
    sightings: list[Sighting] = []
    stats.trajectories += 1
    calls = list(calls_of(trajectory))
    asked = asked_for_answer(trajectory.turns, calls)
    for number, action, turn in calls:
        assert turn.observation is not None
        name = Call(action, trajectory.task).name
        arguments = call_arguments(action)
        status = turn.tool_status or "ok"
        value = Recorded(
            turn.observation,
            status,
            {"source": "recording"},
            turn.latency,
            turn.cost,
            recorded_at=0.0,
            provenance={**provenance, "turn": number},
        )
        stats.calls += 1
        stats.tools[name] = stats.tools.get(name, 0) + 1
        if status == Status.FAILED:
            key = _failure_key(name, arguments, number)
            value = Recorded(
                value.text, "recorded", value.data, value.latency, value.cost, 0.0, value.provenance
            )
            entries.append(Entry(_FAILURE, key, value, _place(recording)))
            stats.own += 1
            stats.failures += 1
            continue
        if status in (Status.OK, Status.EMPTY) and number != asked:
            address = (name, canonical(arguments))
            first = _older(store, name, action, world)
            if first is None:
                first = standing.get(address) or store.get(name, arguments, world)
                if first is None:
                    entries.append(Entry(name, arguments, value, world))
                    first = value
                    stats.shared += 1
                standing[address] = first
            sightings += _sightings(action, turn.observation)
            if (first.text, first.status) == (value.text, value.status):
                continue
        entries.append(Entry(name, _own_key(arguments, number), value, _place(recording)))
        stats.own += 1
    store.put_many(entries)
    pages.add(world, sightings)


def _sightings(action: Search | Visit | ToolCall, text: str) -> list[Sighting]:
    match action:
        case Search():
            found = read_search(text) or []
            return [
                Sighting(item.url, item.title, (item.snippet,) if item.snippet else ())
                for item in found
            ]
        case Visit():
            return [Sighting(page.url, "", page.texts) for page in read_visit(text) or []]
    return []


def _spellings(action: Search | Visit | ToolCall) -> list[dict[str, Any]]:
    """The keys that a call may stand under, in the order in which they are looked up.

    Its own spelling first: a web that was built before calls had one spelling holds it, and
    with it the very text that the call got.
    """
    keys = [earlier_call_arguments(action), call_arguments(action)]
    return keys if keys[0] != keys[1] else keys[:1]


def _older(
    store: CassetteStore, name: str, action: Search | Visit | ToolCall, world: str
) -> Recorded | None:
    """What an older web has under the call's own spelling, where that is not the one spelling."""
    found = (store.get(name, key, world) for key in _spellings(action)[:-1])
    return next(found, None)


def _place(recording: str) -> str:
    return f"recording/{recording}"


def _own_key(arguments: Mapping[str, Any], turn: int) -> dict[str, Any]:
    return {"arguments": dict(arguments), "turn": turn}


def _failure_key(tool: str, arguments: Mapping[str, Any], turn: int) -> dict[str, Any]:
    return {"arguments": dict(arguments), "tool": tool, "turn": turn}


def _recorded_schema(name: str) -> ToolSchema:
    return ToolSchema(
        name, "A recorded tool: it answers only what was recorded.", {"type": "object"}
    )


def _result(found: Recorded, status: Status) -> ToolResult:
    return ToolResult(found.text, status, found.data)
