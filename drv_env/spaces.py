"""A Gymnasium space of free text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from gymnasium.spaces import Space

from drv_env.errors import SettingError
from drv_env.protocol import Answer, Search, Visit, render_turn
from drv_env.settings import at_least, checked_whole

_RANGES = ((0x20, 0x7E), (0x09, 0x0A), (0xA1, 0x24F), (0x4E00, 0x4FFF), (0x1F300, 0x1F5FF))
_SAMPLE_CHARS = 64
_WORDS = ("river", "founder", "museum", "1912", "capital", "author", "bridge", "Łódź")


class TextSpace(Space[str]):
    """Every string of at most ``max_length`` characters, white space and newlines included.

    Unlike ``gymnasium.spaces.Text`` it has no alphabet: it costs nothing to build, to
    check or to pickle.  ``sample()`` draws free text and well-formed turns in turn.

    Args:
        max_length: the most characters (code points), at least 1.
        seed: seeds ``sample()``.

    Raises:
        SettingError: when ``max_length`` is below 1.

    Example:
        >>> "<think>\\n…\\n</think>" in TextSpace()
        True
    """

    def __init__(
        self, max_length: int = 2**24, seed: int | np.random.Generator | None = None
    ) -> None:
        self.max_length = checked_whole("max_length", max_length, at_least(1))
        super().__init__(dtype=str, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """Text can't be flattened into numbers."""
        return False

    def contains(self, x: Any) -> bool:
        """Whether ``x`` is a string within the length bound."""
        return isinstance(x, str) and len(x) <= self.max_length

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> str:
        """Free text of up to 64 characters, or a well-formed turn, each half of the time.

        Raises:
            SettingError: when a mask or probability is given; text has none.
        """
        if mask is not None or probability is not None:
            raise SettingError("TextSpace.sample takes neither mask nor probability")
        rng = self.np_random
        text = _random_turn(rng) if rng.random() < 0.5 else _random_text(rng)
        return text if len(text) <= self.max_length else _random_text(rng)[: self.max_length]

    def to_jsonable(self, sample_n: Iterable[str]) -> list[str]:
        """Samples as JSON strings: themselves."""
        return list(sample_n)

    def from_jsonable(self, sample_n: Iterable[str]) -> list[str]:
        """Samples from JSON strings: themselves."""
        return list(sample_n)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TextSpace) and self.max_length == other.max_length

    def __hash__(self) -> int:
        return hash(("TextSpace", self.max_length))

    def __repr__(self) -> str:
        return f"TextSpace(max_length={self.max_length})"


class SampledText(str):
    """A turn that knows how many tokens it was sampled as.

    An ordinary string to everyone else.  Envs count a context budget with it, where a
    counter would have to encode the text again and might find another number.

    Attributes:
        tokens: how many, the end-of-turn token included.

    Example:
        >>> SampledText("<think>…", 3).tokens
        3
    """

    tokens: int

    def __new__(cls, text: str, tokens: int) -> SampledText:
        made = super().__new__(cls, text)
        made.tokens = tokens
        return made

    def __getnewargs__(self) -> tuple[str, int]:  # type: ignore[override]
        return str(self), self.tokens


def _random_text(rng: np.random.Generator) -> str:
    length = int(rng.integers(0, _SAMPLE_CHARS + 1))
    picks = rng.integers(0, len(_RANGES), length)
    return "".join(chr(int(rng.integers(_RANGES[pick][0], _RANGES[pick][1] + 1))) for pick in picks)


def _random_turn(rng: np.random.Generator) -> str:
    words = " ".join(rng.choice(_WORDS, size=int(rng.integers(1, 4))))
    kind = int(rng.integers(0, 3))
    if kind == 0:
        return render_turn(f"I look for {words}.", Search((words,)))
    if kind == 1:
        url = f"https://example.org/{int(rng.integers(0, 1000))}"
        return render_turn("I open the page.", Visit((url,), words))
    return render_turn("That is all.", Answer(words))
