"""What is shown of a page: whole where it fits, else passages with what stands around them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drv_env.stems import is_common, language_of, stem
from drv_env.tools.passages import _WORD, GAP, _Page, excerpt, snippet

FILLER = "Visitors come by train in summer and like to look at the river for a while. "
"""15 words that no goal here asks for."""
FILLERS = {
    "english": FILLER,
    "german": "Besucher kommen im Sommer mit der Bahn und sehen sich gern die Felder am Weg an. ",
    "french": "Les visiteurs viennent en train pendant l'été et regardent les champs. ",
}


def words(text: str) -> int:
    return sum(1 for _ in _WORD.finditer(text))


def test_a_page_of_as_many_words_as_allowed_is_whole() -> None:
    page = "\n The mill of Tavel is old.\n\nIts owner is Salen. \n"
    assert words(page) == 10
    for goal in ("who owns the mill", "zebra", ""):
        assert excerpt(page, goal, 10).passages == (page.strip(),)
        assert excerpt(page, goal, None).text == page.strip()
    assert excerpt(page, "who owns the mill", 9).text != page.strip()
    assert excerpt(" \n", "mill", 10).text == ""


@pytest.mark.parametrize(
    ("page", "goal", "answer"),
    [
        (
            "The mill of Tavel stands by the river. Its owner is Salen. ",
            "who owns the mill",
            "Salen",
        ),
        ("In 1912 Salen came. He bought the mill of Tavel. ", "when was the mill bought", "1912"),
        ("Of the mills one is left. The smith and his wife run it. ", "mill", "smith"),
        ("## The owner\n\nSalen bought it from the smith in 1912. ", "owner of the mill", "Salen"),
        ("Die Mühlen stehen am Fluss. Der Besitzer heißt Salen. ", "Mühle", "Salen"),
        ("Le moulin appartenait aux abbés. Salen l'acheta. ", "moulins", "Salen"),
    ],
)
@pytest.mark.parametrize("place", [0, 20, 40])
def test_the_answer_beside_the_questions_words_is_shown(
    page: str, goal: str, answer: str, place: int
) -> None:
    filler = FILLERS[str(language_of(page))]
    long = filler * place + "\n" + page + "\n" + filler * (40 - place)
    found = excerpt(long, goal, 120)
    assert answer in found.text
    assert words(" ".join(found.passages)) <= 120
    assert found.begins == (place == 0)
    assert found.text.startswith(GAP) == (place > 0)
    assert found.text.endswith(GAP) == (place < 40)


def test_gaps_are_marked_and_passages_keep_the_order_of_the_page() -> None:
    page = "The mill was built by Ada. " + FILLER * 20 + "The mill burnt in 1954. " + FILLER * 20
    found = excerpt(page, "mill", 60)
    first, second = found.passages
    assert first.startswith("The mill was built by Ada.")
    assert "The mill burnt in 1954." in second
    assert page.index(first) < page.index(second)
    assert found.text == f"{first} {GAP} {second} {GAP}"


def test_rare_terms_of_a_goal_count_more_than_frequent_ones() -> None:
    page = "The mill turns. " * 60 + "The founder was Ada. " + "The mill turns. " * 60
    assert "The founder was Ada." in excerpt(page, "founder of the mill", 20).text


def test_many_matches_leave_room_for_what_stands_around_the_best() -> None:
    page = "A mill is a mill. " * 100 + "The mill's owner sold. Buyer was Salen. " + FILLER * 50
    assert "Buyer was Salen." in excerpt(page, "who bought the mill from its owner", 40).text


def test_a_tiny_limit_shows_sentences_alone() -> None:
    page = "Ada is a person. The birthplace is Tavel. The mentor is Salen. The employer is Bo Ltd."
    assert excerpt(page, "mentor", 8).text == "… The mentor is Salen. …"
    assert excerpt(page, "mentor", 2).passages == ("mentor is",)


def test_a_sentence_without_an_end_is_cut_in_pieces_around_the_match() -> None:
    page = "cell " * 3_000 + "the founder was Ada Tavelin in 1921 " + "cell " * 3_000
    found = excerpt(page, "founders", 100)
    assert "founder was Ada Tavelin in 1921" in found.text
    assert words(" ".join(found.passages)) <= 100


def test_without_a_match_the_beginning_is_shown_and_marked() -> None:
    found = excerpt("It is old. " * 50, "mayor", 6)
    assert (found.text, found.matched) == ("It is old. It is old. …", False)


@given(
    st.text(st.characters(exclude_categories=()), max_size=400),
    st.text(max_size=30),
    st.integers(1, 60),
)
@settings(deadline=None, max_examples=100)
def test_any_text_is_only_ever_cut(text: str, goal: str, most: int) -> None:
    found = excerpt(text, goal, most)
    at = 0
    for passage in found.passages:
        at = text.index(passage, at) + len(passage)
        assert passage == passage.strip()
    assert sum(map(words, found.passages)) <= most
    assert found.begins or found.passages
    assert found == excerpt(text, goal, most)


@pytest.mark.parametrize(
    ("text", "language", "one", "other"),
    [
        ("The mill was built by the river.", "english", "mills", "mill"),
        ("Die Mühle wurde am Fluss von der Familie gebaut.", "german", "mühlen", "mühle"),
        ("Le moulin a été construit par les moines.", "french", "moulins", "moulin"),
        ("El molino fue construido por la familia en el río.", "spanish", "molinos", "molino"),
        ("Мельница была построена на реке.", "russian", "мельницы", "мельница"),
        ("Değirmen bir aile için ve nehir ile yapıldı.", "turkish", "kitaplar", "kitap"),
        ("Ο μύλος χτίστηκε το 1912.", "greek", "μύλος", "μύλοι"),
    ],
)
def test_a_term_has_its_languages_stem(text: str, language: str, one: str, other: str) -> None:
    assert language_of(text) == language
    assert stem(one, language) == stem(other, language)


def test_what_no_stemmer_knows_is_its_own_stem() -> None:
    assert language_of("灯塔的主人是王明。") is None
    assert language_of("Młyn został zbudowany") is None
    assert language_of("Mill 1912") == "english"
    assert stem("主人", None) == "主人"
    assert is_common("the", "english")
    assert not is_common("mill", "english")
    assert not is_common("the", None)


def test_headings_are_marked_or_short_with_prose_below() -> None:
    lines = [
        "Old mill",
        "The mill of Tavel stands by the river and is very old.",
        "Short end",
        "few words here",
        "# Marked",
        "Last",
    ]
    page = _Page("\n".join(lines), 12)
    assert page.sizes == [2, 12, 2, 3, 2, 1]
    assert [page.text[start:end] for start, end in page.spans] == lines
    assert page.headings == [None, 0, 0, 0, None, 4]


def test_of_places_with_as_many_different_terms_the_first_is_shown() -> None:
    text = "mill one two three four five owner six seven"
    assert snippet(text, {"mill", "owner"}, 3) == "mill one two"
    assert snippet(text, {"mill", "owner"}, 7) == "mill one two three four five owner"
    assert snippet("owner " + text, {"mill", "owner"}, 2) == "owner mill"
    assert snippet("mill mill a b mill owner c", {"mill", "owner"}, 2) == "mill owner"
