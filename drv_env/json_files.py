"""JSON objects in files that others wrote: read, or refused in one line with the file's name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from drv_env.errors import DrvError, SettingError


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
        if path.exists() and not path.is_file():
            raise OSError("it is no regular file")
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise kind(f"{path} can't be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise kind(f"{path} is damaged, no JSON: {error}") from error
    if not isinstance(found, dict):
        raise kind(f"{path} must hold a JSON object, it holds {type(found).__name__}")
    return found
