"""``drv ask``: one question, answered before one's eyes.

Nothing heavy is imported before the command runs.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from trainers.commands.agent_options import AgentOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.research import Event
    from drv_env.tasks import Task
    from replay.trajectory import Trajectory
    from trainers.commands.agent_setup import AgentPlan
    from trainers.commands.tool_setup import ToolPlan


@dataclass(frozen=True, kw_only=True)
class AskCommand:
    """Ask an agent a question; show what it thinks, calls and finds, its answer and sources."""

    question: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="QUESTION")]
    """The question."""
    agent: Annotated[AgentOptions, tyro.conf.arg(name="")]
    json: bool = False
    """Print one JSON object at the end in place of what happens."""
    save: Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")] = None
    """Store the trajectory in this Parquet file."""
    force: bool = False
    """Let --save replace a file that exists."""
    turn_timeout: float = 1800.0
    """Seconds for one turn of the model."""
    seed: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Fixes the sampling; without it every asking is another."""

    def run(self) -> None:
        """Ask, and print."""
        import json

        from rich.console import Console

        from drv_env.errors import DrvError
        from drv_env.whole_files import output, refuse_output
        from replay.store import fill_trajectories
        from trainers.commands.agent_setup import plan_agent
        from trainers.commands.ask_screen import Screen
        from trainers.commands.rolling import teller
        from trainers.commands.tool_setup import plan_tools
        from trainers.registry import import_plugins

        if self.save is not None:
            folders = (Path(self.agent.model.model), self.agent.model.tokenizer)
            read = [*self.agent.inputs(), *folders, self.agent.tools.cassette]
            refuse_output(self.save, [each for each in read if each is not None], self.force)
        import_plugins(self.agent.plugged.plugins)
        plan = plan_agent(self.agent, teller(Console(stderr=True)), parallel=1)
        tools = plan_tools(self.agent.tools, plan.own)
        task = _task(self.question, tools)
        if self.json:
            trajectory, seconds = self._play(plan, tools, task, None)
        else:
            with Screen() as screen:
                trajectory, seconds = self._play(plan, tools, task, screen.show)
        if self.save is not None:
            with output(self.save, self.force) as temporary:
                fill_trajectories(temporary, [trajectory])
        told = report(trajectory, seconds)
        if self.json:
            sys.stdout.write(json.dumps(told, indent=2, ensure_ascii=True) + "\n")
        else:
            screen.end(told)
        if trajectory.broken:
            raise DrvError(f"the episode broke: {trajectory.error}")

    def _play(
        self,
        plan: AgentPlan,
        tool_plan: ToolPlan,
        task: Task,
        on_event: Callable[[Event], None] | None,
    ) -> tuple[Trajectory, float]:
        """The trajectory, and the seconds it took."""
        import secrets
        import time

        from agents.research import research
        from agents.rollout import RolloutSettings
        from drv_env.game import Game
        from trainers.commands.opened import Opened

        seed = secrets.randbelow(2**31) if self.seed is None else self.seed
        settings = RolloutSettings(retries=0, turn_timeout=self.turn_timeout, seed=seed)
        with Opened() as opened:
            tools = opened.keep(tool_plan.make())
            game = Game([task], tools, rules=plan.rules(tools.schemas), counter=plan.counter)
            engine = opened.keep(plan.start(seed))
            started = time.monotonic()
            trajectory = opened.run(
                research(
                    game,
                    engine,
                    plan.template,
                    task,
                    plan.sampling,
                    settings,
                    on_event=on_event,
                    provenance={"model": plan.options.model, "seed": seed},
                )
            )
            return trajectory, time.monotonic() - started


def report(trajectory: Trajectory, seconds: float) -> dict[str, Any]:
    """What --json prints."""
    from dataclasses import asdict

    from agents.research import sources

    tokens = [turn.tokens for turn in trajectory.turns if turn.tokens is not None]
    return {
        "question": trajectory.task.question,
        "answer": trajectory.answer,
        "ending": str(trajectory.ending),
        "error": trajectory.error,
        "sources": [asdict(source) for source in sources(trajectory)],
        "turns": len(trajectory.turns),
        "unread": _unread(trajectory),
        "hint": _hint(trajectory),
        "tokens": sum(tokens) if tokens else None,
        "seconds": round(seconds, 3),
        "cost": sum(turn.cost for turn in trajectory.turns),
        "provenance": dict(trajectory.provenance),
    }


def _unread(trajectory: Trajectory) -> list[dict[str, Any]]:
    """The turns of which nothing could be read, and why."""
    from drv_env.protocol import UNUSABLE_ARGUMENTS

    return [
        {"turn": number, "problem": turn.problem, "text": turn.text}
        for number, turn in enumerate(trajectory.turns, start=1)
        if turn.problem is not None and turn.problem not in UNUSABLE_ARGUMENTS
    ]


def _hint(trajectory: Trajectory) -> str | None:
    """What would make an episode without an answer readable, if it is known."""
    from drv_env.protocol import Problem, read_turn

    if trajectory.answer is not None:
        return None
    bare = [turn.text for turn in trajectory.turns if turn.problem == Problem.NO_THOUGHT]
    if not any(read_turn(text, "thought_optional").action for text in bare):
        return None
    return (
        "The model writes calls and answers without <think>: --reading thought_optional reads "
        "them, --reading default needs a thought."
    )


def _task(question: str, tools: ToolPlan) -> Task:
    from agents.research import question_task
    from drv_env.errors import SettingError

    if not tools.worlds:
        return question_task(question)
    from drv_env.worlds.recipe import WorldRecipe

    if tools.options.world is not None and len(tools.worlds) > 1:
        raise SettingError("a question is about one world: give --world one seed")
    if len(tools.worlds) > 1:
        sys.stderr.write(
            f"asked about world {tools.worlds[0]}, the first of {len(tools.worlds)} that the model "
            "was trained in; --world takes another\n"
        )
    return question_task(question, WorldRecipe(tools.worlds[0]).name)
