"""Figures over many trajectories, counted as they stream by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from drv_env.tools.base import Status
from replay.trajectory import Trajectory


@dataclass(slots=True)
class Summary:
    """What trajectories are like.

    Attributes:
        trajectories: how many.
        endings: trajectories by ending.
        turns: trajectories by number of turns.
        tools: calls by tool.
        failed: failed calls by tool.
        duplicates: calls that the episode had made before.
        malformed: turns that are not well formed.
        outcomes: how many have an outcome.
        outcome_sum: of those outcomes.
        gains: turns with an information gain.
        gain_sum: of those gains.
        tokens: ids of all transcripts.
        agent_tokens: of them, the agent's.
        seconds: of all tool calls.
        cost: of all tool calls, in US dollars.
    """

    trajectories: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    turns: Counter[int] = field(default_factory=Counter)
    tools: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0
    malformed: int = 0
    outcomes: int = 0
    outcome_sum: float = 0.0
    gains: int = 0
    gain_sum: float = 0.0
    tokens: int = 0
    agent_tokens: int = 0
    seconds: float = 0.0
    cost: float = 0.0

    def add(self, trajectory: Trajectory) -> None:
        """Count one."""
        self.trajectories += 1
        self.endings[str(trajectory.ending)] += 1
        self.turns[len(trajectory.turns)] += 1
        if trajectory.outcome is not None:
            self.outcomes += 1
            self.outcome_sum += trajectory.outcome
        for turn, reward in zip(trajectory.turns, trajectory.rewards, strict=True):
            self.malformed += not turn.well_formed
            self.duplicates += turn.duplicate
            self.seconds += turn.latency
            self.cost += turn.cost
            if turn.tool is not None:
                self.tools[turn.tool] += 1
                self.failed[turn.tool] += turn.tool_status == Status.FAILED
            if reward.information_gain is not None:
                self.gains += 1
                self.gain_sum += reward.information_gain
        if trajectory.transcript is not None:
            self.tokens += len(trajectory.transcript)
            self.agent_tokens += int(trajectory.transcript.mask().sum())

    @property
    def all_turns(self) -> int:
        """Turns of all trajectories."""
        return sum(turns * count for turns, count in self.turns.items())

    def share_over(self, turns: int) -> float:
        """Share of trajectories with more than so many turns, in [0, 1]; 0.0 without any."""
        over = sum(count for length, count in self.turns.items() if length > turns)
        return over / self.trajectories if self.trajectories else 0.0

    def turns_at(self, share: float) -> int:
        """The number of turns that this share of the trajectories, in [0, 1], don't exceed."""
        reached = 0
        for turns in sorted(self.turns):
            reached += self.turns[turns]
            if reached >= share * self.trajectories:
                return turns
        return 0

    def figures(self) -> dict[str, str]:
        """The figures by name, as text for a table; those that nothing was known of left out."""
        count, turns = self.trajectories, self.all_turns
        found = {"trajectories": f"{count:,}"}
        if not count:
            return found
        for ending, number in self.endings.most_common():
            found[f"ending {ending}"] = f"{number:,} ({number / count:.1%})"
        if self.outcomes:
            found["mean outcome"] = f"{self.outcome_sum / self.outcomes:.3f} of {self.outcomes:,}"
        spread = " / ".join(f"{self.turns_at(share):,}" for share in (0.0, 0.5, 0.9, 1.0))
        found["turns"] = f"{turns:,}, {turns / count:.1f} a trajectory"
        found["turns: least / median / 90% / most"] = spread
        found["over 50 turns, over 100"] = f"{self.share_over(50):.1%}, {self.share_over(100):.1%}"
        for tool, number in self.tools.most_common():
            failed = f", {self.failed[tool]:,} failed" if self.failed[tool] else ""
            found[f"calls of {tool}"] = f"{number:,}{failed}"
        found["calls made before"] = f"{self.duplicates:,}"
        found["malformed turns"] = f"{self.malformed:,}"
        if self.gains:
            found["mean information gain"] = f"{self.gain_sum / self.gains:+.4f} of {self.gains:,}"
        if self.tokens:
            share = self.agent_tokens / self.tokens
            found["tokens"] = f"{self.tokens:,}, the agent's {share:.1%}"
        if self.seconds:
            found["seconds in tools"] = f"{self.seconds:,.1f}"
        if self.cost:
            found["cost of tools"] = f"US$ {self.cost:,.2f}"
        return found


def summarise(trajectories: Iterable[Trajectory]) -> Summary:
    """Count all of them; memory doesn't grow with their number."""
    summary = Summary()
    for trajectory in trajectories:
        summary.add(trajectory)
    return summary
