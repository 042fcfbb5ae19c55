"""Attention of segments that hang off kept keys and values.

A *segment* is a run of new tokens of one row: it attends to the row's kept tokens before
its start, and to itself causally.  A stretch of a trajectory is a segment whose keys and
values are kept afterwards; a probe is one whose are not.  Any number of segments, of any
rows, stand one behind the other in a single pass, and see nothing of each other.

Two ways, by the device:

- CPU: flash attention of each segment to itself and to its past, joined by their
  log-sum-exps.  Near branches look together at the past they share, without a mask; only
  for themselves and the little between their starts there is one.
- CUDA: one FlexAttention over all kept keys and the pass's own, whose block mask leaves out
  the blocks that no query sees (https://arxiv.org/abs/2412.05496).

Softmax over two sets of keys from softmax over each (FlashAttention,
https://arxiv.org/abs/2205.14135, section 3.1): with l the log-sum-exp of a set's scores and
o its output, o = σ(l₁ − l₂) o₁ + σ(l₂ − l₁) o₂.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

BLOCK = 128
"""Queries, and keys, in one block of FlexAttention's mask."""

RUN = 8
"""The most branches that look at their common past together on a CPU."""

NEAR = 512
"""How far apart their histories may end."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A segment in a pass.

    Attributes:
        at: index of its first token in the pass.
        count: its tokens.
        row: index of its row's first token among the kept ones.
        start: position of its first token in the row: so many kept tokens it sees.
        kept: whether its keys and values are kept, at its positions.
    """

    at: int
    count: int
    row: int
    start: int
    kept: bool


class KeptKeys:
    """Keys and values of rows one behind the other, by layer, made when a layer is first met.

    Args:
        tokens: of all rows together.
        scratch: room behind them for a pass's own, where the kernel wants it.
    """

    def __init__(self, tokens: int, scratch: int = 0) -> None:
        self.tokens, self.scratch = tokens, scratch
        self._layers: list[tuple[Tensor, Tensor]] = []

    def layer(self, index: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """What is kept of a layer: (1, heads, tokens + scratch, size) of each."""
        if index == len(self._layers):
            size = self.tokens + self.scratch
            # zeros, not just memory: FlexAttention multiplies what is masked by 0
            new = [one.new_zeros(1, one.shape[1], size, one.shape[3]) for one in (keys, values)]
            self._layers.append((new[0], new[1]))
        return self._layers[index]


class SegmentPass:
    """Attention in one forward pass; called once a layer, in the layers' order.

    Args:
        kept: read, and written where segments are kept; None where nothing is, and no
            segment has a past.
        segments: in the order of their tokens in the pass.
        flex: FlexAttention instead of flash attention by segment; ``"eager"`` without
            compiling it, which is for tests.
    """

    def __init__(
        self,
        kept: KeptKeys | None,
        segments: Sequence[Placed],
        device: torch.device,
        flex: bool | str,
    ) -> None:
        self._kept, self._segments, self._flex = kept, segments, flex
        self.layers = 0
        """Layers that have called so far."""
        self._mask: Any = None
        self._runs = [] if flex else _runs(segments)
        if flex:
            if kept is None:
                raise ValueError("FlexAttention needs room for the pass's keys")
            self._scratch = kept.scratch
            self._mask = block_mask(segments, kept.tokens, kept.scratch, device)

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, scale: float | None) -> Tensor:
        """The output (1, heads, tokens, size) for query, key, value of the same shape.

        There may be fewer key and value heads: each then serves a run of query heads.
        """
        held = None if self._kept is None else self._kept.layer(self.layers, key, value)
        self.layers += 1
        if held is not None:
            for part in self._segments:
                if part.kept:
                    stop, to = part.at + part.count, part.row + part.start
                    for mine, new in zip(held, (key, value), strict=True):
                        mine[:, :, to : to + part.count] = new[:, :, part.at : stop]
        if self._flex:
            assert held is not None
            return self._at_once(query, key, value, held, scale)
        return _by_run(query, key, value, held, self._runs, scale)

    def _at_once(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        held: tuple[Tensor, Tensor],
        scale: float | None,
    ) -> Tensor:
        count = query.shape[2]
        for mine, new in zip(held, (key, value), strict=True):
            mine[:, :, -self._scratch :][:, :, :count] = new
        run = _plain_flex() if self._flex == "eager" else _compiled_flex()
        found: Tensor = run(
            torch.nn.functional.pad(query, (0, 0, 0, _rounded(count) - count)),
            *held,
            block_mask=self._mask,
            scale=scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return found[:, :, :count]


# ---- CPU -----------------------------------------------------------------------------------


class _Run:
    """Segments that look at their common past together: more queries a key, which is faster.

    Args:
        segments: one, or several branches of a row, next to each other in the pass.
    """

    def __init__(self, segments: Sequence[Placed]) -> None:
        starts = [part.start for part in segments]
        first, last = segments[0], segments[-1]
        self.own = slice(first.at, last.at + last.count)
        self.common = slice(first.row, first.row + min(starts))
        self.between = slice(self.common.stop, first.row + max(starts))
        self.mask: Tensor | None = None
        """What each query sees of the run's own keys and of those between; None: causal."""
        if len(segments) > 1:
            own = self.own.stop - self.own.start
            sees = torch.zeros(own, own + max(starts) - min(starts), dtype=torch.bool)
            for part in segments:
                here = slice(part.at - first.at, part.at - first.at + part.count)
                sees[here, here] = True
                sees[here, own : own + part.start - min(starts)] = True
            sees[:, :own].tril_()
            self.mask = torch.zeros(sees.shape).masked_fill_(~sees, -torch.inf)


def _runs(segments: Sequence[Placed]) -> list[_Run]:
    found: list[list[Placed]] = []
    for part in segments:
        first = found[-1][0] if found else None
        if (
            first is None
            or part.kept
            or first.kept
            or first.row != part.row
            or abs(first.start - part.start) > NEAR
            or len(found[-1]) == RUN
        ):
            found.append([])
        found[-1].append(part)
    return [_Run(run) for run in found]


def _by_run(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    held: tuple[Tensor, Tensor] | None,
    runs: Sequence[_Run],
    scale: float | None,
) -> Tensor:
    group = query.shape[1] // key.shape[1]
    out = torch.empty_like(query)
    for run in runs:
        mine, keys, values = (given[:, :, run.own] for given in (query, key, value))
        if run.between.start < run.between.stop:
            assert held is not None
            keys = torch.cat([keys, held[0][:, :, run.between]], 2)
            values = torch.cat([values, held[1][:, :, run.between]], 2)
        if group > 1:
            keys, values = keys.repeat_interleave(group, 1), values.repeat_interleave(group, 1)
        found = _flash(mine, keys, values, scale, run.mask, causal=run.mask is None)
        if run.common.start < run.common.stop:
            assert held is not None
            found = _joined(found, _past(mine, held, run.common, scale))
        out[:, :, run.own] = found[0]
    return out


def _past(
    query: Tensor, held: tuple[Tensor, Tensor], where: slice, scale: float | None
) -> tuple[Tensor, Tensor]:
    """Attention of all queries to all keys of a stretch of what is kept.

    The query heads that share a key head are one head with more queries: nothing is repeated.
    """
    shape = query.shape
    keys, values = held[0][:, :, where], held[1][:, :, where]
    found, weight = _flash(query.reshape(1, keys.shape[1], -1, shape[-1]), keys, values, scale)
    return found.view(shape), weight.view(shape[:-1])


def _joined(one: tuple[Tensor, Tensor], two: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Attention to two sets of keys together, from output and log-sum-exp of each."""
    share = torch.sigmoid(two[1] - one[1]).unsqueeze(-1)
    return torch.lerp(one[0], two[0], share), torch.logaddexp(one[1], two[1])


def _flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float | None,
    mask: Tensor | None = None,
    causal: bool = False,
) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp of the scores (1, heads, tokens), in float32."""
    output, log_sum_exp = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query,
        key,
        value,
        0.0,
        causal,
        attn_mask=None if mask is None else mask.to(query.dtype)[None, None],
        scale=scale,
    )
    return output.float().contiguous(), log_sum_exp.float().contiguous()


# ---- CUDA ----------------------------------------------------------------------------------


def block_mask(segments: Sequence[Placed], tokens: int, scratch: int, device: torch.device) -> Any:
    """FlexAttention's mask of a pass over ``tokens`` kept keys and ``scratch`` of its own.

    Each query sees two runs of keys, so that which blocks it sees, and which of them whole,
    follows from the runs' ends: no mask of queries × keys is made.  Queries are rounded up to
    whole blocks; those behind the last token see nothing.
    """
    from torch.nn.attention.flex_attention import BlockMask

    queries = sum(part.count for part in segments)
    padded = _rounded(queries)

    def per_query(firsts: list[int], step: int = 0) -> Tensor:
        found = np.zeros(padded, np.int32)
        for first, part in zip(firsts, segments, strict=True):
            found[part.at : part.at + part.count] = first + step * np.arange(part.count)
        return torch.from_numpy(found).to(device)

    past_from = per_query([part.row for part in segments])
    past_to = per_query([part.row + part.start for part in segments])
    own_from = per_query([tokens + part.at for part in segments])
    own_to = per_query([tokens + part.at + 1 for part in segments], step=1)

    blocks = -(-(tokens + scratch) // BLOCK)
    first = torch.arange(blocks, device=device, dtype=torch.int32) * BLOCK
    sees = torch.zeros(padded, blocks, dtype=torch.bool, device=device)
    whole = sees.clone()
    for start, stop in ((past_from, past_to), (own_from, own_to)):
        start, stop = start[:, None], stop[:, None]
        sees |= (start < first + BLOCK) & (stop > first) & (stop > start)
        whole |= (start <= first) & (stop >= first + BLOCK)
    whole[queries:] = True
    any_sees = sees.view(-1, BLOCK, blocks).any(1)
    all_whole = whole.view(-1, BLOCK, blocks).all(1)

    def mask_mod(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return ((key >= past_from[query]) & (key < past_to[query])) | (
            (key >= own_from[query]) & (key < own_to[query])
        )

    return BlockMask.from_kv_blocks(
        *_listed(any_sees & ~all_whole),
        *_listed(any_sees & all_whole),
        BLOCK_SIZE=BLOCK,
        mask_mod=mask_mod,
        seq_lengths=(padded, tokens + scratch),
    )


def _rounded(tokens: int) -> int:
    return -(-tokens // BLOCK) * BLOCK


def _listed(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Counts (1, 1, rows) and indices (1, 1, rows, columns) of True, those first."""
    order = chosen.int().argsort(dim=1, descending=True, stable=True)
    return chosen.sum(1).int()[None, None], order.int()[None, None]


@functools.cache
def _compiled_flex() -> Any:
    return torch.compile(_plain_flex(), dynamic=True)


def _plain_flex() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return flex_attention
