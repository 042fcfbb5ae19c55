"""An episode in tokens: ids that only grow, and what each stretch of them is.

A transcript knows a chat template and nothing of rewards, tools or models.  It is
written in one order: the prompt, then completion and observation by turns, the last
completion without an observation.  Sampled ids are appended as they are and never
decoded and encoded again; each call costs time in what it adds, not in what is there.

Turns are counted from 1: turn t is the t-th completion and the observation after it.
Turn 0 is the prompt.

Text of an observation never becomes a control token, whatever it spells, and is not
altered, except that lone surrogates (no Unicode text) become U+FFFD.  The stretch of
plain text in which it stands, the line breaks of its wrapper included, has the ids that
the tokenizer gives that stretch with all its added tokens switched off.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from drv_env.protocol import observation_body
from replay.pieces import Ids
from replay.template import ChatTemplate, Messages

SpanKind = Literal["prompt", "completion", "observation"]


@dataclass(frozen=True, slots=True)
class Span:
    """Ids ``start`` to ``stop`` (exclusive) of a transcript.

    Attributes:
        kind: ``observation`` spans hold all that follows a completion: the end of the
            turn where the model had not sampled it, the message and the next
            generation prompt.
        turn: 0 for the prompt, else the turn it belongs to.
    """

    kind: SpanKind
    start: int
    stop: int
    turn: int


@dataclass(frozen=True, slots=True)
class Sampled:
    """What the engine said of one completion besides its ids.

    Attributes:
        log_probs: float32, one per id of the completion; None where unknown (a recorded
            or scripted turn).
        weight_version: of the weights that sampled it; None where unknown.
        finish: why it ended: ``stop``, ``length`` or ``aborted``.
        attempts: how many completions were sampled for this turn, the kept one included.
        seconds: that the engine took for them, waiting included; None where unknown.
    """

    log_probs: NDArray[np.float32] | None
    weight_version: int | None
    finish: str
    attempts: int
    seconds: float | None


class Transcript:
    """Append-only ids of one episode.

    Args:
        template: how messages become ids; None only for a transcript read back from a
            record, which then can't grow.
        reencoded: True where completions are not what was sampled but text encoded
            again, as with servers that speak text only.  Such a transcript is not to be
            trained on with log-probs.

    Example (``template`` is a :class:`replay.template.ChatTemplate`)::

        transcript = Transcript(template)
        transcript.prompt(episode.opening)
        done = await engine.generate(transcript.ids, sampling)
        transcript.completion(done.ids, done.log_probs, done.weight_version, done.finish)
        transcript.observation(message)
    """

    def __init__(self, template: ChatTemplate | None, *, reencoded: bool = False) -> None:
        self.reencoded = reencoded
        self._template = template
        self._buffer = np.zeros(256, np.int32)
        self._length = 0
        self._spans: list[Span] = []
        self._sampled: list[Sampled] = []
        self._counted: tuple[str, bool, Ids] | None = None
        self._counted_prompt: tuple[list[dict[str, str]], set[str], Ids] | None = None

    # ---- growing -------------------------------------------------------------------

    def prompt(self, messages: Messages, trusted_roles: Collection[str] = ("system",)) -> Span:
        """Append the opening messages and the first generation prompt.

        Raises:
            ValueError: when the transcript is not empty.
            SettingError: as :meth:`replay.template.ChatTemplate.prompt`.
        """
        if self._spans:
            raise ValueError("a transcript has one prompt, at its start")
        ids = self._prompt_ids(messages, trusted_roles)
        self._counted_prompt = None
        return self._append("prompt", ids, 0)

    def completion(
        self,
        ids: ArrayLike,
        log_probs: ArrayLike | None = None,
        weight_version: int | None = None,
        finish: str = "stop",
        *,
        attempts: int = 1,
        seconds: float | None = None,
    ) -> Span:
        """Append the ids of one assistant turn just as they were sampled.

        Args:
            ids: the stop token included, if one was sampled.
            log_probs: one per id, or None where unknown.
            weight_version, finish, attempts, seconds: see :class:`Sampled`.

        Raises:
            ValueError: when it isn't the assistant's turn, or counts don't match.
        """
        if not self._spans or self._spans[-1].kind == "completion":
            raise ValueError("a completion follows the prompt or an observation")
        sampled = np.asarray(ids, np.int32).reshape(-1)
        probabilities = None
        if log_probs is not None:
            probabilities = np.asarray(log_probs, np.float32).reshape(-1)
            if len(probabilities) != len(sampled):
                raise ValueError(f"{len(sampled)} ids but {len(probabilities)} log-probs")
        self._sampled.append(Sampled(probabilities, weight_version, finish, attempts, seconds))
        return self._append("completion", sampled, self.turns)

    def observation(self, message: str) -> Span:
        """Append what came back, and the generation prompt of the next turn.

        Args:
            message: the whole message, ``<tool_response>\\n…\\n</tool_response>``.

        Raises:
            ValueError: when no completion came before, or the message has no wrapper.
        """
        ids = self._observation_ids(message)
        self._counted = None
        return self._append("observation", ids, self.turns)

    def count_prompt(self, messages: Messages, trusted_roles: Collection[str] = ("system",)) -> int:
        """How many ids :meth:`prompt` would append; the messages are encoded only once.

        Raises:
            SettingError: as :meth:`prompt`.
        """
        return len(self._prompt_ids(messages, trusted_roles))

    def count_observation(self, message: str) -> int:
        """How many ids :meth:`observation` would append now; the text is encoded only once.

        Raises:
            ValueError: as :meth:`observation`.
        """
        return len(self._observation_ids(message))

    # ---- reading -------------------------------------------------------------------

    @property
    def template(self) -> ChatTemplate:
        """The template that turns messages into ids."""
        if self._template is None:
            raise ValueError("this transcript was read back without its template; pass one")
        return self._template

    @property
    def ids(self) -> Ids:
        """All ids so far, int32 (length,): a read-only view, not a copy."""
        view = self._buffer[: self._length]
        view.flags.writeable = False
        return view

    def __len__(self) -> int:
        return self._length

    @property
    def spans(self) -> Sequence[Span]:
        """The spans in order; together they cover all ids."""
        return tuple(self._spans)

    @property
    def turns(self) -> int:
        """Number of completions so far."""
        return len(self._sampled)

    @property
    def sampled(self) -> Sequence[Sampled]:
        """What is known of each completion, turn 1 first."""
        return tuple(self._sampled)

    @property
    def log_probs(self) -> Sequence[NDArray[np.float32] | None]:
        """Log-probs of each completion's ids, turn 1 first."""
        return [sampled.log_probs for sampled in self._sampled]

    @property
    def weight_versions(self) -> Sequence[int | None]:
        """Weight version of each completion, turn 1 first."""
        return [sampled.weight_version for sampled in self._sampled]

    def history_end(self, turn: int) -> int:
        """Number of ids up to where the assistant's next turn begins, after ``turn``.

        Args:
            turn: 0 for the history that is the prompt alone.

        Raises:
            ValueError: when there is no such turn, or nothing followed it.
        """
        for span in self._spans:
            if span.turn == turn and span.kind != "completion":
                return span.stop
        raise ValueError(f"no history ends after turn {turn}: no observation followed it")

    def mask(self) -> NDArray[np.bool_]:
        """True for each id that the agent sampled; bool (length,)."""
        mask = np.zeros(self._length, bool)
        for span in self._spans:
            mask[span.start : span.stop] = span.kind == "completion"
        return mask

    def completion_text(self, ids: Sequence[int] | Ids) -> str:
        """A completion as the whole turn to be read; see :class:`ChatTemplate`."""
        return self.template.completion_text(ids)

    # ---- storing -------------------------------------------------------------------

    def to_record(self) -> dict[str, Any]:
        """Plain arrays and lists for a Parquet row."""
        return {
            "ids": self.ids.copy(),
            "span_kinds": [span.kind for span in self._spans],
            "span_starts": np.array([span.start for span in self._spans], np.int32),
            "span_stops": np.array([span.stop for span in self._spans], np.int32),
            "log_probs": [sampled.log_probs for sampled in self._sampled],
            "weight_versions": [sampled.weight_version for sampled in self._sampled],
            "finishes": [sampled.finish for sampled in self._sampled],
            "attempts": [sampled.attempts for sampled in self._sampled],
            "seconds": [sampled.seconds for sampled in self._sampled],
            "reencoded": self.reencoded,
        }

    @classmethod
    def from_record(
        cls, record: Mapping[str, Any], template: ChatTemplate | None = None
    ) -> Transcript:
        """The transcript of a record; with the same template it can go on growing.

        Raises:
            ValueError: when the record's spans don't cover its ids in a valid order.
        """
        transcript = cls(template, reencoded=bool(record.get("reencoded")))
        ids = np.asarray(record["ids"], np.int32)
        if ids.size and int(ids.min()) < 0:
            raise ValueError(f"id {int(ids.min())} at {int(ids.argmin())} is negative")
        columns = (record["span_kinds"], record["span_starts"], record["span_stops"])
        count = len(record["finishes"])
        turns = zip(
            record["log_probs"],
            record["weight_versions"],
            record["finishes"],
            record.get("attempts") or [1] * count,
            record.get("seconds") or [None] * count,
            strict=True,
        )
        end = 0
        for kind, start, stop in zip(*columns, strict=True):
            follows = transcript._spans[-1].kind if transcript._spans else None
            within = end == int(start) <= int(stop) <= len(ids)
            if not within or not _may_follow(kind, follows):
                raise ValueError(f"span {kind} {start}:{stop} can't follow {follows} ending {end}")
            if kind == "completion":
                log_probs, version, finish, attempts, seconds = next(turns)
                transcript.completion(
                    ids[start:stop],
                    log_probs,
                    None if version is None else int(version),
                    str(finish),
                    attempts=int(attempts),
                    seconds=seconds,
                )
            else:
                transcript._append(cast(SpanKind, kind), ids[start:stop], transcript.turns)
            end = int(stop)
        if end != len(ids) or next(turns, None) is not None:
            raise ValueError(f"the spans end at {end}, the ids at {len(ids)}")
        return transcript

    # ---- inside --------------------------------------------------------------------

    def _append(self, kind: SpanKind, ids: Ids, turn: int) -> Span:
        start, stop = self._length, self._length + len(ids)
        if stop > len(self._buffer):
            grown = np.zeros(max(stop, 2 * len(self._buffer)), np.int32)
            grown[:start] = self._buffer[:start]
            self._buffer = grown  # earlier views keep the old buffer, whose ids are the same
        self._buffer[start:stop] = ids
        self._length = stop
        span = Span(kind, start, stop, turn)
        self._spans.append(span)
        return span

    def _prompt_ids(self, messages: Messages, trusted_roles: Collection[str]) -> Ids:
        asked = [dict(message) for message in messages], set(trusted_roles)
        if self._counted_prompt is None or self._counted_prompt[:2] != asked:
            self._counted_prompt = (*asked, self.template.prompt(messages, trusted_roles))
        return self._counted_prompt[2]

    def _observation_ids(self, message: str) -> Ids:
        last = self._spans[-1] if self._spans else None
        if last is None or last.kind != "completion":
            raise ValueError("an observation follows a completion")
        closed = last.stop > last.start and (
            int(self._buffer[last.stop - 1]) == self.template.end_of_turn
        )
        if self._counted is None or self._counted[:2] != (message, closed):
            ids = self.template.observation(observation_body(message), closed)
            self._counted = (message, closed, ids)
        return self._counted[2]


def _may_follow(kind: str, previous: str | None) -> bool:
    if previous is None:
        return kind == "prompt"
    return kind == ("observation" if previous == "completion" else "completion")
