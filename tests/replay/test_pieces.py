"""Control tokens are found by their letters just as the tokenizer finds them."""

import random

from replay.pieces import Pieces
from tests.replay.conftest import CORPUS, MAKERS, PROTOCOL_PIECES, SPECIAL, TAGS


def test_letters_find_what_the_tokenizer_finds(any_tokenizer):
    pieces = Pieces(any_tokenizer)
    asked = Pieces(any_tokenizer)
    asked._literal, asked._marking = None, any_tokenizer
    rng = random.Random(0)
    parts = [*SPECIAL, *TAGS, *PROTOCOL_PIECES, *CORPUS, "<", "</think", "<unk>", "\n", " ", "é"]
    for _ in range(300):
        text = "".join(rng.choices(parts, k=rng.randrange(6)))
        assert pieces.split(text) == asked.split(text), text


def test_tokens_that_are_more_than_letters_are_left_to_the_tokenizer():
    literal = [Pieces(make())._literal is not None for make in MAKERS.values()]
    assert literal == [name != "greedy_bpe" for name in MAKERS]
