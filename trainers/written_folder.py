"""A folder of files that takes another's place whole, and loses only what was written by us.

``.drv-files.json`` in it lists the files that were written.  What else somebody puts there
moves along when the folder is replaced, and stays when it is removed.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from drv_env.errors import DiskError, SettingError
from drv_env.whole_files import disk_fault, disk_faults_told, read_json, sync, told, write_json

RECORD = ".drv-files.json"


def written_files(folder: Path) -> list[str] | None:
    """The files that we wrote into a folder under this name; None where it is not ours."""
    found = None if folder.is_symlink() else read_json(folder / RECORD)
    if not isinstance(found, dict) or found.get("folder") != folder.name:
        return None
    names = found.get("files")
    if not isinstance(names, list):
        return None
    return [name for name in names if isinstance(name, str) and Path(name).name == name]


def refuse_unwritten(folder: Path) -> None:
    """Refuse to take the place of what we did not write.

    Raises:
        SettingError: for a folder that is not empty and not ours, or something else.
    """
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir():
        raise SettingError(f"{folder} is no folder; name another, or take it away")
    if written_files(folder) is None and any(folder.iterdir()):
        raise SettingError(
            f"{folder} holds files that were not written here (it has no {RECORD} of its name); "
            "name another folder, or move it elsewhere"
        )


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """A folder to fill, which takes the place of ``folder`` when the block ends well.

    Raises:
        SettingError: when there is something that we did not write.
        DiskError: when the disk is full; what was there stays.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _recover(folder)
        refuse_unwritten(folder)
        temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
    except OSError as error:
        raise DiskError(told(folder, disk_fault(error) or str(error.strerror))) from error
    number = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # a file system without locks: nothing is swept there
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with disk_faults_told(folder):
            yield temporary
            names = sorted(item.name for item in temporary.iterdir())
            write_json(temporary / RECORD, {"folder": folder.name, "files": names})
            for item in temporary.iterdir():
                sync(item)
            _refuse_taken(folder, names)
            replaced = folder.with_name(f".{folder.name}.{os.getpid()}.old")
            if folder.exists():
                folder.rename(replaced)
            temporary.rename(folder)
            sync(folder.parent)
            _move_rest(replaced, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.close(number)


def remove_written(folder: Path) -> None:
    """Remove a folder of ours: the files that we wrote, and itself where nothing else is in it."""
    names = written_files(folder)
    if names is None:
        return
    for name in (*names, RECORD):
        with suppress(FileNotFoundError):
            (folder / name).unlink()
    with suppress(OSError):
        folder.rmdir()


def _refuse_taken(folder: Path, names: list[str]) -> None:
    """Refuse to write over a file that somebody put into our folder."""
    old = written_files(folder) or []
    for name in names:
        if name not in old and os.path.lexists(folder / name):
            raise SettingError(
                f"{folder / name} was not written here and would be replaced; move it elsewhere"
            )


def _recover(folder: Path) -> None:
    """Make good what a process that was killed while it replaced the folder left behind."""
    name = re.escape(folder.name)
    for item in sorted(folder.parent.iterdir()):
        if item.is_symlink() or not item.is_dir():
            continue
        if re.fullmatch(rf"\.{name}\.\d+\.old", item.name):
            if not folder.exists():
                item.rename(folder)
            else:
                _move_rest(item, folder)
        elif re.fullmatch(rf"\.{name}\.\d+\.tmp", item.name):
            _remove_abandoned(item)


def _move_rest(old: Path, folder: Path) -> None:
    """Move what we did not write from the folder before into the new one; remove the rest."""
    if not old.exists():
        return
    found = read_json(old / RECORD)
    names = found.get("files", []) if isinstance(found, dict) else []
    for item in old.iterdir():
        if item.name in names and not item.is_dir():
            item.unlink()
        elif item.name != RECORD and not os.path.lexists(folder / item.name):
            item.rename(folder / item.name)
    if {item.name for item in old.iterdir()} <= {RECORD}:
        (old / RECORD).unlink(missing_ok=True)
        old.rmdir()


def _remove_abandoned(temporary: Path) -> None:
    number = os.open(temporary, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(temporary, ignore_errors=True)
    except OSError:
        pass  # somebody fills it, or nobody can tell
    finally:
        os.close(number)
