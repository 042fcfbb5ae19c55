"""Where a stop text ends a turn: behind its call or answer, and nowhere before.

An engine ends a completion at the first stop text, wherever that stands.  One that a
thought, a JSON string or an answer only mentions would cut what is to be read
(:func:`drv_env.protocol.action_end`); such a completion is sampled again without stop texts
and cut here.
"""

from __future__ import annotations

from collections.abc import Sequence

from drv_env.protocol import ReadingRule, action_end

_WIDEST: ReadingRule = "thought_optional"
"""An engine doesn't know the game's rules; what this one reads, any of them may."""


def is_cut(text: str, rule: ReadingRule = _WIDEST) -> bool:
    """Whether a turn that ended at a stop text could have gone on to a call or an answer.

    The release's reading is itself cut at any mention, so there it could not.
    """
    return rule != "released" and action_end(text, rule) is None


def stop_end(text: str, stops: Sequence[str], rule: ReadingRule = _WIDEST) -> int | None:
    """Behind the first stop text that ends the turn; None where none does.

    Example:
        >>> text = "<think>no STOP</think><answer>X</answer> STOP now"
        >>> text[: stop_end(text, ["STOP"])]
        '<think>no STOP</think><answer>X</answer> STOP'
    """
    end = action_end(text, rule)
    if end is None:
        return None
    found = [(text.find(stop, max(0, end - len(stop))), len(stop)) for stop in stops]
    return min((at + length for at, length in found if at >= 0), default=None)


def without_stop(text: str, stops: Sequence[str]) -> str:
    """A whole turn as a server would give it that takes the stop text off: up to it, but with
    the call or answer whole.

    Example:
        >>> without_stop("<think>no STOP</think><answer>X</answer> STOP now", ["STOP"])
        '<think>no STOP</think><answer>X</answer> '
    """
    end = action_end(text, _WIDEST)
    if end is None:
        return text
    found = [text.find(stop, max(0, end - len(stop))) for stop in stops]
    return text[: max(end, min((at for at in found if at >= 0), default=len(text)))]


def with_stop(text: str, stops: Sequence[str]) -> str:
    """A turn with the stop text that a server took off it, where that closed its call or answer.

    Example:
        >>> with_stop("<think>a</think><answer>X", ["</tool_call>", "</answer>"])
        '<think>a</think><answer>X</answer>'
    """
    if action_end(text, _WIDEST) is not None:
        return text
    closed = (text + stop for stop in stops)
    return next((each for each in closed if action_end(each, _WIDEST) is not None), text)
