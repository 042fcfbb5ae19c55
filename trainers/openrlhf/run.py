"""What one run on OpenRLHF is, as plain values that reach its processes in a file.

OpenRLHF's processes are made by Ray, on any node; each reads the file that the variable
``DRV_OPENRLHF_RUN`` names, so its folder must be one that all nodes see.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agents.engines.base import Sampling
from drv_env.context import ContextCounter
from drv_env.episode import Episode, Rules
from drv_env.errors import SettingError
from drv_env.game import Game
from drv_env.json_files import why_unread
from drv_env.play import Played
from drv_env.settings import SEED, above, at_least, check_fields
from drv_env.tasks import Task, task_from
from drv_env.tools.base import Tools
from drv_env.whole_files import write_text
from replay.template import ChatTemplate
from trainers.agent_file import Agent, agent_of
from trainers.commands.agent_options import ToolOptions
from trainers.commands.tool_setup import ToolPlan
from trainers.openrlhf.cluster import Cluster
from trainers.plugins import outcome_of, user_tools_of
from trainers.rl_config import RLConfig, usual_sampling
from trainers.runs.config_files import from_settings
from trainers.sft import SFTConfig

__all__ = [
    "Cluster",
    "FineTuning",
    "GameSpec",
    "OpenRLHFRun",
    "Reinforcement",
    "label_of",
    "read_run",
    "read_tasks",
    "task_of",
    "write_run",
    "write_tasks",
]

VARIABLE = "DRV_OPENRLHF_RUN"
"""Names the file in the environment of OpenRLHF's processes."""

FILE, TASKS = "openrlhf.json", "tasks.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class GameSpec:
    """The game that every process makes for itself.

    Attributes:
        tools: what search and visit work on, or the name of tools of the user's own.
        own_tools: names of the user's tools that stand beside them.
        pages: of the user's own, for offline tools.
        worlds: seeds of the webs of offline tools.
        tool_settings: of offline tools, or of a recorded web.
        web: the recorded web.
        cassette: keeps what live calls gave; each process opens it, on a file system where
            SQLite can lock.
        cassette_only: make no call that the cassette doesn't have.
        outcome: what scores answers.
        rules: arguments of :class:`drv_env.episode.Rules`, the tools left out; with
            ``max_context``, from which the trainer's and the engines' lengths follow.
        tool_timeout: seconds after which a call has failed.
        outcome_timeout: seconds after which a judge is lost.
    """

    tools: str = "offline"
    own_tools: tuple[str, ...] = ()
    pages: Path | None = None
    worlds: tuple[int, ...] = (0,)
    tool_settings: Mapping[str, Any] = field(default_factory=dict)
    web: Path | None = None
    cassette: Path | None = None
    cassette_only: bool = False
    outcome: str = "exact"
    rules: Mapping[str, Any] = field(default_factory=dict)
    tool_timeout: float = 60.0
    outcome_timeout: float = 300.0

    def __post_init__(self) -> None:
        check_fields(
            self,
            worlds=SEED,
            tool_timeout=above(0, "seconds"),
            outcome_timeout=above(0, "seconds"),
        )

    def make_tools(self) -> Tools:
        """The tools; their owner closes them."""
        options = ToolOptions(
            tools=self.tools,
            own_tools=self.own_tools,
            pages=self.pages,
            web=self.web,
            cassette=self.cassette,
            cassette_only=self.cassette_only,
        )
        beside = tuple(item for name in self.own_tools for item in user_tools_of(name))
        settings = _tuples(self.tool_settings)
        return ToolPlan(self.tools, self.worlds, options, settings, own=beside).make()

    def make(
        self, tasks: Sequence[Task], counter: ContextCounter, max_calls: int | None = None
    ) -> Game:
        """The game, with at most ``max_calls`` tool calls of all its episodes in flight."""
        tools = self.make_tools()
        return _BoundedGame(
            max_calls,
            tasks,
            tools,
            outcome=outcome_of(self.outcome),
            rules=Rules(tools=tuple(tools.schemas), **self.rules),
            counter=counter,
            tool_timeout=self.tool_timeout,
            outcome_timeout=self.outcome_timeout,
        )


class _BoundedGame(Game):
    """A game whose episodes, though each is a rollout of its own, share a bound on calls."""

    def __init__(self, max_calls: int | None, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._calls = None if max_calls is None else asyncio.Semaphore(max_calls)

    async def play_one(
        self,
        episode: Episode,
        text: str,
        limit: AbstractAsyncContextManager[Any] | None = None,
        prepare: Callable[[str], Awaitable[None]] | None = None,
    ) -> Played:
        """Play one turn; waiting for a place is no part of the call's time-out."""
        return await super().play_one(episode, text, limit or self._calls, prepare)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reinforcement:
    """IGPO or GRPO: the settings of the one-device trainer, and the game.

    Attributes:
        config: as for :func:`trainers.rl.train_rl`; ``credit`` says which of the two.
        game: what is played.
        plugins: modules that register the way to advantages that ``config`` names.
    """

    config: RLConfig
    game: GameSpec
    plugins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuning:
    """SFT on token documents.

    Attributes:
        config: as for :func:`trainers.sft.train_sft`.
        rows: a folder of ``drv data rows``.
        max_length: longer documents are cut at their end; None keeps them whole.
        agent: how the model plays, for the checkpoint's ``agent.json``.
    """

    config: SFTConfig
    rows: Path
    max_length: int | None = None
    agent: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_fields(self, max_length=at_least(2))


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRLHFRun:
    """One run.

    Attributes:
        model: a folder as ``save_pretrained`` writes it, seen by all nodes.
        out: the run's folder: metrics, trajectories, states, the final checkpoint.
        reinforcement: what is done; or
        fine_tuning: this.
        chat_template: Jinja text; None is the folder's own.
        gradient_checkpointing: much less memory for about a third more time.
        cluster: where.
        resume: go on from the last state in ``out``.

    Raises:
        SettingError: when there is not exactly one thing to do.
    """

    model: Path
    out: Path
    reinforcement: Reinforcement | None = None
    fine_tuning: FineTuning | None = None
    chat_template: str | None = None
    gradient_checkpointing: bool = False
    cluster: Cluster = field(default_factory=Cluster)
    resume: bool = False

    def __post_init__(self) -> None:
        if (self.reinforcement is None) == (self.fine_tuning is None):
            raise SettingError("a run is either a reinforcement or a fine_tuning")

    @property
    def rl(self) -> Reinforcement:
        """The reinforcement, in whose processes this is asked."""
        if self.reinforcement is None:
            raise SettingError("this run is no reinforcement")
        return self.reinforcement

    @property
    def final(self) -> Path:
        """The folder of the trained model."""
        return self.out / "checkpoints" / "final"

    @property
    def state(self) -> Path:
        """The folder of what a later run goes on from."""
        return self.out / "state"

    def template(self) -> ChatTemplate:
        """How messages become ids."""
        return ChatTemplate.from_folder(self.model, chat_template=self.chat_template)

    def sampling(self, template: ChatTemplate) -> Sampling:
        """Of every turn."""
        return self.rl.config.sampling or usual_sampling(Rules(**self.rl.game.rules), template)

    def described(self) -> Agent | None:
        """How the model plays, for whoever plays it later; see :mod:`trainers.agent_file`."""
        if self.fine_tuning is not None:
            agent = self.fine_tuning.agent
            return None if agent is None else {name: dict(part) for name, part in agent.items()}
        game, offline = self.rl.game, None
        if game.tools == "offline":
            offline = {"worlds": game.worlds, **game.tool_settings}
        return agent_of(game.rules, self.rl.config.sampling or Sampling(1), offline)

    def to_json(self) -> str:
        """Everything, as :func:`read_run` reads it."""
        return json.dumps(asdict(self), indent=2, default=str) + "\n"


def write_run(run: OpenRLHFRun) -> Path:
    """Write the file into the run's folder; its path."""
    path = run.out.resolve() / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, run.to_json())
    return path


def read_run(path: str | Path | None = None) -> OpenRLHFRun:
    """The run of a file; by default of the one that the environment names.

    Raises:
        SettingError: when no file is named, or it can't be read.
    """
    name = path or os.environ.get(VARIABLE)
    if not name:
        raise SettingError(f"{VARIABLE} must name the run's {FILE}; it is set when a run begins")
    try:
        found = json.loads(Path(name).read_text(encoding="utf-8"))
        return from_settings(OpenRLHFRun, found, str(name))
    except (OSError, ValueError, TypeError, SettingError) as error:
        raise SettingError(
            f"{name} can't be read: {why_unread(error)}; the run's folder must be one that every "
            "node sees"
        ) from None


def label_of(task: Task) -> str:
    """A task as the text that goes through OpenRLHF beside the question."""
    return json.dumps(asdict(task))


def task_of(label: str) -> Task:
    """The task of :func:`label_of`."""
    return task_from(json.loads(label))


def write_tasks(path: Path, tasks: Sequence[Task]) -> None:
    """The tasks as OpenRLHF's data set: one line each, ``input`` and ``label``."""
    lines = (json.dumps({"input": task.question, "label": label_of(task)}) for task in tasks)
    write_text(path, "".join(f"{line}\n" for line in lines))


def read_tasks(path: Path) -> list[Task]:
    """The tasks of :func:`write_tasks`."""
    with path.open(encoding="utf-8") as lines:
        return [task_of(json.loads(line)["label"]) for line in lines]


def _tuples(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()
    }
