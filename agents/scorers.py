"""Scorers for information gain: what a model believes of an answer, at a point of an episode.

:class:`EngineScorer` asks any :class:`agents.engines.base.Engine`; :class:`TransformersScorer`
has a model's folder and an engine of its own.  Both are what
:class:`drv_env.InformationGainReward` takes.  Nothing heavy is imported before a folder is
loaded.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from agents.engines.base import Engine
from agents.engines.checks import checked_scores
from drv_env import background
from drv_env.context import Message
from drv_env.episode import Ending
from drv_env.errors import DrvError, EngineError, SettingError, boundary
from drv_env.rewards.information_gain import (
    GainKind,
    GoldAnswers,
    Scorer,
    gains,
    history_value,
)
from replay.pieces import Ids
from replay.probe import AnswerProbe, answer_probe
from replay.recorded import to_messages
from replay.sft_rows import transcribe_messages
from replay.template import ChatTemplate
from replay.trajectory import Trajectory
from replay.transcript import Transcript


class NoScore(EngineError):
    """The engine is there, but what it gave is no score."""


async def mean_log_prob(engine: Engine, history: Ids, probe: AnswerProbe) -> float:
    """Mean log-prob of the answer's ids behind a history.

    Raises:
        NoScore: when what the engine gives is none.
        EngineError: when it is lost.
    """
    ids = np.concatenate([history, probe.ids])
    span = (len(history) + probe.answer_start, len(ids))
    found = await engine.score(ids, [span])
    try:
        (log_probs,) = checked_scores(found, [span])
    except EngineError as error:
        raise NoScore(f"information gain: {error}") from None
    return float(np.mean(log_probs))


class EngineScorer:
    """The belief of the model that an engine runs; a ``Scorer`` for the reward wrappers.

    The answer stands behind the history as it does in training: the thought is closed, the
    answer opened, and the mean is over the answer's tokens alone (:mod:`replay.probe`).

    Args:
        engine: anything with ``score``; held by reference, and closed by its owner.
        template: how messages become ids.
        probe: text between history and answer; None for the template's default.
        closed: whether the answer's ids are those that it has before ``</answer>``.

    Example (``engine`` plays, and ``template`` is its model's)::

        env = drv_env.InformationGainReward(env, EngineScorer(engine, template))
    """

    def __init__(
        self,
        engine: Engine,
        template: ChatTemplate,
        *,
        probe: str | None = None,
        closed: bool = False,
    ) -> None:
        if not callable(getattr(engine, "score", None)):
            raise SettingError(
                "a scorer needs an engine with score(ids, spans), got "
                f"{type(engine).__name__}; chat servers don't give log-probs of a text"
            )
        self.engine = engine
        self.template = template
        self._probe = probe
        self._closed = closed

    def score(
        self, messages: Sequence[Message], answer: str, transcript: object | None = None
    ) -> float:
        """Mean log-prob per token of ``answer`` as the next turn's answer.

        Args:
            messages: the history; see :func:`replay.sft_rows.transcribe_messages`.
            answer: a gold answer.
            transcript: a :class:`~replay.transcript.Transcript` of the history, whose ids are
                then taken as they are; without one the messages are encoded.

        Raises:
            EngineError: when the engine is lost, or the answer or the messages can't be scored.
        """
        return background.run(self.ascore(messages, answer, transcript))

    async def ascore(
        self, messages: Sequence[Message], answer: str, transcript: object | None = None
    ) -> float:
        """:meth:`score` on the caller's event loop."""
        with boundary(EngineError, "scorer"):
            known = transcript if isinstance(transcript, Transcript) else None
            if known is None:
                known = transcribe_messages(messages, self.template)
            probe = answer_probe(self.template, answer, self._probe, self._closed)
        return await mean_log_prob(self.engine, known.ids, probe)


class TransformersScorer(EngineScorer):
    """The belief of a model in a folder, run by Transformers here.

    Args:
        folder: as ``save_pretrained`` writes it, with tokenizer and chat template.
        chat_template: Jinja text in place of the folder's own.
        device: such as ``cuda``; None is cuda where there is one, else cpu.
        dtype: of the weights in memory; ``auto`` is what they are stored as.
        max_context: tokens of history and answer at most; None is the model's limit, at most
            32,768.
        slots: episodes whose histories are remembered at once; each takes ``max_context``
            positions of the cache.
        probe, closed: as for :class:`EngineScorer`.

    Raises:
        SettingError: when the folder holds no model that can be run, or torch is missing.

    Example::

        with TransformersScorer("runs/demo/checkpoints/final") as scorer:
            env = drv_env.InformationGainReward(env, scorer)
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        chat_template: str | None = None,
        device: str | None = None,
        dtype: str = "auto",
        max_context: int | None = None,
        slots: int = 1,
        probe: str | None = None,
        closed: bool = False,
    ) -> None:
        template = ChatTemplate.from_folder(folder, chat_template=chat_template)
        try:
            import torch

            from agents.engines.checkpoint_check import load_checked
            from agents.engines.transformers import TransformersEngine
        except ImportError as error:
            raise SettingError(
                f"scoring with a model needs torch and Transformers ({error}): "
                "pip install 'drv-env[train]'"
            ) from None
        model = load_checked(folder, dtype)
        held = getattr(model.config, "max_position_embeddings", None)
        engine = TransformersEngine(
            model,
            slots=slots,
            max_context=max_context or (min(held, _CONTEXT) if held else None),
            device=device or ("cuda" if torch.cuda.is_available() else "cpu"),
            pieces=template.pieces,
        )
        super().__init__(engine, template, probe=probe, closed=closed)

    def close(self) -> None:
        """Free the model; may be called twice."""
        background.run(self.engine.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


_CONTEXT = 32_768


def with_scored_gains(
    trajectory: Trajectory,
    scorer: Scorer,
    tools: Collection[str] = ("visit",),
    kind: GainKind = "log_prob_diff",
    answers: GoldAnswers = "first",
    failed: bool = False,
) -> Trajectory:
    """A played trajectory with the information gain of each scored turn in its record.

    What :class:`drv_env.InformationGainReward` pays while an episode is played, afterwards and
    by any scorer.  A broken trajectory comes back as it is; one whose scorer is lost, or gives
    no number, comes back broken.

    Args:
        trajectory: played, by whomever.
        scorer: gives the model's belief in an answer.
        tools, kind, answers, failed: as for the wrapper.
    """
    turns = [] if trajectory.broken else trajectory.scored_turns(tools, failed)
    if not turns:
        return trajectory
    messages = to_messages(trajectory)
    opening = len(trajectory.opening)
    try:
        with boundary(EngineError, "scorer"):
            values = [
                history_value(
                    scorer, messages[: opening + 2 * turn], trajectory.task.answers, answers
                )
                for turn in (0, *turns)
            ]
    except DrvError as error:
        return dataclasses.replace(trajectory, ending=Ending.BROKEN, error=str(error))
    rewards = list(trajectory.rewards)
    for turn, gain in zip(turns, gains(values, kind), strict=True):
        rewards[turn - 1] = dataclasses.replace(rewards[turn - 1], information_gain=gain)
    return dataclasses.replace(trajectory, rewards=tuple(rewards))
