"""What a chat server's stop texts may have cut, and where they should.

Such a server ends the reply at the first stop text, wherever that stands, and takes it off.
A stop text should end a turn behind its call or answer alone
(:func:`drv_env.protocol.action_end`).
"""

from __future__ import annotations

from collections.abc import Sequence

from drv_env.protocol import ReadingRule, action_end

_RULE: ReadingRule = "thought_optional"
"""An engine doesn't know the game's rules; what this one reads, any of them may."""


def with_stop(text: str, stops: Sequence[str]) -> str:
    """The turn with the stop text that was taken off it, where that closed its call or answer.

    Example:
        >>> with_stop("<think>a</think><answer>X", ["</tool_call>", "</answer>"])
        '<think>a</think><answer>X</answer>'
    """
    if action_end(text, _RULE) is not None:
        return text
    closed = (text + stop for stop in stops)
    return next((each for each in closed if action_end(each, _RULE) is not None), text)


def may_be_cut(text: str, stopped_at: str | None) -> bool:
    """Whether a turn that the server ended may have gone on to a call or an answer.

    Args:
        text: the turn.
        stopped_at: the stop text that ended it, "" where it was none, None where nobody says.
    """
    return stopped_at != "" and action_end(text, _RULE) is None


def cut_at_stop(text: str, stops: Sequence[str]) -> str:
    """The turn up to the first stop text behind its call or answer.

    Example:
        >>> cut_at_stop("<think>no STOP</think><answer>X</answer> STOP now", ["STOP"])
        '<think>no STOP</think><answer>X</answer> '
    """
    end = action_end(text, _RULE)
    if end is None:
        return text
    found = [at for at in (text.find(stop, end) for stop in stops) if at >= 0]
    closing = any(text.endswith(stop, 0, end) for stop in stops)
    return text[: end if closing else min(found, default=len(text))]
