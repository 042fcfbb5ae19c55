"""Stop texts are found at the id that completes them, and a long completion costs no more."""

from __future__ import annotations

import numpy as np
import pytest

from agents.engines._stopping import StopTexts, count_to_stop, watch
from drv_env.errors import EngineError
from replay.pieces import Pieces
from tests.engines.conftest import byte_tokenizer, space_tokenizer


@pytest.fixture(scope="module")
def pieces():
    return Pieces(byte_tokenizer())


def ids_of(pieces, text):
    return pieces.encode_plain(text).tolist()


def naive(pieces, texts, ids):
    """The definition: the first id with which the decoded completion holds a stop text."""
    for count in range(1, len(ids) + 1):
        text = pieces.decode(ids[:count])
        if any(stop in text for stop in texts):
            return count
    return None


def test_a_text_over_several_ids_inside_one_and_in_one_of_its_own(pieces):
    spelt = ids_of(pieces, "see <tool_response> and more")
    count = count_to_stop(pieces, ["<tool_response>"], spelt)
    assert pieces.decode(spelt[:count]).endswith("<tool_response>")
    # the id "><" completes the text and goes on
    end = ids_of(pieces, "a b><")
    assert count_to_stop(pieces, ["b>"], end) == len(end)
    assert pieces.decode(end[-1:]) == "><"
    tag = pieces.id_of("<tool_response>")
    assert count_to_stop(pieces, ["<tool_response>"], [*spelt[:3], tag, 1]) == 4
    assert count_to_stop(pieces, ["nowhere"], spelt) is None
    assert count_to_stop(pieces, [], spelt) is None


def test_characters_of_several_bytes_end_with_their_last(pieces):
    ids = ids_of(pieces, "ça y est 終わり 🎉 more")
    for stop in ("終わり", "🎉", "ç", "り 🎉"):
        count = count_to_stop(pieces, [stop], ids)
        assert pieces.decode(ids[:count]).endswith(stop)
        assert stop not in pieces.decode(ids[: count - 1])


def test_it_finds_what_the_whole_text_holds(pieces):
    """Random ids, torn characters and all, against decoding everything at each id."""
    rng = np.random.default_rng(0)
    alphabet = ids_of(pieces, "ab<tool>é終🎉")
    stops = ["<tool>", "ab", "é", "終a", "bb", "o🎉", "<<", "aab", "l>a"]
    found = 0
    for _ in range(300):
        ids = rng.choice(alphabet, 40).tolist()
        texts = rng.choice(stops, 2, replace=False).tolist()
        expected = naive(pieces, texts, ids)
        assert count_to_stop(pieces, texts, ids) == expected
        found += expected is not None
    assert found > 50


def test_vocabularies_that_write_spaces_in_front_of_words():
    pieces = Pieces(space_tokenizer())
    rng = np.random.default_rng(1)
    names = ["▁", "▁st", "op", "▁stop", "s", "t", "o", "p", "a"]
    alphabet = [pieces.tokenizer.token_to_id(name) for name in names]
    for _ in range(300):
        ids = rng.choice(alphabet, 25).tolist()
        for stop in (" stop", "stop", "a stop", "op s"):
            assert count_to_stop(pieces, [stop], ids) == naive(pieces, [stop], ids)


def test_ids_that_spell_nothing_hide_nothing(pieces):
    unknown = pieces.tokenizer.get_vocab_size() + 3
    ids = [id_ for spelt in ids_of(pieces, "a stop b") for id_ in [spelt, *[unknown] * 30]]
    count = count_to_stop(pieces, ["stop"], ids)
    assert pieces.decode(ids[:count]).endswith("stop")
    assert ids[count - 1] != unknown


def test_what_an_id_costs_does_not_grow(pieces):
    decoded = []

    class Watched(Pieces):
        def decode(self, ids):
            decoded.append(len(ids))
            return super().decode(ids)

    stop = StopTexts(Watched(byte_tokenizer()), ["</tool_response>", "x"])
    spelt = ids_of(pieces, "no stop here, é終🎉. ")
    assert not any(stop.ends_with(id_) for id_ in spelt * 50)
    assert max(decoded) <= len("</tool_response>") + 4


def test_what_can_not_be_watched_for_is_refused(pieces):
    with pytest.raises(EngineError, match=r"U\+FFFD"):
        StopTexts(pieces, ["\ufffd"])
    with pytest.raises(EngineError, match="pieces="):
        watch(None, ["stop"])
    assert watch(None, []) is None
