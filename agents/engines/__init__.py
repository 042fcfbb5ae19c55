"""Engines: one async interface to a model, on token ids.

Importing this package imports no torch; each engine's own module brings what it needs.
"""

from agents.engines.base import (
    ChatEngine,
    Completion,
    Engine,
    Ids,
    Reply,
    Sampling,
    Spans,
    WeightSource,
)

__all__ = [
    "ChatEngine",
    "Completion",
    "Engine",
    "Ids",
    "Reply",
    "Sampling",
    "Spans",
    "WeightSource",
]
