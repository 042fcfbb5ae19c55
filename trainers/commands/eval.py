"""``drv eval``: how well an agent answers, with broken episodes run again and never counted.

Nothing heavy is imported before the command runs.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from trainers.commands.agent_options import USUAL_PACE, AgentOptions, PaceOptions, TaskOptions

if TYPE_CHECKING:
    from agents.evaluate import Evaluation
    from trainers.commands.rolling import Rolling

FIGURES = "eval.json"
SHOWN = 5
"""Reasons of broken episodes that are printed; --json has all of them."""


@dataclass(frozen=True, kw_only=True)
class EvalCommand:
    """Play questions several times and show accuracy, pass@k, endings, turns and tokens.

    Broken episodes (an engine, a judge or the tools were lost) are played again, and those that
    stay broken count in nothing but their own number.
    """

    tasks: Annotated[TaskOptions, tyro.conf.arg(name="")]
    agent: Annotated[AgentOptions, tyro.conf.arg(name="")]
    samples: int = 1
    """Episodes of each question."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="PATH", help_behavior_hint="")] = None
    """A folder to keep the episodes and eval.json; the same command goes on where it was. Without
    it nothing is kept."""
    json: bool = False
    """Print JSON in place of the table."""
    retries: int = 2
    """How often a broken episode is played again."""
    outcome: str = "exact"
    """How answers are scored: exact, f1, exact-cjk, f1-cjk, key-facts, judge; or one of your own,
    module:attribute or an entry point."""
    scorer: Annotated[str | None, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = None
    """Put each visit's information gain into the trajectories, by this scorer: engine (the model
    that plays), a model's folder, or one of your own, module:attribute or an entry point."""
    pace: Annotated[PaceOptions, tyro.conf.arg(name="")] = USUAL_PACE

    def run(self) -> None:
        """Play, and print the figures."""
        import json
        import sys
        from tempfile import TemporaryDirectory

        from rich.console import Console

        from drv_env.settings import at_least, checked_whole
        from drv_env.whole_files import write_text
        from trainers.commands.rolling import Rolling, print_table

        checked_whole("samples", self.samples, at_least(1))
        rolling = Rolling.plan(
            self.agent,
            self.tasks,
            self.pace,
            self.outcome,
            "test",
            self.samples,
            self.retries,
            self.scorer,
        )
        if self.out is not None:
            refuse_other_figures(self.out / FIGURES)
        with ExitStack() as stack:
            out = self.out
            if out is None:
                out = Path(stack.enter_context(TemporaryDirectory(prefix="drv-eval-")))
            try:
                folder = rolling.run(out)
            except KeyboardInterrupt:
                if self.out is not None:
                    rolling.say(f"{out} keeps the episodes that are over; the same command goes on")
                raise
            figures = rolling.evaluation(folder)
            told = report(self, rolling, figures)
            text = json.dumps(told, indent=2, ensure_ascii=True) + "\n"
            if self.out is not None:
                write_text(out / FIGURES, text)
        for reason, count in rolling.reasons().most_common(SHOWN):
            rolling.say(f"broken, {count:,} times: {reason}")
        if self.json:
            sys.stdout.write(text)
        else:
            title = f"{self.agent.model.model} on {self.tasks.tasks}"
            print_table(Console(), title, figures.rows())


def refuse_other_figures(file: Path) -> None:
    """Refuse a file that the figures would replace and that holds none.

    Raises:
        SettingError: naming it.
    """
    import os

    from drv_env.errors import SettingError
    from drv_env.whole_files import read_json

    if not os.path.lexists(file):
        return
    found = read_json(file) if file.is_file() else None
    if not isinstance(found, dict) or not {"source", "samples", "settings"} <= found.keys():
        raise SettingError(
            f"{file} holds no figures of drv eval and would be replaced; move it elsewhere"
        )


def report(command: EvalCommand, rolling: Rolling, figures: Evaluation) -> dict[str, Any]:
    """What --json prints and eval.json holds."""
    return {
        "source": command.tasks.tasks,
        "samples": command.samples,
        **figures.to_json(),
        "reasons": dict(rolling.reasons()),
        "settings": rolling.asked(),
    }
