"""Spellings of a url: which are one page's, and which are not."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drv_env.urls import canonical_url, near_spellings

ONE_PAGE = {
    "https://example.org/": [
        "https://example.org",
        "https://example.org/?",
        "https://example.org/#",
        "https://example.org?#top",
        "HTTPS://EXAMPLE.ORG",
        "https://example.org:443/",
        "https://example.org:/",
        "https://example.org:0443",
        "https://example.org./",
        " https://example.org/\n",
        "https://example.org/a/..",
        "https://example.org/./",
        "https://ex%61mple.org/",
    ],
    "https://example.org/a/": [
        "https://example.org/a/b/..",
        "https://example.org/a/.",
        "https://example.org/a/b/%2E%2e",
    ],
    "https://example.org/%00%1F%7F%80%FF": ["https://example.org/%00%1f%7f%80%ff"],
    "http://example.org:8080/~anna/a.b-c_d": [
        "http://example.org:8080/%7Eanna/a%2Eb%2Dc%5Fd",
        "http://Example.org:8080/%7eanna/a.b-c_d#x",
        "http://example.org:8080/x/%2e%2e/~anna/./a.b-c_d",
    ],
    "https://example.org/%C5%82%C3%B3d%C5%BA?q=%C3%A9%20b": [
        "https://example.org/łódź?q=é b",
        "https://example.org/%c5%82%c3%b3d%c5%ba?q=%c3%a9%20b",
        unicodedata.normalize("NFD", "https://example.org/łódź?q=é%20b"),
        "https://example.org/%C5%82o%CC%81d%C5%BA?q=e%cc%81%20b",
    ],
    "https://example.org/%EB%82%98%EB%A3%A8": [
        "https://example.org/나루",
        unicodedata.normalize("NFD", "https://example.org/나루"),
    ],
    "https://xn--bcher-kva.example/": [
        "https://bücher.example",
        "https://BÜCHER.example/",
        "https://b%C3%BCcher.example/",
        "https://XN--BCHER-KVA.EXAMPLE",
        unicodedata.normalize("NFD", "https://bücher.example"),
    ],
    "http://xn--fsqu00a.xn--0zwm56d/": ["http://例子.测试/", "http://例子。测试"],
    "http://[2001:db8::1]/x": [
        "http://[2001:DB8::1]:80/x",
        "http://[2001:0db8:0:0:0:0:0:1]/x",
        "http://[2001:db8:0::0:1]/x",
    ],
    "http://[::ffff:192.0.2.1]:8080/": ["http://[::FFFF:192.0.2.1]:8080"],
    "http://[fe80::1%en0]/": ["http://[FE80:0::1%en0]"],
    "http://[v1.x]/": ["http://[V1.X]"],
    "https://example.org/wiki/Mill_(Salen),_Weir:_a_*new*_mill!'s@": [
        "https://example.org/wiki/Mill_%28Salen%29%2C_Weir%3A_a_%2Anew%2a_mill%21%27s%40",
    ],
    "https://example.org/?q=a,b:c@d(e)": ["https://example.org/?q=a%2cb%3ac%40d%28e%29"],
    "https://u%40v:p%3Aw@example.org/": ["https://u%40v:p%3aw@example.org"],
    "https://example.org/%E9?a=%2F&b=%26": ["https://example.org/%e9?a=%2f&b=%26"],
    "https://example.org/100%25": ["https://example.org/100%"],
    "https://example.org/%7Ca%7C%22%3C%3E[]": ['https://example.org/|a|"<>[]'],
    "https://example.org/%5Cb": ["https://example.org\\b"],
    "https://anna@example.org/": ["https://anna@EXAMPLE.org"],
    "notes/Mühle.md": [unicodedata.normalize("NFD", "notes/Mühle.md"), " notes/Mühle.md "],
}

PAIRS_OF_PAGES = [
    ("https://example.org/a", "https://example.org/A"),
    ("https://example.org/a", "https://example.org/a/"),
    ("https://example.org/a", "http://example.org/a"),
    ("https://example.org/a", "https://www.example.org/a"),
    ("https://example.org/a", "https://example.org:8443/a"),
    ("https://example.org/a/b", "https://example.org/a%2Fb"),
    ("https://example.org/a/b", "https://example.org/a//b"),
    ("https://example.org/a?b", "https://example.org/a%3Fb"),
    ("https://example.org/a", "https://example.org/a%23b"),
    ("https://example.org/?a=1&b=2", "https://example.org/?b=2&a=1"),
    ("https://example.org/?q=a+b", "https://example.org/?q=a%20b"),
    ("https://example.org/?q=a%2Bb", "https://example.org/?q=a+b"),
    ("https://example.org/?q=a%26b", "https://example.org/?q=a&b"),
    ("https://example.org/%2541", "https://example.org/%41"),
    ("https://example.org/%E9", "https://example.org/%C3%A9"),
    ("https://example.org/Lodz", "https://example.org/Łódź"),
    ("https://example.org/x?a=%CC%B8", "https://example.org/x?a≠"),
    ("https://example.org/１", "https://example.org/1"),
    ("https://example.org/a;b", "https://example.org/a%3Bb"),
    ("https://example.org/?a=b", "https://example.org/?a%3Db"),
    ("https://example.org/a$b", "https://example.org/a%24b"),
    ("https://u:v@example.org/", "https://u%3Av@example.org/"),
    ("http://[2001:db8::1]/", "http://[2001:db8::2]/"),
    ("notes/a#1", "notes/a#2"),
]


@pytest.mark.parametrize("canonical", ONE_PAGE)
def test_spellings_of_one_page(canonical):
    assert canonical_url(canonical) == canonical
    for spelling in ONE_PAGE[canonical]:
        assert canonical_url(spelling) == canonical, spelling


@pytest.mark.parametrize(("one", "other"), PAIRS_OF_PAGES)
def test_another_page_stays_another(one, other):
    assert canonical_url(one) != canonical_url(other)


@given(
    st.sampled_from(["http://", "https://", "HTTP://", "ftp://", "x:", ""]),
    st.text(st.sampled_from("aB.:@[]\\%é例ß-1") | st.characters(exclude_categories=()), max_size=8),
    st.text(st.sampled_from("/.%2e7E?#&=+é\u0301\u0338 \\|") | st.characters(), max_size=20),
)
def test_a_canonical_url_is_its_own_spelling(scheme, host, rest):
    found = canonical_url(f"{scheme}{host}/{rest}")
    assert canonical_url(found) == found
    assert all(canonical_url(near) == near != found for near in near_spellings(found))


@given(
    st.from_regex(
        r"https?://[a-z.-]{1,9}(/[a-z.~%&=-]{0,4}){0,4}([?][a-z.=&/]{0,5})?", fullmatch=True
    )
)
def test_the_short_cut_for_canonical_urls_agrees_with_the_rule(url):
    # A fragment makes the short cut impossible and no difference.
    assert canonical_url(url) == canonical_url(f"{url}#part")


def test_what_a_server_would_redirect_to_is_near():
    assert near_spellings("https://example.org/a?q=1#x") == [
        "http://example.org/a?q=1",
        "https://example.org/a/?q=1",
        "http://example.org/a/?q=1",
    ]
    assert near_spellings("http://example.org") == ["https://example.org/"]
    assert near_spellings("notes/a.md") == []
