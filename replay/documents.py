"""One trajectory as a token document: ids, loss mask, and what was cut of it.

Knows transcripts; no files.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from drv_env.settings import at_least, check_fields
from replay.transcript import Transcript

Cut = Literal["right", "turn"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSettings:
    """How trajectories become token documents.

    Attributes:
        max_tokens: the most tokens of a document, at least 2.
        cut: what happens to longer ones: ``right`` keeps the first ``max_tokens`` ids, as
            published; ``turn`` keeps whole turns only, up to the last that fits.
        shard_chars: a shard is closed at this many characters of text.

    Raises:
        SettingError: naming a value that can't work.
    """

    max_tokens: int = 200_000
    cut: Cut = "right"
    shard_chars: int = 4_000_000

    def __post_init__(self) -> None:
        check_fields(self, max_tokens=at_least(2), shard_chars=at_least(1))


@dataclass(slots=True)
class Counts:
    """What became of trajectories.

    Attributes:
        documents: kept.
        tokens: of the documents.
        agent_tokens: of them, those that are learnt.
        cut_documents: documents that were shortened.
        cut_tokens: tokens that were left out of them.
        cut_agent_tokens: of them, the agent's.
        cut_turns: turns that lost tokens, or were left out.
        dropped: trajectories of which no agent token was left.
    """

    documents: int = 0
    tokens: int = 0
    agent_tokens: int = 0
    cut_documents: int = 0
    cut_tokens: int = 0
    cut_agent_tokens: int = 0
    cut_turns: int = 0
    dropped: int = 0

    def add(self, other: Counts) -> None:
        """Add another's numbers to these."""
        for item in fields(self):
            setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))


@dataclass(frozen=True, slots=True)
class Document:
    """One trajectory in tokens.

    Attributes:
        ids: int32 ``(length,)``.
        mask: bool ``(length,)``, True at the agent's tokens.
    """

    ids: NDArray[np.int32]
    mask: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.ids)


def document_of(
    transcript: Transcript, settings: RowSettings, counts: Counts | None = None
) -> Document | None:
    """A transcript's ids and mask, shortened where it is too long.

    Args:
        transcript: of a whole trajectory.
        settings: of the shortening.
        counts: gets what was kept and cut.

    Returns:
        The document; None where no agent token is left.
    """
    counts = Counts() if counts is None else counts
    mask = transcript.mask()
    length = len(transcript)
    end = min(length, settings.max_tokens)
    completions = [span for span in transcript.spans if span.kind == "completion"]
    if length > settings.max_tokens and settings.cut == "turn":
        end = max((span.stop for span in completions if span.stop <= end), default=0)
    if end < length:
        counts.cut_documents += 1
        counts.cut_tokens += length - end
        counts.cut_agent_tokens += int(mask[end:].sum())
        counts.cut_turns += sum(span.stop > end for span in completions)
    learnt = int(mask[:end].sum())
    if not learnt:
        counts.dropped += 1
        return None
    counts.documents += 1
    counts.tokens += end
    counts.agent_tokens += learnt
    return Document(transcript.ids[:end], mask[:end])
