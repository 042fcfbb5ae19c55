"""The file ``.env``: names and values, in whichever of Unicode's encodings an editor wrote it.

PowerShell's ``>`` and ``Out-File`` write UTF-16 with a byte order mark, Windows' Notepad UTF-8
with one or without.  What is no Unicode is refused rather than guessed at: a key read in the
wrong encoding would be sent, and refused, as another.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

from dotenv import dotenv_values

from drv_env.charsets import unicode_encoding
from drv_env.errors import SettingError


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


def _decoded(content: bytes, path: Path) -> str:
    name, codec = unicode_encoding(content)
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
