"""Bodies of pages that are made to cost much: (name, content type, bytes) one by one."""

import gzip
import io
import zlib

DEEP = 100_000


def html_bodies():
    """Markup."""
    yield (
        "60,000 attributes",
        "<html><body><p "
        + " ".join(f'a{n}="{n}"' for n in range(60_000))
        + ">word</p></body></html>",
    )
    yield "the same attribute 60,000 times", "<p " + 'a="1" ' * 60_000 + ">word</p>"
    yield "an attribute of 2,000,000 signs", f'<p title="{"x" * 2_000_000}">word</p>'
    yield (
        "25,000 cells in a row",
        ("<html><body><table><tr>" + "<td>cell</td>" * 25_000 + "</tr></table></body></html>"),
    )
    yield "25,000 rows", "<table>" + "<tr><td>cell</td></tr>" * 14_000 + "</table>"
    for tag in ("div", "table><tr><td", "ul><li", "b", "font", "blockquote", "span", "a href=x"):
        yield f"{DEEP:,} nested <{tag}>", f"<{tag}>" * DEEP + "word"
    for tag in ("div", "p", "li", "b"):
        yield f"29,000 nested and closed <{tag}>", f"<{tag}>" * 29_000 + f"</{tag}>" * 29_000
    yield "60,000 closing tags", "</div>" * 60_000 + "word"
    yield "50,000 titles", "<title>" * 50_000
    yield "titles that never end", "<title " * 50_000 + "x"
    yield "comments that never end", "<!--" * 200_000
    yield "signs of less", "<" * 1_000_000
    yield "an entity of 1,000,000 signs", "<p>&" + "x" * 1_000_000 + ";</p>"
    yield "300,000 entities", "<p>" + "&amp;" * 300_000 + "</p>"
    yield "numbers as entities", "<p>" + "&#x10FFFF;&#0;&#99999999999;" * 50_000 + "</p>"
    yield "one word of 2,900,000 signs", "<html><body><p>" + "x" * 2_900_000 + "</p></body></html>"
    yield "2,900,000 blanks", "<html><body><p>a" + " " * 2_900_000 + "b</p></body></html>"
    yield "line ends", "<html><body><p>" + "a\n" * 900_000 + "</p></body></html>"
    yield "a script of 2,900,000 signs", "<script>" + "if(a<b)" * 400_000
    yield "a style that never ends", "<style>" + "a{b:c}" * 400_000
    yield "20,000 links", "<body>" + '<a href="http://a.org/?q=1">link</a> ' * 20_000
    yield "20,000 paragraphs", "<body>" + "<p>A sentence with some words in it.</p>" * 20_000
    yield "20,000 same headings", "<body>" + "<h1>Heading</h1>" * 20_000
    yield (
        "json-ld",
        (
            '<html><head><script type="application/ld+json">' + '{"a":' * 100_000 + "1"
            "</script></head><body><p>word</p></body></html>"
        ),
    )
    yield "dates", "<body>" + "<time datetime='2020-01-01'>1 May 2020</time>" * 15_000
    yield "forms", "<body>" + "<form><select><option>x" * 15_000
    yield "frames in tables", "<table><iframe><svg><math>" * 10_000
    yield "nested lists", "<ul><li>x" * 10_000 + "</li></ul>" * 10_000
    yield (
        "billion laughs",
        (
            '<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY l0 "lol">'
            + "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 10))
            + "]><html><body><p>&l9;</p></body></html>"
        ),
    )
    yield (
        "an entity from a file",
        (
            '<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]><html><body><p>&f;</p></body></html>'
        ),
    )


def pdf(objects, stream_filter=b""):
    """A PDF of these objects, numbered from 1; the first is the catalogue."""
    out = io.BytesIO()
    out.write(b"%PDF-1.7\n")
    places = []
    for number, body in enumerate(objects, 1):
        places.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, body))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.writelines(b"%010d 00000 n \n" % place for place in places)
    out.write(b"trailer\n<</Size %d/Root 1 0 R>>\n" % (len(objects) + 1))
    out.write(b"startxref\n%d\n%%%%EOF" % start)
    return out.getvalue()


def stream(data, names=b""):
    return b"<<%s/Length %d>>\nstream\n%s\nendstream" % (names, len(data), data)


FONT = b"<</Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>"


def one_page(content, resources=FONT):
    return pdf(
        [
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R/Resources %s>>"
            % resources,
            content,
        ]
    )


def pdf_bodies():
    """PDF files."""
    flate = b"/Filter/FlateDecode"
    huge = zlib.compress(b"\0" * 120_000_000, 9)
    yield "a stream of 120 MB in 120 kB", one_page(stream(huge, flate))
    twice = zlib.compress(huge, 9)
    yield "the same, packed twice", one_page(stream(twice, b"/Filter[/FlateDecode/FlateDecode]"))
    text = b"BT /F1 9 Tf " + b"(word) Tj " * 2_000_000 + b"ET"
    yield "2,000,000 words", one_page(stream(zlib.compress(text, 9), flate))
    yield "3,000,000 saved states", one_page(stream(zlib.compress(b"q " * 3_000_000, 9), flate))
    yield "nested arrays", one_page(stream(zlib.compress(b"[" * 3_000_000, 9), flate))
    yield "nested dictionaries", one_page(stream(b"BT ET"), b"<</A" * 200_000)
    deep = [b"<</Type/Catalog/Pages 2 0 R>>"]
    deep += [b"<</Type/Pages/Count 1/Kids[%d 0 R]>>" % (n + 3) for n in range(20_000)]
    yield "a tree of pages 20,000 deep", pdf([*deep, b"<</Type/Page/MediaBox[0 0 9 9]>>"])
    loop = [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Count 9/Kids[2 0 R 2 0 R]>>"]
    yield "pages that hold themselves", pdf(loop)
    many = b" ".join(b"3 0 R" for _ in range(200_000))
    yield (
        "one page 200,000 times",
        pdf(
            [
                b"<</Type/Catalog/Pages 2 0 R>>",
                b"<</Type/Pages/Count 200000/Kids[%s]>>" % many,
                b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>",
            ]
        ),
    )
    form = stream(b"/X Do /X Do", b"/Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources 5 0 R")
    yield (
        "forms that draw themselves",
        pdf(
            [
                b"<</Type/Catalog/Pages 2 0 R>>",
                b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
                b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 6 0 R/Resources 5 0 R>>",
                form,
                b"<</XObject<</X 4 0 R>>" + FONT[2:],
                stream(b"/X Do " * 1_000),
            ]
        ),
    )
    yield (
        "a cross-reference table that never ends",
        b"%PDF-1.7\nxref\n0 99999999\n" + b"0 " * 500_000,
    )
    yield (
        "a table that points to itself",
        (
            b"%PDF-1.7\nxref\n0 1\n0000000000 65535 f \ntrailer\n<</Size 1/Prev 9/Root 1 0 R>>\n"
            b"startxref\n9\n%%EOF"
        ),
    )
    yield "no objects in 5 MB", b"%PDF-1.7\n" + b"1 0 obj\n" * 600_000
    yield "an image without an end", one_page(stream(b"BI /W 9 ID " + b"x" * 2_000_000))
    cmap = b"begincmap 1 beginbfrange <0000> <FFFFFFFF> <0000> endbfrange endcmap"
    yield (
        "a font's table of 4,000,000,000 signs",
        pdf(
            [
                b"<</Type/Catalog/Pages 2 0 R>>",
                b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
                b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R"
                b"/Resources<</Font<</F1 5 0 R>>>>>>",
                stream(b"BT /F1 9 Tf <0001> Tj ET"),
                b"<</Type/Font/Subtype/Type0/BaseFont/A/Encoding/Identity-H/ToUnicode 6 0 R"
                b"/DescendantFonts[<</Type/Font/Subtype/CIDFontType2/BaseFont/A>>]>>",
                stream(cmap),
            ]
        ),
    )


def text_bodies():
    """Other text: (name, content type, bytes)."""
    yield "nested JSON", "application/json", b"[" * 3_000_000
    yield "nested XML", "application/xml", b"<a>" * 1_000_000
    yield "bytes of no encoding", "text/html", bytes(range(128, 256)) * 20_000
    yield "bytes of no encoding as text", "text/plain", bytes(range(128, 256)) * 20_000
    yield "escapes", "text/plain; charset=iso-2022-jp", b"\x1b$B" * 1_000_000
    yield "a charset of no kind", "text/html; charset=" + "x" * 4_000, b"<p>word</p>"
    yield "tildes", "text/plain; charset=hz", b"~{" * 2_000_000
    yield "charsets in a meta", "text/html", b"<meta " * 100_000 + b"charset=" * 100_000


def gzip_bodies():
    """Bodies that are packed already."""
    yield "a gzip of 400,000 members", gzip.compress(b"") * 400_000
    yield "a gzip of 400,000 members of a letter", gzip.compress(b"a") * 400_000
    yield "a gzip of 120 MB", gzip.compress(b"\0" * 120_000_000, 1)
    yield "a gzip of empty blocks", b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + b"\0\0\0\xff\xff" * 1_500_000


def bodies():
    """All of them: (name, content type, Content-Encoding, bytes)."""
    for name, markup in html_bodies():
        yield name, "text/html", "", markup.encode()
    for name, body in pdf_bodies():
        yield name, "application/pdf", "", body
    for name, kind, body in text_bodies():
        yield name, kind, "", body
    for name, body in gzip_bodies():
        yield name, "text/html", "gzip", body
