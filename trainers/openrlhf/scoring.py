"""Information gain on the devices of the trained model: who scores what, and with what weights.

Each rank scores whole trajectories by itself (:mod:`trainers.information_gain`), whatever the
parallelism of the training (data, ZeRO, ring attention): a trajectory's keys and values fit on
one device, and nothing has to be exchanged.  Weights that ZeRO-3 has split are gathered for
that time, so ranks may make different numbers of passes.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from replay.template import ChatTemplate
from replay.trajectory import Trajectory
from trainers.information_gain import GainSettings, score_with_model
from trainers.trajectory_scores import Method

Gains = list[float | None]
"""Of each turn of a trajectory, None where none was computed."""


def shares(trajectories: Sequence[Trajectory], ranks: int) -> list[list[int]]:
    """Indices of the trajectories that each rank scores: longest first, to the least burdened.

    Broken trajectories are nobody's.

    Args:
        trajectories: of a step.
        ranks: at least 1.

    Returns:
        One list a rank, some perhaps empty.
    """
    sizes = [
        0 if item.broken or item.transcript is None else len(item.transcript)
        for item in trajectories
    ]
    order = sorted((index for index, size in enumerate(sizes) if size), key=lambda i: -sizes[i])
    found: list[list[int]] = [[] for _ in range(ranks)]
    burden = [0] * ranks
    for index in order:
        rank = burden.index(min(burden))
        found[rank].append(index)
        burden[rank] += sizes[index]
    return found


def gains_on_rank(
    engine: Any,
    zero_stage: int,
    trajectories: Sequence[Trajectory],
    template: ChatTemplate,
    settings: GainSettings,
    tokens: int,
    method: Method = "auto",
) -> list[Gains]:
    """Gains of these trajectories by the weights of a DeepSpeed engine.

    Under ZeRO-3 every rank must call this at the same time, be it with nothing to score.

    Args:
        engine: DeepSpeed's, around a Transformers causal language model.
        zero_stage: its stage.
        trajectories: with transcripts, none broken.
        template: of the transcripts.
        settings: what is scored.
        tokens: of one forward pass.
        method: of scoring.

    Raises:
        SettingError: when the model can't be scored.
    """
    with whole_weights(engine, zero_stage), _attention_of_one_device(engine.module):
        if not trajectories:
            return []
        scores = score_with_model(
            trajectories,
            engine.module,
            template,
            settings,
            chunk_tokens=tokens,
            branch_tokens=tokens,
            method=method,
        )
    return [[reward.information_gain for reward in item.rewards] for item in scores.trajectories]


@contextmanager
def whole_weights(engine: Any, zero_stage: int) -> Iterator[None]:
    """Inside, this rank has all weights, and a forward pass of it needs no other rank."""
    if zero_stage < 3:
        yield
        return
    stage3 = importlib.import_module("deepspeed.runtime.zero.stage3")
    with stage3.unwrap_model_for_generation(engine):
        yield


@contextmanager
def _attention_of_one_device(model: Any) -> Iterator[None]:
    """Inside, a pass of the model's own attention sees whole rows, ring attention or not."""
    before = model.config._attn_implementation
    own = getattr(model, "_supports_sdpa", True)  # not of models that cap their scores
    model.config._attn_implementation = "sdpa" if own else "eager"
    try:
        yield
    finally:
        model.config._attn_implementation = before
