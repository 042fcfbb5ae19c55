"""A tokenizer split in two: control tokens that a template writes, and plain text.

This file knows the ``tokenizers`` library's JSON and nothing of chats.  It answers two
questions: which control tokens stand in a text that *we* wrote (:meth:`Pieces.split`),
and what the ids of a text that *anyone* wrote are (:meth:`Pieces.encode_plain`), with
every added token switched off, special or not.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from drv_env.errors import SettingError
from drv_env.json_files import read_object
from drv_env.unicode_text import sound_text
from replay.model_folders import fetching, told_inside

Ids = NDArray[np.int32]
Piece = int | str
"""A control token's id, or a stretch of plain text."""


def read_tokenizer(file: str | Path) -> Tokenizer:
    """The tokenizer of a ``tokenizer.json``.

    Raises:
        SettingError: naming the file, when it is missing, can't be read or holds none.
    """
    file = Path(file)
    if not file.is_file():
        inside = told_inside(file.parent, file.name)
        raise SettingError(
            f"no {file.name} in {file.parent}: save a fast tokenizer there"
            f"{inside or fetching(file.parent)}"
        )
    read_object(file)  # whose words about damage are better
    try:
        return Tokenizer.from_file(str(file))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library panics too
        raise SettingError(f"{file} holds no tokenizer that can be read: {error}") from error


LONG = 2_000
"""Characters from which a text is encoded without holding up other threads."""


class Pieces:
    """Encodes text with control tokens only where they were asked for.

    A *control id* is the id of any added token, except the unknown token (which any
    foreign character may give) and added tokens of one character that aren't special.

    Guarantee: text between two control tokens has the ids that the tokenizer itself
    gives it in that place whenever it spells no added token; where it does spell one,
    it is made of ordinary pieces.  A vocabulary without an ordinary spelling of some
    text gives its unknown token.

    Attributes:
        tokenizer: as it was given.
        digest: SHA-256 of the tokenizer, in hexadecimal.
        added: contents of the control tokens by their ids.

    Args:
        tokenizer: left unchanged; its post-processor, truncation and padding are not used.

    Raises:
        SettingError: when the tokenizer can't be rebuilt without its added tokens.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        try:
            stored = tokenizer.to_str()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            raise SettingError(f"this tokenizer can't be used: {error}") from error
        self.digest = hashlib.sha256(stored.encode()).hexdigest()
        document = json.loads(stored)
        document |= {"post_processor": None, "truncation": None, "padding": None}
        self._literal = _literal_tokens(document["added_tokens"])
        self._marking: Tokenizer | None = None
        if self._literal is None:
            self._marking = Tokenizer.from_str(json.dumps(document))
        self._ids = {token["content"]: token["id"] for token in document["added_tokens"]}
        unknown = _unknown_token(document["model"])
        self.added: dict[int, str] = {
            token["id"]: token["content"]
            for token in document["added_tokens"]
            if token["content"] != unknown and (token["special"] or len(token["content"]) > 1)
        }
        highest = max([*self.added, *tokenizer.get_vocab().values()], default=0)
        self._is_control = np.zeros(highest + 1, dtype=bool)
        self._is_control[list(self.added)] = True
        document["added_tokens"] = []
        try:
            _make_unreachable(document["model"], self.added)
            self._first = Tokenizer.from_str(json.dumps(document))
            inner = self._first
            if _prefix_only_first(document.get("pre_tokenizer")):
                inner = Tokenizer.from_str(json.dumps(document))
        except Exception as error:
            raise SettingError(
                "this tokenizer can't be used without its added tokens "
                f"({type(error).__name__}: {error}); use a BPE, Unigram, WordLevel or WordPiece one"
            ) from error
        self._inner = inner

    @property
    def size(self) -> int:
        """One more than the highest id."""
        return len(self._is_control)

    def id_of(self, token: str) -> int | None:
        """The id of an added token, or None when there is no such token."""
        return next((id_ for id_, content in self.added.items() if content == token), None)

    def split(self, text: str) -> list[Piece]:
        """Trusted text as control ids and the stretches of plain text between them."""
        text = sound_text(text)
        pieces: list[Piece] = []
        end = 0
        for id_, (start, stop) in self._marked(text):
            if id_ in self.added:
                if start > end:
                    pieces.append(text[end:start])
                pieces.append(id_)
                end = stop
        if end < len(text):
            pieces.append(text[end:])
        return pieces

    def _marked(self, text: str) -> Iterable[tuple[int, tuple[int, int]]]:
        """Ids with their characters, at least those of the added tokens, in order."""
        if self._literal is None:
            assert self._marking is not None
            encoding = self._marking.encode(text, add_special_tokens=False)
            return zip(encoding.ids, encoding.offsets, strict=True)
        return ((self._ids[found[0]], found.span()) for found in self._literal.finditer(text))

    def encode(self, pieces: Iterable[Piece], at_start: bool = False) -> Ids:
        """The ids of pieces in a row; neighbouring texts are encoded as one.

        Args:
            at_start: whether the first piece opens the whole sequence, where some
                vocabularies put a space in front.
        """
        parts: list[Ids] = []
        for piece in _merged(pieces):
            if isinstance(piece, int):
                parts.append(np.array([piece], np.int32))
            else:
                first = at_start and not parts
                parts.append(self._plain_ids(piece, self._first if first else self._inner))
        return np.concatenate(parts) if parts else np.zeros(0, np.int32)

    def encode_plain(self, text: str) -> Ids:
        """The ids of untrusted text alone; takes time linear in it."""
        return self.encode([text])

    def plain_offsets(self, text: str) -> tuple[Ids, list[tuple[int, int]]]:
        """Ids of untrusted text with the ``(start, stop)`` characters of each."""
        encoding = self._inner.encode(sound_text(text), add_special_tokens=False)
        return self._checked(encoding.ids), encoding.offsets

    def decode(self, ids: Iterable[int]) -> str:
        """Text of ids, control tokens included."""
        return self.tokenizer.decode([int(i) for i in ids], skip_special_tokens=False)

    def _plain_ids(self, text: str, tokenizer: Tokenizer) -> Ids:
        text = sound_text(text)
        if len(text) < LONG:
            return self._checked(tokenizer.encode(text, add_special_tokens=False).ids)
        # the same ids, and other threads run meanwhile: encode() keeps the interpreter's lock
        return self._checked(tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids)

    def _checked(self, found: list[int]) -> Ids:
        """Web text is never control text: better no transcript than a forged one."""
        ids = np.asarray(found, np.int32)
        if self._is_control[ids].any():
            bad = sorted({self.added[i] for i in found if i in self.added})
            raise SettingError(f"the tokenizer makes control tokens of plain text: {bad}")
        return ids


def _literal_tokens(added: list[dict[str, Any]]) -> re.Pattern[str] | None:
    """Finds the added tokens as the tokenizer does: the leftmost, of these the longest.

    None where the tokenizer looks at more than their letters, and must be asked itself.
    """
    looks = ("normalized", "lstrip", "rstrip", "single_word")
    if not added or any(token[name] for token in added for name in looks):
        return None
    contents = sorted((token["content"] for token in added), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, contents)))


def _merged(pieces: Iterable[Piece]) -> Iterator[Piece]:
    texts: list[str] = []
    for piece in pieces:
        if isinstance(piece, str):
            texts.append(piece)
            continue
        if any(texts):
            yield "".join(texts)
        texts = []
        yield piece
    if any(texts):
        yield "".join(texts)


def _unknown_token(model: dict[str, Any]) -> str | None:
    if model["type"] == "Unigram":
        index = model.get("unk_id")
        return None if index is None else model["vocab"][index][0]
    return model.get("unk_token")


def _make_unreachable(model: dict[str, Any], added: dict[int, str]) -> None:
    """Take the added tokens out of the model's own vocabulary, where they stand in it."""
    if model["type"] == "Unigram":
        # A list by id: an entry can't go, so it gets a name that no text can guess.
        for entry in (model["vocab"][i] for i in added if i < len(model["vocab"])):
            entry[0] = secrets.token_hex(16)
        return
    vocabulary = model["vocab"]
    gone = {token for token, id_ in vocabulary.items() if id_ in added}
    for token in gone:
        del vocabulary[token]
    if model["type"] == "BPE" and gone:
        prefix = model.get("continuing_subword_prefix") or ""
        model["merges"] = [
            merge
            for merge in model["merges"]
            if not gone & {*(pair := _pair(merge)), pair[0] + pair[1].removeprefix(prefix)}
        ]


def _pair(merge: str | list[str]) -> tuple[str, str]:
    left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
    return left, right


def _prefix_only_first(pre_tokenizer: dict[str, Any] | None) -> bool:
    """Turn "a space before the first word only" to never; say whether it was there."""
    if pre_tokenizer is None:
        return False
    found = False
    for part in [pre_tokenizer, *pre_tokenizer.get("pretokenizers", [])]:
        if part.get("type") == "Metaspace" and part.get("prepend_scheme") == "first":
            part["prepend_scheme"] = "never"
            found = True
    return found
