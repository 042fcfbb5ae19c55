"""Recorded trajectories played again through the env, and compared turn by turn.

The recorded turns are the actions; the env reads them, asks the recorded web and gives its
observations.  The rules follow the recording: its system prompt, the tools that were
called, and the budget that ran out where the answer was asked for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from drv_env.env import DeepResearchEnv
from drv_env.episode import Budget, Ending, Rules
from drv_env.rewards.records import TurnReward
from drv_env.tasks import Task
from drv_env.tools.base import Tools
from replay.observations import asked_budget
from replay.recorded import recording_id, rule_of
from replay.trajectory import Trajectory, TurnRecord
from replay.web import RECORDING


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first turn that did not come out as recorded.

    Attributes:
        trajectory: number of the trajectory, from 0.
        turn: number of the turn, from 1; 0 for the opening.
        reason: what was different, in a few words.
        recorded: the recorded observation.
        replayed: the env's, or "" where there was none.
    """

    trajectory: int
    turn: int
    reason: str
    recorded: str
    replayed: str

    @property
    def where(self) -> str:
        """The place in words."""
        return f"trajectory {self.trajectory}, turn {self.turn}: {self.reason}"

    def describe(self, most: int = 160) -> str:
        """The place, and both texts from shortly before where they part."""
        pairs = zip(self.recorded, self.replayed, strict=False)
        at = next(
            (index for index, (one, other) in enumerate(pairs) if one != other),
            min(len(self.recorded), len(self.replayed)),
        )
        start = max(0, at - 40)
        shown = [text[start : start + most] for text in (self.recorded, self.replayed)]
        return (
            f"first difference: {self.where}, character {at}\n"
            f"  recorded: {shown[0]!r}\n  replayed: {shown[1]!r}"
        )


@dataclass(frozen=True, slots=True)
class Replay:
    """A recording played again.

    Attributes:
        trajectory: what the env made of it.
        compared: recorded observations.
        matched: those that came back byte for byte.
        first: the first that didn't, or None.
    """

    trajectory: Trajectory
    compared: int
    matched: int
    first: Mismatch | None


@dataclass(slots=True)
class ReplayCheck:
    """Figures over many replays.

    Attributes:
        trajectories: how many were played.
        whole: of them, those of which every turn matched.
        turns: recorded observations.
        matched: those that came back byte for byte.
        first: the first that didn't, or None.
    """

    trajectories: int = 0
    whole: int = 0
    turns: int = 0
    matched: int = 0
    first: Mismatch | None = None

    @property
    def passed(self) -> bool:
        """Whether there was anything, and all of it matched."""
        return self.trajectories > 0 and self.whole == self.trajectories


def replay_trajectory(trajectory: Trajectory, tools: Tools, number: int = 0) -> Replay:
    """Play a recorded trajectory through the env, its turns as they were written.

    Args:
        trajectory: the recording, from any source.
        tools: a :class:`replay.web.RecordedWeb` that holds it, with its tools
            (``recorded_tools=True``); stays open.
        number: of the trajectory, for the report.

    Returns:
        The trajectory that the env made, without transcript, and how it compares.
    """
    opening = trajectory.opening
    system = opening[0]["content"] if opening[0]["role"] == "system" else ""
    task = dataclasses.replace(
        trajectory.task,
        question=opening[-1]["content"],
        metadata={**trajectory.task.metadata, RECORDING: recording_id(trajectory)},
    )
    budget, forced = _forced(trajectory)
    rules = Rules(
        tools=tuple(tools.schemas),
        system_prompt=system,
        max_turns=len(trajectory.turns) + 1,
        max_failures=len(trajectory.turns) + 1,
        max_unreadable=None,
        reading=rule_of(trajectory),
    )
    recorded_outcome = trajectory.outcome or 0.0

    def outcome(answer: str, task: Task) -> float:
        return recorded_outcome

    env = DeepResearchEnv([task], tools, outcome=outcome, rules=rules)
    env.reset(options={"task": task})
    rewards: list[TurnReward] = []
    compared, matched = 0, 0
    first: Mismatch | None = None
    if list(env.episode.opening) != [dict(message) for message in opening]:
        roles = [message["role"] for message in opening]
        first = Mismatch(number, 0, f"the env can't open with messages {roles}", "", "")
    for index, turn in enumerate(trajectory.turns, start=1):
        if budget is not None and index == forced:
            env.episode.cut_short(budget)
        if env.episode.ending is None:
            if turn.observation is None and turn.action not in (None, "answer"):
                break  # the recording ends with a call that was never answered
            rewards.append(env.step(turn.text)[4]["turn_reward"])
            played = env.episode.turns[-1].observation
        else:
            played = None
        if turn.observation is None:
            continue
        compared += 1
        if played is not None and played.text == turn.observation:
            matched += 1
        elif first is None:
            reason = "the episode was over" if played is None else str(played.kind)
            first = Mismatch(
                number, index, reason, turn.observation, "" if played is None else played.text
            )
    return Replay(_played(env, rewards, trajectory), compared, matched, first)


def check_replay(trajectories: Iterable[Trajectory], tools: Tools) -> ReplayCheck:
    """Play many recordings; see :func:`replay_trajectory`."""
    check = ReplayCheck()
    for number, trajectory in enumerate(trajectories):
        replay = replay_trajectory(trajectory, tools, number)
        check.trajectories += 1
        check.turns += replay.compared
        check.matched += replay.matched
        check.whole += replay.first is None
        if check.first is None:
            check.first = replay.first
    return check


def _forced(trajectory: Trajectory) -> tuple[Budget | None, int]:
    """The budget that ran out, and in which turn, from 1."""
    for number, turn in enumerate(trajectory.turns, start=1):
        budget = None if turn.observation is None else asked_budget(turn.observation)
        if budget is not None:
            return budget, number
    return None, 0


def _played(env: DeepResearchEnv, rewards: list[TurnReward], source: Trajectory) -> Trajectory:
    """What was played; an episode that its recording left open ends without an answer."""
    episode = env.episode
    if episode.ending is not None:
        return Trajectory.of(episode, rewards, None, source.provenance)
    return Trajectory(
        task=episode.task,
        opening=tuple(dict(message) for message in episode.opening),
        turns=tuple(TurnRecord.of(turn) for turn in episode.turns),
        rewards=tuple(rewards),
        ending=Ending.NO_ANSWER,
        provenance=dict(source.provenance),
    )
