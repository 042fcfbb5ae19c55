"""How rollouts are going: counts that grow while they run, and rates made of them.

Knows no episodes' contents and prints nothing; whoever wants to show progress asks for a
:class:`Progress` when it likes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from drv_env.episode import Ending, Episode
from replay.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class Progress:
    """A moment of a rollout.

    Attributes:
        episodes: to be played in all; those found done at the start not counted.
        over: episodes that are over for good, set-apart ones included.
        playing: episodes being played.
        broken: set apart: broken at their last attempt, or cancelled.
        retried: broken attempts that were, or will be, played again.
        hurried: stragglers that were asked for their answer.
        turns: turns played.
        tokens: tokens sampled in them.
        resampled: completions thrown away by robust sampling.
        seconds: since the start.
        tool_calls: calls by tool.
        tool_seconds: mean latency by tool.
        failures: what failed, by kind: ``search:timeout``, or the error's type for what
            broke an episode.
        endings: how the episodes over ended.
    """

    episodes: int
    over: int
    playing: int
    broken: int
    retried: int
    hurried: int
    turns: int
    tokens: int
    resampled: int
    seconds: float
    tool_calls: Mapping[str, int]
    tool_seconds: Mapping[str, float]
    failures: Mapping[str, int]
    endings: Mapping[str, int]

    @property
    def seconds_left(self) -> float | None:
        """Seconds that the rest takes at the pace so far; None while no episode is over."""
        if not self.over or self.seconds <= 0:
            return None
        return self.seconds / self.over * (self.episodes - self.over)

    @property
    def turns_per_s(self) -> float:
        """Turns a second since the start."""
        return self.turns / self.seconds if self.seconds > 0 else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Sampled tokens a second since the start."""
        return self.tokens / self.seconds if self.seconds > 0 else 0.0


@dataclass(slots=True)
class Meter:
    """Counts of one rollout; the rollout writes, :meth:`progress` reads.

    Args:
        clock: seconds.
    """

    clock: Callable[[], float] = time.perf_counter
    episodes: int = 0
    playing: int = 0
    broken: int = 0
    retried: int = 0
    hurried: int = 0
    turns: int = 0
    tokens: int = 0
    resampled: int = 0
    _started: float | None = None
    _calls: Counter[str] = field(default_factory=Counter)
    _seconds: Counter[str] = field(default_factory=Counter)
    _failures: Counter[str] = field(default_factory=Counter)
    _endings: Counter[str] = field(default_factory=Counter)

    def start(self, episodes: int) -> None:
        """So many episodes are to be played, from now on."""
        self.episodes += episodes
        if self._started is None:
            self._started = self.clock()

    def turn(self, episode: Episode, attempts: int) -> None:
        """A turn of ``episode`` was played."""
        turn = episode.turns[-1]
        self.turns += 1
        self.tokens += turn.tokens or 0
        self.resampled += attempts - 1
        if turn.call is None or turn.result is None:
            return
        name = turn.call.name
        self._calls[name] += 1
        self._seconds[name] += turn.result.latency  # type: ignore[assignment]
        if turn.result.status == "failed":
            data = turn.result.data
            kind = data.get("kind", "failed") if isinstance(data, Mapping) else "failed"
            self._failures[f"{name}:{kind}"] += 1

    def broke(self, error: BaseException) -> None:
        """An attempt at an episode broke."""
        self._failures[type(error).__name__] += 1

    def over(self, trajectory: Trajectory) -> None:
        """An episode is over for good."""
        self._endings[str(trajectory.ending)] += 1
        self.broken += trajectory.ending is Ending.BROKEN

    def progress(self) -> Progress:
        """The counts as they are now."""
        return Progress(
            episodes=self.episodes,
            over=self._endings.total(),
            playing=self.playing,
            broken=self.broken,
            retried=self.retried,
            hurried=self.hurried,
            turns=self.turns,
            tokens=self.tokens,
            resampled=self.resampled,
            seconds=0.0 if self._started is None else self.clock() - self._started,
            tool_calls=MappingProxyType(dict(self._calls)),
            tool_seconds=MappingProxyType(
                {name: self._seconds[name] / count for name, count in self._calls.items()}
            ),
            failures=MappingProxyType(dict(self._failures)),
            endings=MappingProxyType(dict(self._endings)),
        )
