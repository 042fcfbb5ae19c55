"""Record and replay of tool calls: a layer over any tools, kept in a cassette.

Three modes:

* ``record`` makes every call and records it; of equal calls the newest result stands.
* ``replay`` makes no call; one that is not recorded raises, and names the nearest that is.
* ``replay_or_record`` answers from the cassette and makes only the calls that are not
  recorded, equal ones at the same time once; the first result stands.

Recorded are the results ``ok`` and ``empty``.  A failure never is, in whatever form.  Nor
is a refusal: it speaks of the settings of the day, not of the web; layers that refuse
belong outside this one, where they refuse in replay too.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from drv_env.call_keys import call_arguments, earlier_call_arguments
from drv_env.cassette import CassetteStore, Recorded, canonical
from drv_env.errors import SettingError, ToolError
from drv_env.secrets import mask, mask_data
from drv_env.settings import above, checked_number
from drv_env.tools.base import (
    SEARCH_SCHEMA,
    VISIT_SCHEMA,
    Call,
    Clock,
    Status,
    ToolResult,
    Tools,
    ToolSchema,
    still_clock,
)
from drv_env.tools.parts import is_whole
from drv_env.tools.results import checked_result
from drv_env.unicode_text import sound_text

Mode = Literal["record", "replay", "replay_or_record"]
MODES = ("record", "replay", "replay_or_record")

RECORDED = (Status.OK, Status.EMPTY)
"""What is recorded, of all that can come back."""

SHOWN_CHARS = 300
"""Of a call's arguments, what the message about a missing recording shows."""


@dataclass(slots=True)
class _Flight:
    """A call under way, and how many wait for it."""

    task: asyncio.Task[ToolResult]
    waiting: int = 0
    paid: bool = False


class CassetteTools:
    """Tools whose calls are recorded in a cassette, or answered from it.

    A replayed result has the recorded text, status and data.  Its ``cost`` is 0.0, as
    nothing was paid; its ``latency`` is the original's, until
    :func:`drv_env.play.run_call` measures what the replay took, which is 0.0 in mode
    ``replay``, where the clock stands still.  :meth:`recorded` has the original's figures.

    Args:
        tools: what makes the calls, closed by :meth:`close`; None in mode ``replay``.
        cassette: a store, which stays open, or the path of one.
        mode: see the module.
        ttl: seconds after which a recording has expired and its call is made again; only
            in mode ``replay_or_record``.  None: never.
        namespace: keeps calls apart that are equal and yet not the same.  None: the name
            of the task's world.
        schemas: the tools on offer; by default those of ``tools``; without tools search, visit
            and every other tool of which a call is recorded.

    Raises:
        SettingError: for settings that can't work.
        CassetteError: in mode ``replay``, when the file is missing or no cassette.

    Example:
        >>> import tempfile
        >>> from drv_env.protocol import Search
        >>> from drv_env.tasks import Task
        >>> from drv_env.tools.fake import FakeTools
        >>> call = Call(Search(("lighthouse",)), Task("Q?", ("A",)))
        >>> async def twice(path):
        ...     tools = CassetteTools(FakeTools({"search": ["first", "second"]}), path)
        ...     texts = [(await tools.call(call)).text for _ in range(2)]
        ...     await tools.close()
        ...     return texts
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     asyncio.run(twice(f"{folder}/cassette"))
        ['first', 'first']
    """

    def __init__(
        self,
        tools: Tools | None,
        cassette: CassetteStore | str | os.PathLike[str],
        mode: Mode = "replay_or_record",
        *,
        ttl: float | None = None,
        namespace: str | None = None,
        schemas: Sequence[ToolSchema] | None = None,
    ) -> None:
        if mode not in MODES:
            raise SettingError(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
        if tools is None and mode != "replay":
            raise SettingError(f"mode {mode!r} makes calls; pass tools, or mode='replay'")
        if ttl is not None and mode != "replay_or_record":
            raise SettingError(f"a ttl goes with mode 'replay_or_record', not with {mode!r}")
        if ttl is not None:
            checked_number("ttl", ttl, above(0, "seconds", infinite=True))
        self._owns_store = not isinstance(cassette, CassetteStore)
        if not isinstance(cassette, CassetteStore):
            cassette = CassetteStore(cassette, read_only=mode == "replay")
        self.store = cassette
        self.mode: Mode = mode
        self._tools = tools
        self._ttl = ttl
        self._namespace = namespace
        self._flights: dict[tuple[object, ...], _Flight] = {}
        if mode == "replay":
            self.store.check()
        if schemas is None:
            schemas = self._recorded_schemas() if tools is None else tools.schemas
        self._schemas = tuple(schemas)

    def _recorded_schemas(self) -> list[ToolSchema]:
        """Search, visit, and the other tools as they were when they were recorded."""
        found = [SEARCH_SCHEMA, VISIT_SCHEMA]
        for name, provenance in self.store.provenance_of_kinds().items():
            match provenance.get("schema"):
                case {"description": str(description), "parameters": dict(parameters)}:
                    found.append(ToolSchema(name, description, parameters))
        return found

    def _provenance(self, call: Call) -> dict[str, Any]:
        """Where a recording comes from; of a tool that replay can't know, its schema too."""
        told: dict[str, Any] = {"task": call.task.id, "turn": call.turn}
        for schema in self._schemas:
            if schema.name == call.name and schema.name not in ("search", "visit"):
                told["schema"] = {
                    "description": schema.description,
                    "parameters": schema.parameters,
                }
        return told

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """The tools on offer."""
        return self._schemas

    @property
    def clock(self) -> Clock:
        """The tools' own; in mode ``replay`` it stands still."""
        if self.mode == "replay" or self._tools is None:
            return still_clock
        return self._tools.clock

    async def call(self, call: Call) -> ToolResult:
        """Carry out one call, or answer it from the cassette.

        Raises:
            ToolError: in mode ``replay``, when it is not recorded.
            CassetteError: when the cassette can't be read or written.
        """
        arguments = call_arguments(call.action)
        if self.mode == "record":
            return await self._make(call, arguments, math.inf)
        if self.mode == "replay_or_record":
            return await self._together(call, arguments)
        found = await self.recorded(call)
        if found is None:
            raise ToolError(await self._missing(call, arguments))
        return _replayed(found)

    async def recorded(self, call: Call) -> Recorded | None:
        """The recording of a call, with the time, latency and cost of the original."""
        return await self._find(call)

    async def close(self) -> None:
        """End calls under way, close the tools, and the store where only a path was given."""
        loop = asyncio.get_running_loop()
        flights = [flight.task for at, flight in list(self._flights.items()) if at[0] is loop]
        for task in flights:
            task.cancel()
        await asyncio.gather(*flights, return_exceptions=True)
        try:
            if self._tools is not None:
                await self._tools.close()
        finally:
            if self._owns_store:
                await self.store.aclose()

    def _place(self, call: Call) -> str:
        return (call.task.world or "") if self._namespace is None else self._namespace

    async def _together(self, call: Call, arguments: Mapping[str, Any]) -> ToolResult:
        """Answer or make the call; equal calls at the same time share the work."""
        loop = asyncio.get_running_loop()
        at = (loop, call.name, self._place(call), canonical(arguments))
        flight = self._flights.get(at)
        if flight is None:
            flight = _Flight(loop.create_task(self._find_or_make(call, arguments)))
            flight.task.add_done_callback(lambda task: self._landed(at, task))
            self._flights[at] = flight
        flight.waiting += 1
        try:
            result = await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                flight.task.cancel()
                self._flights.pop(at, None)
        if flight.paid:
            return dataclasses.replace(result, cost=0.0)
        flight.paid = True
        return result

    def _landed(self, at: tuple[object, ...], task: asyncio.Task[ToolResult]) -> None:
        flight = self._flights.get(at)
        if flight is not None and flight.task is task:
            del self._flights[at]
        if not task.cancelled():
            task.exception()  # those who waited have it

    async def _find_or_make(self, call: Call, arguments: Mapping[str, Any]) -> ToolResult:
        oldest = -math.inf if self._ttl is None else self.store.clock() - self._ttl
        found = await self._find(call, oldest)
        if found is not None:
            return _replayed(found)
        return await self._make(call, arguments, oldest)

    async def _find(self, call: Call, oldest: float = -math.inf) -> Recorded | None:
        """The recording under the one spelling, or an older one under the call's own."""
        keys = [call_arguments(call.action), earlier_call_arguments(call.action)]
        for key in keys if keys[0] != keys[1] else keys[:1]:
            found = await self.store.aget(call.name, key, self._place(call), newer_than=oldest)
            if found is not None:
                return found
        return None

    async def _make(
        self, call: Call, arguments: Mapping[str, Any], replace_before: float
    ) -> ToolResult:
        """Make the call and record it; the result is the one that stands in the cassette."""
        assert self._tools is not None
        started = self._tools.clock()
        result = checked_result(await self._tools.call(call))
        if result.status not in RECORDED or not is_whole(result.data):
            return result
        value = Recorded(
            mask(result.text),
            result.status,
            mask_data(result.data),
            self._tools.clock() - started,
            result.cost,
            provenance=self._provenance(call),
        )
        place = self._place(call)
        standing = await self.store.aput(
            call.name, arguments, value, place, replace_before=replace_before
        )
        if (standing.text, standing.status) == (value.text, value.status):
            return result
        return dataclasses.replace(_replayed(standing), cost=result.cost)

    async def _missing(self, call: Call, arguments: Mapping[str, Any]) -> str:
        name, place = self.store.path.name, self._place(call)
        where = f" for {place!r}" if place else ""
        said = f"{_shown(arguments)} is not recorded in {name}{where}"
        near = await self.store.anearest(call.name, arguments, place)
        if near is None:
            return f"{said}, nor is any other {call.name} call"
        other = f" for {near.namespace!r}" if near.namespace != place else ""
        likeness = f"{near.similarity:.0%} alike"
        return f"{said}; the nearest recorded {call.name} is {_shown(near.key)}{other} ({likeness})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_flights": {}}


def _replayed(found: Recorded) -> ToolResult:
    return ToolResult(found.text, Status(found.status), found.data, found.latency, 0.0)


def _shown(arguments: Mapping[str, Any]) -> str:
    text = canonical(arguments)
    text = text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + " …"
    return sound_text(text)
