"""Reading prompts into their slots: copies of what another slot has, then what is new."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from agents.engines import _batches as batches
from agents.engines._forward import Forward, KeyValues
from agents.engines._jobs import Generate
from agents.engines._slots import Place


def read_prompts(
    forward: Forward,
    store: KeyValues,
    placed: Sequence[tuple[Generate, Place]],
    chunk: int,
    between: Callable[[], None],
) -> int:
    """Complete the keys and values of placed requests for all their ids but the last.

    The last id is fed by the first decoding step, like every sampled one after it.

    Args:
        chunk: ids in one pass.
        between: called before each pass; may raise to give up.

    Returns:
        number of ids that were computed.
    """
    computed = 0
    for level in range(1 + max(place.level for _, place in placed)):
        here = [(request, place) for request, place in placed if place.level == level]
        for _, place in here:
            if place.donor is not None:
                store.copy(store, place.donor, place.slot, place.kept, place.have)
        new = [(request, place) for request, place in here if place.have < len(request.ids) - 1]
        lengths = [len(request.ids) - 1 - place.have for request, place in new]
        for group in batches.groups(lengths, chunk):
            members = sorted((new[i] for i in group), key=lambda member: member[1].slot)
            rows = np.array([place.slot for _, place in members])
            starts = np.array([place.have for _, place in members])
            tokens = [request.ids[place.have : -1] for request, place in members]
            for begin, width in batches.chunks(tokens, starts, chunk):
                between()
                counts, padded = batches.padded(tokens, begin, width)
                forward(store, rows, starts + begin, counts, padded)
        computed += sum(lengths)
    return computed
