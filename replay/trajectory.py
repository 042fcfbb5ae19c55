"""A trajectory: everything one episode left behind, in text, numbers and tokens.

Made from an episode that is over; knows no files and no models.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from drv_env.context import Message
from drv_env.episode import Ending, Episode, Turn
from drv_env.errors import TaskDataError
from drv_env.protocol import Answer
from drv_env.rewards.information_gain import shows_result
from drv_env.rewards.records import TurnReward
from drv_env.settings import shown
from drv_env.tasks import Task
from replay.transcript import Transcript


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One turn as it is kept.

    Attributes:
        text: the assistant's turn, whole.
        thought: its thought, as read.
        action: ``search``, ``visit``, ``answer``, another tool's name, or None where no
            action could be read.
        problem: why it could not, or None.
        well_formed: the strict format verdict.
        tool: the tool that was called, or None.
        tool_status: ``ok``, ``empty``, ``refused`` or ``failed``, or None.
        latency: seconds of the call.
        cost: its price in US dollars.
        duplicate: whether the episode had made the call before.
        observation: text inside ``<tool_response>``, or None on the last turn.
        observation_kind: see :class:`drv_env.episode.ObservationKind`, or None.
        tokens: tokens of the turn, or None where nobody counted.
    """

    text: str
    thought: str
    action: str | None
    problem: str | None
    well_formed: bool
    tool: str | None = None
    tool_status: str | None = None
    latency: float = 0.0
    cost: float = 0.0
    duplicate: bool = False
    observation: str | None = None
    observation_kind: str | None = None
    tokens: int | None = None

    @classmethod
    def of(cls, turn: Turn) -> TurnRecord:
        """The record of an episode's turn."""
        call, result, observation = turn.call, turn.result, turn.observation
        written = turn.reading.written
        action = "answer" if isinstance(written, Answer) else getattr(written, "name", None)
        problem = turn.reading.problem
        return cls(
            text=turn.text,
            thought=turn.reading.thought,
            action=action,
            problem=None if problem is None else str(problem),
            well_formed=turn.well_formed,
            tool=None if call is None else call.name,
            tool_status=None if result is None else str(result.status),
            latency=0.0 if result is None else result.latency,
            cost=0.0 if result is None else result.cost,
            duplicate=call is not None and call.duplicate,
            observation=None if observation is None else observation.text,
            observation_kind=None if observation is None else str(observation.kind),
            tokens=turn.tokens,
        )


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One episode, over.

    Attributes:
        task: the question.
        opening: the messages before the first turn.
        turns: the turns in order.
        rewards: one record a turn.
        ending: how it ended.
        answer: the final answer, or None.
        error: why it broke, or None.
        transcript: the same in tokens, or None where it was played in text only.
        provenance: where it comes from: engine, weights, seed, file; plain values.
    """

    task: Task
    opening: tuple[Message, ...]
    turns: tuple[TurnRecord, ...]
    rewards: tuple[TurnReward, ...]
    ending: Ending
    answer: str | None = None
    error: str | None = None
    transcript: Transcript | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        episode: Episode,
        rewards: Sequence[TurnReward],
        transcript: Transcript | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> Trajectory:
        """The trajectory of an episode that is over.

        Raises:
            ValueError: when it isn't, or there is not one reward record a turn.
        """
        if episode.ending is None:
            raise ValueError("the episode is not over")
        if len(rewards) != len(episode.turns):
            raise ValueError(f"{len(episode.turns)} turns but {len(rewards)} reward records")
        return cls(
            task=episode.task,
            opening=tuple(dict(message) for message in episode.opening),
            turns=tuple(TurnRecord.of(turn) for turn in episode.turns),
            rewards=tuple(rewards),
            ending=episode.ending,
            answer=episode.answer,
            error=None if episode.error is None else str(episode.error),
            transcript=transcript,
            provenance=dict(provenance or {}),
        )

    @property
    def broken(self) -> bool:
        """Whether it must not count in any statistic."""
        return self.ending is Ending.BROKEN

    @property
    def outcome(self) -> float | None:
        """The outcome of its answer in [0, 1]; None where it broke."""
        return self.rewards[-1].outcome if self.rewards else None

    def scored_turns(self, tools: Collection[str], failed: bool = False) -> list[int]:
        """Numbers (from 1) of the turns after which the history is scored.

        Args:
            tools: whose calls are scored.
            failed: whether those that failed are, too.
        """
        return [
            number
            for number, turn in enumerate(self.turns, start=1)
            if shows_result(turn.tool, turn.tool_status, turn.observation_kind, tools, failed)
        ]


def weight_of(trajectory: Trajectory) -> float:
    """How often it counts: ``provenance["weight"]``, 1 without.

    Raises:
        TaskDataError: when that is no number from 0 to a million.
    """
    weight = trajectory.provenance.get("weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < 1e6:
        raise TaskDataError(f"a weight must be a number from 0 to a million, got {shown(weight)}")
    return float(weight)
