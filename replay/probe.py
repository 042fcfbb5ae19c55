"""The answer probe: a gold answer behind a history, and where its tokens stand.

Knows a chat template and text; nothing of models.  Information gain scores the gold
tokens of ``history ids + probe ids``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from drv_env.protocol import ANSWER, END_ANSWER, END_THINK, THINK
from drv_env.unicode_text import sound_text
from replay.pieces import Ids
from replay.template import ChatTemplate


@dataclass(frozen=True, slots=True)
class AnswerProbe:
    """Ids to put behind a history.

    Attributes:
        ids: int32 (length,), the probe's prefix and the answer.
        answer_start: index in ``ids`` of the first id that holds any of the answer.
    """

    ids: Ids
    answer_start: int


def default_probe_prefix(template: ChatTemplate) -> str:
    """Text that closes the thought and opens the answer.

    Where the generation prompt leaves ``<think>`` open, the probe closes it; where it
    says nothing, the probe opens the thought first; where it has closed a thought
    already, the probe only opens the answer.
    """
    if template.opens_think:
        return f"\n{END_THINK}\n{ANSWER}\n"
    if END_THINK in template.generation_prefix:
        return f"{ANSWER}\n"
    return f"{THINK}\n\n{END_THINK}\n{ANSWER}\n"


def answer_probe(
    template: ChatTemplate, answer: str, prefix: str | None = None, closed: bool = False
) -> AnswerProbe:
    """Encode ``prefix + answer`` and find the answer in it by its characters.

    The answer is encoded where it stands, not alone; an id that holds the end of the
    prefix and the start of the answer counts as the answer's.  Tags of the prefix are
    control tokens, the answer's text never is.

    Args:
        template: of the history's transcript.
        answer: the gold answer.
        prefix: :func:`default_probe_prefix` if None.
        closed: encode the answer as it stands before a line break and ``</answer>``, which are
            not in the probe; an id that holds the end of the answer and the line break is.

    Raises:
        ValueError: when the answer has no tokens.
    """
    pieces = template.pieces.split(default_probe_prefix(template) if prefix is None else prefix)
    last = pieces[-1] if pieces else ""
    lead = last if isinstance(last, str) else ""
    if lead:
        pieces.pop()
    head = template.pieces.encode(pieces)
    text = lead + sound_text(answer)
    behind = template.pieces.split(f"\n{END_ANSWER}")[0] if closed else ""
    tail, offsets = template.pieces.plain_offsets(
        text + (behind if isinstance(behind, str) else "")
    )
    within = [
        place
        for place, (start, stop) in enumerate(offsets)
        if stop > len(lead) and start < len(text)
    ]
    if not within:
        raise ValueError(f"the answer {answer!r} has no tokens to score")
    return AnswerProbe(np.concatenate([head, tail[: within[-1] + 1]]), len(head) + within[0])
