"""The space of free text."""

from __future__ import annotations

import copy
import pickle
import time

import numpy as np
import pytest
from gymnasium.vector.utils import batch_space
from hypothesis import given
from hypothesis import strategies as st

from drv_env import SampledText, SettingError, TextSpace
from drv_env.protocol import Answer, Search, Visit, format_verdict, read_turn


@given(st.text(st.characters(exclude_categories=())))
def test_every_string_is_in_it(text: str) -> None:
    assert text in TextSpace()
    assert SampledText(text, 1) in TextSpace()
    assert TextSpace().max_length == 16_777_216
    assert (text in TextSpace(3)) == (len(text) <= 3)


@pytest.mark.parametrize("other", [None, 1, b"bytes", ["a"], ("a",), np.array("a")])
def test_nothing_else_is(other: object) -> None:
    assert other not in TextSpace()


def test_samples_are_in_it_and_come_from_the_seed() -> None:
    space = TextSpace(seed=4)
    drawn = [space.sample() for _ in range(300)]
    assert all(text in space for text in drawn)
    space.seed(4)
    assert [space.sample() for _ in range(300)] == drawn
    assert [TextSpace(seed=5).sample() for _ in range(3)] != drawn[:3]
    assert len({character for text in drawn for character in text}) > 200
    assert space.is_np_flattenable is False
    short = TextSpace(5, seed=0)
    assert all(len(short.sample()) <= 5 for _ in range(100))


def test_samples_are_free_text_and_well_formed_turns_of_each_kind() -> None:
    space = TextSpace(seed=0)
    readings = [(text, read_turn(text).action) for text in (space.sample() for _ in range(400))]
    turns = [(text, action) for text, action in readings if action is not None]
    assert 150 < len(turns) < 250
    assert {type(action) for _, action in turns} == {Search, Visit, Answer}
    for text, action in turns:
        assert format_verdict(text, final=isinstance(action, Answer))
        assert type(text) is str


def test_samples_take_no_mask() -> None:
    for arguments in ({"mask": 1}, {"probability": 1}):
        with pytest.raises(SettingError, match="neither"):
            TextSpace().sample(**arguments)


def test_it_is_cheap_to_build_and_to_carry() -> None:
    started = time.perf_counter()
    spaces = [TextSpace() for _ in range(1_000)]
    assert all("x" * 100_000 in space for space in spaces)
    assert time.perf_counter() - started < 2.0
    carried = pickle.dumps(TextSpace(max_length=9))
    assert len(carried) < 1_000
    assert pickle.loads(carried) == TextSpace(max_length=9) == copy.deepcopy(TextSpace(9))


def test_a_carried_space_draws_on() -> None:
    space = TextSpace(seed=1)
    space.sample()
    copied = pickle.loads(pickle.dumps(space))
    assert [copied.sample() for _ in range(5)] == [space.sample() for _ in range(5)]


def test_equal_bounds_make_equal_spaces() -> None:
    assert TextSpace() == TextSpace(seed=3)
    assert TextSpace() != TextSpace(3)
    assert TextSpace() != "TextSpace"
    assert len({TextSpace(), TextSpace(), TextSpace(3)}) == 2
    assert eval(repr(TextSpace(3))) == TextSpace(3)


def test_many_of_them_are_batched() -> None:
    batched = batch_space(TextSpace(), 3)
    assert ("a", "", "b") in batched
    assert ("a", "b") not in batched
    assert len(batched.sample()) == 3


def test_samples_go_to_json_and_back() -> None:
    space = TextSpace(seed=0)
    drawn = [space.sample() for _ in range(5)]
    assert space.from_jsonable(space.to_jsonable(drawn)) == drawn


def test_it_holds_at_least_one_character() -> None:
    with pytest.raises(SettingError, match="got 0"):
        TextSpace(0)
    assert not TextSpace().is_np_flattenable
