"""Log-probs of spans, computed beside the slots that generation uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from agents.engines import _batches as batches
from agents.engines._forward import Forward, KeyValues
from agents.engines._jobs import Score
from agents.engines._slots import SlotTable


def split_scores(jobs: Sequence[Score], room: int) -> list[list[Score]]:
    """Jobs that go together: ``rows * longest <= room`` positions, or one alone."""
    found: list[list[Score]] = []
    for job in sorted(jobs, key=lambda job: len(job.ids)):
        if not found or (len(found[-1]) + 1) * len(job.ids) > room:
            found.append([])
        found[-1].append(job)
    return found


def score_batch(
    forward: Forward,
    store: KeyValues,
    table: SlotTable,
    jobs: Sequence[Score],
    chunk: int,
    between: Callable[[], None],
) -> list[list[NDArray[np.float32]]]:
    """Score jobs together on a branch: a copy of the best slot's prefix and what follows.

    Only what lies behind the prefix is computed, and the head only where a wanted id
    comes next.

    Args:
        store: of the slots; only read.
        chunk: ids in one pass.
        between: called before each pass; may raise to give up.
    """
    wanted = [batches.positions(job.spans) for job in jobs]
    ends = [int(positions[-1]) if len(positions) else 0 for positions in wanted]
    found = [np.zeros(len(job.ids), np.float32) for job in jobs]
    starts = np.zeros(len(jobs), np.int64)
    if any(ends):
        branch = forward.store(len(jobs), max(ends))
        for row, (job, positions) in enumerate(zip(jobs, wanted, strict=True)):
            if len(positions):
                prefixes = table.common_prefixes(job.ids)
                donor = int(prefixes.argmax())
                starts[row] = min(int(prefixes[donor]), int(positions[0]) - 1)
                branch.copy(store, donor, row, 0, int(starts[row]))
        tokens = [job.ids[start:end] for job, start, end in zip(jobs, starts, ends, strict=True)]
        for begin, width in batches.chunks(tokens, starts, chunk):
            between()
            first = starts + begin
            counts, padded = batches.padded(tokens, begin, width)
            hidden = forward(branch, np.arange(len(jobs)), first, counts, padded)
            _fill(forward, jobs, wanted, found, first, hidden)
    return [
        [own[start:stop].copy() for start, stop in job.spans]
        for job, own in zip(jobs, found, strict=True)
    ]


def _fill(
    forward: Forward,
    jobs: Sequence[Score],
    wanted: Sequence[NDArray[np.int64]],
    found: Sequence[NDArray[np.float32]],
    first: NDArray[np.int64],
    hidden: torch.Tensor,
) -> None:
    """Log-probs of the wanted ids that come right after this pass's positions.

    Args:
        first: (rows,) position of each row's first hidden state.
        hidden: (rows, width, hidden).
    """
    width = hidden.shape[1]
    picks = [
        positions[(positions > start) & (positions <= start + width)]
        for positions, start in zip(wanted, first, strict=True)
    ]
    rows = np.repeat(np.arange(len(jobs)), [len(pick) for pick in picks])
    columns = np.concatenate(picks) - 1 - first[rows]
    targets = np.concatenate([job.ids[pick] for job, pick in zip(jobs, picks, strict=True)])
    flat = torch.from_numpy(rows * width + columns).to(hidden.device)
    values = forward.log_probs(hidden.flatten(0, 1)[flat], targets)
    for own, pick, part in zip(
        found, picks, np.split(values, np.cumsum([len(pick) for pick in picks])[:-1]), strict=True
    ):
        own[pick] = part
