"""Trajectories as token documents on disk, memory-mapped: ids, loss masks, weights.

A folder of shards.  Shard n is ``shard-NNNNN.ids.npy`` (int32), ``shard-NNNNN.mask.npy``
(bool, True at the agent's tokens) and ``shard-NNNNN.json`` (where each document starts, its
weight, its source, what was cut), which is written last.  ``index.json`` has the settings
and the totals, and is written when all shards are there.

Shards are cut by the documents' sizes, never by who makes them: the same trajectories and
settings give the same bytes with any number of processes.  A shard carries a digest of its
texts and settings; a run that was cut short is run again and makes only what is missing.
``.building.json`` stands there meanwhile: up to which number shards are ours to replace and
remove.

Here are the format and its reader; :mod:`replay.token_writer` makes such a folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drv_env.errors import SettingError
from drv_env.whole_files import read_json
from replay.documents import Counts, Document, RowSettings
from replay.own_folder import FolderKind
from replay.template import ChatTemplate

VERSION = 1

INDEX, BUILDING = "index.json", ".building.json"
KIND = FolderKind(
    "a store of token documents",
    {
        BUILDING: {"token_documents": int, "shards": int},
        INDEX: {"version": int, "fingerprint": str, "shards": int, "counts": dict},
    },
)
ENDINGS = ("ids.npy", "mask.npy", "json")


class TokenStore:
    """Documents of a folder made by :func:`replay.token_writer.write_documents`, memory-mapped.

    Attributes:
        lengths: int64 ``(documents,)``.
        weights: float64 ``(documents,)``.
        sources: recording ids, see :func:`replay.recorded.recording_id`.
        counts: what was kept and cut when it was made.

    Raises:
        SettingError: when the folder holds no finished documents of this version, or none
            at all.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        index = read_json(self.path / INDEX)
        if not isinstance(index, dict) or index.get("version") != VERSION:
            raise SettingError(
                f"{self.path} holds no finished token documents of version {VERSION}; make them, "
                "or run to the end: drv data rows TRAJECTORIES… --out FOLDER"
            )
        self.index: dict[str, Any] = index
        lengths: list[int] = []
        weights: list[float] = []
        self.sources: list[str] = []
        places: list[tuple[int, int]] = []
        self._maps: dict[int, tuple[NDArray[Any], NDArray[Any]]] = {}
        with _damage(self.path / INDEX):
            self.counts = Counts(**index["counts"])
            self.max_tokens = RowSettings(**index["settings"]).max_tokens
            shards = range(index["shards"])
        for shard in shards:
            file = shard_path(self.path, shard, "json")
            about = read_json(file)
            if not isinstance(about, dict):
                raise SettingError(f"shard {shard} of {self.path} is missing; make them again")
            with _damage(file):
                sizes = np.asarray(about["lengths"], np.int64)
                shares = [float(weight) for weight in about["weights"]]
                if not len(sizes) == len(shares) == len(about["sources"]):
                    raise ValueError("it has different numbers of lengths, weights and sources")
                if (sizes < 1).any() or not all(0 <= share < 1e6 for share in shares):
                    raise ValueError("a length or weight can't be")
                self._arrays(shard, int(sizes.sum()))
            starts = [0, *np.cumsum(sizes).tolist()]
            places += [(shard, start) for start in starts[:-1]]
            lengths += sizes.tolist()
            weights += shares
            self.sources += about["sources"]
        if not lengths:
            raise SettingError(
                f"{self.path} holds no document: no trajectory kept a token to learn; make it again"
            )
        self.lengths: NDArray[np.int64] = np.asarray(lengths, np.int64)
        self.weights: NDArray[np.float64] = np.asarray(weights, np.float64)
        self._places = places

    def outside(self, vocabulary: int) -> list[tuple[int, str]]:
        """Documents with an id that the vocabulary doesn't have, each with its place in words.

        Reads all ids once.

        Args:
            vocabulary: ids are from 0 to this, exclusive.
        """
        found = []
        for number, (shard, start) in enumerate(self._places):
            ids = self[number].ids
            wrong = np.flatnonzero((ids < 0) | (ids >= vocabulary))
            if wrong.size:
                file = shard_path(self.path, shard, "ids.npy")
                place = start + int(wrong[0])
                told = f"{file}, row {number}: id {int(ids[wrong[0]])} at {place} is none of the "
                found.append((number, f"{told}{vocabulary:,} of the vocabulary"))
        return found

    def _arrays(self, shard: int, size: int | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
        """A shard's ids and mask, memory-mapped; checked where its size is given."""
        if shard not in self._maps or size is not None:
            self._maps[shard] = open_arrays(self.path, shard, size)
        return self._maps[shard]

    def made_with(self, template: ChatTemplate) -> bool:
        """Whether the documents were made with this tokenizer and chat template."""
        settings = RowSettings(**self.index["settings"])
        return bool(self.index["fingerprint"] == fingerprint(template, settings))

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, number: int) -> Document:
        """A document; its arrays are views of the files, read-only."""
        shard, start = self._places[number]
        stop = start + int(self.lengths[number])
        ids, mask = self._arrays(shard)
        return Document(ids[start:stop], mask[start:stop])

    def __iter__(self) -> Iterator[Document]:
        return (self[number] for number in range(len(self)))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": {}}


def fingerprint(template: ChatTemplate, settings: RowSettings) -> str:
    """What the ids depend on besides the texts."""
    digest = hashlib.sha256(template.pieces.digest.encode())
    probe = [{"role": "user", "content": "question"}]
    digest.update(repr((VERSION, template.scaffold, template.render(probe))).encode())
    digest.update(repr((template.end_of_turn, sorted(asdict(settings).items()))).encode())
    return digest.hexdigest()


def open_arrays(
    folder: Path, shard: int, size: int | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """A shard's ids and mask, memory-mapped.

    Raises:
        OSError, EOFError, ValueError: where they are missing, damaged, or not of this size.
    """
    files = [shard_path(folder, shard, f"{kind}.npy") for kind in ("ids", "mask")]
    ids, mask = (np.load(file, mmap_mode="r") for file in files)
    kinds = (ids.dtype, mask.dtype)
    if size is not None and (
        kinds != (np.int32, np.bool_) or not ids.shape == mask.shape == (size,)
    ):
        raise ValueError(f"its arrays are not {size:,} ids and marks")
    return ids, mask


def shard_path(folder: Path, number: int, ending: str) -> Path:
    """A file of a shard; ``ending`` is one of ``ENDINGS``."""
    return folder / f"shard-{number:05}.{ending}"


@contextmanager
def _damage(file: Path) -> Iterator[None]:
    """What can't be in a file of a store is told with its name."""
    try:
        yield
    except (OSError, EOFError, ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise SettingError(
            f"{file} or what belongs to it is damaged ({error}); make the documents again"
        ) from error
