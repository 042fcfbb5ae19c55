"""Cassettes: recorded results in a file, to be found again by what was asked."""

from drv_env.cassette.file import CassetteError
from drv_env.cassette.near import Near
from drv_env.cassette.records import Entry, Recorded, canonical
from drv_env.cassette.store import CassetteStore, KindStats, Merged

__all__ = [
    "CassetteError",
    "CassetteStore",
    "Entry",
    "KindStats",
    "Merged",
    "Near",
    "Recorded",
    "canonical",
]
