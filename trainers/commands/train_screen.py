"""How a run of training is going, on standard error: a bar on a terminal, else a line a step."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from agents.meter import Meter
from trainers.commands.progress import LINE_SECONDS

_SHOWN = (
    ("success", "success {:.0%}"),
    ("turns", "{:.1f} turns"),
    ("loss", "loss {:.3g}"),
    ("information_gain", "gain {:+.3f}"),
    ("held_out_loss", "held out {:.4f}"),
    ("well_formed", "well formed {:.0%}"),
    ("silent_groups", "silent {:.0%}"),
    ("broken", "{:.0f} broken"),
    ("tokens_per_s", "{:,.0f} tokens/s"),
)
"""Figures that are shown, where a step has them; in the bar the first three."""


class TrainScreen:
    """Shows a run; a context manager, inside which it is shown.

    Args:
        name: of the trainer.
        steps: of the run.
        done: of them, by an earlier life.
        meter: counts what is being played, where something is; without one, steps are short
            and a line comes every ten seconds.
        console: standard error by default.
    """

    def __init__(
        self,
        name: str,
        steps: int,
        done: int = 0,
        meter: Meter | None = None,
        console: Console | None = None,
    ) -> None:
        self._name, self._steps, self._done = name, steps, done
        self._console = console or Console(stderr=True)
        self._meter, self._within = meter, _Within(meter)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.fields[note]}"),
            self._within,
        )
        live = self._console.is_terminal
        self._progress = Progress(
            *columns, console=self._console, disable=not live, refresh_per_second=4
        )
        self._bar = self._progress.add_task(name, total=steps, completed=done, note="", left="")
        self._last = time.monotonic()
        self._spent = 0.0
        self._said = self._last

    def __enter__(self) -> TrainScreen:
        self._last = time.monotonic()
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._within.what = ""
        self._progress.stop()

    def say(self, text: str) -> None:
        """A line above the bar."""
        self._console.print(Text(text), soft_wrap=True)

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """A step is over."""
        now = time.monotonic()
        seconds, self._last = now - self._last, now
        self._spent += seconds
        left = self._spent / (step - self._done) * (self._steps - step)
        note = figures(metrics)
        short = " · ".join(note.split(" · ")[:3])
        self._progress.update(
            self._bar, completed=step, note=short, left=f"{_clock(left)} left" if left else ""
        )
        self._within.begin("rollouts")
        phases = ", ".join(
            f"{name[8:].replace('_', ' ')} {value:.1f}"
            for name, value in metrics.items()
            if name.startswith("seconds_") and value >= 0.05
        )
        due = self._meter is not None or now - self._said >= LINE_SECONDS
        if not (due or step == self._steps or "held_out_loss" in metrics):
            return
        self._said = now
        told = f"{self._name} step {step}/{self._steps} · {note} · {seconds:.1f} s"
        if phases:
            told += f" ({phases})"
        if left:
            told += f" · {_clock(left)} left"
        self.say(told)

    def evaluating(self) -> None:
        """The held-out questions are being played."""
        self._within.what = "evaluation"

    def evaluated(self, step: int, metrics: Mapping[str, float]) -> None:
        """They are over."""
        self._last = time.monotonic()
        self._within.begin("rollouts")
        self.say(f"{self._name} step {step}/{self._steps}, held out · {figures(metrics)}")


def figures(metrics: Mapping[str, float]) -> str:
    """The figures of a step in a line.

    Example:
        >>> figures({"success": 0.25, "loss": 0.5, "staleness": 0.0})
        'success 25% · loss 0.5'
    """
    told = [form.format(metrics[name]) for name, form in _SHOWN if name in metrics]
    if metrics.get("broken") == 0:
        told.remove("0 broken")
    return " · ".join(told)


class _Within(ProgressColumn):
    """What is going on inside a step."""

    def __init__(self, meter: Meter | None) -> None:
        super().__init__()
        self.what = "rollouts" if meter is not None else ""
        self._meter, self._before = meter, 0

    def begin(self, what: str) -> None:
        """Something begins; the meter's counts so far are an earlier step's."""
        if self._meter is not None:
            self.what, self._before = what, self._meter.progress().episodes

    def render(self, task: Task) -> Text:
        if self._meter is None or self.what != "rollouts":
            return Text(self.what)
        now = self._meter.progress()
        episodes = now.episodes - self._before
        if episodes <= 0:
            return Text("")
        return Text(f"{now.over - self._before}/{episodes} episodes, {now.playing} playing")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
