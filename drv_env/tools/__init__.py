"""Tools: what an agent can do to find things out."""

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

__all__ = [
    "SEARCH_SCHEMA",
    "VISIT_SCHEMA",
    "Call",
    "Clock",
    "Status",
    "ToolResult",
    "ToolSchema",
    "Tools",
    "still_clock",
]
