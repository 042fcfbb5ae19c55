"""Bytes read as text, whatever encoding they claim to be in.

Labels mean what they mean to browsers (https://encoding.spec.whatwg.org/#names-and-labels):
``iso-8859-1`` and ``ascii`` are windows-1252, ``gb2312`` is GB18030, ``shift_jis`` is
windows-31j, ``ks_c_5601-1987`` is windows-949.  A page that names no encoding, or one that
does not fit, and is not UTF-8, is windows-1252, unless it is plainly of another script.
"""

from __future__ import annotations

import codecs
import re
import unicodedata

DEFAULT = "cp1252"
"""Of pages that don't say."""

_LABELS = {
    "utf-8": "unicode-1-1-utf-8 unicode11utf8 unicode20utf8 utf-8 utf8 x-unicode20utf8",
    "cp866": "866 cp866 csibm866 ibm866",
    "iso8859-2": "csisolatin2 iso-8859-2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 "
    "l2 latin2",
    "iso8859-3": "csisolatin3 iso-8859-3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 "
    "l3 latin3",
    "iso8859-4": "csisolatin4 iso-8859-4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 "
    "l4 latin4",
    "iso8859-5": "csisolatincyrillic cyrillic iso-8859-5 iso-ir-144 iso8859-5 iso88595 iso_8859-5 "
    "iso_8859-5:1988",
    "iso8859-6": "arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6 "
    "iso-8859-6-e iso-8859-6-i iso-ir-127 iso8859-6 iso88596 iso_8859-6 iso_8859-6:1987",
    "iso8859-7": "csisolatingreek ecma-118 elot_928 greek greek8 iso-8859-7 iso-ir-126 iso8859-7 "
    "iso88597 iso_8859-7 iso_8859-7:1987 sun_eu_greek",
    "iso8859-8": "csiso88598e csisolatinhebrew hebrew iso-8859-8 iso-8859-8-e iso-ir-138 iso8859-8 "
    "iso88598 iso_8859-8 iso_8859-8:1988 visual csiso88598i iso-8859-8-i logical",
    "iso8859-10": "csisolatin6 iso-8859-10 iso-ir-157 iso8859-10 iso885910 l6 latin6",
    "iso8859-13": "iso-8859-13 iso8859-13 iso885913",
    "iso8859-14": "iso-8859-14 iso8859-14 iso885914",
    "iso8859-15": "csisolatin9 iso-8859-15 iso8859-15 iso885915 iso_8859-15 l9",
    "iso8859-16": "iso-8859-16",
    "koi8-r": "cskoi8r koi koi8 koi8-r koi8_r",
    "koi8-u": "koi8-ru koi8-u",
    "mac-roman": "csmacintosh mac macintosh x-mac-roman",
    "mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "cp874": "dos-874 iso-8859-11 iso8859-11 iso885911 tis-620 windows-874",
    "cp1250": "cp1250 windows-1250 x-cp1250",
    "cp1251": "cp1251 windows-1251 x-cp1251",
    "cp1252": "ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 "
    "iso8859-1 iso88591 iso_8859-1 iso_8859-1:1987 l1 latin1 us-ascii windows-1252 x-cp1252 "
    "x-user-defined",
    "cp1253": "cp1253 windows-1253 x-cp1253",
    "cp1254": "cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 "
    "iso_8859-9:1989 l5 latin5 windows-1254 x-cp1254",
    "cp1255": "cp1255 windows-1255 x-cp1255",
    "cp1256": "cp1256 windows-1256 x-cp1256",
    "cp1257": "cp1257 windows-1257 x-cp1257",
    "cp1258": "cp1258 windows-1258 x-cp1258",
    "gb18030": "chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 gbk iso-ir-58 x-gbk "
    "gb18030",
    "big5hkscs": "big5 big5-hkscs cn-big5 csbig5 x-x-big5",
    "euc_jp": "cseucpkdfmtjapanese euc-jp x-euc-jp",
    "iso2022_jp": "csiso2022jp iso-2022-jp",
    "cp932": "csshiftjis ms932 ms_kanji shift-jis shift_jis sjis windows-31j x-sjis",
    "cp949": "cseuckr csksc56011987 euc-kr iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 "
    "ksc_5601 windows-949",
    "utf-16-be": "unicodefffe utf-16be",
    "utf-16-le": "csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16le",
}
_CODECS = {label: codec for codec, labels in _LABELS.items() for label in labels.split()}

_META = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_XML = re.compile(rb"""\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:-]{1,40})["']""")
_MARKS = (
    (codecs.BOM_UTF8, "UTF-8", "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "UTF-32", "utf-32"),  # before UTF-16's, with which it begins
    (codecs.BOM_UTF32_BE, "UTF-32", "utf-32"),
    (codecs.BOM_UTF16_LE, "UTF-16", "utf-16"),
    (codecs.BOM_UTF16_BE, "UTF-16", "utf-16"),
)
"""A byte order mark, what its encoding is called, and Python's codec that takes the mark off."""

_NEVER = {"idna", "punycode", "unicode_escape", "raw_unicode_escape", "undefined", "utf-7"}
"""Codecs that no page is honestly written in, some of them slow."""

_BEFORE_UTF8 = ("utf-16", "utf-32", "iso2022", "hz")
"""Declared encodings that can pass for UTF-8 and are therefore tried before it."""

_SAMPLE = 200_000
"""Bytes that a script is told by."""

_FEWEST_LETTERS = 4
_MOST_MIXED = 0.25
"""Share of letters that stand beside an ASCII letter: "Zürich" taken for Chinese has only such."""


def codec_of(label: str | None) -> str | None:
    """Python's codec for an encoding's label, or None for what is none.

    Example:
        >>> codec_of("ISO-8859-1"), codec_of("gb2312"), codec_of("klingon")
        ('cp1252', 'gb18030', None)
    """
    if not label:
        return None
    label = label.strip().lower()
    if label in _CODECS:
        return _CODECS[label]
    try:
        found = codecs.lookup(label).name
        b"ab".decode(found, "ignore")  # some turn bytes into bytes
    except (LookupError, UnicodeError, ValueError):
        return None
    if found in _NEVER:
        return None
    return _CODECS.get(found.replace("_", "-"), found)


def unicode_encoding(content: bytes) -> tuple[str, str]:
    """What the Unicode encoding of a file is called, and Python's codec for it.

    A byte order mark decides.  Without one, a zero byte at every second place of the beginning
    is UTF-16, for names of variables, JSON and most headers begin in ASCII; all else is UTF-8.

    Args:
        content: the file, or its first 64 bytes.

    Example:
        >>> unicode_encoding("KEY=1".encode("utf-16-le"))[0], unicode_encoding(b"KEY=1")[0]
        ('UTF-16', 'UTF-8')
    """
    for mark, name, codec in _MARKS:
        if content.startswith(mark):
            return name, codec
    start = content[:64]
    start = start[: len(start) // 2 * 2]
    even, odd = start[::2], start[1::2]
    if start and odd.count(0) > len(odd) // 2 and 0 not in even:
        return "UTF-16", "utf-16-le"
    if start and even.count(0) > len(even) // 2 and 0 not in odd:
        return "UTF-16", "utf-16-be"
    return "UTF-8", "utf-8"


def decode(body: bytes, declared: str | None = None) -> str:
    """Read bytes as text.

    The order: a byte order mark; UTF-8 if the bytes are valid UTF-8; the declared encoding; the
    one an HTML ``meta`` or an XML declaration names.  Where none fits without error, UTF-8 if
    nearly all of it is, else the declared encoding or windows-1252, with replacement characters.

    Example:
        >>> decode("Zürich".encode(), "iso-8859-1"), decode("Zürich".encode("latin-1"))
        ('Zürich', 'Zürich')
    """
    text = strict(body, declared)
    if text is None:
        text = _nearly_utf8(body)
    return _read(body, codec_of(declared) or DEFAULT) if text is None else text


def decode_page(body: bytes, declared: str | None = None) -> str:
    """As :func:`decode`; where no encoding that is named fits, the text's script decides.

    What is plainly of another script than the Latin one is read in the encoding that brings that
    script out; everything else in the one that was declared, if it isn't UTF-8, or windows-1252.
    Takes up to seconds for hostile bytes.
    """
    text = strict(body, declared)
    if text is None:
        text = _nearly_utf8(body)
    if text is None:
        named = codec_of(declared)
        text = _read(
            body, _by_script(body) or (named if named not in (None, "utf-8") else None) or DEFAULT
        )
    return text


def strict(body: bytes, declared: str | None = None) -> str | None:
    """The body in the first encoding that fits without error, see :func:`decode`, or None."""
    for mark, _, marked in _MARKS:
        if body.startswith(mark):
            return _try(body, marked)
    codec = codec_of(declared)
    order: list[str | None] = ["utf-8", codec, _named_inside(body[:4096])]
    if codec is not None and codec.startswith(_BEFORE_UTF8):
        order.insert(0, codec)
    for candidate in order:
        if candidate is not None:
            text = _try(body, candidate)
            if text is not None:
                return text
    return None


def _named_inside(start: bytes) -> str | None:
    found = _META.search(start) or _XML.match(start)
    codec = codec_of(found[1].decode("ascii", "replace")) if found else None
    # What could be read to name it is not of two bytes a sign.
    return "utf-8" if codec is not None and codec.startswith(("utf-16", "utf-32")) else codec


def _try(body: bytes, codec: str) -> str | None:
    try:
        return body.decode(codec, "drv_env.c1" if codec == DEFAULT else "strict")
    except (UnicodeError, LookupError):
        return None


def _read(body: bytes, codec: str) -> str:
    return body.decode(codec, "drv_env.c1" if codec == DEFAULT else "replace")


def _as_control(error: UnicodeError) -> tuple[str, int]:
    """The five bytes that windows-1252 leaves open are control characters, as in browsers."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return "".join(map(chr, error.object[error.start : error.end])), error.end


codecs.register_error("drv_env.c1", _as_control)


def _nearly_utf8(body: bytes) -> str | None:
    """Read as UTF-8 with replacement characters, if no more than one sign in ten is damaged."""
    text = body.decode("utf-8", "replace")
    damaged = text.count("\ufffd")
    others = sum(map(len, re.findall(r"[^\x00-\x7f]+", text))) - damaged
    return text if 10 * damaged <= others else None


def _by_script(body: bytes) -> str | None:
    """The encoding of a text in another script than the Latin one, or None."""
    from charset_normalizer import from_bytes

    sample = body[:_SAMPLE]
    best = from_bytes(sample).best()
    if best is None:
        return None
    codec = codec_of(best.encoding) or best.encoding
    text = _read(sample, codec)
    letters = [at for at, sign in enumerate(text) if sign > "\x7f" and sign.isalpha()]
    mixed = sum(
        any(beside.isascii() and beside.isalpha() for beside in text[max(0, at - 1) : at + 2])
        for at in letters
    )
    latin = sum(unicodedata.name(text[at], "").startswith("LATIN") for at in letters)
    plain = len(letters) >= _FEWEST_LETTERS and mixed <= _MOST_MIXED * len(letters)
    return codec if plain and 5 * latin <= len(letters) else None
