"""Layers over any tools, and a user's own tools beside them.

From the outside in, the order that serves most: ``Metrics``, ``Cache``, ``CostMeter``,
``Retry``, ``RateLimit``, ``InFlight``, ``TimeOut``, the backend.  docs/tools.md says why.
"""

from drv_env.tools.layers.base import Layer
from drv_env.tools.layers.cache import Cache
from drv_env.tools.layers.cost import BudgetSpent, CostMeter
from drv_env.tools.layers.limits import InFlight, RateLimit, TimeOut
from drv_env.tools.layers.metrics import Metrics
from drv_env.tools.layers.retry import Retry
from drv_env.tools.layers.toolbox import Toolbox, UserTool, tool

__all__ = [
    "BudgetSpent",
    "Cache",
    "CostMeter",
    "InFlight",
    "Layer",
    "Metrics",
    "RateLimit",
    "Retry",
    "TimeOut",
    "Toolbox",
    "UserTool",
    "tool",
]
