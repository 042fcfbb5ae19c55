"""Where a stop text ends: watching ids come in, one by one, for a text they spell.

Pure: token ids and a tokenizer, no model and no requests.  What one id costs depends on
the stop texts' lengths and not on how much came before: only as many of the last ids are
decoded as can spell the longest stop text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from drv_env.errors import EngineError
from replay.pieces import Ids, Pieces

_CUT = "\ufffd"
"""How bytes that are no whole character are decoded."""

_MARGIN = 4
"""Ids in front of a stop text, so that what a decoder does at the start of a text, or to
the rest of a character that was cut, is not done to the stop text."""


class StopTexts:
    """The stop texts of one completion, and the end of what it has written.

    A stop text is found wherever it stands in the decoded completion: over several ids,
    inside one, or with an id of its own.  The prompt is no part of it.

    Example:
        >>> from tokenizers import Tokenizer, decoders, models
        >>> words = {"wa": 0, "it<": 1, "stop>.": 2}
        >>> tokenizer = Tokenizer(models.BPE(words, []))
        >>> tokenizer.decoder = decoders.Fuse()
        >>> stop = StopTexts(Pieces(tokenizer), ["<stop>"])
        >>> [stop.ends_with(id_) for id_ in (0, 1, 2)]
        [False, False, True]

    Args:
        pieces: decodes ids.
        texts: at least one, none of them empty.

    Raises:
        EngineError: for a text with U+FFFD, which stands for what isn't text.
    """

    def __init__(self, pieces: Pieces, texts: Sequence[str]) -> None:
        if any(_CUT in text for text in texts):
            raise EngineError("a stop text can't hold U+FFFD: it stands for bytes that are no text")
        self._pieces = pieces
        self._texts = tuple(texts)
        # An id that is in the tokenizer spells at least one byte.
        longest = max(len(text.encode()) for text in texts)
        self._tail: deque[int] = deque(maxlen=longest + _MARGIN)

    def ends_with(self, id_: int) -> bool:
        """Take the next id; say whether it completes a stop text."""
        if self._pieces.tokenizer.id_to_token(id_) is None:
            return False  # a model may know more ids than its tokenizer; they spell nothing
        self._tail.append(id_)
        text = self._pieces.decode(self._tail)
        return any(stop in text for stop in self._texts)


def watch(pieces: Pieces | None, texts: Sequence[str]) -> StopTexts | None:
    """What watches for ``texts``; None where there are none.

    Raises:
        EngineError: when they are to be found without a tokenizer.
    """
    if not texts:
        return None
    if pieces is None:
        raise EngineError("stop texts need the model's tokenizer: make the engine with pieces=")
    return StopTexts(pieces, texts)


def count_to_stop(pieces: Pieces, texts: Sequence[str], ids: Sequence[int] | Ids) -> int | None:
    """How many ids there are up to and with the one that completes a stop text.

    None where no stop text is completed, or none is given.
    """
    stop = watch(pieces, texts)
    if stop is None:
        return None
    return next((count for count, id_ in enumerate(ids, 1) if stop.ends_with(int(id_))), None)
