"""Control tokens are found by their letters just as the tokenizer finds them."""

import random

from drv_env.unicode_text import sound_text
from replay.pieces import LONG, Pieces
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


def test_text_behind_a_control_token_has_the_ids_that_the_tokenizer_gives(any_tokenizer):
    pieces = Pieces(any_tokenizer)
    text = "<think>Who founded</think>the city"
    found = pieces.encode(pieces.split(text), at_start=True)
    assert found.tolist() == any_tokenizer.encode(text, add_special_tokens=False).ids


def test_the_space_in_front_of_a_first_word_is_in_front_of_the_first_alone():
    pieces = Pieces(MAKERS["unigram"]())
    first, inner = pieces.encode(["Who"], at_start=True), pieces.encode(["Who"])
    assert (pieces.decode(first)[-3:], pieces.decode(inner)) == ("Who", "Who")
    assert first.tolist() != inner.tolist()


def test_between_control_tokens_side_by_side_there_is_no_text(bpe):
    pieces = Pieces(bpe)
    think, end = pieces.id_of("<think>"), pieces.id_of("</think>")
    assert pieces.split("<think></think>a<think>") == [think, end, "a", think]
    assert pieces.split("") == []
    assert pieces.id_of("no such token") is None
    assert pieces.size == 1 + max(bpe.get_vocab().values())


def test_of_nothing_there_are_no_ids():
    pieces = Pieces(MAKERS["word_level"]())
    assert pieces.encode([]).tolist() == pieces.encode_plain("").tolist() == []


def test_long_texts_have_the_ids_that_the_plain_call_gives(any_tokenizer):
    """Above a length another call of the tokenizer encodes; ids must not depend on it."""
    pieces = Pieces(any_tokenizer)
    unit = "Who owns the mill? <|im_end|> größer 你好 🙂 [[[\n\n  x\u0000y </tool_response>"
    for text in (unit * 60, "[" * 50_000, "\ud800" + unit * 60):
        assert len(text) > LONG
        expected = pieces._inner.encode(sound_text(text), add_special_tokens=False).ids
        assert pieces.encode_plain(text).tolist() == expected
