"""Information gain of recorded turns, scored on their transcripts.

For every scored history (the opening, and those right after a visit) the gold answer is
put behind it as a probe, and the mean log-prob of its tokens is the history's value.

:func:`score_with_model` has the trainer's own model score all probes of a trajectory
against the trajectory's keys and values, in the pass that gives the log-probs of what was
sampled.  :func:`with_gains` asks an engine instead, probe by probe.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn

from agents.engines.base import Engine
from agents.scorers import NoScore, mean_log_prob, with_scored_gains
from drv_env import background
from drv_env.episode import Ending
from drv_env.rewards.information_gain import (
    GainKind,
    Scorer,
    answers_to_score,
    best_value,
    gains,
)
from replay.pieces import Ids
from replay.probe import AnswerProbe, answer_probe
from replay.template import ChatTemplate
from replay.trajectory import Trajectory
from replay.transcript import Transcript
from trainers.gain_settings import GainSettings, Method
from trainers.score_items import Branch, ScoreItem
from trainers.trajectory_scores import score_trajectories


@dataclass(frozen=True, slots=True)
class _Asked:
    """What of one trajectory is scored: the turns after which, and the probes behind each."""

    transcript: Transcript
    turns: list[int]
    probes: list[AnswerProbe]

    @classmethod
    def of(
        cls, trajectory: Trajectory, template: ChatTemplate, settings: GainSettings
    ) -> _Asked | None:
        """None where nothing is scored, as in a broken trajectory."""
        turns = (
            [] if trajectory.broken else trajectory.scored_turns(settings.tools, settings.failed)
        )
        if not turns:
            return None
        answers = answers_to_score(trajectory.task.answers, settings.answers)
        probes = [
            answer_probe(template, answer, settings.probe, settings.closed) for answer in answers
        ]
        return cls(_transcript(trajectory), turns, probes)

    def histories(self) -> list[int]:
        """Where the scored histories end, the opening's first."""
        return [self.transcript.history_end(turn) for turn in (0, *self.turns)]

    def reward(
        self, trajectory: Trajectory, values: Sequence[float | None], kind: GainKind
    ) -> Trajectory:
        """The trajectory with the gains of its scored turns."""
        rewards = list(trajectory.rewards)
        for turn, gain in zip(self.turns, gains(values, kind), strict=True):
            rewards[turn - 1] = dataclasses.replace(rewards[turn - 1], information_gain=gain)
        return dataclasses.replace(trajectory, rewards=tuple(rewards))


def _transcript(trajectory: Trajectory) -> Transcript:
    if trajectory.transcript is None:
        raise ValueError(f"the trajectory of {trajectory.task.question!r:.80} has no transcript")
    return trajectory.transcript


# ---- by the model: one pass a trajectory -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelScores:
    """What the model said of trajectories.

    Attributes:
        trajectories: with the information gain of each scored turn in its record.
        log_probs: for each trajectory one float32 array a turn, the raw log-probs of what
            was sampled; None for a broken trajectory.
    """

    trajectories: list[Trajectory]
    log_probs: list[list[NDArray[np.float32]] | None]

    def of(self, chosen: Sequence[int]) -> list[NDArray[np.float32]]:
        """Log-probs of all that was sampled in the trajectories with these indices.

        Raises:
            ValueError: when one of them broke.
        """
        found = []
        for index in chosen:
            turns = self.log_probs[index]
            if turns is None:
                raise ValueError(f"trajectory {index} broke, and was not scored")
            found.append(np.concatenate([np.zeros(0, np.float32), *turns]))
        return found


def score_with_model(
    trajectories: Sequence[Trajectory],
    model: nn.Module,
    template: ChatTemplate,
    settings: GainSettings | None = None,
    *,
    chunk_tokens: int = 8192,
    branch_tokens: int = 8192,
    method: Method = "auto",
) -> ModelScores:
    """Information gains, and log-probs of the completions, from one pass over each trajectory.

    Broken trajectories come back as they are.

    Args:
        trajectories: played; with their transcripts.
        model: whose belief counts, and whose log-probs are the old ones of an update.
        template: of the transcripts.
        settings: the defaults of :class:`GainSettings` if None.
        chunk_tokens: as the following, see
            :func:`trainers.trajectory_scores.score_trajectories`.
        branch_tokens: see there.
        method: see there.

    Raises:
        ValueError: when a trajectory that isn't broken has no transcript.
        SettingError: as :func:`trainers.trajectory_scores.score_trajectories`.
    """
    used = settings or GainSettings()
    whole = [index for index, item in enumerate(trajectories) if not item.broken]
    asked = [_Asked.of(trajectories[index], template, used) for index in whole]
    items = [
        score_item(_transcript(trajectories[index]))
        if one is None
        else score_item(one.transcript, one.histories(), one.probes)
        for index, one in zip(whole, asked, strict=True)
    ]
    scores = score_trajectories(
        model, items, chunk_tokens=chunk_tokens, branch_tokens=branch_tokens, method=method
    )
    found = list(trajectories)
    log_probs: list[list[NDArray[np.float32]] | None] = [None] * len(found)
    for index, one, score in zip(whole, asked, scores, strict=True):
        log_probs[index] = score.log_probs
        if one is not None:
            values = best_values(score.values, len(one.probes))
            found[index] = one.reward(found[index], values, used.kind)
    return ModelScores(found, log_probs)


def score_item(
    transcript: Transcript,
    histories: Sequence[int] = (),
    probes: Sequence[AnswerProbe] = (),
) -> ScoreItem:
    """A transcript's completions, and every probe behind every history, as what is scored.

    Args:
        transcript: of the trajectory.
        histories: where the scored histories end (:meth:`Transcript.history_end`).
        probes: behind each of them; branches come history by history.
    """
    completions = [
        (span.start, span.stop) for span in transcript.spans if span.kind == "completion"
    ]
    branches = [
        Branch(end, probe.ids, np.arange(len(probe.ids)) >= probe.answer_start)
        for end in histories
        for probe in probes
    ]
    return ScoreItem(transcript.ids, completions, branches)


def best_values(values: Sequence[float | None], probes: int) -> list[float | None]:
    """v of each history, the best over its ``probes`` values; None where there is none.

    Example:
        >>> best_values([-3.0, -2.0, None, -1.0, None, None], 2)
        [-2.0, -1.0, None]
    """
    return [
        max((value for value in values[at : at + probes] if value is not None), default=None)
        for at in range(0, len(values), probes)
    ]


# ---- by an engine: probe by probe ------------------------------------------------------------


def with_gains(
    trajectories: Sequence[Trajectory],
    engine: Engine,
    template: ChatTemplate,
    settings: GainSettings | None = None,
) -> list[Trajectory]:
    """The trajectories with the information gain of each scored turn in its record.

    Broken trajectories come back as they are, and one for which the engine gave no proper
    scores comes back broken.

    Raises:
        ValueError: when a trajectory has no transcript.
        EngineError: when the engine is lost.
    """
    used = settings or GainSettings()
    return background.run(gains_by_engine(trajectories, engine, template, used))


async def gains_by_engine(
    trajectories: Sequence[Trajectory],
    engine: Engine,
    template: ChatTemplate,
    settings: GainSettings,
) -> list[Trajectory]:
    """:func:`with_gains` on the caller's own event loop."""
    return list(
        await asyncio.gather(
            *(_with_gain(trajectory, engine, template, settings) for trajectory in trajectories)
        )
    )


def gains_by_scorer(
    trajectories: Sequence[Trajectory], scorer: Scorer, settings: GainSettings
) -> list[Trajectory]:
    """The trajectories with their gains by any scorer, which is given messages and no ids.

    As :func:`agents.scorers.with_scored_gains`; the probe is the scorer's own.
    """
    return [
        with_scored_gains(
            item, scorer, settings.tools, settings.kind, settings.answers, settings.failed
        )
        for item in trajectories
    ]


async def _with_gain(
    trajectory: Trajectory, engine: Engine, template: ChatTemplate, settings: GainSettings
) -> Trajectory:
    asked = _Asked.of(trajectory, template, settings)
    if asked is None:
        return trajectory
    ids = asked.transcript.ids
    try:
        values = await asyncio.gather(
            *(_value(engine, ids[:end], asked.probes) for end in asked.histories())
        )
    except NoScore as error:
        return dataclasses.replace(trajectory, ending=Ending.BROKEN, error=str(error))
    return asked.reward(trajectory, values, settings.kind)


async def _value(engine: Engine, history: Ids, probes: Sequence[AnswerProbe]) -> float | None:
    """v of a history: mean log-prob of a gold answer's tokens behind it, the best of several."""
    found = await asyncio.gather(*(mean_log_prob(engine, history, probe) for probe in probes))
    return best_value(found)
