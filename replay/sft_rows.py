"""Transcripts of what is there as text only: what a model would be trained on, or has read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from drv_env.context import Message
from drv_env.protocol import render_observation
from replay.template import ChatTemplate
from replay.trajectory import Trajectory
from replay.transcript import Transcript


def transcribe(trajectory: Trajectory, template: ChatTemplate) -> Transcript:
    """The trajectory in tokens, built as a live episode's transcript is.

    Each turn's text is encoded once, as the assistant would have sampled it, its end-of-turn
    token included.
    """
    turns = (
        (turn.text, None if turn.observation is None else render_observation(turn.observation))
        for turn in trajectory.turns
    )
    return _written(trajectory.opening, turns, template)


def transcribe_messages(messages: Sequence[Message], template: ChatTemplate) -> Transcript:
    """An episode's messages in tokens, built as :func:`transcribe` does.

    Args:
        messages: the opening, then turns of the assistant, each followed by its observation
            message; the last may still be without.
        template: how they become ids.

    Raises:
        ValueError: when they stand in another order, or an observation has no wrapper.
    """
    first = next((i for i, said in enumerate(messages) if said["role"] == "assistant"), None)
    if first is None:
        return _written(messages, (), template)
    rest = messages[first:]
    wanted = [("assistant", "user")[place % 2] for place in range(len(rest))]
    if [said["role"] for said in rest] != wanted:
        raise ValueError("after the opening, turns of the assistant and of the user alternate")
    texts: list[str | None] = [said["content"] for said in rest]
    texts += [None] * (len(texts) % 2)
    turns = zip(texts[::2], texts[1::2], strict=True)
    return _written(messages[:first], turns, template)  # type: ignore[arg-type]


def _written(
    opening: Sequence[Message], turns: Iterable[tuple[str, str | None]], template: ChatTemplate
) -> Transcript:
    """Opening, then turns with their observation messages."""
    transcript = Transcript(template)
    transcript.prompt(opening)
    for text, observation in turns:
        transcript.completion(template.encode_turn(text))
        if observation is not None:
            transcript.observation(observation)
    return transcript
