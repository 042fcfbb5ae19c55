"""Who plays in a run of reinforcement, with what and about what, before a model is loaded.

Settings become the records that ``drv rollout`` and ``drv eval`` work with too
(:mod:`trainers.commands.agent_setup`, :mod:`trainers.commands.tool_setup`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agents.engines.base import Engine, Sampling
from agents.rollout import RolloutSettings
from drv_env.episode import Episode, Rules
from drv_env.errors import SettingError
from drv_env.tasks import Task
from drv_env.tools.base import SEARCH_SCHEMA, VISIT_SCHEMA, ToolSchema
from drv_env.unicode_text import caseless_text
from replay.template import ChatTemplate
from trainers.agent_file import Agent, agent_of
from trainers.commands.agent_options import (
    AgentOptions,
    ModelOptions,
    Part,
    SamplingOptions,
    ToolOptions,
)
from trainers.commands.agent_setup import AgentPlan, plan_agent
from trainers.commands.tool_setup import (
    WORLD,
    ToolPlan,
    all_questions,
    plan_tools,
)
from trainers.plugins import OUTCOMES
from trainers.runs.run_config import EngineSection, RLRun
from trainers.runs.running import chosen_device
from trainers.world_questions import asked_of_worlds, drawn, worlds_named

_CALLED = {
    "model": "model.folder",
    "chat_template": "model.chat_template",
    "parallel": "engine.parallel",
    "tools": "tools.kind",
    "own_tools": "tools.own",
}
_LONGEST = 8
"""Of so many of the questions with the most characters the tokens are counted."""


def _called(name: str) -> str:
    """What a run's configuration calls an option."""
    return _CALLED.get(name, f"tools.{name}")


@dataclass(frozen=True)
class Playing:
    """The agent, its tools and its questions.

    Attributes:
        run: the configuration.
        agent: the model and how it plays.
        tools: what search and visit work on.
        tasks: to train on.
        held_out: to evaluate on; none without evaluation.
        opening: tokens of the longest opening, system prompt and tools included.
    """

    run: RLRun
    agent: AgentPlan
    tools: ToolPlan
    tasks: list[Task]
    held_out: list[Task]
    opening: int

    @property
    def template(self) -> ChatTemplate:
        """How messages become ids."""
        assert self.agent.template is not None  # it has a folder
        return self.agent.template

    @property
    def context(self) -> int:
        """Tokens of an episode at most."""
        return int(self.agent.bounds["max_context"])

    @property
    def sampling(self) -> Sampling:
        """Of every turn that is trained on."""
        own = self.run.rl.sampling
        if own is None:
            return self.agent.sampling
        return own if own.stop_ids else replace(own, stop_ids=self.template.stop_ids)

    @property
    def parallel(self) -> int:
        """Episodes at once."""
        return min(self.agent.parallel, self.run.rl.tasks_per_step * self.run.rl.group_size)

    @property
    def rollout(self) -> RolloutSettings:
        """Of the rollouts: no more episodes at once than the engine plays."""
        asked = self.run.rl.rollout
        return replace(asked, max_episodes=min(asked.max_episodes, self.agent.parallel))

    def rules(self, schemas: Sequence[ToolSchema]) -> Rules:
        """What an episode allows."""
        return self.agent.rules(schemas)

    def start_engine(self) -> Engine:
        """The engine, with its own copy of the folder's weights; its owner closes it."""
        engine = self.run.engine
        more: dict[str, Any] = {}
        if engine.kind == "vllm" and engine.gpu_memory is not None:
            more["gpu_memory_utilization"] = engine.gpu_memory
        return self.agent.start(self.run.rl.seed, **more)  # type: ignore[return-value]

    def described(self) -> Agent:
        """How the trained model plays, for whoever plays it later."""
        offline = None
        if self.tools.kind == "offline" and self.tools.worlds:
            offline = {"worlds": self.tools.worlds, **self.tools.settings}
        questions = None
        if self.run.tasks.source == WORLD:
            hops, balance = _hops(self.run, self.agent)
            own = self.agent.own["questions"]
            questions = {"hops": hops, "balanced": balance is not None}
            questions = {name: value for name, value in questions.items() if value}
            questions |= {name: own[name] for name in ("count", "part", "seed") if name in own}
        return agent_of(self.agent.bounds, self.sampling, offline, questions)


def plan_playing(run: RLRun, say: Callable[[str], None]) -> Playing:
    """What the settings come to.

    Args:
        run: the configuration.
        say: told what it decides by itself.

    Raises:
        DrvError: naming the setting, or the file, that can't work.
    """
    agent = plan_agent(
        AgentOptions(
            model=ModelOptions(
                model=run.model.folder,
                engine=run.engine.kind,
                chat_template=run.model.chat_template,
                device=chosen_device(run.model),
                dtype=engine_dtype(run.engine, run.model.precision),
                parallel=run.engine.parallel,
            ),
            sampling=SamplingOptions(temperature=1.0, top_p=1.0, top_k=0, presence_penalty=0.0),
            rules=run.rules,
        ),
        say,
        called=_called,
    )
    asked = run.tools
    of_worlds = WORLD in (run.tasks.source, run.evaluation.source)
    found = ([], []) if of_worlds else _questions(run, agent, (), say)
    tools = plan_tools(
        ToolOptions(
            tools=asked.kind,
            own_tools=asked.own,
            pages=asked.pages,
            world=asked.world or None,
            web=asked.web,
            cassette=asked.cassette,
            cassette_only=asked.cassette_only,
            evidence_words=asked.evidence_words,
            whole_pages=asked.whole_pages,
        ),
        agent.own,
        "offline" if of_worlds else None,
        _called,
        worlds_named([*found[0], *found[1]]),
    )
    tasks, held_out = _questions(run, agent, tools.worlds, say) if of_worlds else found
    OUTCOMES[run.outcome]  # known, or refused before anything is loaded
    schemas = [SEARCH_SCHEMA, VISIT_SCHEMA, *(item.schema for item in tools.own)]
    return Playing(run, agent, tools, tasks, held_out, _opening(agent, tasks, schemas))


def engine_dtype(engine: EngineSection, precision: str) -> Any:
    """What the engine's weights and cache are held in."""
    return engine.dtype or ("bfloat16" if precision == "bfloat16" else "float32")


def _questions(
    run: RLRun, agent: AgentPlan, worlds: tuple[int, ...], say: Callable[[str], None]
) -> tuple[list[Task], list[Task]]:
    """Those to train on, and those held out."""
    asked, held = run.tasks, run.evaluation

    def read(source: str, part: Part) -> list[Task]:
        # each with a balance of its own, so that neither hangs on the other
        hops = _hops(run, agent)
        return all_questions(source, worlds, part, say, *hops, columns=asked.columns())

    tasks = read(asked.source, asked.part)
    held_out: list[Task] = []
    if held.every:
        source = held.source or asked.source
        own = held.source is None and asked.source != WORLD
        others = tasks if own else read(source, held.part)
        held_out = drawn(others, held.questions, run.rl.seed, "evaluation.questions")
        if own:  # of the run's own file: what is held out is not trained on
            apart = set(map(_identity, held_out))
            tasks = [task for task in tasks if _identity(task) not in apart]
            if not tasks:
                raise SettingError(
                    f"evaluation.questions holds out all {len(held_out):,} questions of "
                    f"{asked.source}; make it smaller"
                )
    if asked.questions is not None:
        tasks = drawn(tasks, asked.questions, run.rl.seed, "tasks.questions")
    shared = set(map(_identity, tasks)) & set(map(_identity, held_out))
    if shared:
        raise SettingError(
            f"{len(shared):,} of the held-out questions are trained on, such as "
            f"{min(shared)[1]!r:.80}; let evaluation name others"
        )
    return tasks, held_out


def _hops(run: RLRun, agent: AgentPlan) -> tuple[tuple[int, ...], random.Random | None]:
    """Of the questions about worlds, and what balances them."""
    asked = run.tasks
    return asked_of_worlds(agent.own["questions"], asked.hops, asked.balanced)


def _identity(task: Task) -> tuple[str, str]:
    """World and question, in whatever spelling."""
    return str(task.world or ""), caseless_text(task.question)


def _opening(agent: AgentPlan, tasks: Sequence[Task], schemas: Sequence[ToolSchema]) -> int:
    """Tokens of the longest opening.

    Raises:
        SettingError: when the context has no room for it and two turns.
    """
    longest = sorted(tasks, key=lambda task: -len(task.question))[:_LONGEST]
    rules = agent.rules(schemas)
    counter = agent.counter
    assert counter is not None  # there is a template
    found = 0
    for task in longest:
        try:
            found = max(found, Episode(task, rules, counter).context)
        except SettingError as error:
            told = str(error).replace("max_context=", "rules.max_context=")
            raise SettingError(f"{told} (the question: {task.question!r:.80})") from None
    return found
