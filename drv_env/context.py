"""Counting the context: what an episode asks, and an answer for callers with text only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from drv_env.settings import at_least, checked_whole

Message = dict[str, str]
"""``{"role": "system" | "user" | "assistant", "content": text}``."""


@runtime_checkable
class ContextCounter(Protocol):
    """Counts context tokens as the transcript will hold them, separators included."""

    def opening(self, messages: Sequence[Message]) -> int:
        """Tokens of the opening messages with the first generation prompt."""
        ...

    def turn(self, text: str) -> int:
        """Tokens of an assistant turn, where the caller doesn't say how many it sampled."""
        ...

    def observation(self, message: str) -> int:
        """Tokens that an observation appends: separator, message, generation prompt."""
        ...


class TextCounter:
    """A :class:`ContextCounter` for callers without a transcript.

    Args:
        count: tokens of a text, for instance ``lambda text: len(tokenizer.encode(text))``.
        per_message: tokens that the chat template adds to each message.
    """

    def __init__(self, count: Callable[[str], int], per_message: int = 5) -> None:
        self._count = count
        self._per_message = checked_whole("per_message", per_message, at_least(0))

    def opening(self, messages: Sequence[Message]) -> int:
        """Tokens of the opening messages with the first generation prompt."""
        sizes = [self._count(message["content"]) + self._per_message for message in messages]
        return sum(sizes) + self._per_message

    def turn(self, text: str) -> int:
        """Tokens of an assistant turn."""
        return self._count(text)

    def observation(self, message: str) -> int:
        """Tokens that an observation appends."""
        return self._count(message) + 2 * self._per_message
