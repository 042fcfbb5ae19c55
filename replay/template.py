"""A tokenizer's chat template, learnt once: what stands around every message.

This file knows a Jinja template, a tokenizer's control tokens and the episode's shape
(system, question, then turns answered inside ``<tool_response>``).  It knows nothing of
models, rewards or how long an episode is.  The template is rendered on a few probe
conversations when the object is made; after that only the opening messages are ever
rendered, and every later turn is made of cached pieces.

A template is *append-only* when adding messages changes nothing of what it wrote
before.  One that re-spaces the thought (as Qwen3's does) is accepted, since sampled ids
are never rendered; one that drops or moves earlier text is refused.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from drv_env.errors import SettingError
from drv_env.json_files import read_object, read_text, why_unread
from drv_env.protocol import END_RESPONSE, RESPONSE
from drv_env.unicode_text import sound_text
from replay.jinja import compile_template
from replay.model_folders import model_folder
from replay.pieces import Ids, Piece, Pieces, read_tokenizer
from replay.scaffold import Scaffold, learn_scaffold, locate

Messages = Sequence[Mapping[str, str]]


class ChatTemplate:
    """Text to ids for one episode's messages.

    Attributes:
        name: for error messages.
        pieces: the tokenizer, with and without its control tokens.
        scaffold: the text around messages.
        opens_think: whether the generation prompt leaves a ``<think>`` open.
        generation_prefix: what the generation prompt has already written of the
            assistant's message (``"<think>\\n"``, say); it must be put in front of a
            decoded completion before it is read.
        end_of_turn: id of the token that ends an assistant message.
        stop_ids: ids at which generation should stop: ``end_of_turn`` and, where it is
            another one, the tokenizer's end-of-sequence token.

    Args:
        tokenizer: with its control tokens as added tokens.
        source: the Jinja text.
        special: special token strings by their names (``eos_token``, …), for the template.
        name: how error messages call the template.
        variables: further template variables, ``enable_thinking`` for instance.

    Raises:
        SettingError: when the template can't be rendered or isn't append-only.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        source: str,
        special: Mapping[str, str] | None = None,
        *,
        name: str = "chat template",
        variables: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.pieces = Pieces(tokenizer)
        special = dict(special or {})
        self._variables = {**special, **(variables or {})}
        self._compiled = compile_template(source, name)
        self.scaffold: Scaffold = learn_scaffold(self.render, name)
        self.generation_prefix = self.scaffold.generation_prefix
        self.opens_think = self.scaffold.opens_think
        self.end_of_turn, self._closing, rest = self._split_turn_end()
        self._before = [*rest, *self.pieces.split(f"{RESPONSE}\n")]
        self._after = self.pieces.split(f"\n{END_RESPONSE}{self.scaffold.turn_start}")
        eos = self.pieces.id_of(special.get("eos_token", ""))
        others = () if eos is None or eos == self.end_of_turn else (eos,)
        self.stop_ids: tuple[int, ...] = (self.end_of_turn, *others)
        self._structure = self._structural_tokens(eos)

    @classmethod
    def from_folder(
        cls,
        path: str | Path,
        *,
        chat_template: str | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> ChatTemplate:
        """Read ``tokenizer.json``, ``tokenizer_config.json`` and ``chat_template.jinja``.

        Args:
            path: a folder as Hugging Face's ``save_pretrained`` writes it, or the name of a model
                of the Hub that was fetched (:mod:`replay.model_folders`).
            chat_template: Jinja text to use instead of the folder's own.
            variables: as for the constructor.

        Raises:
            SettingError: naming a file that is missing, damaged, or holds no template.
        """
        folder = model_folder(path)
        tokenizer = read_tokenizer(folder / "tokenizer.json")
        config: dict[str, Any] = {}
        for config_name in ("special_tokens_map.json", "tokenizer_config.json"):
            if (folder / config_name).is_file():
                config |= read_object(folder / config_name)
        name = "the chat template passed in"
        if chat_template is None:
            chat_template, name = _stored_template(folder, config)
        return cls(
            tokenizer,
            chat_template,
            _special_strings(config),
            name=name,
            variables=variables,
        )

    def render(self, messages: Messages, generate: bool = True) -> str:
        """The template's text for messages, with the generation prompt or without.

        Raises:
            SettingError: when the template refuses the messages.
        """
        try:
            return self._compiled.render(
                messages=[dict(message) for message in messages],
                tools=self._variables.get("tools"),
                documents=None,
                add_generation_prompt=generate,
                **{key: value for key, value in self._variables.items() if key != "tools"},
            )
        except Exception as error:  # a template may compute anything
            roles = [message.get("role") for message in messages]
            raise SettingError(f"{self.name} can't render messages {roles}: {error}") from error

    def prompt(self, messages: Messages, trusted_roles: Collection[str] = ("system",)) -> Ids:
        """Ids of the opening messages and the generation prompt.

        Contents are plain text, except the system prompt's: what spells a control token
        in them is ordinary pieces.  Hugging Face's ``apply_chat_template`` gives the same
        ids for contents that spell none.

        Args:
            messages: ``role`` and ``content``, both text.
            trusted_roles: roles whose contents may write control tokens.  The system
                prompt is the caller's own and shows ``<tool_call>`` as the model was
                trained to see it.  Never a role whose text comes from elsewhere.

        Raises:
            ValueError: when a message isn't ``role`` and ``content``.
            SettingError: when the template can't render them, or changes a content in a
                way that can't be followed (other than by trimming its white space).
        """
        for message in messages:
            if set(message) != {"role", "content"} or not isinstance(message["content"], str):
                raise ValueError(f"a message must be a role and a text content: {message!r:.200}")
        texts = [sound_text(message["content"]) for message in messages]
        real = self.render([{**m, "content": t} for m, t in zip(messages, texts, strict=True)])
        marks: dict[int, str] = {
            index: f"mark{secrets.token_hex(8)}"
            for index in range(len(messages))
            if messages[index]["role"] not in trusted_roles
        }
        marked = self.render(
            [{**m, "content": marks.get(i, texts[i])} for i, m in enumerate(messages)]
        )
        parts = locate(marked, list(marks.values()))
        if isinstance(parts, str):
            raise SettingError(f"{self.name} drops, repeats or moves a message of the prompt")
        contents = _align(real, parts, [texts[index] for index in marks])
        if contents is None:
            raise SettingError(
                f"{self.name} rewrites the messages {[m['role'] for m in messages]}, so that "
                "their text can't be told from its own; take out what it reacts to (thoughts of "
                "assistant messages, <tool_response> in user messages) or use another template"
            )
        pieces: list[Piece] = list(self.pieces.split(parts[0]))
        for content, part in zip(contents, parts[1:], strict=True):
            pieces += [content, *self.pieces.split(part)]
        return self.pieces.encode(pieces, at_start=True)

    def observation(self, body: str, closed: bool) -> Ids:
        """Ids from the end of an assistant turn to where the next one begins.

        The wrapper's tags and the turn's scaffolding are control tokens; ``body`` never is.

        Args:
            body: the text inside ``<tool_response>``, unaltered.
            closed: whether the completion already ended with :attr:`end_of_turn`.
        """
        opening = [] if closed else self._closing
        return self.pieces.encode([*opening, *self._before, body, *self._after])

    def encode_turn(self, text: str) -> Ids:
        """A whole assistant turn, written by a script or read from a file, as a completion.

        The turn language's tags become the tokens that a model would sample; what spells
        the end of a turn or the start of a message stays plain.  The generation prefix is
        taken off the front where it stands there, and :attr:`end_of_turn` is appended.
        """
        text = sound_text(text)
        for prefix in (self.generation_prefix, self.generation_prefix.rstrip()):
            if prefix and text.startswith(prefix):
                text = text[len(prefix) :]
                break
        pieces: list[Piece] = []
        for index, part in enumerate(self._structure.split(text)):
            pieces += [part] if index % 2 else self.pieces.split(part)
        return self.pieces.encode([*pieces, self.end_of_turn])

    def completion_text(self, ids: Sequence[int] | Ids) -> str:
        """The whole assistant turn to be read: prefix put back, end-of-turn token taken off."""
        kept = [int(id_) for id_ in ids]
        if kept and kept[-1] in self.stop_ids:
            kept.pop()
        return self.generation_prefix + self.pieces.decode(kept)

    def _split_turn_end(self) -> tuple[int, list[Piece], list[Piece]]:
        """The end-of-turn token, the pieces up to and with it, and the rest."""
        pieces = self.pieces.split(self.scaffold.turn_end)
        closing = self.pieces.split(self.scaffold.closing)
        for index, (piece, alone) in enumerate(zip(pieces, closing, strict=False)):
            if isinstance(piece, int) and piece == alone:
                return piece, pieces[: index + 1], pieces[index + 1 :]
        raise SettingError(
            f"{self.name} ends an assistant's message with {self.scaffold.closing!r}, which "
            "holds no added token of this tokenizer, so a model can't say that its turn is over; "
            "add the token to the tokenizer or use another template"
        )

    def _structural_tokens(self, eos: int | None) -> re.Pattern[str]:
        """What would end a turn or open a message, for :meth:`encode_turn`."""
        header = self.scaffold.turn_start.removesuffix(self.generation_prefix)
        pieces = self.pieces.split(self.scaffold.turn_end + header)
        ids = {piece for piece in pieces if isinstance(piece, int)}
        if eos is not None:
            ids.add(eos)
        strings = sorted((self.pieces.added[id_] for id_ in ids), key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, strings))})")


def _align(real: str, parts: list[str], contents: list[str]) -> list[str] | None:
    """How each content stands in ``real`` between the template's own ``parts``.

    Each may have been trimmed at either end.  None when the text doesn't come out.
    """
    if not real.startswith(parts[0]):
        return None
    position = len(parts[0])
    found = []
    for index, content in enumerate(contents):
        part, last = parts[index + 1], index + 1 == len(contents)
        for variant in (content, content.strip(), content.lstrip(), content.rstrip()):
            end = position + len(variant)
            fits = real[end:] == part if last else real.startswith(part, end)
            if fits and real.startswith(variant, position):
                found.append(variant)
                position = end + len(part)
                break
        else:
            return None
    return found


def _stored_template(folder: Path, config: Mapping[str, Any]) -> tuple[str, str]:
    file = folder / "chat_template.jinja"
    if file.is_file():
        try:
            return read_text(file), f"the chat template of {file}"
        except (OSError, ValueError) as error:
            raise SettingError(f"{file} can't be read: {why_unread(error)}") from error
    stored = config.get("chat_template")
    if isinstance(stored, list):
        named = [entry for entry in stored if isinstance(entry, Mapping)]
        stored = next((e.get("template") for e in named if e.get("name") == "default"), None)
    if not isinstance(stored, str):
        raise SettingError(
            f"no chat template in {folder}: pass chat_template=, for instance "
            "replay.chat_templates.CHATML"
        )
    return stored, f"the chat template of {folder / 'tokenizer_config.json'}"


def _special_strings(config: Mapping[str, Any]) -> dict[str, str]:
    found = {}
    for key, value in config.items():
        if key.endswith("_token"):
            content = value.get("content") if isinstance(value, dict) else value
            if isinstance(content, str):
                found[key] = content
    return found
