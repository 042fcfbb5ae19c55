"""A user's own tools: a JSON schema and an async function each.

The system prompt shows the schema, the reading of turns gives the call, the strict verdict
accepts it: all three follow from the tools' ``schemas``.  docs/tools.md and
``examples/own_tool.py`` show one.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drv_env import prompts
from drv_env.errors import SettingError, ToolError, boundary
from drv_env.protocol import Search, ToolCall, Visit
from drv_env.secrets import mask
from drv_env.tools.base import Call, Clock, Status, ToolResult, Tools, ToolSchema

ToolFunction = Callable[..., Awaitable[str | ToolResult]]

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


@dataclass(frozen=True, slots=True)
class UserTool:
    """A tool of the user's own; made by :func:`tool`.

    Attributes:
        schema: as the agent is told of it.
        function: called with the arguments that the schema names, as keywords.
    """

    schema: ToolSchema
    function: ToolFunction

    async def call(self, call: Call) -> ToolResult:
        """Carry out one call.

        A missing argument, or one of another type than the schema's, is refused.

        Raises:
            ToolError: for whatever the function raises; retryable where that is a
                connection's failure or a time-out.
        """
        arguments = _arguments(call.action)
        complaint = _complaint(self.schema, arguments)
        if complaint is not None:
            return ToolResult(prompts.refused(complaint), Status.REFUSED)
        known = self.schema.parameters.get("properties", {})
        given = {name: value for name, value in arguments.items() if name in known}
        try:
            with boundary(ToolError, self.schema.name):
                result = await self.function(**given)
        except ToolError as error:
            raise _attributed(error) from error.__cause__
        if isinstance(result, str):
            return ToolResult(result)
        if not isinstance(result, ToolResult):
            raise ToolError(f"it returned {type(result).__name__} in place of text")
        return result


def tool(schema: ToolSchema, function: ToolFunction) -> UserTool:
    """A tool from its schema and an async function.

    Args:
        schema: name, description, and a JSON schema of type ``object`` with ``properties``.
        function: takes the properties as keyword arguments; gives text or a
            :class:`~drv_env.tools.base.ToolResult`.

    Raises:
        SettingError: when the function isn't async, or the schema has no properties.

    Example:
        >>> async def echo(text: str) -> str:
        ...     return text
        >>> parameters = {"type": "object", "properties": {"text": {"type": "string"}}}
        >>> tool(ToolSchema("echo", "Says it again.", parameters), echo).schema.name
        'echo'
    """
    if not schema.name.strip():
        raise SettingError("a tool needs a name")
    if not isinstance(schema.parameters.get("properties"), Mapping):
        raise SettingError(
            f"the schema of {schema.name!r} must be of type object with properties, as "
            '{"type": "object", "properties": {…}}'
        )
    inner = getattr(function, "__call__", function)  # noqa: B004 - objects with an async __call__
    if not (inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(inner)):
        raise SettingError(
            f"the function of {schema.name!r} must be async; wrap a plain one with "
            "asyncio.to_thread"
        )
    return UserTool(schema, function)


class Toolbox:
    """Tools and a user's own beside them.

    Args:
        tools: the base, such as live or offline tools; None for the user's tools alone.
        own: the user's tools.  One of the same name as a tool of the base takes its place.

    Raises:
        SettingError: when two of ``own`` have the same name, or there is no tool at all.
    """

    def __init__(self, tools: Tools | None, own: Sequence[UserTool]) -> None:
        self._base = tools
        self._own = {item.schema.name: item for item in own}
        if len(self._own) != len(own):
            raise SettingError("two of the tools have the same name; give each its own")
        if not self.schemas:
            raise SettingError("there is no tool; pass base tools or tools of your own")

    @property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """The base's tools, then the user's."""
        base = self._base.schemas if self._base is not None else ()
        kept = [schema for schema in base if schema.name not in self._own]
        return (*kept, *(item.schema for item in self._own.values()))

    @property
    def clock(self) -> Clock:
        """The base's clock, or a steady one."""
        return time.monotonic if self._base is None else self._base.clock

    async def call(self, call: Call) -> ToolResult:
        """Carry out one call, by the user's tool or the base.

        Raises:
            ToolError: see :meth:`UserTool.call`, and for an unknown tool.
        """
        own = self._own.get(call.name)
        if own is not None:
            return await own.call(call)
        if self._base is None:
            raise ToolError(f"there is no tool {call.name!r:.100} here", kind="unknown_tool")
        return await self._base.call(call)

    async def close(self) -> None:
        """Close the base."""
        if self._base is not None:
            await self._base.close()


def _arguments(action: Search | Visit | ToolCall) -> Mapping[str, Any]:
    match action:
        case Search(queries):
            return {"query": list(queries)}
        case Visit(urls, goal):
            return {"url": list(urls), "goal": goal}
        case ToolCall(_, arguments):
            return arguments


def _complaint(schema: ToolSchema, arguments: Mapping[str, Any]) -> str | None:
    for name in schema.parameters.get("required", ()):
        if name not in arguments:
            return prompts.missing_argument(schema.name, name)
    for name, property_ in schema.parameters["properties"].items():
        expected = property_.get("type") if isinstance(property_, Mapping) else None
        if name not in arguments or not isinstance(expected, str) or expected not in _TYPES:
            continue
        value = arguments[name]
        is_bool = isinstance(value, bool) and expected != "boolean"
        if is_bool or not isinstance(value, _TYPES[expected]):
            return prompts.wrong_argument(schema.name, name, expected)
    return None


def _attributed(error: ToolError) -> ToolError:
    cause = error.__cause__
    kind, retryable = error.kind, error.retryable
    if isinstance(cause, TimeoutError):
        kind, retryable = "timeout", True
    elif isinstance(cause, ConnectionError):
        kind, retryable = "connection", True
    return ToolError(
        mask(str(error)), kind=kind, retryable=retryable, retry_after=error.retry_after
    )
