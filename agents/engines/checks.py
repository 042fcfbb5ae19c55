"""What may be asked of an engine and what it may give: the one place that says so.

Engines check requests here, those behind a server check what it sent, and whoever plays
on an engine checks what came back, for an engine may be anybody's.  What isn't right is the
engine's fault (:class:`~drv_env.errors.EngineError`): the episode is broken and says why.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from agents.engines.base import Completion, Finish, Ids, Reply, Spans
from drv_env.errors import EngineError

ROUNDING = 1e-3
"""By how much a log-prob may be above 0.  A log-softmax in float32 gives up to 1e-6 for a sure
id, one in bfloat16 steps of 2⁻⁸ times the logits' scale near 0; what servers print is rounded.
Anything above is no log-prob, such as one of a processed or unnormalised distribution.  What
is within becomes 0."""

_FINISHES = get_args(Finish)
_LARGEST_ID = 2**31 - 1
_LARGEST_VERSION = 2**63 - 1  # as episodes are stored


def checked_ids(ids: Ids, vocabulary: int | None) -> NDArray[np.int64]:
    """A copy of a request's ids.

    Args:
        ids: whole numbers, numpy's or Python's.
        vocabulary: how many ids there are; None where that isn't known.

    Raises:
        EngineError: when there are none, or one is no whole number or isn't of the vocabulary.
    """
    given = _whole_numbers(ids, "the request's ids")
    if not len(given):
        raise EngineError("a request needs at least one id")
    _check_vocabulary(given, vocabulary, "ids go")
    return given


def room_after(given: Sized, context: int) -> int:
    """Ids that may follow a prompt.

    Raises:
        EngineError: when the context leaves room for none.
    """
    room = context - len(given)
    if room < 1:
        raise EngineError(f"a prompt of {len(given)} ids leaves no room in a context of {context}")
    return room


def check_spans(spans: Spans, count: int) -> None:
    """Refuse spans that are not within the ids after the first.

    Raises:
        EngineError: naming the span.
    """
    for start, stop in spans:
        if not 1 <= start <= stop <= count:
            raise EngineError(f"span {start}:{stop} is not within 1:{count}")


def checked_completion(done: object, max_tokens: int, vocabulary: int | None) -> Completion:
    """What an engine sampled, with ids int32, log-probs float32 and at most 0.

    An engine that ended the completion early may give no ids; any other gives at least one.

    Args:
        done: a :class:`Completion` of whatever is in it.
        max_tokens: that were asked for.
        vocabulary: how many ids there are; None where that isn't known.

    Raises:
        EngineError: naming what isn't right.
    """
    if not isinstance(done, Completion):
        raise EngineError(f"the engine gave {_kind(done)} in place of a Completion")
    ids = _whole_numbers(done.ids, "the engine's ids")
    log_probs = checked_log_probs(done.log_probs, len(ids))
    finish, version = done.finish, done.weight_version
    if not isinstance(finish, str) or finish not in _FINISHES:
        raise EngineError(f"the engine's finish must be one of {_FINISHES}, not {_shown(finish)}")
    counted = isinstance(version, int | np.integer) and not isinstance(version, bool)
    if not counted or not 0 <= version <= _LARGEST_VERSION:
        raise EngineError(f"the engine's weight_version must be a count, not {_shown(version)}")
    if len(ids) > max_tokens:
        raise EngineError(f"the engine gave {len(ids)} ids where {max_tokens} were asked for")
    if not len(ids) and finish != "aborted":
        raise EngineError(f"the engine gave no ids and says {str(finish)!r}")
    _check_vocabulary(ids, vocabulary, "the engine's ids go")
    return Completion(ids.astype(np.int32), log_probs, finish, int(version))


def checked_scores(found: object, spans: Spans) -> list[NDArray[np.float32]]:
    """What an engine scored: one log-prob a position of every span.

    Raises:
        EngineError: naming what isn't right.
    """
    if not isinstance(found, list | tuple) or len(found) != len(spans):
        count = len(found) if isinstance(found, list | tuple) else _kind(found)
        raise EngineError(f"the engine gave scores of {count} spans, asked for {len(spans)}")
    return [
        checked_log_probs(values, stop - start)
        for values, (start, stop) in zip(found, spans, strict=True)
    ]


def checked_log_probs(values: Any, count: int) -> NDArray[np.float32]:
    """Raw log-probs of ``count`` ids: finite, and at most 0 up to :data:`ROUNDING`.

    Raises:
        EngineError: when they are anything else.
    """
    if isinstance(values, np.ndarray):
        numbers = values.dtype.kind in "fiu"
    else:
        numbers = isinstance(values, Sequence) and all(map(_is_number, values))
    if not numbers:
        raise EngineError("the engine's log-probs are no numbers")
    with np.errstate(over="ignore"):
        found = np.array(values, np.float32)
    if found.shape != (count,):
        raise EngineError(f"the engine gave log-probs of shape {found.shape} for {count} ids")
    if not np.isfinite(found).all():
        raise EngineError("the engine's log-probs are no numbers: some are NaN or infinite")
    if count and found.max() > ROUNDING:
        raise EngineError(f"the engine gave a log-prob of {found.max():g}; none is above 0")
    return np.minimum(found, np.float32(0.0))


def checked_reply(reply: object) -> Reply:
    """What an engine that speaks text wrote.

    Raises:
        EngineError: naming what isn't right.
    """
    if not isinstance(reply, Reply):
        raise EngineError(f"the engine gave {_kind(reply)} in place of a Reply")
    if not isinstance(reply.text, str):
        raise EngineError(f"the engine's text is {_kind(reply.text)}")
    if not isinstance(reply.finish, str) or reply.finish not in _FINISHES:
        given = _shown(reply.finish)
        raise EngineError(f"the engine's finish must be one of {_FINISHES}, not {given}")
    if reply.finish == "aborted":
        raise EngineError("the engine ended the reply early")
    for name in ("tokens", "prompt_tokens"):
        count = getattr(reply, name)
        if count is not None and (type(count) is not int or count < 0):
            raise EngineError(f"the engine's {name} must be a count or None, not {_shown(count)}")
    return Reply(str.__str__(reply.text), reply.finish, reply.tokens, reply.prompt_tokens)


def _whole_numbers(ids: Any, what: str) -> NDArray[np.int64]:
    if isinstance(ids, np.ndarray):
        right = ids.ndim == 1 and (ids.dtype.kind in "iu" or not ids.size)
    else:
        right = isinstance(ids, Sequence) and not isinstance(ids, str | bytes)
        right = right and all(
            isinstance(id_, int | np.integer) and not isinstance(id_, bool) for id_ in ids
        )
    if not right:
        raise EngineError(f"{what} must be whole numbers in a row")
    try:
        found = np.array(ids, np.int64).reshape(-1)
    except OverflowError:
        raise EngineError(f"{what} are too large to be ids") from None
    if len(found) and not -_LARGEST_ID <= int(found.min()) <= int(found.max()) <= _LARGEST_ID:
        raise EngineError(f"{what} are too large to be ids")
    return found


def _check_vocabulary(ids: NDArray[np.int64], vocabulary: int | None, what: str) -> None:
    if not len(ids):
        return
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or (vocabulary is not None and high >= vocabulary):
        known = (
            "they must be 0 or more"
            if vocabulary is None
            else (f"the model's from 0 to {vocabulary - 1}")
        )
        raise EngineError(f"{what} from {low} to {high}; {known}")


def _is_number(value: object) -> bool:
    return isinstance(value, float | int | np.floating | np.integer) and not isinstance(value, bool)


def _kind(value: object) -> str:
    return type(value).__name__[:100]


def _shown(value: object) -> str:
    if type(value) is int and value.bit_length() > 200:  # Python writes out no number of any size
        return f"a number of {value.bit_length()} bits"
    return repr(value)[:60] if type(value) in (int, float, str, bool) else _kind(value)
