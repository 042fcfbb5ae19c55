"""What stands in for the world in ``rollout.py``: texts, a tokenizer, a stub engine, slow tools.

Everything comes from a seed.  Turns and pages are made before the clock runs, so that what
is measured is the rollout; the time that the stub engine and the tools take themselves is
counted, to be taken off.
"""

import asyncio
import random
import time
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray
from sft_data import WORDS, qwen_tokenizer
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from agents.engines.base import Completion, Ids, Sampling, Spans
from drv_env.episode import Rules
from drv_env.protocol import (
    CALL,
    END_CALL,
    END_RESPONSE,
    END_THINK,
    RESPONSE,
    THINK,
    Answer,
    Search,
    Visit,
    render_search,
    render_turn,
    render_visit,
)
from drv_env.tasks import Task
from drv_env.tools.base import SEARCH_SCHEMA, VISIT_SCHEMA, Call, Clock, ToolResult
from replay.chat_templates import CHATML
from replay.template import ChatTemplate

TURNS = 20
"""Of an episode: 19 with a call, and the answer."""

RULES = Rules(max_turns=TURNS)
SAMPLING = Sampling(max_tokens=512)


class Texts:
    """Invented prose, some words far commoner than others; searches, pages and turns of it.

    Args:
        seed: of everything.
        variants: how many different turns there are for each place in an episode.
        pages: how many different observations, half of them search results.
    """

    def __init__(self, seed: int = 0, variants: int = 8, pages: int = 200) -> None:
        self._rng = random.Random(seed)
        letters = "eeeetttaaaooiinnsshhrrddlcumwfgypbvk"
        self._words = [
            "".join(self._rng.choices(letters, k=self._rng.randint(2, 9))) for _ in range(20_000)
        ]
        self._weights = list(accumulate(1 / (rank + 3) for rank in range(len(self._words))))
        self.turns = [[self._turn(place) for _ in range(variants)] for place in range(TURNS)]
        self.pages = [self._page(number) for number in range(pages)]

    def prose(self, least: int, most: int) -> str:
        """So many words, with full stops."""
        words = self._rng.choices(
            self._words, cum_weights=self._weights, k=self._rng.randint(least, most)
        )
        for at in range(9, len(words), 13):
            words[at] += "."
        return " ".join(words)

    def _turn(self, place: int) -> str:
        thought = self.prose(60, 140)
        if place == TURNS - 1:
            return render_turn(thought, Answer(self.prose(1, 4)))
        if place % 2 == 0:
            return render_turn(thought, Search((f"{self.prose(4, 9)} {place}",)))
        url = f"https://example.org/{self._rng.random()}"
        return render_turn(thought, Visit((url,), self.prose(5, 12)))

    def _page(self, number: int) -> str:
        if number % 2:
            url = f"https://example.org/{number}"
            return render_visit(url, self.prose(5, 12), self.prose(500, 900), self.prose(60, 120))
        hits = [
            {
                "title": self.prose(3, 8),
                "url": f"https://example.org/{self._rng.random()}",
                "snippet": self.prose(30, 60),
            }
            for _ in range(10)
        ]
        return render_search([(self.prose(3, 8), hits)])


@dataclass
class World:
    """Texts with a tokenizer for them.

    Attributes:
        texts: turns and pages.
        tokenizer: Qwen's vocabulary where its package is there, else a trained one.
        name: of the vocabulary.
    """

    texts: Texts
    tokenizer: Tokenizer
    name: str

    @classmethod
    def make(cls, seed: int = 0) -> "World":
        """Invent the texts; read or train the vocabulary."""
        texts = Texts(seed)
        tokenizer = qwen_tokenizer()
        if tokenizer is not None:
            return cls(texts, tokenizer, "Qwen's vocabulary")
        return cls(texts, trained_tokenizer(texts.pages), "a trained vocabulary of 8,000")

    @cached_property
    def template(self) -> ChatTemplate:
        """ChatML around every message."""
        return ChatTemplate(self.tokenizer, CHATML)

    @cached_property
    def completions(self) -> list[list[NDArray[np.int32]]]:
        """The turns' ids, by place in the episode and variant."""
        encode = self.template.encode_turn
        return [[encode(text) for text in turns] for turns in self.texts.turns]

    def tasks(self, count: int) -> list[Task]:
        """Questions whose ids are their numbers."""
        return [
            Task(f"{self.texts.prose(20, 40)} {number}?", ("nobody",), str(number))
            for number in range(count)
        ]


def trained_tokenizer(texts: list[str]) -> Tokenizer:
    """A small byte-level BPE with ChatML's and the protocol's control tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=8_000, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tags = (THINK, END_THINK, CALL, END_CALL, RESPONSE, END_RESPONSE)
    tokenizer.add_tokens([AddedToken(tag, normalized=False) for tag in tags])
    return tokenizer


class StubEngine:
    """Answers at once with a turn that was made before.

    Attributes:
        spent: seconds of its own work so far.
    """

    def __init__(self, world: World) -> None:
        self.spent = 0.0
        self._end = world.template.end_of_turn
        self._turns = [
            [Completion(ids, np.full(len(ids), -1.0, np.float32), "stop", 0) for ids in variants]
            for variants in world.completions
        ]

    @property
    def weight_version(self) -> int:
        """Always the first."""
        return 0

    async def generate(self, ids: Ids, sampling: Sampling) -> Completion:
        """The turn that belongs here: each turn before left two ends of a message."""
        started = time.perf_counter()
        place = (int(np.count_nonzero(np.asarray(ids) == self._end)) - 2) // 2
        variants = self._turns[place]
        found = variants[(sampling.seed or 0) % len(variants)]
        self.spent += time.perf_counter() - started
        return found

    async def score(self, ids: Ids, spans: Spans) -> list[NDArray[np.float32]]:
        """Nobody asks."""
        raise NotImplementedError

    async def update_weights(self, source: object) -> int:
        """Nobody asks."""
        raise NotImplementedError

    async def pause(self) -> None:
        """Nothing to hold."""

    async def resume(self) -> None:
        """Nothing was held."""

    async def close(self) -> None:
        """Nothing to give back."""


class SlowTools:
    """Tools that give a page after the seconds set for this call; at once without any.

    Args:
        pages: the observations.
        latencies: (episodes, calls) seconds; a task's id is its row.

    Attributes:
        spent: seconds of their own work so far.
    """

    schemas = (SEARCH_SCHEMA, VISIT_SCHEMA)
    clock: Clock = staticmethod(time.perf_counter)

    def __init__(self, pages: list[str], latencies: NDArray[np.float64] | None = None) -> None:
        self.spent = 0.0
        self.instant = latencies is None
        self._pages = pages
        self._latencies = latencies

    async def call(self, call: Call) -> ToolResult:
        """A page, the same one for the same turn of the same task."""
        started = time.perf_counter()
        number = int(call.task.id)
        result = ToolResult(self._pages[(7 * number + 13 * call.turn) % len(self._pages)])
        self.spent += time.perf_counter() - started
        if self._latencies is not None:
            await asyncio.sleep(self._latencies[number, call.turn - 1])
        return result

    async def close(self) -> None:
        """Nothing to give back."""
