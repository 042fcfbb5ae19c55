"""The forms in which a key may stand in a text: quoted, escaped, packed.

Percent-encoded (also twice), with JSON's, Python's or a shell's escapes, as HTML, in base64
at any place of what was packed, and mixtures of them.  Letters and digits are taken to stand
for themselves.
"""

from __future__ import annotations

import base64
import html.entities
import re
from dataclasses import dataclass

# Repetitions in patterns have ends, so that no text takes long.


@dataclass(frozen=True, slots=True)
class Form:
    """One way to find a key.

    Attributes:
        core: stands in every text in which the pattern is found; may be empty.
        pattern: what it looks like.
    """

    core: str
    pattern: re.Pattern[str]

    def replaced(self, text: str, by: str) -> str:
        """The text with ``by`` wherever the form stood."""
        return self.pattern.sub(by, text) if self.core in text else text


def forms_of(value: str) -> list[Form]:
    """Every form of a key, the key as it is among them."""
    forms = [Form(_core(value), re.compile("".join(map(_sign, value))))]
    data = value.encode("utf-8", "surrogatepass")
    for before in range(3):
        # Of a packed text whose part it is, whole groups of six bits are the key's alone.
        packed = base64.b64encode(b"\0" * before + data).decode()
        first = (0, 2, 3)[before]
        last = (before + len(data)) * 8 // 6
        inner = packed[first:last]
        rest = r"[\w+/-]{0,2}={0,2}" if (before + len(data)) % 3 else ""
        forms.append(Form(_core(inner), re.compile("".join(map(_packed_sign, inner)) + rest)))
    return forms


def _core(value: str) -> str:
    runs = re.findall(r"[A-Za-z0-9]+", value)
    return max(runs, key=len, default="")


def _sign(sign: str) -> str:
    """A pattern for one character in any writing."""
    if sign.isascii() and sign.isalnum():
        return sign
    number, data = ord(sign), sign.encode("utf-8", "surrogatepass")
    names = [name for name, text in html.entities.html5.items() if text == sign and name[-1] == ";"]
    references = [
        f"#0{{0,6}}{number};",
        f"#[xX]0{{0,6}}{_hex(f'{number:x}')};",
        *map(re.escape, names),
    ]
    ways = [
        re.escape(sign) if sign != "\\" else r"\\{1,8}",
        "".join(f"%(?:25){{0,4}}{_hex(f'{byte:02x}')}" for byte in data),
        "".join(rf"\\{{1,8}}x{_hex(f'{byte:02x}')}" for byte in data),
        rf"&(?:amp;){{0,4}}(?:{'|'.join(references)})",
        _escaped(sign),
    ]
    if number < 256:
        ways.append(rf"\\{{1,8}}x{_hex(f'{number:02x}')}")
        ways.append(rf"\\{{1,8}}0?{number:03o}")
    if sign in _SHORT_ESCAPES:
        ways.append(rf"\\{{1,8}}{_SHORT_ESCAPES[sign]}")
    if sign == " ":
        ways.append(r"\+")
    if sign == "'":
        ways += [r"'\"'\"'", r"'\\{1,8}''"]
    ways.sort(key=len, reverse=True)
    return rf"\\{{0,8}}(?:{'|'.join(ways)})"  # what is escaped once more has more backslashes


_SHORT_ESCAPES = {"\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}


def _packed_sign(sign: str) -> str:
    if sign.isalnum():
        return sign
    return f"(?:{_sign(sign)}|{'-' if sign == '+' else '_'})"  # the second in base64 for urls


def _hex(digits: str) -> str:
    """A pattern for hexadecimal digits of either case."""
    return "".join(f"[{d.lower()}{d.upper()}]" if d.isalpha() else d for d in digits)


def _escaped(sign: str) -> str:
    """``\\u0022``, of two units beyond the first 65,536 characters; also ``\\U0001f600``."""
    units = sign.encode("utf-16-be", "surrogatepass")
    pairs = (units[at : at + 2].hex() for at in range(0, len(units), 2))
    short = "".join(rf"\\{{1,8}}u{_hex(pair)}" for pair in pairs)
    number = ord(sign)
    braces = rf"\\{{1,8}}u\{{0{{0,6}}{_hex(f'{number:x}')}\}}"
    return rf"{short}|\\{{1,8}}U{_hex(f'{number:08x}')}|{braces}"
