"""How many turns an episode may have where the number is drawn anew for each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from drv_env.episode import Rules

_LIMITS = 7
"""Keeps these draws apart from others of the same words."""


def turn_limit(rules: Rules, jitter: int, words: Sequence[int] | None) -> int | None:
    """``rules.max_turns`` and up to ``jitter`` more or less, or None for the rules' own.

    Drawn as the DR-Venus release does (``scrl/llm_agent/dr_agent_loop.py``): a number between
    −jitter and jitter is cut towards 0, so that jitter itself is as good as never reached, and
    the middle is twice as likely as any other limit.  There is always room for an answer.

    Args:
        rules: of the episode.
        jitter: at least 0; 0 draws nothing.
        words: fix the draw, whole numbers of at least 0; None draws without a seed.

    Example:
        >>> sorted({turn_limit(Rules(), 5, (0, 0, sample)) for sample in range(200)})
        [196, 197, 198, 199, 200, 201, 202, 203, 204]
        >>> [turn_limit(Rules(), 5, (0, 0, sample)) for sample in range(4)]  # 10 · 0.888 − 5, …
        [203, 198, 199, 200]
    """
    if not jitter:
        return None
    rng = np.random.default_rng(None if words is None else [*words, _LIMITS])
    drawn = rules.max_turns + int(2 * jitter * rng.random() - jitter)
    return max(drawn, 2 if rules.count_forced_turn else 1)
