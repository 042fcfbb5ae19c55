"""Text and JSON objects in files that others wrote: read, or refused, naming the file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from drv_env.errors import DrvError, SettingError


def read_text(path: str | Path, encoding: str = "utf-8") -> str:
    """The text of a file that a user named; a device or a pipe may never end.

    Raises:
        OSError: when it can't be read, or is no regular file, nor a pipe that a shell gives
            for ``<(…)``.
        ValueError: when the bytes are no text of this encoding, or no file can have the name.
    """
    path = Path(path)
    given = path.parent == Path("/dev/fd") and path.is_fifo()
    if path.exists() and not path.is_file() and not given and path != Path(os.devnull):
        raise OSError("it is no regular file")
    return path.read_text(encoding=encoding)


def why_unread(error: BaseException) -> str:
    """Why a file can't be read, for a message that names the file: the system's words without it.

    Example:
        >>> why_unread(FileNotFoundError(2, "No such file or directory", "/a/b"))
        'No such file or directory'
        >>> why_unread(UnicodeDecodeError("utf-8", b"ab\\xff", 2, 3, "invalid start byte"))
        'it is no UTF-8 text (byte 0xff at 2)'
    """
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    if isinstance(error, UnicodeDecodeError):
        name = error.encoding.upper().removesuffix("-SIG")
        return f"it is no {name} text (byte 0x{error.object[error.start]:02x} at {error.start})"
    return str(error)


def read_object(path: str | Path, kind: type[DrvError] = SettingError) -> dict[str, Any]:
    """The JSON object that a file holds; a byte order mark is skipped.

    Args:
        path: of the file.
        kind: of the error.

    Raises:
        kind: naming the file, when it can't be read, is cut off or no UTF-8, or holds
            something else than an object.
    """
    path = Path(path)
    try:
        found = json.loads(read_text(path, "utf-8-sig"))
    except OSError as error:
        raise kind(f"{path} can't be read: {why_unread(error)}") from error
    except (ValueError, RecursionError) as error:
        raise kind(f"{path} is damaged, no JSON: {error}") from error
    if not isinstance(found, dict):
        raise kind(f"{path} must hold a JSON object, it holds {type(found).__name__}")
    return found
