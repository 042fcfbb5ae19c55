"""Rollouts through vLLM beside calling vLLM directly with the very same prompts.

A model of 160 thousand weights that knows nothing samples exactly so many ids a turn.  It
could not call a tool, so each time a turn made before takes the place of what it sampled;
all else is the real thing: the engine, the episodes, the transcripts that grow.

Runs as a process of its own, which ``rollout.py`` starts: vLLM needs half a minute to start,
and meanwhile other things can be done.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rollout_stub import SlowTools, StubEngine, World

from agents.engines.base import Completion, Ids, Sampling
from agents.rollout import RolloutSettings, rollout
from drv_env.episode import Rules
from drv_env.game import Game

Chains = list[list[list[int]]]
"""The prompts of each episode, turn after turn."""


@dataclass(frozen=True)
class Scale:
    """How much is sampled: one more turn than ``turns``, which is the answer's."""

    episodes: int
    at_once: int
    turns: int
    tokens: int
    rounds: int

    @property
    def sampled(self) -> int:
        """Ids in one round."""
        return self.episodes * (self.turns + 1) * self.tokens


class Steered(StubEngine):
    """The stub engine, behind an engine that samples as many ids as it may, in vain.

    Attributes:
        chains: prompts by episode.
    """

    def __init__(self, world: World, engine: Any) -> None:
        super().__init__(world)
        self._engine = engine
        self.chains: dict[Any, list[list[int]]] = {}

    async def generate(self, ids: Ids, sampling: Sampling) -> Completion:
        """A turn made before, once the engine has sampled."""
        self.chains.setdefault(asyncio.current_task(), []).append(ids)
        done = await self._engine.generate(ids, sampling)
        assert len(done.ids) == sampling.max_tokens, done.finish
        return await super().generate(ids, sampling)


def save_model(world: World, folder: str) -> None:
    """A tiny Qwen3 with random weights, and its tokenizer."""
    from transformers import PreTrainedTokenizerFast

    from trainers.tiny import TinySize, build_model

    build_model(world.tokenizer, 0, TinySize(context=32_768)).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=world.tokenizer, eos_token="<|im_end|>"
    ).save_pretrained(folder)


def roll_out(world: World, engine: Any, scale: Scale) -> tuple[float, Chains]:
    """Seconds of the rollout, and the prompts it made."""
    steered = Steered(world, engine)
    tasks = world.tasks(scale.episodes)
    game = Game(tasks, SlowTools(world.texts.pages), rules=Rules(max_turns=scale.turns))
    settings = RolloutSettings(max_episodes=scale.at_once)
    sampling = Sampling(max_tokens=scale.tokens)
    started = time.perf_counter()
    asyncio.run(rollout(game, steered, world.template, tasks, sampling, settings))
    seconds = time.perf_counter() - started
    chains = [[list(map(int, ids)) for ids in chain] for chain in steered.chains.values()]
    assert [len(chain) for chain in chains] == [scale.turns + 1] * scale.episodes
    return seconds, chains


async def direct(llm: Any, chains: Chains, scale: Scale) -> float:
    """Seconds of the same prompts, given to vLLM as soon as their forerunners are done."""
    from vllm import SamplingParams
    from vllm.inputs import tokens_input
    from vllm.sampling_params import RequestOutputKind

    places = asyncio.Semaphore(scale.at_once)

    async def play(number: int, chain: Sequence[list[int]]) -> None:
        async with places:
            for turn, ids in enumerate(chain):
                name = f"{number}-{turn}-{time.perf_counter_ns()}"
                params = SamplingParams(
                    max_tokens=scale.tokens,
                    ignore_eos=True,
                    seed=1000 * number + turn,
                    logprobs=0,
                    detokenize=False,
                    output_kind=RequestOutputKind.FINAL_ONLY,
                )
                async for output in llm.generate(tokens_input(ids), params, name):
                    assert len(output.outputs[0].token_ids) == scale.tokens

    started = time.perf_counter()
    await asyncio.gather(*(play(number, chain) for number, chain in enumerate(chains)))
    return time.perf_counter() - started


def compare(world: World, scale: Scale, go: Callable[[], str]) -> tuple[float, float]:
    """Tokens a second through the rollout engine and of vLLM alone, medians of the rounds.

    Both run on one vLLM, its prefix cache emptied before each, in turns and in changing
    order, after a round that isn't counted and once ``go`` has said so.
    """
    from agents.engines.vllm import VllmEngine

    ours: list[float] = []
    theirs: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        save_model(world, folder)
        engine = VllmEngine(Path(folder), max_context=16_384)
        host = engine._host  # the very AsyncLLM that our engine asks

        def emptied() -> None:
            host.submit(host.llm.reset_prefix_cache).result()

        try:
            _, chains = roll_out(world, engine, scale)
            if not go():
                raise SystemExit("nobody waits for the comparison any more")
            for number in range(2 * scale.rounds):
                emptied()
                if number % 4 in (0, 3):
                    ours.append(roll_out(world, engine, scale)[0])
                else:
                    theirs.append(host.submit(direct, host.llm, chains, scale).result())
        finally:
            asyncio.run(engine.close())
    return scale.sampled / statistics.median(ours), scale.sampled / statistics.median(theirs)


class Comparison:
    """:func:`compare` in a process of its own; starts at once, measures when asked.

    The process ends by itself when this one does.

    Args:
        scale: how much is sampled.
    """

    def __init__(self, scale: Scale) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, json.dumps(asdict(scale))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def result(self) -> tuple[float, float]:
        """Tokens a second, ours and vLLM's alone."""
        found, _ = self._process.communicate("go\n")
        if self._process.returncode:
            raise RuntimeError("the comparison with vLLM failed; see above")
        ours, theirs = json.loads(found.splitlines()[-1])
        return ours, theirs


def main() -> None:
    scale = Scale(**json.loads(sys.argv[1]))
    print(json.dumps(compare(World.make(), scale, sys.stdin.readline)))


if __name__ == "__main__":
    main()
