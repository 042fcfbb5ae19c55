"""Scoring of branches against a trajectory's own keys and values, many in one pass.

The trajectories of a batch are prefilled chunk by chunk, which also gives the log-probs of
their completions; then all branches go through the model one behind the other, each at its
right positions, each seeing its history's kept keys and itself
(:mod:`trainers.segment_attention`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AttentionInterface

from drv_env.errors import SettingError
from replay.pieces import Ids
from trainers.causal_model import CausalModel, unknown_attention
from trainers.score_items import Branch, ScoreItem
from trainers.segment_attention import KeptKeys, Placed, SegmentPass

ATTENTION = "drv_segments"
"""The name under which Transformers knows our attention."""

_CURRENT: ContextVar[SegmentPass] = ContextVar("segment pass")


@dataclass(frozen=True, slots=True)
class _Segment:
    """New tokens of a row, what follows each of them, and whether that is scored."""

    row: int
    start: int
    ids: Ids
    targets: Ids
    wanted: NDArray[np.bool_]
    kept: bool


def score_batch(
    model: CausalModel,
    items: Sequence[ScoreItem],
    chunk_tokens: int,
    branch_tokens: int,
    flex: bool | str,
) -> tuple[list[NDArray[np.float32]], list[list[NDArray[np.float32]]]]:
    """Log-probs of the wanted ids of each item, and of the scored ids of each branch.

    Args:
        model: in evaluation mode, without gradient.
        items: their keys and values are held together.
        chunk_tokens: of the trajectories, in one pass.
        branch_tokens: of branches, in one pass; a longer branch is alone.
        flex: see :class:`trainers.segment_attention.SegmentPass`.
    """
    trunks = [_trunk(row, item) for row, item in enumerate(items)]
    branches = [
        _branch(row, item, branch) for row, item in enumerate(items) for branch in item.branches
    ]
    passes = [
        *_passes(trunks, chunk_tokens, split=True),
        *_passes([part for part in branches if len(part.ids)], branch_tokens, split=False),
    ]
    offsets = np.cumsum([0, *(len(part.ids) for part in trunks)])
    kept = None
    if len(passes) > 1 or flex:
        longest = max((sum(len(part.ids) for part in together) for together in passes), default=0)
        kept = KeptKeys(int(offsets[-1]), longest if flex else 0)
    found = [_run(model, together, offsets, kept, flex) for together in passes]
    values = torch.cat(found).cpu().numpy() if found else np.zeros(0, np.float32)
    counts = [int(part.wanted.sum()) for part in (*trunks, *branches)]
    assert len(values) == sum(counts)
    pieces = iter(np.split(values, np.cumsum(counts)[:-1]) if counts else [])
    of_items = [next(pieces) for _ in items]
    return of_items, [[next(pieces) for _ in item.branches] for item in items]


def _trunk(row: int, item: ScoreItem) -> _Segment:
    """An item's ids as far as anything depends on them."""
    wanted = item.wanted()
    last = int(np.flatnonzero(wanted)[-1]) if wanted.any() else 0
    ends = [_start(branch) for branch in item.branches]
    stop = max([last, *ends])
    targets, next_wanted = np.append(item.ids[1:], 0), np.append(wanted[1:], False)
    return _Segment(row, 0, item.ids[:stop], targets[:stop], next_wanted[:stop], kept=True)


def _start(branch: Branch) -> int:
    """Where a branch's segment begins: one early where the branch's first id is scored."""
    return branch.end - int(branch.scored[0])


def _branch(row: int, item: ScoreItem, branch: Branch) -> _Segment:
    start = _start(branch)
    ids = np.concatenate([item.ids[start : branch.end], branch.ids])
    scored = np.concatenate([np.zeros(branch.end - start, bool), branch.scored])
    last = int(np.flatnonzero(scored)[-1])
    return _Segment(row, start, ids[:last], ids[1 : last + 1], scored[1 : last + 1], kept=False)


def _passes(segments: Sequence[_Segment], most: int, *, split: bool) -> Iterator[list[_Segment]]:
    """Segments in order, ``most`` tokens together; longer ones cut where that is allowed."""
    together: list[_Segment] = []
    room = most
    for whole in segments:
        rest = whole
        while len(rest.ids):
            if (len(rest.ids) > room and not split and together) or room == 0:
                yield together
                together, room = [], most
            take = min(len(rest.ids), room) if split else len(rest.ids)
            together.append(_slice(rest, 0, take))
            rest = _slice(rest, take, len(rest.ids))
            room = max(room - take, 0)
    if together:
        yield together


def _slice(part: _Segment, start: int, stop: int) -> _Segment:
    return _Segment(
        part.row,
        part.start + start,
        part.ids[start:stop],
        part.targets[start:stop],
        part.wanted[start:stop],
        part.kept,
    )


def _run(
    model: CausalModel,
    segments: Sequence[_Segment],
    offsets: NDArray[np.int64],
    kept: KeptKeys | None,
    flex: bool | str,
) -> Tensor:
    """Log-probs of the wanted ids after the segments' tokens, in one forward pass."""
    placed, at = [], 0
    for part in segments:
        placed.append(Placed(at, len(part.ids), int(offsets[part.row]), part.start, part.kept))
        at += len(part.ids)
    ids = np.concatenate([part.ids for part in segments])
    positions = np.concatenate([part.start + np.arange(len(part.ids)) for part in segments])
    attention = SegmentPass(kept, placed, model.device, flex)
    with _attending(model, attention):
        states = model.decoder(
            input_ids=_tensor(ids, model.device)[None],
            position_ids=_tensor(positions, model.device)[None],
            use_cache=False,
        ).last_hidden_state[0]
    if attention.layers != model.config.num_hidden_layers:
        raise SettingError(
            f"{type(model.whole).__name__} does not take its attention from Transformers' interface"
        )
    wanted = np.flatnonzero(np.concatenate([part.wanted for part in segments]))
    targets = np.concatenate([part.targets for part in segments])[wanted]
    return model.log_probs(states[_tensor(wanted, model.device)], _tensor(targets, model.device))


def _tensor(array: NDArray[np.integer], device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, np.int64)).to(device)


# ---- the model's attention, replaced for a pass ----------------------------------------------


@contextmanager
def _attending(model: CausalModel, attention: SegmentPass) -> Iterator[None]:
    AttentionInterface.register(ATTENTION, _attend)
    before = model.config._attn_implementation
    token = _CURRENT.set(attention)
    model.config._attn_implementation = ATTENTION
    try:
        yield
    finally:
        model.config._attn_implementation = before
        _CURRENT.reset(token)


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **other: Any,
) -> tuple[Tensor, None]:
    unknown = unknown_attention(module, other)
    if unknown:
        raise SettingError(unknown)
    attention = _CURRENT.get(None)
    if attention is None:
        raise RuntimeError(
            "a model is being scored whose configuration object another one, running at the same "
            "time, shares; give each its own (copy.deepcopy)"
        )
    # autocast leaves them apart; and not every CPU has torch's flash attention in 16 bits
    dtype = value.dtype if value.is_cuda else torch.float32
    found = attention(query.to(dtype), key.to(dtype), value.to(dtype), scaling)
    return found.to(value.dtype).transpose(1, 2).contiguous(), None
