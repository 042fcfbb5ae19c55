"""The SQLite file under a cassette: its schema, and opening it with care.

A file is opened in WAL mode, so that reading goes on while another process writes.  It
carries an application id and a version; anything that is not a cassette of this version
is refused by name and left as it was.  What is recorded in it is the business of
:mod:`drv_env.cassette.store`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from drv_env.errors import DrvError, boundary
from drv_env.whole_files import disk_fault, told

APPLICATION_ID = 0x64727643
"""Marks an SQLite file as a cassette (``drvC``)."""

VERSION = 1
"""Version of the schema, in the file's ``user_version``."""

_SCHEMA = (
    """
    CREATE TABLE calls (
        id INTEGER PRIMARY KEY,
        kind TEXT NOT NULL,
        namespace TEXT NOT NULL,
        key TEXT NOT NULL,
        text TEXT NOT NULL,
        status TEXT NOT NULL,
        data TEXT NOT NULL,
        latency REAL NOT NULL,
        cost REAL NOT NULL,
        recorded_at REAL NOT NULL,
        provenance TEXT NOT NULL,
        UNIQUE (kind, namespace, key)
    )
    """,
    # Which calls hold a word: finds what is near to a call that was never recorded.  Words
    # are cut before they come here; the tokenizer only parts them at blanks.
    """
    CREATE VIRTUAL TABLE words USING fts5(held, content='', detail=none, tokenize='ascii')
    """,
)


class CassetteError(DrvError):
    """A cassette's file can't be used; the message names it."""


def open_file(path: Path, read_only: bool, busy_seconds: float) -> sqlite3.Connection:
    """A connection to the cassette at ``path``, which is made where there is none.

    The connection commits by itself outside :func:`writing`, and may be used from any
    thread, one at a time.

    Args:
        path: the file.
        read_only: never write, nor make the file; works in a folder that can't be written.
        busy_seconds: how long a statement waits for other processes.

    Raises:
        CassetteError: for a missing file (``read_only``), a folder, another kind of file,
            or a cassette of another version.
        sqlite3.Error: for whatever SQLite reports, a locked or damaged file among it.
    """
    if path.is_dir():
        raise CassetteError(f"{path} is a folder; a cassette is a file")
    if path.exists() and not path.is_file():
        raise CassetteError(f"{path} is a device or a pipe; a cassette is a regular file")
    if read_only:
        if not path.exists():
            raise CassetteError(f"there is no cassette at {path}; record one first")
    else:
        with boundary(CassetteError, f"no cassette can be made at {path}"):
            path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return _open(path, "mode=ro" if read_only else "mode=rwc", read_only, busy_seconds)
    except sqlite3.OperationalError as error:
        # A closed cassette in a folder that can't be written: WAL has no place for its index.
        no_place = _code(error) in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
        if not (read_only and no_place) or path.with_name(path.name + "-wal").exists():
            raise
        return _open(path, "immutable=1", read_only, busy_seconds)


@contextmanager
def writing(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction that holds the write lock from its beginning; undone by an exception."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def is_busy(error: sqlite3.Error) -> bool:
    """Whether the file was held by someone else, so that another try may work."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def explain(path: Path, error: sqlite3.Error) -> CassetteError:
    """What SQLite reported about the file, in words that name it."""
    code = _code(error)
    if code == sqlite3.SQLITE_NOTADB:
        return CassetteError(f"{path} is not a cassette: it is no SQLite file")
    if code == sqlite3.SQLITE_CORRUPT:
        return CassetteError(f"the cassette {path} is damaged or cut short ({error})")
    said = disk_fault(error)
    if said is not None:
        return CassetteError(told(path, said))
    if is_busy(error):
        return CassetteError(f"the cassette {path} is held by another process ({error})")
    return CassetteError(f"the cassette {path} can't be used: {error}")


def stored(text: str) -> str | bytes:
    """``text`` as SQLite takes it: as it is, or as bytes where it has lone surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def restored(value: str | bytes) -> str:
    """The inverse of :func:`stored`."""
    return value if isinstance(value, str) else value.decode("utf-8", "surrogatepass")


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; 0 where Python raised the error itself."""
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _open(path: Path, how: str, read_only: bool, busy_seconds: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.as_uri()}?{how}",
        uri=True,
        timeout=busy_seconds,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        blank = _is_blank(path, connection)
        if read_only:
            if blank:
                raise CassetteError(f"{path} is empty; record something first")
            return connection
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        if blank:
            with writing(connection):
                if _is_blank(path, connection):  # nobody was faster
                    for statement in _SCHEMA:
                        connection.execute(statement)
                    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    connection.execute(f"PRAGMA user_version = {VERSION}")
        return connection
    except BaseException:
        connection.close()
        raise


def _is_blank(path: Path, connection: sqlite3.Connection) -> bool:
    """Whether nothing has been written yet.

    Raises:
        CassetteError: when the file is something else than a cassette of this version.
    """
    with _snapshot(connection):
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application == APPLICATION_ID:
        if version != VERSION:
            raise CassetteError(
                f"{path} is a cassette of version {version}; this drv-env reads version "
                f"{VERSION}. Use the drv-env that wrote it, or record anew"
            )
        return False
    if application or version or tables:
        raise CassetteError(f"{path} is not a cassette: it is another program's SQLite file")
    return True


@contextmanager
def _snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Several looks at the file as it was at the first: others may be making it meanwhile."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")
