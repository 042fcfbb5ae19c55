"""Encodings: what labels mean, and pages that name none or a wrong one."""

import random

import pytest

from drv_env.charsets import codec_of, decode, decode_page, strict
from drv_env.http_reply import HttpReply

LATIN = [
    "L’université de Genève fut fondée en 1559 par Jean Calvin; café, où, été — déjà.",
    "Die Universität Zürich wurde 1833 gegründet und ist die größte Universität.",
    "“Open” daily – 5 € – Zürich.",
    "El niño comió piñas en España. ¿Qué?",
    "Blåbærgrød på øen",
    "São Paulo é a maior cidade do Brasil; população, informações, coração.",
]
SCRIPTS = [
    ("gb18030", "北京大学的校长是蔡元培。他在一九一七年到任，主张思想自由，兼容并包。"),
    ("big5", "國立臺灣大學位於臺北市，是一所歷史悠久的大學，前身為臺北帝國大學。"),
    ("cp932", "東京大学は日本で最初の大学です。カタカナとひらがなも使います。"),
    ("euc_jp", "東京大学は日本で最初の大学です。カタカナとひらがなも使います。"),
    ("cp949", "서울대학교는 대한민국의 국립대학교이다. 본부는 서울에 있다."),
    ("cp1251", "Московский государственный университет основан в 1755 году по указу."),
    ("koi8-r", "Московский государственный университет основан в 1755 году по указу."),
    ("cp1253", "Το Πανεπιστήμιο Αθηνών ιδρύθηκε το 1837 και είναι το παλαιότερο."),
    ("cp1256", "جامعة القاهرة هي ثاني أقدم الجامعات المصرية والثالثة عربيا"),
    ("cp1255", "האוניברסיטה העברית בירושלים היא אוניברסיטת מחקר ציבורית"),
]
PAGE = "<html><body><nav><a href='/x'>Some English words</a></nav><p>{}</p></body></html>"


@pytest.mark.parametrize(
    ("label", "codec"),
    [
        ("ISO-8859-1", "cp1252"),
        (" ascii ", "cp1252"),
        ("us-ascii", "cp1252"),
        ("latin1", "cp1252"),
        ("x-user-defined", "cp1252"),
        ("iso-8859-9", "cp1254"),
        ("iso-8859-11", "cp874"),
        ("TIS-620", "cp874"),
        ("gb2312", "gb18030"),
        ("GBK", "gb18030"),
        ("chinese", "gb18030"),
        ("big5", "big5hkscs"),
        ("Shift_JIS", "cp932"),
        ("x-sjis", "cp932"),
        ("windows-31j", "cp932"),
        ("ks_c_5601-1987", "cp949"),
        ("euc-kr", "cp949"),
        ("korean", "cp949"),
        ("utf8", "utf-8"),
        ("unicode", "utf-16-le"),
        ("cp437", "cp437"),
        ("klingon", None),
        ("zlib", None),
        ("punycode", None),
        ("", None),
        (None, None),
        ("x" * 1000, None),
        ("utf-8\0", None),
    ],
)
def test_labels_mean_what_they_mean_to_browsers(label, codec):
    assert codec_of(label) == codec


def test_every_codec_of_a_label_is_there():
    from drv_env.charsets import _CODECS

    for codec in set(_CODECS.values()):
        assert codec == "cp1252" or b"word".decode(codec) is not None
    assert len(_CODECS) > 210


@pytest.mark.parametrize(
    ("body", "declared", "text"),
    [
        ("①㈱髙".encode("cp932"), "shift_jis", "①㈱髙"),
        ("똠방각하".encode("cp949"), "ks_c_5601-1987", "똠방각하"),
        ("镕".encode("gbk"), "gb2312", "镕"),
        ("£ – €".encode("cp1252"), "us-ascii", "£ – €"),
        (b"a\x81b\x8d\x90", "iso-8859-1", "a\x81b\x8d\x90"),
        ("Zürich".encode("cp1252"), None, "Zürich"),
        (b"\xa35 \x93quoted\x94", None, "£5 “quoted”"),
        (b'<?xml version="1.0" encoding="koi8-r"?><a>\xc1</a>', None, None),
        (b'<meta charset="utf-16"><p>plain', None, '<meta charset="utf-16"><p>plain'),
        ("日本語のページ、".encode() * 20 + b"\xff", None, "日本語のページ、" * 20 + "\ufffd"),
        (
            "日本語のページ、".encode() * 20 + b"\xe6\x97",
            "utf-8",
            "日本語のページ、" * 20 + "\ufffd",
        ),
    ],
)
def test_bytes_are_read(body, declared, text):
    if text is None:
        text = '<?xml version="1.0" encoding="koi8-r"?><a>а</a>'
    assert decode(body, declared) == decode_page(body, declared) == text


@pytest.mark.parametrize("text", LATIN)
@pytest.mark.parametrize("shape", ["{}", PAGE])
@pytest.mark.parametrize("times", [1, 30])
@pytest.mark.parametrize("declared", [None, "klingon", "utf-8"])
def test_pages_that_do_not_say_are_windows_1252(text, shape, times, declared):
    page = shape.format(text * times)
    assert decode_page(page.encode("cp1252"), declared) == page


@pytest.mark.parametrize(("codec", "text"), SCRIPTS)
@pytest.mark.parametrize("shape", ["{}", PAGE])
@pytest.mark.parametrize("times", [1, 30])
def test_another_script_is_told_by_its_signs(codec, text, shape, times):
    page = shape.format(text * times)
    for declared in (None, "utf-8"):
        assert decode_page(page.encode(codec), declared) == page


def test_made_up_latin_pages_are_never_taken_for_another_script():
    rng = random.Random(3)
    accented = "àâäçéèêëîïôöùûüßñáíóúåøæãõÀÉÖÜ"
    plain = "etaoinshrdlu"
    for _ in range(150):
        share = rng.choice((0.02, 0.1, 0.3))
        words = (
            "".join(
                rng.choice(accented) if rng.random() < share else rng.choice(plain)
                for _ in range(rng.randint(2, 9))
            )
            for _ in range(rng.randint(1, 60))
        )
        page = PAGE.format(" ".join(words))
        assert decode_page(page.encode("cp1252")) == page


def test_what_has_no_encoding_is_no_text_for_those_who_must_know():
    assert strict(b"\xff\xff\xff\x80", None) is None
    assert strict("Zürich".encode("cp1252"), None) is None


def test_the_header_may_name_it_in_any_case():
    reply = HttpReply(200, {"content-type": 'text/html; Charset="ISO-8859-1"'}, b"\xfc", "u")
    assert (reply.charset, reply.text()) == ("iso-8859-1", "ü")
