"""A scripted scorer for information gain."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from drv_env.context import Message
from drv_env.errors import SettingError


class FakeScorer:
    """Gives scripted values, or those of a function of the history and the answer.

    Args:
        values: mean log-probs given in turn (the last one repeats), or a function
            ``(messages, answer) -> float``.

    Attributes:
        scored: ``(number of messages, answer)`` of every request, in order.

    Example:
        >>> FakeScorer([-2.0, -0.5]).score([], "Paris")
        -2.0
    """

    def __init__(self, values: Sequence[float] | Callable[[Sequence[Message], str], float]) -> None:
        if not callable(values) and not values:
            raise SettingError("FakeScorer needs at least one value")
        self._values = values
        self.scored: list[tuple[int, str]] = []

    def score(
        self, messages: Sequence[Message], answer: str, transcript: object | None = None
    ) -> float:
        """The next scripted value."""
        self.scored.append((len(messages), answer))
        if callable(self._values):
            return self._values(messages, answer)
        return self._values[min(len(self.scored), len(self._values)) - 1]
