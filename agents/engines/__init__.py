"""Engines: one async interface to a model, on token ids.

Importing this package imports no torch; each engine's own module brings what it needs.
"""

from drv_env.own_names import refuse_others

refuse_others("replay")  # before a script's own replay.py would be run in its place

from agents.engines.base import (  # noqa: E402
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
