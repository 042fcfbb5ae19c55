"""Information gain of recorded turns, scored by an engine on their transcripts.

For every scored history (the opening, and those right after a visit) the gold answer is
put behind it as a probe, and the engine gives the log-probs of its tokens.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agents.engines.base import Engine
from drv_env import background
from drv_env.rewards.information_gain import (
    GainKind,
    GoldAnswers,
    answers_to_score,
    best_value,
    check_settings,
    gains,
)
from replay.pieces import Ids
from replay.probe import AnswerProbe, answer_probe
from replay.template import ChatTemplate
from replay.trajectory import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class GainSettings:
    """What is scored, and how.

    Attributes:
        tools: names of the tools whose calls are scored.
        kind: difference of mean log-probs, or of their exponentials.
        answers: the first gold answer, or the best of all.
        probe: text put between history and answer; None for the template's default, which
            closes the thought and opens the answer.

    Raises:
        SettingError: for a setting that can't work.
    """

    tools: tuple[str, ...] = ("visit",)
    kind: GainKind = "log_prob_diff"
    answers: GoldAnswers = "first"
    probe: str | None = None

    def __post_init__(self) -> None:
        check_settings(self.kind, self.answers, self.tools)


def with_gains(
    trajectories: Sequence[Trajectory],
    engine: Engine,
    template: ChatTemplate,
    settings: GainSettings | None = None,
) -> list[Trajectory]:
    """The trajectories with the information gain of each scored turn in its record.

    Broken trajectories come back as they are.

    Raises:
        ValueError: when a trajectory has no transcript.
        EngineError: when the engine is lost.
    """
    used = settings or GainSettings()
    return background.run(_with_gains(trajectories, engine, template, used))


async def _with_gains(
    trajectories: Sequence[Trajectory],
    engine: Engine,
    template: ChatTemplate,
    settings: GainSettings,
) -> list[Trajectory]:
    return list(
        await asyncio.gather(
            *(_with_gain(trajectory, engine, template, settings) for trajectory in trajectories)
        )
    )


async def _with_gain(
    trajectory: Trajectory, engine: Engine, template: ChatTemplate, settings: GainSettings
) -> Trajectory:
    if trajectory.broken:
        return trajectory
    turns = trajectory.scored_turns(settings.tools)
    if not turns:
        return trajectory
    transcript = trajectory.transcript
    if transcript is None:
        raise ValueError(f"the trajectory of {trajectory.task.question!r:.80} has no transcript")
    probes = [
        answer_probe(template, answer, settings.probe)
        for answer in answers_to_score(trajectory.task.answers, settings.answers)
    ]
    values = await asyncio.gather(
        *(
            _value(engine, transcript.ids[: transcript.history_end(turn)], probes)
            for turn in (0, *turns)
        )
    )
    rewards = list(trajectory.rewards)
    for turn, gain in zip(turns, gains(values, settings.kind), strict=True):
        rewards[turn - 1] = dataclasses.replace(rewards[turn - 1], information_gain=gain)
    return dataclasses.replace(trajectory, rewards=tuple(rewards))


async def _value(engine: Engine, history: Ids, probes: Sequence[AnswerProbe]) -> float | None:
    """v of a history: mean log-prob of a gold answer's tokens behind it, the best of several."""
    found = await asyncio.gather(*(_mean_log_prob(engine, history, probe) for probe in probes))
    return best_value(found)


async def _mean_log_prob(engine: Engine, history: Ids, probe: AnswerProbe) -> float:
    ids = np.concatenate([history, probe.ids])
    span = (len(history) + probe.answer_start, len(ids))
    (log_probs,) = await engine.score(ids, [span])
    return float(np.mean(log_probs))
