"""What ``drv rollout`` and ``drv eval`` share: an agent, its questions, and a folder to fill."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agents.evaluate import Evaluation, evaluate
from agents.meter import Meter
from agents.robust import RobustSampling
from agents.rollout import Rollout, RolloutSettings, stream
from agents.rollout_folder import RolloutFolder
from agents.scorers import with_scored_gains
from drv_env.episode import Ending
from drv_env.errors import DrvError
from drv_env.game import Game
from drv_env.printable import printable
from drv_env.protocol import Problem
from drv_env.rewards.information_gain import Scorer
from drv_env.tasks import Task
from replay.own_folder import refuse_overlap
from replay.store import read_trajectories
from replay.trajectory import Trajectory
from trainers.commands.agent_options import AgentOptions, PaceOptions, Part, TaskOptions, ToolKind
from trainers.commands.agent_setup import AgentPlan, plan_agent
from trainers.commands.opened import Opened
from trainers.commands.progress import shown
from trainers.commands.tool_setup import (
    ToolPlan,
    own_questions,
    plan_tools,
    read_questions,
)
from trainers.plugins import ENGINE, OUTCOMES, SCORERS, is_model, make_scorer, outcome_of
from trainers.registry import import_plugins
from trainers.world_questions import worlds_named


@dataclass
class Rolling:
    """Episodes to be played into a folder.

    Attributes:
        agent: who plays.
        tools: with what.
        tasks: the questions, in order.
        outcome: how answers are scored.
        pace: limits and deadlines.
        group_size: episodes of each task.
        retries: of a broken episode.
        console: standard error.
        inputs: files and folders that are read, which are no part of the folder.
        scorer: of each visit's information gain, by name; None scores none.
        broken: episodes of this run that stayed broken, without their transcripts.
    """

    agent: AgentPlan
    tools: ToolPlan
    tasks: list[Task]
    outcome: str
    pace: PaceOptions
    group_size: int
    retries: int
    console: Console
    inputs: Sequence[Path] = ()
    scorer: str | None = None
    broken: list[Trajectory] = field(default_factory=list)

    @classmethod
    def plan(
        cls,
        agent: AgentOptions,
        tasks: TaskOptions,
        pace: PaceOptions,
        outcome: str,
        part: Part,
        group_size: int,
        retries: int,
        scorer: str | None = None,
    ) -> Rolling:
        """Everything that can be known before the model is loaded.

        Raises:
            DrvError: naming the option or the file that can't work.
        """
        console = Console(stderr=True)
        say = teller(console)
        import_plugins(agent.plugged.plugins)
        OUTCOMES[outcome]  # known, or refused before anything is loaded
        if scorer is not None and not (scorer == ENGINE or is_model(scorer)):
            SCORERS[scorer]
        plan = plan_agent(agent, say)
        wanted: ToolKind | None = "offline" if tasks.tasks == "world" else None
        own = own_questions(plan.own, tasks.tasks, part)
        seed: int = own.get("seed", 0) if pace.seed is None else pace.seed
        pace = replace(pace, seed=seed)

        def read(worlds: tuple[int, ...] = ()) -> list[Task]:
            return read_questions(tasks, worlds, seed, part, say, own)

        found = [] if wanted else read()  # those of a file say themselves what they are about
        tools = plan_tools(agent.tools, plan.own, wanted, named=worlds_named(found))
        found = found or read(tools.worlds)
        inputs = [*agent.inputs(), *([] if tasks.tasks == "world" else [Path(tasks.tasks)])]
        return cls(plan, tools, found, outcome, pace, group_size, retries, console, inputs, scorer)

    def say(self, text: str) -> None:
        """Tell the user a line."""
        teller(self.console)(text)

    def settings(self) -> RolloutSettings:
        """Of the rollout.

        Raises:
            SettingError: naming a value that can't work.
        """
        pace = self.pace
        robust = None
        if pace.attempts != 1:
            robust = RobustSampling(attempts=pace.attempts, faults=pace.faults)
        return RolloutSettings(
            group_size=self.group_size,
            max_episodes=self.agent.parallel,
            max_requests=pace.max_requests,
            max_calls=pace.max_calls,
            turn_timeout=pace.turn_timeout,
            episode_timeout=pace.episode_timeout,
            stragglers=pace.stragglers,
            straggler_share=pace.straggler_share,
            retries=self.retries,
            robust=robust,
            seed=pace.seed,
        )

    def asked(self) -> dict[str, Any]:
        """What must be the same when the folder is gone on with."""
        pace = self.pace
        return {
            **self.agent.asked(),
            **self.tools.asked(),
            "outcome": self.outcome,
            "group_size": self.group_size,
            "seed": pace.seed,
            "attempts": pace.attempts,
            "faults": pace.faults if pace.attempts != 1 else None,
            **({} if self.scorer is None else {"scorer": self.scorer}),
        }

    def run(self, out: Path) -> RolloutFolder:
        """Play what the folder lacks.

        Raises:
            KeyboardInterrupt: after Ctrl-C; what was over is in the folder.
            DrvError: when something can't work.
        """
        settings = self.settings()
        refuse_overlap(out, self.inputs)
        folder = RolloutFolder(out, self.tasks, self.asked(), self.pace.flush_seconds)
        meter = Meter()
        if len(folder.done) == self.planned:
            return folder
        agent = self.agent
        with Opened() as opened:
            tools = opened.keep(self.tools.make())
            game = Game(
                self.tasks,
                tools,
                outcome=opened.keep_plugged(outcome_of(self.outcome)),
                rules=agent.rules(tools.schemas),
                counter=agent.counter,
            )
            engine = opened.keep(agent.start(self.pace.seed or 0))
            rollouts = stream(
                game,
                engine,
                agent.template,
                self.tasks,
                agent.sampling,
                settings,
                skip=folder.done,
                provenance={"model": agent.options.model, "seed": self.pace.seed},
                meter=meter,
            )
            if self.scorer is not None:
                scorer = make_scorer(self.scorer, engine, agent.template)
                opened.keep_plugged(scorer)
                rollouts = scored(rollouts, scorer)
            opened.run(self._fill(folder, rollouts, meter))
        return folder

    async def _fill(
        self, folder: RolloutFolder, rollouts: AsyncGenerator[Rollout, None], meter: Meter
    ) -> None:
        async with shown(meter, self.console), aclosing(folder.keep(rollouts)) as kept:
            async for item in kept:
                if item.trajectory.broken:
                    self.broken.append(replace(item.trajectory, transcript=None))

    @property
    def planned(self) -> int:
        """Episodes in all."""
        return len(self.tasks) * self.group_size

    def evaluation(self, folder: RolloutFolder) -> Evaluation:
        """Figures of the folder's whole episodes; broken ones are counted.

        Raises:
            DrvError: when there is no whole one, saying why.
        """
        if len(self.broken) == self.planned:
            first = printable(str(self.broken[0].error))
            raise DrvError(
                f"all {self.planned:,} episodes broke, so there is nothing to count; the first: "
                f"{first}"
            )
        problems: Counter[str | None] = Counter()
        played = _noting_problems(read_trajectories(folder.trajectories), problems)
        figures = evaluate(chain(played, self.broken))
        unread = figures.endings.get(str(Ending.FORCED_UNREADABLE), 0)
        if 2 * unread > self.planned:
            self.say(
                f"{unread:,} of {self.planned:,} episodes ended because nothing could be read turn "
                f"after turn; drv ask shows what the model writes, and {_remedy(problems)}"
            )
        return figures

    def reasons(self) -> Counter[str]:
        """Why episodes of this run broke, and how often."""
        return Counter(printable(str(item.error)) for item in self.broken)


def _noting_problems(
    trajectories: Iterable[Trajectory], problems: Counter[str | None]
) -> Iterator[Trajectory]:
    """The trajectories; why the turns of those that ended unread could not be read is counted."""
    for trajectory in trajectories:
        if trajectory.ending is Ending.FORCED_UNREADABLE:
            problems.update(turn.problem for turn in trajectory.turns)
        yield trajectory


def _remedy(problems: Counter[str | None]) -> str:
    """What to do about turns that could not be read, by what most of them lack."""
    if problems[Problem.NO_ACTION] > problems[Problem.NO_THOUGHT]:
        return (
            "--max-turn-tokens is for turns that are cut off before their call or answer: most "
            "have none in its tags"
        )
    return "--reading thought_optional is for models that write no <think>"


async def scored(
    rollouts: AsyncGenerator[Rollout, None], scorer: Scorer
) -> AsyncGenerator[Rollout, None]:
    """The rollouts with the information gain of each visit in their records."""
    async with aclosing(rollouts):
        async for item in rollouts:
            # on a thread: a scorer waits for its model
            found = await asyncio.to_thread(with_scored_gains, item.trajectory, scorer)
            yield replace(item, trajectory=found)


def teller(console: Console) -> Callable[[str], None]:
    """Prints plain lines."""
    return partial(console.print, markup=False, highlight=False, soft_wrap=True)


def print_table(console: Console, title: str, rows: Iterable[tuple[str, str]]) -> None:
    """Names and values."""
    table = Table(title=escape(title), show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in rows:
        table.add_row(escape(name), escape(value))
    console.print(table)
