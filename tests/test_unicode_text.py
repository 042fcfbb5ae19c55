"""The canonical form of text, its terms, and what can be written."""

import asyncio
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drv_env.cassette import CassetteStore, Recorded
from drv_env.errors import ToolError
from drv_env.protocol import Search, Visit
from drv_env.tasks import Task
from drv_env.tools.base import Call
from drv_env.tools.cassette import CassetteTools
from drv_env.tools.offline import OfflineTools
from drv_env.unicode_text import (
    canonical_text,
    located_terms,
    query_terms,
    sound_text,
    terms,
)
from drv_env.worlds import Page
from replay.pages import PageFile, Sighting
from replay.recorded import from_messages
from replay.schema import to_row

LANGUAGES = {
    "French": "Gérard a bâti le moulin près de la forêt",
    "Polish": "Młyn w Łodzi nad rzeką Łódką",
    "Vietnamese": "Nguyễn Thị Định sống ở Huế",
    "German": "Die Mühle gehört Frau Groß",
    "Greek": "Ο μύλος χτίστηκε στην Αθήνα",
    "Turkish": "Değirmen Diyarbakır'da",
    "Russian": "Мельница стоит у Йошкар-Олы",
    "Korean": "방앗간은 1931년에 세워졌다",
    "Japanese": "水車小屋はガボン通りにある",
    "Hindi": "चक्की ज़िले में क़िले के पास है",
    "Hebrew": "הטחנה בשָׁלוֹם",
    "Bengali": "কলটি বড়ো নদীর ধারে",
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_normal_form_of_a_language_is_one_text(language):
    text = LANGUAGES[language]
    forms = [unicodedata.normalize(form, text) for form in ("NFC", "NFD")]
    assert len({canonical_text(form) for form in forms}) == 1
    assert len({tuple(terms(form)) for form in forms}) == 1
    assert len({tuple(query_terms(form)) for form in forms}) == 1
    assert terms(text)


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("１９１２年，ＡＢＣ", "1912年,ABC"),
        ("ﾊﾞﾅﾅ ﾊﾟﾝ", "バナナ パン"),
        ("\uf9d1\uf914", "六樂"),  # compatibility ideographs
        ("A\u030a\u3000x", "Å x"),
        ("\u212b", "Å"),  # the unit's sign
        ("x² ½ ™ ﬁ", "x² ½ ™ ﬁ"),  # other characters, not other forms of one
        ("İ ı I i ß", "İ ı I i ß"),
        ("a\u200bb", "a\u200bb"),
    ],
)
def test_the_canonical_form(written, canonical):
    assert canonical_text(written) == canonical
    assert canonical_text(canonical) == canonical


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("강", "넓은 강은 가람을 지난다"),
        ("방앗간", "그 방앗간에서"),
        ("세종대왕", "세종대왕께서는"),
        ("水車", "古い水車小屋"),
        ("川", "この川は広い"),
        ("ガボン", "ｶﾞﾎﾞﾝ共和国"),
        ("ジョン", "ジョン・スミス"),
        ("กรุงเทพ", "เขาอยู่ที่กรุงเทพมหานคร"),
        ("ວຽງຈັນ", "ນະຄອນຫຼວງວຽງຈັນ"),
        ("ភ្នំពេញ", "រាជធានីភ្នំពេញ"),
        ("ရန်ကုန်", "မြို့တော်ရန်ကုန်မြို့"),
        ("istanbul", "İSTANBUL"),
        ("diyarbakir", "DİYARBAKIR"),
        ("Diyarbakır", "DİYARBAKIR"),
        ("ISPARTA", "ısparta gülü"),
        ("strasse", "Große STRAẞE"),
        ("ΟΔΥΣΣΕΥΣ", "Οδυσσεύς, οδυσσευς"),
        ("محمد", "كان مُحَمَّدٌ هنا"),
        ("محمد", "ﻣﺤﻤﺪ"),
        ("محمد", "مـحـمـد"),
        ("שלום", "שָׁלוֹם"),
        ("1912", "سنة ١٩١٢"),
        ("1912", "१९१२ में"),
        ("1912", "１９１２"),
        ("finance", "ﬁnance"),
        ("cooperate", "co\u00adoperate"),
        ("葛城", "葛\U000e0100城市"),
        ("h2o", "H₂O"),
        ("हिन्दी", "वह हिन्दी बोलता है"),
        ("A\u0300\u0315x", "ein à\u0315x"),  # marks of no composed letter
    ],
)
def test_a_query_is_found_in_a_text(query, text):
    assert query_terms(query)
    assert set(query_terms(query)) <= set(terms(text))


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("Lodz", "Łódź"),
        ("resume", "résumé"),
        ("भाषा", "भाष"),
        ("川", "nothing"),
        ("가람", "가게 사람"),
        ("मेला", "मैला"),
    ],
)
def test_another_word_is_another_term(query, text):
    assert not set(query_terms(query)) <= set(terms(text))


def test_terms_of_ascii_are_runs_of_letters_and_digits():
    assert terms("A_b C# the  U.S. 3.5") == ["a", "b", "c", "the", "u", "s", "3", "5"]
    assert terms(f"{'x' * 65} {'y' * 64} é{'z' * 64}") == ["y" * 64]
    assert terms(f"{'x' * 65} {'Y' * 64}") == ["y" * 64]
    assert query_terms("a b c", 2) == ["a", "b"]
    assert list(located_terms("The U.S.")) == [("the", 0), ("u", 4), ("s", 6)]


def test_terms_know_where_they_stand():
    text = "Der Ort: 水車小屋, Ｌｉｎｚ"
    found = list(located_terms(text))
    assert [term for term, _ in found] == terms(text)
    assert dict(found)["車小"] == text.index("車")
    assert dict(found)["linz"] == text.index("Ｌ")


@given(st.text())
def test_any_text_has_terms_that_a_query_for_it_finds(text):
    assert set(query_terms(text)) <= set(terms(text))
    places = list(located_terms(text))
    assert all(0 <= start < len(text) for _, start in places)
    assert canonical_text(canonical_text(text)) == canonical_text(text)
    assert canonical_text(unicodedata.normalize("NFD", text)) == canonical_text(text)
    assert terms(canonical_text(text)) == terms(text)


@given(st.text(st.characters(categories=["Cs", "Lu", "So"])))
def test_sound_text_can_be_written(text):
    sound = sound_text(text)
    assert sound.encode("utf-8").decode("utf-8") == sound
    if not any("\ud800" <= char <= "\udfff" for char in text):
        assert sound == text


BROKEN = "mill \ud83d\ude00 \ud800"


def test_broken_text_is_mended_alike_wherever_it_leaves_the_program(tmp_path):
    sound = sound_text(BROKEN)
    task = Task("Q?", ("A",))
    tools = OfflineTools.from_pages([Page("https://e.org", "Mill", "The mill.")])
    found = asyncio.run(tools.call(Call(Search((BROKEN,)), task)))
    assert found.data[0]["query"] == sound
    visited = asyncio.run(tools.call(Call(Visit(("https://e.org",), BROKEN), task)))
    assert f"Goal: {sound}" in visited.text
    recorded = from_messages(
        [{"role": "user", "content": BROKEN}, {"role": "assistant", "content": f"{BROKEN}</think>"}]
    )
    assert to_row(recorded)["question"] == to_row(recorded)["turns"][0]["text"][:-8] == sound
    with PageFile(tmp_path / "pages") as pages:
        pages.add("", [Sighting("https://e.org", "", (BROKEN,))])
        assert [page.text for page in pages.pages("")] == [sound]
    missing = CassetteTools(None, filled(tmp_path / "c"), "replay")
    with pytest.raises(ToolError, match=sound):
        asyncio.run(missing.call(Call(Search((BROKEN,)), task)))


def filled(path):
    with CassetteStore(path) as store:
        store.put("search", {"query": ["x"]}, Recorded("y"))
    return path


def test_halves_of_a_pair_are_joined_and_lone_ones_replaced():
    assert sound_text("a\ud83d\ude00b") == "a😀b"
    assert sound_text("\ude00\ud83d") == "\ufffd\ufffd"
    assert sound_text("x") == "x"
