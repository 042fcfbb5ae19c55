"""What the options of tools, outcome and questions come to."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

from drv_env.errors import SettingError
from drv_env.settings import SEED, at_least, checked_whole
from drv_env.tasks import Task
from drv_env.tools.base import Tools
from drv_env.tools.layers import Toolbox, UserTool
from trainers.agent_file import Agent
from trainers.commands.agent_options import (
    Called,
    Part,
    TaskOptions,
    ToolKind,
    ToolOptions,
)
from trainers.commands.option_names import as_option
from trainers.plugins import TOOLS, tools_of, user_tools_of
from trainers.world_questions import asked_of_worlds, drawn, world_parts

WORLD = "world"
"""In place of a file: questions about the webs of the offline tools."""
WORLD_QUESTIONS = 200
SHOWN = 5
"""Bad rows that are told."""


@dataclass(frozen=True)
class ToolPlan:
    """Which tools, before they are made.

    Attributes:
        kind: what they work on, or the name of tools of the user's own.
        worlds: seeds of the webs of offline tools; none where they have pages of the user's own.
        options: the command line's.
        settings: of offline tools, and of what a recorded web knows beside its recordings; of
            live ones how much of a page is shown.
        called: what messages call an option.
        own: the user's tools that stand beside them.
    """

    kind: str
    worlds: tuple[int, ...]
    options: ToolOptions
    settings: dict[str, Any]
    called: Called = as_option
    own: tuple[UserTool, ...] = ()

    def asked(self) -> dict[str, Any]:
        """What must be the same for episodes to belong together; plain values."""
        own = self.options.own_tools
        return {**self._asked(), **({"own_tools": own} if own else {})}

    def _asked(self) -> dict[str, Any]:
        if self.kind not in get_args(ToolKind) or self.kind == "live":
            return {"tools": self.kind, **self.settings}
        if self.options.pages is not None:
            pages = self.options.pages.resolve()
            known = {"pages": str(pages), "pages_as": _fingerprint(pages)}
            return {"tools": "offline", **known, **self.settings}
        if self.kind == "recorded":
            web = str(Path(str(self.options.web)).resolve())
            return {"tools": "recorded", "web": web, **self.settings}
        return {"tools": "offline", "worlds": self.worlds, **self.settings}

    def make(self) -> Tools:
        """The tools; their owner closes them.

        Raises:
            SettingError: when a key is missing, or there is no such web.
            CassetteError: when the cassette can't be used.
            TaskDataError: when pages can't be read.
        """
        tools = self._made()
        return Toolbox(tools, self.own) if self.own else tools

    def _made(self) -> Tools:
        if self.kind == "offline":
            from drv_env.tools.offline import OfflineTools
            from drv_env.worlds.recipe import WorldRecipe

            if self.options.pages is not None:
                return OfflineTools.from_files(self.options.pages, **self.settings)
            return OfflineTools([WorldRecipe(seed) for seed in self.worlds], **self.settings)
        if self.kind == "recorded":
            from replay.web import RecordedWeb

            return RecordedWeb(str(self.options.web), **self.settings)
        if self.kind != "live":
            return tools_of(self.kind)
        from drv_env.tools.cassette import CassetteTools

        cassette = self.options.cassette
        if cassette is None:
            return self._live()
        if self.options.cassette_only:
            return CassetteTools(None, cassette, "replay")
        return CassetteTools(self._live(), cassette)

    def _live(self) -> Tools:
        from drv_env.secrets import Keys
        from drv_env.tools.live import LiveTools

        if Keys.from_env().serper is None:
            called = self.called
            raise SettingError(
                "SERPER_KEY_ID is not set, and live tools search with it: get a key at serper.dev "
                "and put it into the environment or .env; without keys there are invented webs "
                f"({called('world')}), recorded ones ({called('web')}) and pages of your own "
                f"({called('pages')})"
            )
        return LiveTools.from_env(**self.settings)


def _fingerprint(path: Path) -> str:
    """Tells the files of pages apart without reading them: names, sizes and times."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    facts = [
        (str(file.relative_to(path)), file.stat().st_size, file.stat().st_mtime_ns)
        for file in files
        if file.is_file()
    ]
    return hashlib.sha256(json.dumps(facts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def plan_tools(
    options: ToolOptions,
    own: Agent,
    wanted: ToolKind | None = None,
    called: Called = as_option,
    named: tuple[int, ...] = (),
) -> ToolPlan:
    """Which tools the options mean.

    Args:
        options: the command line's.
        own: what the checkpoint says of itself.
        wanted: the only kind that will do.
        called: what messages call an option.
        named: seeds of the invented webs that the questions name, where they do.

    Raises:
        SettingError: when options contradict each other, or one is missing.
    """
    for seed in options.world or ():
        checked_whole("world", seed, SEED)
    shown = _shown(options, called)
    settings = {**own["offline"], **shown}
    trained_in: tuple[int, ...] = settings.pop("worlds", ())
    trained_in = named or trained_in
    kind: str = options.tools or wanted or "live"
    if options.pages is not None and (wanted is not None or options.world):
        raise SettingError(
            f"{called('pages')} are pages of your own, about which there are no questions of a "
            f"world: leave out {called('pages')}, or {called('world')} and name a file of questions"
        )
    if options.tools is None and wanted is None:
        if options.web is not None:
            kind = "recorded"
        elif options.pages or (options.cassette is None and (options.world or trained_in)):
            kind = "offline"
    if wanted is not None and kind != wanted:
        raise SettingError(f"questions about a world need {called('tools')} {wanted}, not {kind}")
    for name, belongs in (
        ("world", "offline"),
        ("pages", "offline"),
        ("web", "recorded"),
        ("cassette", "live"),
    ):
        if getattr(options, name) not in (None, ()) and kind != belongs:
            raise SettingError(f"{called(name)} goes with {called('tools')} {belongs}, not {kind}")
    if options.cassette_only and options.cassette is None:
        raise SettingError(
            f"{called('cassette_only')} needs {called('cassette')}, the file to answer from"
        )
    if kind == "recorded" and options.web is None:
        raise SettingError(
            f"{called('tools')} recorded needs {called('web')}, a folder made by drv data web"
        )
    worlds: tuple[int, ...] = ()
    if kind == "offline" and options.pages is None:
        worlds = options.world or trained_in or (0,)
    beside: tuple[UserTool, ...] = ()
    if options.own_tools:
        beside = tuple(item for name in options.own_tools for item in user_tools_of(name))
    if kind not in get_args(ToolKind):
        TOOLS[kind]  # known, or refused before anything is loaded
        if shown:
            raise SettingError(
                f"{called(next(iter(shown)))} goes with the package's tools, not with {kind}"
            )
    if kind not in ("offline", "recorded"):
        settings = shown
    return ToolPlan(kind, worlds, options, settings, called, beside)


def _shown(options: ToolOptions, called: Called) -> dict[str, Any]:
    """How much of a page is shown, as far as the options say it."""
    if options.evidence_words is None:
        return {"whole_pages": True} if options.whole_pages else {}
    checked_whole(called("evidence_words"), options.evidence_words, at_least(1))
    if options.whole_pages:
        raise SettingError(
            f"{called('evidence_words')} and {called('whole_pages')} exclude each other; give one"
        )
    return {"evidence_words": options.evidence_words, "whole_pages": False}


def read_questions(
    options: TaskOptions,
    worlds: tuple[int, ...],
    seed: int,
    part: Part,
    say: Callable[[str], None],
    own: Mapping[str, Any] = MappingProxyType({}),
) -> list[Task]:
    """The questions to play.

    Args:
        options: the command line's.
        worlds: seeds of webs to ask about.
        seed: decides which are drawn.
        part: of a world's questions, where the options don't say.
        say: told of bad rows.
        own: what the checkpoint says of its questions (:func:`own_questions`).

    Raises:
        TaskDataError: when a file can't be read or has no task.
        SettingError: for options that can't work.
    """
    for name in ("part", "hops", "balanced"):
        if options.tasks != WORLD and getattr(options, name) is not None:
            raise SettingError(
                f"{as_option(name)} goes with questions about a world, not with a file"
            )
    for name in ("question_column", "answer_column", "id_column"):
        if options.tasks == WORLD and getattr(options, name) is not None:
            raise SettingError(
                f"{as_option(name)} goes with a file of questions, not with those about a world"
            )
    asked = asked_of_worlds(own, options.hops, options.balanced)
    chosen = options.part or own.get("part", part)
    tasks = all_questions(options.tasks, worlds, chosen, say, *asked, columns=options.columns())
    usual = len(tasks)
    if options.tasks == WORLD:
        usual = min(own.get("count", WORLD_QUESTIONS), usual)
    count = usual if options.questions is None else options.questions
    return drawn(tasks, count, seed, as_option("questions"))


def own_questions(own: Agent, source: str, part: Part) -> dict[str, Any]:
    """What a checkpoint says of the questions that are asked for.

    Args:
        own: all that it says of itself.
        source: a file, of which it says nothing, or :data:`WORLD`.
        part: that is usual; of training questions it says how they are, not how many.
    """
    known = own["questions"] if source == WORLD else {}
    of_evaluation = ("count", "part", "seed") if part == "train" else ()
    return {name: value for name, value in known.items() if name not in of_evaluation}


def all_questions(
    source: str,
    worlds: Sequence[int],
    part: Part,
    say: Callable[[str], None],
    hops: Sequence[int] = (),
    balance: random.Random | None = None,
    columns: Mapping[str, str | None] = MappingProxyType({}),
) -> list[Task]:
    """Every question of a file, or of a part of those about some webs.

    Args:
        source: a file, or :data:`WORLD`.
        worlds: seeds of the webs.
        part: of a world's questions.
        say: told of bad rows.
        hops, balance: of a world's questions, as for
            :func:`trainers.world_questions.world_parts`.
        columns: of a file, as for :func:`drv_env.task_files.read_tasks`.

    Raises:
        TaskDataError: when a file can't be read or has no task.
        SettingError: when there are no such questions about the worlds.
    """
    if source != WORLD:
        return _read_file(source, say, columns)
    found = world_parts(worlds, hops, balance)[part]
    if not found:
        raise SettingError(f"there are no questions of {', '.join(map(str, hops))} hops")
    return found


def _read_file(
    path: str, say: Callable[[str], None], columns: Mapping[str, str | None]
) -> list[Task]:
    from drv_env.printable import printable
    from drv_env.task_files import read_tasks

    found = read_tasks(
        path,
        question=columns.get("question"),
        answer=columns.get("answer"),
        id=columns.get("id"),
    )
    for problem in found.problems[:SHOWN]:
        say(f"left out: {printable(str(problem))}")
    if len(found.problems) > SHOWN:
        say(f"left out: {len(found.problems) - SHOWN:,} further bad rows")
    if found.duplicate_ids:
        first, times = next(iter(found.duplicate_ids.items()))
        say(
            f"{len(found.duplicate_ids):,} ids are of several rows, which are all played; the "
            f"first: {printable(first)}, {times:,} times"
        )
    return list(found.tasks)
