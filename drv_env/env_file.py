"""The file ``.env``: names and values, in whichever of Unicode's encodings an editor wrote it.

PowerShell's ``>`` and ``Out-File`` write UTF-16 with a byte order mark, Windows' Notepad UTF-8
with one or without.  What is no Unicode is refused rather than guessed at: a key read in the
wrong encoding would be sent, and refused, as another.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Mapping
from pathlib import Path

from dotenv import dotenv_values

from drv_env.errors import SettingError

_MARKS = (
    (codecs.BOM_UTF8, "UTF-8", "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "UTF-32", "utf-32"),  # before UTF-16's, with which it begins
    (codecs.BOM_UTF32_BE, "UTF-32", "utf-32"),
    (codecs.BOM_UTF16_LE, "UTF-16", "utf-16"),
    (codecs.BOM_UTF16_BE, "UTF-16", "utf-16"),
)
"""A byte order mark, what its encoding is called, and Python's codec that takes the mark off."""


def read_env_file(path: str | Path) -> Mapping[str, str | None]:
    """The values by their names; nothing where there is no such file, or a folder of that name.

    Values are taken as they stand: ``$NAME`` is not replaced.

    Args:
        path: of ``NAME=value`` lines.

    Raises:
        SettingError: naming the file and what is wrong with it, never a value, when it can't be
            read or is not in UTF-8, UTF-16 or UTF-32.
    """
    path = Path(path)
    if path.is_dir():  # a virtual environment may be called .env
        return {}
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no file has such a name"
        raise SettingError(f"{path} can't be read: {reason}") from None
    return dotenv_values(stream=io.StringIO(_decoded(content, path)), interpolate=False)


def encoding_of(content: bytes) -> tuple[str, str]:
    """What the encoding of an environment file is called, and Python's codec for it.

    A byte order mark decides.  Without one, a zero byte at every second place of the first line
    is UTF-16, for names of variables are ASCII; all else is UTF-8.

    Example:
        >>> encoding_of("KEY=1".encode("utf-16-le"))[0], encoding_of(b"KEY=1")[0]
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


def _decoded(content: bytes, path: Path) -> str:
    name, codec = encoding_of(content)
    try:
        text = content.decode(codec)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        # Without the bytes around it, in which keys may stand.
        at = f"byte 0x{content[error.start]:02x} in line {line}; " if codec == "utf-8" else ""
        raise SettingError(
            f"{path} can't be read: it is no {name} text ({at}Latin-1, say, or cut off); "
            "save it as UTF-8"
        ) from None
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise SettingError(
            f"{path} can't be read: it holds a zero byte in line {line}; save it as UTF-8 text"
        )
    return text
