"""What the calls cost, and an end to it."""

from __future__ import annotations

from collections import Counter

from drv_env import prompts
from drv_env.errors import ToolError
from drv_env.settings import at_least, checked_number
from drv_env.tools.base import Call, ToolResult, Tools
from drv_env.tools.layers.base import Layer


class BudgetSpent(ToolError):
    """The money for tool calls is used up; kind ``budget``, never retryable."""

    def __init__(self, message: str = "", **details: object) -> None:
        super().__init__(message or prompts.budget_of_cost(), kind="budget")


class CostMeter(Layer):
    """Adds up what calls cost, and refuses further ones when a budget is spent.

    Calls in flight when the budget is reached are finished: the sum may exceed it by
    what those cost.

    Args:
        tools: what is wrapped.
        budget: US dollars for all calls together, at least 0; None for no bound.

    Attributes:
        spent: US dollars so far.
        by_task: the same by the task's id; rollouts of one task count together.
        by_tool: the same by the tool's name.
    """

    def __init__(self, tools: Tools, budget: float | None = None) -> None:
        super().__init__(tools)
        if budget is not None:
            checked_number("budget", budget, at_least(0, "US dollars"))
        self.budget = budget
        self.spent = 0.0
        self.by_task: Counter[str] = Counter()
        self.by_tool: Counter[str] = Counter()

    async def call(self, call: Call) -> ToolResult:
        """Carry out one call within the budget.

        Raises:
            BudgetSpent: when it is used up.
        """
        if self.budget is not None and self.spent >= self.budget:
            raise BudgetSpent
        result = await self.checked(call)
        self.spent += result.cost
        if result.cost:
            self.by_task[call.task.id] += result.cost  # type: ignore[assignment]
            self.by_tool[call.name] += result.cost  # type: ignore[assignment]
        return result
