"""Walls: what a site sends, with the status 200, in place of a page.

Three kinds: a check against robots, a page that shows nothing without scripts, and a question
for consent.  None of them is evidence of anything.  Pages that talk of such things are pages:
therefore no word decides, but what the whole of a short text is made of.

* The machinery of a challenge, in scripts and attributes and not in what is shown, decides
  where little else is shown.
* Otherwise the text is taken apart into pieces, lines and sentences.  Some say what walls say
  (:mod:`drv_env.tools.live.wall_words`), some say nothing (numbers, names, a button), the
  others are content.  A wall has nearly no content; one whose title is a wall's may have some.

Pure functions of text; time is linear in it, and long texts are pages at once.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from drv_env.tools.live.wall_words import (
    CONSENT,
    FILLER,
    LOOSE,
    OTHER_LANGUAGES,
    ROBOTS,
    SCRIPTS,
    TITLE,
)

LONGEST = 4_000
"""Characters of the longest text that may be a wall."""

ROBOT_WALL = "the site asks its visitors to prove that they are no robots"
SCRIPT_WALL = "the page shows nothing to a reader that runs no scripts"
CONSENT_WALL = "the site asks for consent before it shows the page"

_LONGEST_PIECE = 300
"""Characters of a piece that may be a wall's."""

_MOST_SOURCE = 300_000
"""Characters of a page's HTML in which machinery is looked for; a wall's have far fewer."""

_DECISIVE = re.compile(
    r"""
      _cf_chl_opt | /cdn-cgi/challenge-platform/h/\w/orchestrate | cf-browser-verification
    | challenge-error-text | cf-error-details
    | captcha-delivery\.com/(?:captcha|interstitial|c\.js|i\.js) | var\ dd\s*=\s*\{
    | px-captcha | /captcha/captcha\.js\?a=c
    | sec-if-cpt-container | /_sec/cp_challenge | bm-verify=
    | /errors/validatecaptcha | /sorry/index\? | id=["']?captcha-form
    | gokuprops | awswafcookiedomainlist
    | /\.well-known/(?:vercel/security|sgcaptcha|ddos-guard) | /\.lsrecap/
    | anubis_challenge | \.within\.website/x/cmd/anubis
    | sucuri_cloudproxy_js | distil_r_captcha | acw_sc__v2
    | wappass\.baidu\.com | /showcaptcha | /checkcaptcha
    """,
    re.VERBOSE,
)
"""Machinery that only a challenge's own page has."""

_CONSENT_FORM = re.compile(r"""action=["']?https?://(?:consent|guce)\.""")
_WIDGET = re.compile(
    r"g-recaptcha|h-captcha|hcaptcha\.com|cf-turnstile|challenges\.cloudflare\.com/turnstile"
    r"|_incapsula_resource|/tspd/|tcaptcha|smartcaptcha|funcaptcha|geetest"
)
"""Machinery that stands on pages too, beside a form."""

_TAG = re.compile(r"<[^<>]{1,4000}>")
_MARKUP = re.compile(
    r"!?\[([^\]\n]{0,300})\]\([^)\s]{0,2000}\)|</?[a-z][^<>]{0,200}>|[#*_`>|]+|^[ \t]*[-=+•]+[ \t]",
    re.MULTILINE,
)
_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+")
_HOST = re.compile(r"(?:https?://)?(?:[\w-]+\.)+[a-z]{2,}(?:[/:]\S*)?")
_SIDES = re.compile(r"\s*[|–—·»:]\s*|\s+-\s+")
_LETTER = re.compile(r"[^\W\d_]")
_WIDE = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_HANGUL = re.compile("[\uac00-\ud7af]")
_ADDRESS = re.compile(
    r"\b(?:your?|we|us|supported browser"
    r"|this (?:site|website|page|server|resource|browser)|ihre?[nrms]?|sie|vous"
    r"|votre|vos|su|tu|usted|você|seu|sua|вы|ваш\w*)\b"
)
"""A sentence that speaks to its reader, or of its own site."""
_TALK = re.compile(
    r"[\W_]*(?:is|was|were|says?|said|it says|asks?|reads|appears|means)\b|\W*(?:是|とは|という)"
)
"""Goes on after words that are talked of."""

_FORM = re.compile(r"\b(?:send|submit|message|comments?|register|sign up|subscribe|post)\b")
"""What a captcha beside a form is for."""

_CODE = re.compile(r"\b(?=\w*\d)[\w:.-]{6,}\b")


def wall_in_text(title: str, text: str, *, warned: bool = False) -> str | None:
    """What kind of wall a text is, in words that follow "the page can't be read", or None.

    Args:
        title: the page's; may be blank.
        text: plain or Markdown.
        warned: whoever read the page suspects a captcha on it, which pages may have too.

    Example:
        >>> wall_in_text("Just a moment...", "Verify you are human by completing the action below.")
        'the site asks its visitors to prove that they are no robots'
        >>> wall_in_text("Just a moment...", "A film of 1912 about a miller and his two daughters.")
    """
    if len(text) > LONGEST:
        return None
    return _verdict(_sum(title, _pieces(text), warned), warned)


def wall_in_html(source: str, title: str, text: str) -> str | None:
    """What kind of wall a page is, see :func:`wall_in_text`, or None.

    Args:
        source: its HTML.
        title: its title.
        text: what was found to be its text.
    """
    if len(text) > LONGEST:
        return None
    code = _machinery(source[:_MOST_SOURCE])
    warned = _WIDGET.search(code) is not None
    pieces = list(_pieces(text))
    counted = _sum(title, pieces, warned)
    if _DECISIVE.search(code) and counted.content <= max(600, 2 * counted.said):
        return ROBOT_WALL
    if _CONSENT_FORM.search(code) and counted.consent:
        return CONSENT_WALL
    unseen = set(_pieces(_without_scripts(source)))
    shown = [piece for piece in pieces if piece not in unseen]
    if len(shown) < len(pieces):
        apart = _sum(title, shown, warned)
        if apart.content:
            counted = apart
    return _verdict(counted, warned)


@dataclass(slots=True)
class _Sum:
    """Characters of a text's pieces by what they say, and whether its title is a wall's."""

    title: bool = False
    robots: int = 0
    scripts: int = 0
    consent: int = 0
    content: int = 0

    @property
    def said(self) -> int:
        return self.robots + self.scripts + self.consent


def _sum(title: str, pieces: Iterator[str] | list[str], warned: bool) -> _Sum:
    found = _Sum(title=_is_title(title))
    untitled = not _is_content(_plain(title))
    for number, piece in enumerate(pieces):
        if len(piece) > _LONGEST_PIECE:
            found.content += len(piece)
        elif TITLE.fullmatch(_bare(piece)):
            found.title = found.title or (untitled and number < 3)
        elif _says(piece, ROBOTS.match(piece)):
            found.robots += len(piece)
        elif _says(piece, SCRIPTS.match(piece)):
            found.scripts += len(piece)
        elif CONSENT.match(piece):
            found.consent += len(piece)
        elif _says(piece, OTHER_LANGUAGES.search(piece)):
            found.robots += len(piece) * (3 if _WIDE.search(piece) else 1)
        elif FILLER.match(piece):
            continue
        elif warned and LOOSE.search(piece) and _is_short(piece):
            found.robots += len(piece)
        elif _is_content(piece):
            found.content += len(piece) * (3 if _WIDE.search(piece) else 1)
    return found


def _verdict(found: _Sum, warned: bool) -> str | None:
    most = found.said // 4
    if found.title:
        most = found.said + found.said // 2 + 40 if found.said else 0
    elif warned and found.said:
        most = found.said
    if not (found.title or found.said) or found.content > most:
        return None
    if found.scripts > found.robots and not found.title:
        return SCRIPT_WALL
    return CONSENT_WALL if found.consent > found.robots + found.scripts else ROBOT_WALL


def _is_title(text: str) -> bool:
    """Whether a title, or one side of it, is a wall's."""
    sides = (text, *_SIDES.split(text))
    return any(TITLE.fullmatch(side) for side in map(_bare, map(_plain, sides)))


def _is_content(piece: str) -> bool:
    """Whether a piece may say something: not a name, a host, a number or a button."""
    if not _LETTER.search(piece) or _HOST.fullmatch(piece):
        return False
    if _WIDE.search(piece):
        return len(piece) > 6
    words = _CODE.sub("", piece).split()
    return len(words) > 3


def _says(piece: str, found: re.Match[str] | None) -> bool:
    """Whether a piece is a wall's, and does not go on to something else."""
    if found is None or _FORM.search(piece):
        return False
    rest = piece[found.end() :]
    if _TALK.match(rest):
        return False
    if _HANGUL.search(piece):
        return len(rest) <= 32
    if _WIDE.search(piece):
        return len(rest) <= 16
    return len(rest) <= 50 or _ADDRESS.search(rest) is not None


def _is_short(piece: str) -> bool:
    return len(piece) <= 16 if _WIDE.search(piece) else len(piece.split()) <= 4


def _pieces(text: str) -> Iterator[str]:
    """Lines and sentences of a text, plain, in order; blank ones are left out."""
    for piece in _END.split(_MARKUP.sub(lambda match: f" {match[1] or ''} ", text)):
        plain = _plain(piece)
        if plain:
            yield plain


def _plain(text: str) -> str:
    """In lower case, with plain apostrophes, and single blanks."""
    folded = unicodedata.normalize("NFKC", text).replace("’", "'").replace("İ", "i").lower()
    return " ".join(folded.split())


def _bare(text: str) -> str:
    return text.strip(" .!?…。！？,;\"'“”()[]")


def _machinery(source: str) -> str:
    """The scripts and tags of a page, in lower case, without what it shows."""
    lower = source.lower()
    found, at = [], 0
    while (start := lower.find("<script", at)) >= 0:
        end = lower.find("</script", start)
        end = len(lower) if end < 0 else end
        found.append(lower[start:end])
        at = end + 1
    return "\n".join([*found, *_TAG.findall(lower)])


def _without_scripts(source: str) -> str:
    """What a page shows only where no scripts run."""
    lower = source[:_MOST_SOURCE].lower()
    found, at = [], 0
    while (start := lower.find("<noscript", at)) >= 0:
        end = lower.find("</noscript", start)
        end = len(lower) if end < 0 else end
        found.append(_TAG.sub("\n", lower[start:end]))
        at = end + 1
    return html.unescape("\n".join(found))
