"""A tool of your own beside search and visit: a calculator.

    python examples/own_tool.py

The prompt, the reading of turns and the strict verdict follow from its schema.
"""

import ast
import operator

import gymnasium

import drv_env
from drv_env.protocol import Answer, ToolCall, render_turn
from drv_env.tools import Status, ToolResult, ToolSchema
from drv_env.tools.layers import Toolbox, tool
from drv_env.tools.offline import OfflineTools
from drv_env.worlds import WorldRecipe

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}
CALCULATOR = ToolSchema(
    "calculator",
    "Work out an arithmetic expression.",
    {
        "type": "object",
        "properties": {
            "expression": {"type": "string", "description": "Such as (1921 - 1312) * 2."}
        },
        "required": ["expression"],
    },
)


def evaluate(node: ast.expr) -> float:
    """The value of an expression of numbers, + - * / and brackets; nothing else is run."""
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.BinOp(left, op, right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](evaluate(left), evaluate(right))
        case ast.UnaryOp(op, operand) if type(op) in OPERATORS:
            return OPERATORS[type(op)](evaluate(operand))
    raise ValueError("only numbers, + - * / and brackets can be worked out")


async def calculate(expression: str) -> str | ToolResult:
    """What the agent sees.

    An expression that can't be worked out is the agent's mistake, and refused.  Raising
    would say that the calculator is out of order.
    """
    try:
        return f"{evaluate(ast.parse(expression[:200].strip(), mode='eval').body):g}"
    except (ValueError, SyntaxError, ArithmeticError, RecursionError) as error:
        return ToolResult(f"This can't be worked out: {error}.", Status.REFUSED)


CALCULATE = tool(CALCULATOR, calculate)
"""As the commands take it: ``--own-tools own_tool:CALCULATE``."""


def main() -> None:
    world = WorldRecipe(seed=7)
    env = gymnasium.make(
        drv_env.ENV_ID,
        tasks=[("How many years lie between 1312 and 1921?", "609")],
        tools=Toolbox(OfflineTools([world]), [CALCULATE]),
        render_mode="ansi",
    )
    _, info = env.reset(seed=0)
    print("in the prompt:", '"name": "calculator"' in info["messages"][0]["content"])
    turns = [
        render_turn("I subtract.", ToolCall("calculator", {"expression": "1921 - 1312"})),
        render_turn("I try something else.", ToolCall("calculator", {"expression": "open('x')"})),
        render_turn("It was 609.", Answer("609")),
    ]
    for turn in turns:
        _, reward, _, _, info = env.step(turn)
        print("verdict:", info["verdict"], " status:", info["tool_status"])
    print(env.render())
    print(f"\nanswer {info['answer']!r}, reward {reward}")
    env.close()


if __name__ == "__main__":
    main()
