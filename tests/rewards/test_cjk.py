"""Chinese, Japanese and Korean answers, and where the released scores mislead."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drv_env.rewards.outcome import (
    exact_match,
    exact_match_cjk,
    mixed_tokens,
    token_f1,
    token_f1_cjk,
)
from drv_env.tasks import Task


@pytest.mark.parametrize(
    ("answer", "gold", "released", "by_characters"),
    [
        ("北京。", "北京", (0.0, 0.0), (1.0, 1.0)),
        ("《红楼梦》", "红楼梦", (0.0, 0.0), (1.0, 1.0)),
        ("１９１２年", "1912年", (1.0, 1.0), (1.0, 1.0)),
        ("ＮＡＳＡ", "nasa", (1.0, 1.0), (1.0, 1.0)),
        ("スティーブ・ジョブズ", "スティーブ ジョブズ", (0.0, 0.0), (1.0, 1.0)),
        ("ｶﾞｽ", "ガス", (1.0, 1.0), (1.0, 1.0)),
        ("北京市", "北京", (0.0, 0.0), (0.0, 0.8)),
        ("答案是北京", "北京", (0.0, 0.0), (0.0, 4 / 7)),
        ("iPhone 15手机", "iPhone15 手机", (0.0, 0.0), (0.0, 2 * 2 / (4 + 3))),
        ("서울에서", "서울", (0.0, 0.0), (0.0, 2 / 3)),
        ("上海", "北京", (0.0, 0.0), (0.0, 0.0)),
        # A limit: characters in common are not a meaning in common.
        ("东京大学", "京都大学", (0.0, 0.0), (0.0, 0.75)),
    ],
)
def test_characters_tell_more_than_words(
    answer: str, gold: str, released: tuple[float, float], by_characters: tuple[float, float]
) -> None:
    task = Task("Q", (gold,))
    assert (exact_match(answer, task), token_f1(answer, task)) == released
    found = (exact_match_cjk(answer, task), token_f1_cjk(answer, task))
    assert found == pytest.approx(by_characters)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        ("。！？…『』", []),
        ("The U.S., 1912", ["the", "u", "s", "1912"]),
        ("2023年のNobel賞", ["2023", "年", "の", "nobel", "賞"]),
        ("ラーメン々〇", ["ラ", "ー", "メ", "ン", "々", "〇"]),
        ("𠮷野家", ["𠮷", "野", "家"]),
        ("서울 2024", ["서", "울", "2024"]),
        ("e\u0301 é", ["é", "é"]),
        ("５０％〜６０％", ["50", "60"]),
    ],
)
def test_only_what_is_written_without_spaces_is_split(text: str, tokens: list[str]) -> None:
    assert mixed_tokens(text) == tokens


def test_several_gold_answers_count_by_the_best() -> None:
    task = Task("Q", ("上海", "北京市", "北京"))
    assert exact_match_cjk("「北京」", task) == token_f1_cjk("「北京」", task) == 1.0


def test_punctuation_alone_matches_nothing() -> None:
    task = Task("Q", ("！",))
    assert exact_match_cjk("？", task) == token_f1_cjk("？", task) == 0.0
    assert exact_match_cjk("", task) == 0.0


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
@pytest.mark.parametrize(
    "gold", ["Gérard Nguyễn", "Młyn w Łodzi", "방앗간", "ガボン", "İzmir", "Αθήνα", "ज़िला"]
)
@pytest.mark.parametrize("score", [exact_match, token_f1, exact_match_cjk, token_f1_cjk])
def test_another_normal_form_is_the_same_answer(score: Any, gold: str, form: Any) -> None:
    assert score(unicodedata.normalize(form, gold), ("Q", gold)) == 1.0
    assert score(gold, ("Q", unicodedata.normalize(form, gold))) == 1.0


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("-5", "5"),
        ("<5", ">5"),
        ("1/2", "1.2"),
        ("3:5", "3.5"),
        ("1.000", "1,000"),
        ("～40", "40"),
        ("５％", "5"),
        ("￥5", "5"),
        ("C#", "C"),
        ("C", "C++"),
        ("10²", "102"),
        (".5", "5"),
    ],
)
def test_a_sign_that_makes_another_number_counts_in_the_match(answer: str, gold: str) -> None:
    assert exact_match_cjk(answer, ("Q", gold)) == exact_match_cjk(gold, ("Q", answer)) == 0.0


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("ﬁve ㎏", "five kg"),
        ("Ⅳ", "iv"),
        ("١٢", "12"),
        ("北\u200b京", "北 京"),
        ("−5", "-5"),
        ("5 %", "5%"),
        ("$ 5", "＄5"),
        ("1912–1914年", "1912-1914年"),
        ("≥ 5", "≥5"),
    ],
)
def test_a_sign_in_another_writing_does_not(answer: str, gold: str) -> None:
    assert exact_match_cjk(answer, ("Q", gold)) == 1.0


@given(st.text(st.sampled_from("abc 12łé"), min_size=1), st.text(st.sampled_from("abc 12łé")))
def test_other_text_scores_as_released(gold: str, answer: str) -> None:
    if gold.strip():
        task = Task("Q", (gold,))
        assert token_f1_cjk(answer, task) == pytest.approx(token_f1(answer, task))
        assert exact_match_cjk(answer, task) == exact_match(answer, task)


@given(st.text(st.characters(exclude_categories=())), st.text())
def test_scores_are_in_their_range_for_any_text(answer: str, gold: str) -> None:
    task = Task("Q", (gold + "x",))
    assert 0.0 <= exact_match_cjk(answer, task) <= token_f1_cjk(answer, task) <= 1.0
