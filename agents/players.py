"""One episode's turns from a model: what both ways of rolling out share.

A player knows an engine and a chat template; it keeps one episode's transcript up with
it and gives the next turn.  It knows nothing of tools, of other episodes or of rewards.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from agents.engines.base import ChatEngine, Completion, Engine, Reply, Sampling
from agents.engines.checks import checked_completion, checked_reply
from agents.engines.turn_stops import is_cut, stop_end
from agents.robust import RobustSampling
from drv_env.context import ContextCounter
from drv_env.deadline import bounded
from drv_env.episode import Episode
from drv_env.errors import DrvError, EngineError, boundary
from drv_env.protocol import ReadingRule
from drv_env.spaces import SampledText
from replay.counter import TranscriptCounter
from replay.pieces import LONG
from replay.template import ChatTemplate
from replay.transcript import Transcript

T = TypeVar("T")

TURN_TIMEOUT = 1800.0
"""Seconds for one completion: 8,192 tokens at 5 tokens a second, and some waiting."""


class Player(Protocol):
    """Gives one episode's turns."""

    @property
    def transcript(self) -> Transcript | None:
        """The episode in tokens so far; None where nobody knows a tokenizer."""
        ...

    @property
    def counter(self) -> ContextCounter | None:
        """Counts the episode's context; None leaves it to the game's own counter."""
        ...

    async def act(self, episode: Episode) -> str:
        """The next turn, to be played; it is in the transcript already.

        Raises:
            EngineError: when there is none; the transcript then ends before this turn.
        """
        ...

    async def prepare(self, message: str) -> None:
        """Encode a long observation that is about to come, on a thread."""
        ...


@dataclass(frozen=True, slots=True)
class Kept(Generic[T]):
    """A turn that was sampled and kept.

    Attributes:
        done: what the engine gave.
        text: the whole turn.
        attempts: completions sampled for it, this one included.
        seconds: they took, waiting included.
    """

    done: T
    text: str
    attempts: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TurnSettings:
    """How the turns of one episode are sampled.

    Attributes:
        sampling: of every turn; its seed is set from ``seed``.
        seed: words that fix the randomness of the episode, or None for the engine's own.
        robust: when to sample a turn again; None keeps the first.
        timeout: seconds for one completion.
        limit: entered while the engine works on a request.
    """

    sampling: Sampling
    seed: tuple[int, ...] | None = None
    robust: RobustSampling | None = None
    timeout: float = TURN_TIMEOUT
    limit: AbstractAsyncContextManager[Any] | None = None

    def _request(self, turn: int, attempt: int) -> Sampling:
        """The sampling of one request, its seed set by the episode's, turn and attempt."""
        if self.seed is None:
            return self.sampling
        words = np.random.SeedSequence([*self.seed, turn, attempt]).generate_state(1, np.uint64)
        return replace(self.sampling, seed=int(words[0] >> np.uint64(11)))  # exact in JSON

    async def kept(
        self,
        episode: Episode,
        ask: Callable[[Sampling], Coroutine[Any, Any, T]],
        read: Callable[[T], tuple[str, NDArray[np.int32]]],
    ) -> Kept[T]:
        """Sample the next turn, again where it is thrown away.

        Args:
            episode: as it stands before the turn.
            ask: one request to the engine.
            read: what it gave as text, and the ids or characters that may repeat.

        Raises:
            EngineError: for whatever goes wrong.
        """
        started = time.perf_counter()
        attempts = 0
        while True:
            attempts += 1
            done = await self._within(partial(ask, self._request(len(episode.turns), attempts)))
            with as_engine_error():
                text, units = read(done)
            if self.robust is None or not self.robust.again(attempts, episode, text, units):
                return Kept(done, text, attempts, time.perf_counter() - started)

    async def _within(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What the engine gives, in its turn and in time.

        Raises:
            EngineError: for whatever goes wrong.
        """
        async with nullcontext() if self.limit is None else self.limit:
            with as_engine_error():
                return await bounded(work(), self.timeout, EngineError, "completion")


class TokenPlayer:
    """Plays on an engine that takes and gives ids.

    A stop text ends a turn behind its call or answer.  Where the engine has ended the turn at
    one that a thought, a string or an answer only mentions, it is asked again without stop
    texts: with the same seed, so that the turn goes on as it began.

    Args:
        engine: generates.
        template: how messages become ids.
        settings: how turns are sampled.
    """

    def __init__(self, engine: Engine, template: ChatTemplate, settings: TurnSettings) -> None:
        self.transcript = Transcript(template)
        self.counter = TranscriptCounter(self.transcript)
        self._engine = engine
        self._template = template
        self._settings = settings
        own = getattr(engine, "vocabulary", None)  # of a model, whose embeddings may be padded
        self._vocabulary = own if type(own) is int else template.pieces.size

    async def act(self, episode: Episode) -> str:
        """The next turn; see :class:`Player`."""
        catch_up(self.transcript, episode)
        ask = partial(self._ask, episode.rules.reading)
        kept = await self._settings.kept(episode, ask, self._read)
        done = kept.done
        with as_engine_error():
            self.transcript.completion(
                done.ids,
                done.log_probs,
                done.weight_version,
                done.finish,
                attempts=kept.attempts,
                seconds=kept.seconds,
            )
        return SampledText(kept.text, len(done.ids))

    async def prepare(self, message: str) -> None:
        """Encode a long observation; see :class:`Player`."""
        await _prepared(self.transcript, message)

    async def _ask(self, rule: ReadingRule, sampling: Sampling) -> Completion:
        """One completion; one that a stop text cuts where it is only mentioned comes whole."""
        done = await self._generate(sampling)
        if not sampling.stop or done.finish != "stop" or int(done.ids[-1]) in sampling.stop_ids:
            return done
        if not is_cut(self._template.completion_text(done.ids), rule):
            return done
        whole = await self._generate(replace(sampling, stop=()))
        end = stop_end(self._template.completion_text(whole.ids), sampling.stop, rule)
        if end is None:
            return whole
        counts = range(len(whole.ids) + 1)
        count = bisect_left(counts, end, key=lambda count: self._length(whole.ids[:count]))
        return replace(
            whole, ids=whole.ids[:count], log_probs=whole.log_probs[:count], finish="stop"
        )

    def _length(self, ids: NDArray[np.int32]) -> int:
        """Characters of a turn so far."""
        return len(self._template.completion_text(ids))

    async def _generate(self, sampling: Sampling) -> Completion:
        done = await self._engine.generate(self.transcript.ids, sampling)
        return checked_completion(done, sampling.max_tokens, self._vocabulary)

    def _read(self, done: Completion) -> tuple[str, NDArray[np.int32]]:
        if done.finish == "aborted":
            raise EngineError("the engine ended the completion early")
        ids = done.ids
        if len(ids) and int(ids[-1]) in self._template.stop_ids:
            ids = ids[:-1]  # it ends a repetition and is no part of it
        return self._template.completion_text(done.ids), ids


class ChatPlayer:
    """Plays on a server that takes and gives text.

    Args:
        engine: replies.
        template: for a transcript encoded again from text, and marked so; None keeps none.
        settings: how turns are sampled.
    """

    def __init__(
        self, engine: ChatEngine, template: ChatTemplate | None, settings: TurnSettings
    ) -> None:
        self.transcript = None if template is None else Transcript(template, reencoded=True)
        self.counter = None if self.transcript is None else TranscriptCounter(self.transcript)
        self._engine = engine
        self._settings = settings

    async def act(self, episode: Episode) -> str:
        """The next turn; see :class:`Player`."""

        async def ask(sampling: Sampling) -> Reply:
            return checked_reply(await self._engine.reply(episode.messages, sampling))

        kept = await self._settings.kept(episode, ask, _read_reply)
        reply = kept.done
        if self.transcript is None:
            return reply.text if reply.tokens is None else SampledText(reply.text, reply.tokens)
        catch_up(self.transcript, episode)
        ids = self.transcript.template.encode_turn(reply.text)
        self.transcript.completion(
            ids,
            finish=reply.finish,
            attempts=kept.attempts,
            seconds=kept.seconds,
        )
        return SampledText(reply.text, len(ids))

    async def prepare(self, message: str) -> None:
        """Encode a long observation; see :class:`Player`."""
        if self.transcript is not None:
            await _prepared(self.transcript, message)


def _read_reply(reply: Reply) -> tuple[str, NDArray[np.int32]]:
    shown = reply.text.rstrip()  # empty lines at the end are no repetition
    return reply.text, np.frombuffer(shown.encode("utf-32-le", "surrogatepass"), np.int32)


@contextmanager
def as_engine_error() -> Iterator[None]:
    """Whatever goes wrong with an engine is an :class:`EngineError`, whoever named it otherwise."""
    try:
        with boundary(EngineError, "engine"):
            yield
    except EngineError:
        raise
    except DrvError as error:
        raise EngineError(f"engine: {error}") from error


def catch_up(transcript: Transcript, episode: Episode) -> None:
    """Bring a transcript to where the episode's next turn begins."""
    if not episode.turns:
        transcript.prompt(episode.opening)
        return
    observation = episode.turns[-1].observation
    assert observation is not None  # the episode goes on, so its last turn was answered
    transcript.observation(observation.message)


async def _prepared(transcript: Transcript, message: str) -> None:
    """What was counted is kept, so the event loop has nothing left to encode."""
    if len(message) >= LONG:
        await asyncio.to_thread(transcript.count_observation, message)
