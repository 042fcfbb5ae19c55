"""What is scored on a trajectory, and what comes of it: plain records, no models.

A *branch* is ids put behind a history, the trajectory's ids up to its end, of which some
are scored: the probe with a gold answer, say.  Its value is v of the history (IGPO,
https://arxiv.org/abs/2510.14967): the mean over j of log p(g_j | history, prefix, g_<j).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from replay.pieces import Ids


@dataclass(frozen=True, slots=True)
class Branch:
    """Ids behind a history.

    Attributes:
        end: ids of the trajectory that stand before, at least 1.
        ids: int32 ``(length,)``.
        scored: bool ``(length,)``, True at the ids whose log-probs are wanted, at least one.
    """

    end: int
    ids: Ids
    scored: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if len(self.scored) != len(self.ids) or not self.scored.any():
            raise ValueError(
                f"a branch has one flag an id and scores at least one, got {len(self.ids)} ids and "
                f"{len(self.scored)} flags, {int(self.scored.sum())} of them True"
            )


@dataclass(frozen=True, slots=True)
class ScoreItem:
    """A trajectory's ids and what is wanted of them.

    Attributes:
        ids: int32 ``(length,)``.
        completions: spans ``(start, stop)`` whose log-probs are wanted, in order and apart;
            none starts at 0, where nothing stands before.
        branches: what is scored behind its histories.
    """

    ids: Ids
    completions: Sequence[tuple[int, int]] = ()
    branches: Sequence[Branch] = field(default=())

    def __post_init__(self) -> None:
        before = 1
        for start, stop in self.completions:
            if not before <= start <= stop <= len(self.ids):
                raise ValueError(
                    f"completions are in order, apart, within 1 and {len(self.ids)}, "
                    f"got {start}:{stop} after {before}"
                )
            before = stop
        for branch in self.branches:
            if not 1 <= branch.end <= len(self.ids):
                raise ValueError(f"a history ends within 1 and {len(self.ids)}, got {branch.end}")

    def wanted(self) -> NDArray[np.bool_]:
        """True at the completions' ids; bool ``(length,)``."""
        wanted = np.zeros(len(self.ids), bool)
        for start, stop in self.completions:
            wanted[start:stop] = True
        return wanted


@dataclass(frozen=True, slots=True)
class Scores:
    """What was found for one item.

    Attributes:
        log_probs: float32, one array a completion: raw, at temperature 1.
        values: v of each branch, the mean log-prob of its scored ids; None where that is
            not finite.
    """

    log_probs: list[NDArray[np.float32]]
    values: list[float | None]

    @classmethod
    def of(
        cls,
        item: ScoreItem,
        wanted: NDArray[np.float32],
        branches: Sequence[NDArray[np.float32]],
    ) -> Scores:
        """From the log-probs of all wanted ids in order, and of each branch's scored ids."""
        counts = [stop - start for start, stop in item.completions]
        means = [float(np.mean(found)) for found in branches]
        return cls(
            np.split(wanted, np.cumsum(counts)[:-1]) if counts else [],
            [mean if math.isfinite(mean) else None for mean in means],
        )
