"""One spelling for a url: pages, visits, recordings and repeats are known by it.

The one owner of this rule.  It is the equivalence of RFC 3986 (§6.2.2 and §6.2.3) and of
RFC 3987 for http and https: what differs in nothing else is one page to every server.

* Case: of the scheme, the host and the digits of ``%7E``.
* Percent-encoding: unreserved characters stand as they are, all others that a url can't
  hold are encoded as UTF-8, in Unicode's normal form C.  Encoded delimiters stay apart
  from bare ones: ``%2F`` is not ``/``.  ``! ' ( ) * , : @`` delimit nothing in a path or query
  of http, some programs encode them (``Foo_%28mill%29``) and some don't: they stand as they are.
* Host: in ASCII (IDNA 2008 with UTS 46), without a last dot, an IPv6 address in its shortest
  form (RFC 5952); no default port.
* An empty path is ``/``; dot segments are resolved; an empty query is none.
* The fragment is left out: it names a place within the page.

Another page stays another: order and case in the query, the path's case, ``www.``, ``+`` and
``%20``.  So do http and https, and a path with and without its last slash: a server may give
two pages, and only it can say.  The live web says so by a redirect; :func:`near_spellings`
names what a store of pages may point to in its place.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata

import idna

from drv_env.unicode_text import canonical_text

_PARTS = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<authority>[^/?#\\]*)(?P<path>[^?#]*)"
    r"(?:\?(?P<query>[^#]*))?(?:#.*)?",
    re.IGNORECASE | re.DOTALL,
)
_AUTHORITY = re.compile(
    r"(?:(?P<user>.*)@)?(?P<host>\[[^\]]*\]|[^:]*)(?::(?P<port>\d*))?", re.DOTALL
)
_PORTS = {"http": "80", "https": "443", "ws": "80", "wss": "443", "ftp": "21"}
_LONGEST_HOST = 253
"""Characters of a name in DNS; longer ones take long to be put into ASCII, and are none."""
_ENCODED = re.compile("(?:%[0-9A-Fa-f]{2})+")
_UNRESERVED = re.compile("[A-Za-z0-9._~-]")
_PLAIN = re.compile("[A-Za-z0-9._~!'()*,:@-]")
"""What stands as it is in a path and a query."""
_NOT_IN_A_URL = re.compile(r"%(?![0-9A-F]{2})|[^%!#$&'()*+,/:;=?@\[\]A-Za-z0-9._~-]")
_CANONICAL = re.compile(
    r"https?://(?:[a-z0-9-]+\.)*[a-z0-9-]+"
    r"(?:/(?!\.{1,2}(?:[/?]|$))[A-Za-z0-9._~!$&'()*+,;=:@-]*)+(?:\?[A-Za-z0-9._~!$&'()*+,;=:@/?-]+)?"
)
"""Most urls as they are met; a short cut."""
_BETWEEN = re.compile(r"[^%!#$&'()*+,/:;=?@\[\]]+")
_DOTS = re.compile(r"(?:^|/)\.{1,2}(?:/|$)")


def canonical_url(url: str) -> str:
    """The spelling of a url by which its page is known.

    What has no scheme and host, and is a name rather than a url, is only stripped and
    brought into the canonical form of text.  Nothing raises.

    Example:
        >>> canonical_url(" HTTPS://Example.org:443/a/../%7eb/é?#top")
        'https://example.org/~b/%C3%A9'
        >>> canonical_url("https://bücher.example") == canonical_url("https://xn--bcher-kva.example/")
        True
    """
    url = url.strip()
    if _CANONICAL.fullmatch(url) is not None:
        return url
    match = _PARTS.fullmatch(url)
    if match is None:
        return canonical_text(url)
    scheme = match["scheme"].lower()
    path = _resolved(_spelt(match["path"], _PLAIN))
    if not path.startswith("/"):
        path = f"/{path}"
    query = f"?{_spelt(match['query'], _PLAIN)}" if match["query"] else ""
    return f"{scheme}://{_authority(scheme, match['authority'])}{path}{query}"


def near_spellings(url: str) -> list[str]:
    """Canonical urls that are other pages by right, and the same one on most servers.

    With the other of http and https, with or without the path's last slash, and both.

    Example:
        >>> near_spellings("https://a/b")
        ['http://a/b', 'https://a/b/', 'http://a/b/']
    """
    url = canonical_url(url)
    scheme, apart, rest = url.partition("://")
    if not apart or scheme not in ("http", "https"):
        return []
    other = "http" if scheme == "https" else "https"
    path, mark, query = rest.partition("?")
    found = [f"{other}://{rest}"]
    if path.count("/") > 1 or not path.endswith("/"):
        slashed = path.removesuffix("/") if path.endswith("/") else f"{path}/"
        found += [f"{name}://{slashed}{mark}{query}" for name in (scheme, other)]
    return found


def _authority(scheme: str, written: str) -> str:
    match = _AUTHORITY.fullmatch(written)
    if match is None:  # no port is a word
        return _spelt(written.lower())
    user = "" if match["user"] is None else f"{_spelt(match['user'])}@"
    port = (match["port"] or "").lstrip("0") or ("0" if match["port"] else "")
    shown = f":{port}" if port and port != _PORTS.get(scheme) else ""
    return f"{user}{_host(match['host'])}{shown}"


def _host(written: str) -> str:
    if written.startswith("["):
        try:
            address = ipaddress.IPv6Address(written[1:-1])
        except ValueError:
            return written.lower()
        # Python's own spelling of these has changed.
        return written.lower() if address.ipv4_mapped else f"[{address}]"
    host = _decoded(written).lower()
    if not host.isascii() and len(host) <= _LONGEST_HOST:
        try:
            host = idna.encode(host, uts46=True).decode("ascii")
        except (idna.IDNAError, UnicodeError):
            host = unicodedata.normalize("NFC", host)
    return _spelt(host.lower().removesuffix("."))


def _spelt(part: str, plain: re.Pattern[str] = _UNRESERVED) -> str:
    """A part of a url with its characters encoded in the one way."""
    if "%" not in part and part.isascii() and _NOT_IN_A_URL.search(part) is None:
        return part
    # Between delimiters: a composed one, such as "=" with a stroke, would be none any more.
    text = _BETWEEN.sub(lambda match: unicodedata.normalize("NFC", match[0]), _decoded(part, plain))
    return _NOT_IN_A_URL.sub(
        lambda match: _encoded(match[0].encode("utf-8", "surrogatepass")), text
    )


def _decoded(part: str, plain: re.Pattern[str] = _UNRESERVED) -> str:
    """The plain characters and what is no ASCII decoded; the other bytes encoded in capitals."""

    def decode(match: re.Match[str]) -> str:
        text = bytes.fromhex(match[0].replace("%", "")).decode("utf-8", "surrogateescape")
        return "".join(
            char
            if plain.match(char) or (char > "\x7f" and not "\udc80" <= char <= "\udcff")
            else _encoded(char.encode("utf-8", "surrogateescape"))
            for char in text
        )

    return _ENCODED.sub(decode, part)


def _encoded(data: bytes) -> str:
    return "".join(f"%{byte:02X}" for byte in data)


def _resolved(path: str) -> str:
    """The path without dot segments (RFC 3986, §5.2.4)."""
    if _DOTS.search(path) is None:
        return path
    kept: list[str] = []
    for segment in (segments := path.split("/")):
        if segment == ".." and len(kept) > 1:
            kept.pop()
        if segment not in (".", ".."):
            kept.append(segment)
    if segments[-1] in (".", ".."):
        kept.append("")
    return "/".join(kept)
