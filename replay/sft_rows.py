"""Transcripts of trajectories that have text only: what a model would be trained on."""

from __future__ import annotations

from drv_env.protocol import render_observation
from replay.template import ChatTemplate
from replay.trajectory import Trajectory
from replay.transcript import Transcript


def transcribe(trajectory: Trajectory, template: ChatTemplate) -> Transcript:
    """The trajectory in tokens, built as a live episode's transcript is.

    Each turn's text is encoded once, as the assistant would have sampled it, its end-of-turn
    token included.
    """
    transcript = Transcript(template)
    transcript.prompt(trajectory.opening)
    for turn in trajectory.turns:
        transcript.completion(template.encode_turn(turn.text))
        if turn.observation is not None:
            transcript.observation(render_observation(turn.observation))
    return transcript
