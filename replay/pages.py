"""The pages of a recorded web: what was ever seen of each, in one SQLite file.

A page gathers its title and, each once and in the order they came, the snippets and the
evidence in which it was met, under whatever spelling of its url
(:func:`~drv_env.urls.canonical_url`).  Writing the same twice changes nothing, so that a build
which was cut short is simply run again.  It knows neither tools nor trajectories.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from drv_env.errors import DiskError, SettingError
from drv_env.unicode_text import sound_text
from drv_env.urls import canonical_url
from drv_env.whole_files import disk_fault, disk_faults_told, told
from drv_env.worlds.world import Page

_SCHEMA = """
CREATE TABLE IF NOT EXISTS pages (
    id INTEGER PRIMARY KEY, world TEXT NOT NULL, url TEXT NOT NULL, title TEXT NOT NULL,
    UNIQUE (world, url)
);
CREATE TABLE IF NOT EXISTS texts (
    page INTEGER NOT NULL, text TEXT NOT NULL, UNIQUE (page, text)
);
"""
_ADD_PAGE = """
INSERT INTO pages (world, url, title) VALUES (?, ?, ?)
ON CONFLICT (world, url) DO UPDATE SET title = excluded.title WHERE title = ''
"""
_ADD_TEXT = """
INSERT OR IGNORE INTO texts (page, text)
SELECT id, ? FROM pages WHERE world = ? AND url = ?
"""
_READ = """
SELECT canonical_url(pages.url) AS spelling, pages.url, pages.title, texts.text
FROM pages LEFT JOIN texts ON texts.page = pages.id
WHERE pages.world = ? ORDER BY spelling, pages.id, texts.rowid
"""


@dataclass(frozen=True, slots=True)
class Sighting:
    """One meeting with a page: ``title`` may be blank, ``texts`` empty."""

    url: str
    title: str
    texts: tuple[str, ...]


class PageFile:
    """The pages of some worlds.

    Args:
        path: the file; made unless ``read_only``.

    Raises:
        SettingError: when it can't be opened as such a file.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        path = Path(path).absolute()
        if read_only and not path.is_file():
            raise SettingError(f"there are no recorded pages at {path}")
        mode = "ro" if read_only else "rwc"
        try:
            self._connection = sqlite3.connect(f"{path.as_uri()}?mode={mode}", uri=True)
            self._connection.create_function("canonical_url", 1, canonical_url, deterministic=True)
            if not read_only:
                self._connection.executescript(_SCHEMA)
            self._connection.execute("SELECT count(*) FROM (SELECT 1 FROM texts LIMIT 1)")
        except sqlite3.Error as error:
            said = disk_fault(error)
            if said is not None:
                raise DiskError(told(path, said)) from error
            raise SettingError(f"{path} can't be used as recorded pages: {error}") from error
        self._path = path

    def add(self, world: str, sightings: Iterable[Sighting]) -> None:
        """Add what was seen of pages, in one transaction.

        Raises:
            DiskError: when the disk is full; nothing of it was added.
        """
        with disk_faults_told(self._path), self._connection:
            for sighting in sightings:
                url = sound_text(sighting.url)
                self._connection.execute(_ADD_PAGE, (world, url, sound_text(sighting.title)))
                for text in sighting.texts:
                    self._connection.execute(_ADD_TEXT, (sound_text(text), world, url))

    def worlds(self) -> list[str]:
        """Names of the worlds, in order."""
        found = self._connection.execute("SELECT DISTINCT world FROM pages ORDER BY world")
        return [name for (name,) in found]

    def count(self) -> int:
        """How many pages there are, in all worlds."""
        spellings = "SELECT DISTINCT world, canonical_url(url) FROM pages"
        (count,) = self._connection.execute(f"SELECT count(*) FROM ({spellings})").fetchone()
        return int(count)

    def pages(self, world: str) -> Iterator[Page]:
        """The pages of a world by url; a page without a title has its url for one.

        Of several spellings of a url the page has the one that was met first.
        """
        with closing(self._connection.execute(_READ, (world,))) as rows:
            for _, of_page in groupby(rows, lambda row: row[0]):
                met = list(of_page)
                url = met[0][1]
                title = next((title for _, _, title, _ in met if title), url)
                texts = dict.fromkeys(text for _, _, _, text in met if text is not None)
                yield Page(url, title, "\n".join(texts))

    def close(self) -> None:
        """Close the file; may be called twice."""
        self._connection.close()

    def __enter__(self) -> PageFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
