"""Counting context tokens as transcripts do, with the transcript at hand or without."""

from __future__ import annotations

from collections.abc import Sequence

from drv_env.context import Message
from drv_env.protocol import observation_body
from replay.template import ChatTemplate
from replay.transcript import Transcript


class TemplateCounter:
    """Counts as transcripts of ``template`` would, for ``drv_env``'s context budget.

    It does not see what was sampled: a turn whose caller doesn't say how many tokens it
    has is counted as its text encodes, and an observation as if the turn had not sampled
    its own end (a token more at most).
    """

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template

    def opening(self, messages: Sequence[Message]) -> int:
        """Tokens of the opening messages with the first generation prompt."""
        return len(self._template.prompt(messages))

    def turn(self, text: str) -> int:
        """Tokens of an assistant turn."""
        return len(self._template.encode_turn(text))

    def observation(self, message: str) -> int:
        """Tokens that an observation appends."""
        return len(self._template.observation(observation_body(message), closed=False))


class TranscriptCounter:
    """Counts for one episode exactly what its transcript holds or would append.

    An observation that was counted is appended without being encoded again.

    Args:
        transcript: the episode's; its caller keeps it up with the episode.
    """

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript

    def opening(self, messages: Sequence[Message]) -> int:
        """Tokens of the opening messages with the first generation prompt."""
        return self._transcript.count_prompt(messages)

    def turn(self, text: str) -> int:
        """Tokens of an assistant turn whose caller doesn't say how many it sampled."""
        return len(self._transcript.template.encode_turn(text))

    def observation(self, message: str) -> int:
        """Tokens that an observation appends, or would append to an open turn."""
        spans = self._transcript.spans
        if not spans or spans[-1].kind != "completion":  # held back before the first turn
            template = self._transcript.template
            return len(template.observation(observation_body(message), closed=False))
        return self._transcript.count_observation(message)
