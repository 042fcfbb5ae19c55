"""Files that are written whole or not at all, and what is said when the disk won't have them.

A file is filled under a temporary name beside it, made durable, and then renamed.  After an
error and after Ctrl-C the temporary file is gone and what stood there stands; what a killed
process left is told by its lock, which the system drops with the process, and swept away by
whoever next writes there.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import sqlite3
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from drv_env.errors import DiskError, SettingError

_FULL = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota of disk space is used up",
    errno.EFBIG: "no larger file is allowed here (ulimit -f, or the file system)",
    errno.EROFS: "the file system is read-only",
}
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)
"""Said by file systems without hard links, where only one process may write to a folder."""

_SQLITE_UNWRITTEN = (
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_IOERR_SHMOPEN,
    sqlite3.SQLITE_IOERR_SHMSIZE,
)
"""What SQLite reports where it does not know why a write failed."""

_TOLD_NUMBER = re.compile(r"(?:os error |[Ee]rrno )(\d+)")
"""How libraries that are not Python's tell the system's error, in words alone."""
_TEMPORARY = re.compile(r"\..+\.\d+\.[0-9a-f]{8}\.tmp")
_LONGEST_NAME = 180


# ---- writing -----------------------------------------------------------------------------------


@contextmanager
def replacing(
    path: str | Path, *, may_replace: bool = True, parents: bool = True
) -> Iterator[Path]:
    """A temporary file to fill, which takes the file's place when the block ends well.

    Args:
        path: the file.
        may_replace: False refuses to take the place of one that appeared meanwhile.
        parents: make the folders above where they are missing.

    Raises:
        DiskError: when it can't be written, naming the file and what to do.
        SettingError: for a device, a folder, or anything else that is no regular file.
    """
    path = Path(path)
    refuse_irregular(path)
    with temporary_beside(path, parents) as temporary:
        yield temporary
        with _attributed(path):
            publish(temporary, path, may_replace=may_replace)


@contextmanager
def temporary_beside(path: Path, parents: bool = True) -> Iterator[Path]:
    """A new, empty file beside ``path`` that is gone when the block ends, unless it was renamed.

    Raises:
        DiskError: when the disk is full, also where that is met inside the block.
    """
    with _attributed(path):
        if parents:
            path.parent.mkdir(parents=True, exist_ok=True)
        name = f"{_stem(path)}{os.getpid()}.{secrets.token_hex(4)}.tmp"
        temporary = path.with_name(name)
        number = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    _held.add(number)
    try:
        with suppress(OSError):  # a file system without locks: nothing is swept there
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with disk_faults_told(path):
            yield temporary
    finally:
        try:
            temporary.unlink(missing_ok=True)
        except BaseException:  # Ctrl-C at this very moment
            temporary.unlink(missing_ok=True)
            raise
        _held.discard(number)
        os.close(number)


def publish(temporary: Path, path: Path, *, may_replace: bool) -> None:
    """Give a finished file its name, durably.

    Raises:
        FileExistsError: when there is one and it may not be replaced.
    """
    sync(temporary)
    if may_replace:
        temporary.replace(path)
    else:
        try:
            os.link(temporary, path)  # unlike a rename, refuses to replace
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            if path.exists():
                raise FileExistsError(errno.EEXIST, "it exists", str(path)) from None
            temporary.replace(path)
    sync(path.parent)


def write_text(path: str | Path, text: str) -> None:
    """A text file in UTF-8, whole or not at all; see :func:`replacing`."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: str | Path, value: Any, indent: int | None = 2) -> None:
    """A JSON file, whole or not at all; text is written as it is, lone surrogates escaped."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            text = json.dumps(value, indent=indent)
    write_text(path, text + "\n")


def read_json(path: Path) -> Any:
    """What a JSON file holds; None where it is missing or is no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None


def append_line(path: Path, line: str) -> None:
    """Add a line to a file, whole or not at all, after a line break that ends one cut by a kill.

    Raises:
        DiskError: when it can't be written; the file is as it was.
    """
    refuse_irregular(path)
    with _attributed(path), path.open("ab", buffering=0) as file:
        append(file, b"\n" + line.encode("utf-8") + b"\n")


def append(file: Any, data: bytes) -> None:
    """Add bytes to an unbuffered binary file in one piece; what did not fit is taken back.

    Raises:
        OSError: when they can't be written; the file is as it was.
    """
    end = os.fstat(file.fileno()).st_size
    try:
        left = memoryview(data)
        while left:
            left = left[file.write(left) :]
    except BaseException:
        with suppress(OSError):
            os.ftruncate(file.fileno(), end)
            os.lseek(file.fileno(), end, os.SEEK_SET)
        raise


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on the disk itself."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that has no such thing
            raise
    finally:
        os.close(number)


def sweep(folder: Path) -> None:
    """Remove temporary files that killed processes left in a folder of our own."""
    with suppress(OSError):
        for item in list(os.scandir(folder)):
            if is_temporary(item.name) and item.is_file(follow_symlinks=False):
                _remove_abandoned(item.path)


def is_temporary(name: str) -> bool:
    """Whether this is a name that only temporary files have."""
    return _TEMPORARY.fullmatch(name) is not None


def _sweep_beside(path: Path) -> None:
    """Remove what killed processes left of this very file."""
    ours = re.compile(re.escape(_stem(path)) + r"\d+\.[0-9a-f]{8}\.tmp")
    with suppress(OSError):
        for item in list(os.scandir(path.parent)):
            if ours.fullmatch(item.name) and item.is_file(follow_symlinks=False):
                _remove_abandoned(item.path)


def _stem(path: Path) -> str:
    """How the names of a file's temporary ones begin."""
    name = path.name
    if len(os.fsencode(name)) > _LONGEST_NAME:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()[:32]
    return f".{name}."


def _remove_abandoned(path: str) -> None:
    number = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    except BlockingIOError:
        pass  # somebody is writing it
    finally:
        os.close(number)


# ---- a file that a user names ------------------------------------------------------------------


def refuse_output(path: str | Path, inputs: Iterable[str | Path] = (), force: bool = False) -> None:
    """Refuse to write a file over something that is to stay.

    Args:
        path: the file that a command is to write.
        inputs: what it reads: files, and folders of them.
        force: an existing regular file may be replaced.

    Raises:
        SettingError: for an existing file, for what is no regular file, and for one of the
            inputs, by whatever name.
    """
    path = Path(path)
    refuse_irregular(path, links=True)
    place = path.resolve()
    for each in map(Path, inputs):
        folders = {each.resolve(), (each / "trajectories").resolve()} if each.is_dir() else set()
        if place == each.resolve() or (path.exists() and each.exists() and path.samefile(each)):
            raise SettingError(f"{path} is the input {each} itself; name another file")
        linked = path.exists() and any(
            path.samefile(item) for folder in folders for item in _files(folder)
        )
        if place.parent in folders or path.parent.resolve() in folders or linked:
            raise SettingError(f"{path} lies in the input folder {each}; name a file outside of it")
    refuse_irregular(path)
    if os.path.lexists(path) and not force:
        _sweep_beside(path)  # a kill right after it was written left its other name
        raise SettingError(f"{path} exists; name another file, or replace it with --force")


@contextmanager
def output(path: str | Path, force: bool = False, parents: bool = True) -> Iterator[Path]:
    """:func:`replacing` for a file that a user named, once :func:`refuse_output` has passed."""
    path = Path(path)
    _sweep_beside(path)
    with replacing(path, may_replace=force, parents=parents) as temporary:
        yield temporary


def refuse_irregular(path: Path, links: bool = False) -> None:
    """Refuse what is there and is no regular file: to replace a link would lose it.

    Args:
        path: the file.
        links: let links to regular files pass, and those that lead nowhere.

    Raises:
        SettingError: naming it and what it is.
    """
    try:
        kind = path.stat().st_mode
    except FileNotFoundError:
        kind = stat.S_IFREG
    except (OSError, ValueError) as error:
        said = f"{path} can't be written: {getattr(error, 'strerror', error)}; name another file"
        raise SettingError(said) from None
    if stat.S_ISREG(kind):
        if path.is_symlink() and not links:
            raise SettingError(f"{path} is a link; name the file itself")
        return
    names = {
        stat.S_ISDIR: "a folder",
        stat.S_ISCHR: "a device",
        stat.S_ISBLK: "a device",
        stat.S_ISFIFO: "a pipe",
        stat.S_ISSOCK: "a socket",
    }
    what = next((name for is_kind, name in names.items() if is_kind(kind)), "no regular file")
    raise SettingError(f"{path} is {what}; name a file")


def _files(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (item for item in folder.iterdir() if item.is_file())


# ---- what the disk said ------------------------------------------------------------------------


@contextmanager
def disk_faults_told(path: str | Path) -> Iterator[None]:
    """Tell a full disk, met inside the block by whatever library, as such, naming the file.

    Raises:
        DiskError: in place of what the library raised.
    """
    try:
        yield
    except DiskError:
        raise
    except Exception as error:
        said = disk_fault(error)
        if said is None:
            raise
        raise DiskError(told(path, said)) from error


def disk_fault(error: BaseException | None) -> str | None:
    """What the disk refused, where that is why something failed; None where it is not."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        number = error.errno if isinstance(error, OSError) else None
        if isinstance(error, sqlite3.Error):
            code = getattr(error, "sqlite_errorcode", None) or 0
            if code & 0xFF == sqlite3.SQLITE_FULL:
                number = errno.ENOSPC
            elif code in _SQLITE_UNWRITTEN:
                return "the disk, or a limit on the size of files, would not take it"
        elif number not in _FULL:
            found = _TOLD_NUMBER.search(str(error))
            number = int(found[1]) if found else number
        if number in _FULL:
            return _FULL[number]
        error = error.__cause__ or error.__context__
    return None


def told(path: str | Path, said: str) -> str:
    """The line for a user."""
    return f"{path} can't be written: {said}; make room there, and run the same command again"


@contextmanager
def _attributed(path: Path) -> Iterator[None]:
    """Every refusal of the system inside the block is about writing this file."""
    try:
        yield
    except FileExistsError as error:
        raise SettingError(f"{path} can't be written: {error.strerror}") from error
    except OSError as error:
        said = disk_fault(error)
        if said is not None:
            raise DiskError(told(path, said)) from error
        raise DiskError(f"{path} can't be written: {error.strerror or error}") from error


# A child that was forked meanwhile must not hold the lock of a parent that was killed.
_held: set[int] = set()


def hold_in_this_process(number: int) -> None:
    """Close this file in every process forked from now on, until :func:`release` is called."""
    _held.add(number)


def release(number: int) -> None:
    """Take back :func:`hold_in_this_process`."""
    _held.discard(number)


def _close_in_child() -> None:
    for number in list(_held):
        with suppress(OSError):
            os.close(number)
    _held.clear()


os.register_at_fork(after_in_child=_close_in_child)
