"""Exact match and token F1."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drv_env.rewards.outcome import exact_match, exact_match_cjk, normalise, token_f1
from drv_env.tasks import Task

WORDS = st.lists(st.sampled_from(["a", "b", "c", "łódź", "1912"]), min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("answer", "gold", "exact", "f1"),
    [
        ("Paris", "paris", 1.0, 1.0),
        (" the  U.S.! ", "The U S", 1.0, 1.0),
        ("Paris, France", "Paris", 0.0, 2 / 3),
        ("Rome", "Paris", 0.0, 0.0),
        ("", "Paris", 0.0, 0.0),
        ("...", "Paris", 0.0, 0.0),
        ("a a b", "a b b", 0.0, 2 / 3),
        ("Łódź", "łódź", 1.0, 1.0),
        ("O'Neill", "O Neill", 1.0, 1.0),
    ],
)
def test_answers_are_compared_by_their_words(
    answer: str, gold: str, exact: float, f1: float
) -> None:
    task = Task("Q", (gold,))
    assert exact_match(answer, task) == exact
    assert token_f1(answer, task) == pytest.approx(f1)


def test_the_best_of_several_gold_answers_counts() -> None:
    task = Task("Q", ("Rome", "the city of Paris", "Paris"))
    assert exact_match("paris", task) == token_f1("paris", task) == 1.0
    assert token_f1("city", task) == pytest.approx(0.4)


@given(WORDS, WORDS)
def test_f1_is_symmetric_and_one_only_for_the_same_words(one: list, other: list) -> None:
    first = token_f1(" ".join(one), Task("Q", (" ".join(other),)))
    second = token_f1(" ".join(other), Task("Q", (" ".join(one),)))
    assert first == pytest.approx(second)
    assert 0.0 <= first <= 1.0
    assert (first == 1.0) == (sorted(one) == sorted(other))


@given(st.text(st.characters(exclude_categories=())))
def test_normalising_twice_changes_nothing(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)
    assert exact_match(text, Task("Q", (text or "x",))) == 1.0 if text.strip() else True


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
@pytest.mark.parametrize(
    "word",
    [
        "Gérard Nguyễn",
        "방앗간",
        "ガッコウ",
        "क़िला",
        "ﬁrst oﬃce",
        "5 µm",
        "Ⅳ",
        "１９１２",
        "שׁלום",
        "ﷺ",
    ],
)
def test_another_normal_form_is_the_same_answer(word: str, form: str) -> None:
    task = Task("q", (word,))
    answer = unicodedata.normalize(form, word)
    assert [score(answer, task) for score in (exact_match, token_f1, exact_match_cjk)] == [1.0] * 3


@pytest.mark.parametrize(
    ("answer", "gold"), [("x2", "x²"), ("102", "10²"), ("12", "½"), ("1", "①")]
)
def test_what_compatibility_forms_would_make_equal_is_not(answer: str, gold: str) -> None:
    for score in (exact_match, exact_match_cjk):
        assert score(answer, Task("q", (gold,))) == 0.0
    assert exact_match_cjk("5", Task("q", ("≠5",))) == 0.0
