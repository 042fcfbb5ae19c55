"""``drv world``: questions and pages of the invented webs, as files.

Nothing heavy is imported before a command runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from trainers.commands.agent_options import Part

if TYPE_CHECKING:
    from drv_env.tasks import Task

_Seeds = Annotated[tyro.conf.Positional[tuple[int, ...]], tyro.conf.arg(metavar="SEED [SEED …]")]
_Out = Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")]


@dataclass(frozen=True)
class WorldQuestions:
    """Print the questions about worlds as JSON lines, as drv eval and drv rollout read them.

    Each has question, answer, id and world, and what is known of its chain.
    """

    world: _Seeds
    """Seeds of the worlds."""
    hops: Annotated[
        tuple[int, ...] | None, tyro.conf.arg(metavar="[INT …]", help_behavior_hint="")
    ] = None
    """How many facts a question chains: 1 2 3 by default."""
    part: Annotated[
        Part | None,
        tyro.conf.arg(metavar="{train,validation,test}", help_behavior_hint=""),
    ] = None
    """Only those of a part; parts share no entity that a question starts from."""
    questions: Annotated[int | None, tyro.conf.arg(metavar="INT", help_behavior_hint="")] = None
    """Draw so many; all by default."""
    seed: int = 0
    """Decides which are drawn, as it does for drv eval."""
    out: _Out = None
    """Write them into this file, whose name ends in .jsonl, in place of printing them."""
    force: bool = False
    """Let --out replace a file that exists."""

    def run(self) -> None:
        """Print or write them."""
        write_lines(map(_row, self._tasks()), self.out, self.force)

    def _tasks(self) -> list[Task]:
        from trainers.world_questions import drawn, world_parts

        refuse_no_world(self.world)
        parts = world_parts(self.world, self.hops or ())
        chosen = parts.values() if self.part is None else [parts[self.part]]
        tasks = [task for part in chosen for task in part]
        if self.questions is None:
            return tasks
        return drawn(tasks, self.questions, self.seed, "--questions")


@dataclass(frozen=True)
class WorldPages:
    """Print the pages of worlds as JSON lines, as --pages reads them.

    Each has url, title, text, links and world.
    """

    world: _Seeds
    """Seeds of the worlds."""
    out: _Out = None
    """Write them into this file, whose name ends in .jsonl, in place of printing them."""
    force: bool = False
    """Let --out replace a file that exists."""

    def run(self) -> None:
        """Print or write them."""
        from dataclasses import asdict

        from drv_env.worlds.recipe import WorldRecipe

        refuse_no_world(self.world)
        recipes = [WorldRecipe(seed) for seed in self.world]
        rows = (
            {**asdict(page), "world": recipe.name}
            for recipe in recipes
            for page in recipe.build().pages.values()
        )
        write_lines(rows, self.out, self.force)


def refuse_no_world(seeds: tuple[int, ...]) -> None:
    """Refuse a command without a seed, and one that is none.

    Raises:
        SettingError: saying what to give.
    """
    from drv_env.errors import SettingError
    from drv_env.settings import SEED, checked_whole

    if not seeds:
        raise SettingError("name the seed of a world, such as 7")
    for seed in seeds:
        checked_whole("the seed of a world", seed, SEED)


def write_lines(rows: Iterable[Mapping[str, Any]], out: Path | None, force: bool) -> None:
    """Rows as JSON lines: into a file, whole or not at all, or printed.

    Raises:
        SettingError: for a file of another kind, or one that exists.
        DiskError: when the disk is full.
    """
    import json
    import sys

    from drv_env.errors import SettingError
    from drv_env.whole_files import output, refuse_output

    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    if out is None:
        sys.stdout.writelines(lines)
        return
    if out.suffix not in (".jsonl", ".ndjson"):
        raise SettingError(f"--out {out}: JSON lines are written, into a file named NAME.jsonl")
    refuse_output(out, (), force)
    with output(out, force) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(lines)


def _row(task: Task) -> dict[str, Any]:
    known = {"question": task.question, "answer": task.answers[0], "id": task.id}
    return {**known, "world": task.world, **task.metadata}


WorldCommand = (
    Annotated[WorldQuestions, tyro.conf.subcommand("questions")]
    | Annotated[WorldPages, tyro.conf.subcommand("pages")]
)


@dataclass(frozen=True)
class World:
    """The invented webs: their questions and pages, written as files."""

    command: Annotated[WorldCommand, tyro.conf.arg(name="")]

    def run(self) -> None:
        """Run the command."""
        self.command.run()
