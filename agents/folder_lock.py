"""One process at a time in a folder, by a lock that the system drops with the process."""

from __future__ import annotations

import fcntl
from typing import IO, Any

from drv_env.errors import SettingError

NAME = ".lock"


def take_lock(file: IO[Any], busy: str) -> None:
    """Hold the lock until the file is closed.

    Args:
        file: open; the folder's :data:`NAME`.
        busy: what to say when another process has it.

    Raises:
        SettingError: saying ``busy``.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SettingError(busy) from None
