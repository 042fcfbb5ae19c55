"""What every engine with a model of its own checks of a request's ids."""

from __future__ import annotations

from collections.abc import Sized

import numpy as np
from numpy.typing import NDArray

from agents.engines.base import Ids
from drv_env.errors import EngineError


def checked_ids(ids: Ids, vocabulary: int) -> NDArray[np.int64]:
    """A copy of the ids.

    Raises:
        EngineError: when there are none, or one isn't of the vocabulary.
    """
    given = np.array(ids, np.int64).reshape(-1)
    if not len(given):
        raise EngineError("a request needs at least one id")
    low, high = int(given.min()), int(given.max())
    if low < 0 or high >= vocabulary:
        raise EngineError(f"ids go from {low} to {high}; the model's from 0 to {vocabulary - 1}")
    return given


def room_after(given: Sized, context: int) -> int:
    """Ids that may follow a prompt.

    Raises:
        EngineError: when the context leaves room for none.
    """
    room = context - len(given)
    if room < 1:
        raise EngineError(f"a prompt of {len(given)} ids leaves no room in a context of {context}")
    return room
