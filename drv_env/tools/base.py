"""The one face of every tool, live, offline, recorded or fake.

A backend answers calls; layers (time-outs, retries, caches) wrap a backend and have
the same face.  Tools know nothing of episodes or rewards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from drv_env.protocol import Search, ToolCall, Visit
from drv_env.tasks import Task, task_from

Clock = Callable[[], float]
"""Seconds since some fixed moment; only differences are used."""


class Status(StrEnum):
    """How a call went.  ``FAILED`` and ``EMPTY`` are never the same thing."""

    OK = "ok"
    EMPTY = "empty"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ToolSchema:
    """A tool as the agent is told of it.

    Attributes:
        name: the name that a call gives.
        description: one or two sentences for the system prompt.
        parameters: JSON schema of the arguments, of type ``object``.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """One call on its way to a tool.

    Attributes:
        action: a checked :class:`Search` or :class:`Visit`, or the :class:`ToolCall` of
            another tool with its arguments as written.
        task: the task of the episode, or what :func:`~drv_env.tasks.task_from` makes one of;
            tools with several worlds route by it.
        turn: number of the turn that makes the call, from 1.
        duplicate: True when the episode has made the same call before.
    """

    action: Search | Visit | ToolCall
    task: Task
    turn: int = 1
    duplicate: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.task, Task):
            object.__setattr__(self, "task", task_from(self.task))

    @property
    def name(self) -> str:
        """The tool's name."""
        match self.action:
            case Search():
                return "search"
            case Visit():
                return "visit"
            case ToolCall(name=name):
                return name


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What came back.

    Attributes:
        text: the observation's text, before it is wrapped; for a call that failed, what
            the agent is told about the failure.
        status: see :class:`Status`.
        data: the same in structured form, for records; whatever the tool chooses.
        latency: seconds between the call and its result, by the tools' clock.
        cost: price of the call in US dollars.
    """

    text: str
    status: Status = Status.OK
    data: Any = field(default=None, compare=False)
    latency: float = 0.0
    cost: float = 0.0


BUDGET_SPENT = "budget"
"""The kind of failure of tools that may spend nothing more: the answer is asked for."""


def is_budget_spent(result: ToolResult) -> bool:
    """Whether a call failed because the tools' own budget is used up."""
    if result.status is not Status.FAILED or not isinstance(result.data, dict):
        return False
    return result.data.get("kind") == BUDGET_SPENT


@runtime_checkable
class Tools(Protocol):
    """A set of tools behind one call.

    ``call`` may raise: :func:`drv_env.play.run_call` turns what escapes into a failed
    result, measures latency and bounds the time.

    Tools whose ``call`` never waits may say so with an attribute ``instant = True``;
    synchronous callers then run it on their own thread.
    """

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """The tools that may be called, in the order the prompt shows them."""
        ...

    @property
    def clock(self) -> Clock:
        """Measures latency; a world that takes no time has a clock that stands still."""
        ...

    async def call(self, call: Call) -> ToolResult:
        """Carry out one call."""
        ...

    async def close(self) -> None:
        """Give back what the tools hold; may be called twice."""
        ...


def still_clock() -> float:
    """A clock that stands still: 0.0, always."""
    return 0.0


def _list_of_strings(description: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": description}


SEARCH_SCHEMA = ToolSchema(
    "search",
    "Look up one or more queries in the search engine; gives titles, urls and snippets.",
    {
        "type": "object",
        "properties": {"query": _list_of_strings("What to search for, one entry a query.")},
        "required": ["query"],
    },
)
VISIT_SCHEMA = ToolSchema(
    "visit",
    "Open one or more web pages and get the evidence in them for a goal.",
    {
        "type": "object",
        "properties": {
            "url": _list_of_strings("The pages to open."),
            "goal": {"type": "string", "description": "What to find out on the pages."},
        },
        "required": ["url", "goal"],
    },
)
