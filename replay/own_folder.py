"""Folders that a command fills: told from others by a record, one process at a time.

The one rule of every command that writes a folder:

* it takes a folder that is missing or empty, or one that holds a record of its own kind
  (:class:`FolderKind`); any other is refused and left as it is;
* its inputs are no part of it, by whatever path they are named (:func:`refuse_overlap`);
* it holds the folder's lock while it works (:class:`FolderLock`), which the system drops with
  the process;
* it replaces and deletes what its record says is its own; other files that lie there stay.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drv_env.errors import DiskError, SettingError
from drv_env.json_files import why_unread
from drv_env.whole_files import (
    disk_fault,
    hold_in_this_process,
    is_temporary,
    release,
    sweep,
    told,
)

LOCK = ".lock"


@dataclass(frozen=True)
class FolderKind:
    """What tells a command's own folder from others.

    Attributes:
        name: of what it holds, with an article: "a rollout".
        records: files of which one says so, by their path in the folder, each with the names
            and types that a record has at least.
        parts: subfolders that are written into and may be no links.
        files: files that are written into, likewise.
        before: what may be there before the record is, each with a test of it.
    """

    name: str
    records: Mapping[str, Mapping[str, type | tuple[type, ...]]]
    parts: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    before: Mapping[str, Callable[[Path], bool]] = field(default_factory=dict)

    def record(self, folder: str | Path) -> dict[str, Any] | None:
        """The folder's record; None where it is missing or empty.

        Raises:
            SettingError: for a folder of something else, or what is no folder.
        """
        folder = Path(folder)
        if not _is_there(folder):
            return None
        for part in self.parts:
            if (folder / part).is_symlink():
                raise SettingError(
                    f"{folder / part} is a link, and what it leads to is not ours; take it away, "
                    "or name another folder"
                )
            if os.path.lexists(folder / part) and not (folder / part).is_dir():
                raise SettingError(
                    f"{folder / part} is no folder; take it away, or name another folder"
                )
        for part in self.files:
            if os.path.lexists(folder / part) and not _is_own_file(folder / part):
                raise SettingError(
                    f"{folder / part} is a link or no regular file, and not ours; take it away, or "
                    "name another folder"
                )
        for name, wanted in self.records.items():
            file = folder / name
            if os.path.lexists(file):
                return self._read(file, wanted)
        others = sorted(
            name
            for name in _names(folder)
            if name not in self.before or not self.before[name](folder / name)
        )
        if others:
            more = f" and {len(others) - 1:,} more" if len(others) > 1 else ""
            kind = self.name.removeprefix("a ").removeprefix("an ")
            raise SettingError(
                f"{folder} holds other files and no {kind} ({others[0]}{more}, and no "
                f"{next(iter(self.records))}); name another folder"
            )
        return None

    def _read(self, file: Path, wanted: Mapping[str, type | tuple[type, ...]]) -> dict[str, Any]:
        try:
            if not file.is_file():
                raise ValueError("it is no file")
            found = json.loads(file.read_text(encoding="utf-8"))
            if not isinstance(found, dict):
                raise ValueError("it is no JSON object")
        except (OSError, ValueError, RecursionError) as error:
            raise SettingError(
                f"{file} can't be read: {why_unread(error)}; name another folder"
            ) from None
        for key, kind in wanted.items():
            if not isinstance(found.get(key), kind) or isinstance(found.get(key), bool):
                raise SettingError(
                    f"{file} is not the record of {self.name}: it has no such {key!r}; "
                    "name another folder"
                )
        return found


class FolderLock:
    """Holds a folder, which is made where it is missing, until it is closed.

    What killed processes left half-written in it is removed.  A folder that was made and in
    which nothing was put goes again.

    Args:
        folder: of our own.
        busy: what to say when another process has it.
        parts: subfolders in which temporary files are looked for too.

    Raises:
        SettingError: saying ``busy``; or when the folder can't be made.
        DiskError: when the disk is full.
    """

    def __init__(self, folder: str | Path, busy: str, parts: Iterable[str] = ()) -> None:
        folder = Path(folder)
        self._file = folder / LOCK
        self._made = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._number: int | None = _take(folder, busy)
        except OSError as error:
            said = disk_fault(error)
            if said is not None:
                raise DiskError(told(folder, said)) from error
            raise SettingError(
                f"{folder} can't be written to: {error.strerror}; name another folder"
            ) from None
        hold_in_this_process(self._number)
        for part in (folder, *(folder / name for name in parts)):
            sweep(part)

    def close(self) -> None:
        """Let others have the folder; may be called twice."""
        if self._number is not None:
            release(self._number)
            with suppress(OSError):
                self._file.unlink()
            os.close(self._number)
            self._number = None
            with suppress(OSError):  # at the first that is not empty
                for made in self._made:
                    made.rmdir()

    def __enter__(self) -> FolderLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_own_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def holds_no_file(folder: Path) -> bool:
    """Whether a folder has nothing but folders, and what a killed process was writing."""
    return folder.is_dir() and all(
        item.is_dir() or is_temporary(item.name) for item in folder.rglob("*")
    )


def refuse_busy(folder: Path, busy: str) -> None:
    """Refuse a folder that a process holds.

    Raises:
        SettingError: saying ``busy``.
    """
    with suppress(FileNotFoundError, NotADirectoryError):
        number = _open_lock(folder, create=False)
        try:
            _lock(number, busy)
        finally:
            os.close(number)


def refuse_overlap(
    out: str | Path, inputs: Iterable[str | Path | None], kept: Iterable[Path] = ()
) -> None:
    """Refuse an output folder that has to do with an input, whatever the paths are called.

    Followed are ``..``, links to folders and files, and hard links.

    Args:
        out: the folder to fill; it need not exist.
        inputs: files and folders that are read; what does not exist, or is None, is passed over.
        kept: places in ``out`` that inputs may come from.

    Raises:
        SettingError: naming both; or when ``out`` is no folder.
    """
    out = Path(out)
    _is_there(out)
    place, here = out.resolve(), _identity(out)
    allowed = {path.resolve() for path in kept}
    inside = {_identity(item) for item in _within(out)} if out.is_dir() else set()
    above = {_identity(each) for each in place.parents} - {None}
    for each in inputs:
        if each is None or not Path(each).exists() or Path(each).resolve() in allowed:
            continue
        given = Path(each)
        if given.resolve() == place or (here is not None and _identity(given) == here):
            raise SettingError(f"{out} is an input too; name another folder for the output")
        if given.is_dir() and _identity(given) in above:
            raise SettingError(
                f"the output {out} lies in the input folder {given}; name a folder outside of it"
            )
        for item in (given, *_within(given)) if given.is_dir() else (given,):
            real = item.resolve()
            ours = here is not None and any(_identity(above) == here for above in real.parents)
            if ours or (item.is_file() and _identity(item) in inside):
                raise SettingError(
                    f"the input {item} is also in the output folder {out}; name another folder for "
                    "the output"
                )


def _within(folder: Path) -> Iterator[Path]:
    """What reading a folder of files would read."""
    for place in (folder, folder / "trajectories"):
        if place.is_dir():
            yield from (item for item in place.iterdir() if item.is_file())


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        return _identity_of(path.stat())
    except OSError:
        return None


def _identity_of(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _is_there(folder: Path) -> bool:
    """Whether the folder exists.

    Raises:
        SettingError: when something else stands in its place, or it can't be made or read.
    """
    if "\0" in str(folder):
        raise SettingError(f"{str(folder)!r} can be no folder: it holds a zero byte; name another")
    above = next(each for each in (folder, *folder.parents) if os.path.lexists(each))
    if not above.is_dir():
        what = "a link that leads nowhere" if above.is_symlink() else "a file"
        raise SettingError(f"{above} is {what}; name a folder")
    return above == folder


def _names(folder: Path) -> Iterator[str]:
    """What is in a folder, our empty lock and what killed processes left half-written left out."""
    try:
        for item in folder.iterdir():
            lock = item.name == LOCK and item.is_file() and not item.stat().st_size
            if not lock and not is_temporary(item.name):
                yield item.name
    except OSError as error:
        raise SettingError(
            f"{folder} can't be read: {error.strerror}; name another folder"
        ) from None


def _take(folder: Path, busy: str) -> int:
    """The lock's file, open and locked, under its name still."""
    while True:
        number = _open_lock(folder, create=True)
        try:
            _lock(number, busy)
            if _identity(folder / LOCK) == _identity_of(os.fstat(number)):
                return number
        except BaseException:
            os.close(number)
            raise
        os.close(number)  # whoever held it took the file away meanwhile


def _open_lock(folder: Path, create: bool) -> int:
    """The lock's file, open; never through a link, and never cut."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        number = os.open(folder / LOCK, flags | (os.O_CREAT if create else 0), 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise SettingError(f"{folder / LOCK} is no lock of ours; name another folder") from None
        raise
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise SettingError(f"{folder / LOCK} is no lock of ours; name another folder")
    return number


def _lock(number: int, busy: str) -> None:
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SettingError(busy) from None
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
