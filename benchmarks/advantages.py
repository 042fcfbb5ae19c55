"""Seconds from reward records to an advantage on every token, beside plain Python loops.

    python benchmarks/advantages.py [--quick]

A batch has groups of 8 rollouts; a rollout its turns (searches and visits by turns, some
malformed, then the answer) and its tokens, of which two fifths are the agent's.  Counted is
the way from the rollouts' reward records to one float32 array a rollout with every token's
advantage: :func:`trainers.advantages.advantages_of` and
:func:`trainers.advantages.token_advantages`.  The loops do the same turn by turn and token
by token; that both agree is checked.  The fastest of some rounds counts.

Prints a table, and as its last line one JSON object with the keys
``seconds_128x200x100k`` (128 rollouts of 200 turns and 100,000 tokens each, the published
setting's credit) and ``loops_over_ours_128x200x100k``.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from drv_env.rewards.records import TurnReward
from trainers.advantages import advantages_of, token_advantages
from trainers.credit import GRPO, IGPO, Credit

GROUP = 8
CREDITS = {"igpo": IGPO, "igpo by turn": Credit(assignment="turn"), "grpo": GRPO}


@dataclass(frozen=True)
class Batch:
    """Rollouts: for each its records, tools, spans of the agent's tokens, and length."""

    rewards: list[list[TurnReward]]
    tools: list[list[str | None]]
    spans: list[list[tuple[int, int]]]
    tokens: int

    @property
    def groups(self) -> list[int]:
        return [index // GROUP for index in range(len(self.rewards))]


def make_batch(rollouts: int, turns: int, tokens: int) -> Batch:
    rng = np.random.default_rng(0)
    tools: list[str | None] = ["visit" if turn % 2 else "search" for turn in range(turns - 1)]
    tools.append(None)
    starts = np.linspace(tokens // (2 * turns), tokens, turns, endpoint=False).astype(int)
    spans = [(int(start), int(start + 2 * tokens // (5 * turns))) for start in starts]
    rewards = []
    for _ in range(rollouts):
        gains, formed = rng.normal(size=turns), rng.random(turns) > 0.02
        rewards.append(
            [
                TurnReward(
                    float(gains[turn]) if tools[turn] == "visit" else None,
                    bool(formed[turn]),
                    float(rng.random() < 0.4) if turn == turns - 1 else None,
                )
                for turn in range(turns)
            ]
        )
    return Batch(rewards, [tools] * rollouts, [spans] * rollouts, tokens)


def ours(batch: Batch, credit: Credit) -> list[np.ndarray]:
    found = advantages_of(batch.rewards, batch.groups, credit, batch.tools)
    return [
        token_advantages(per_turn, spans, batch.tokens)
        for per_turn, spans in zip(found.per_turn, batch.spans, strict=True)
    ]


# ---- the same in loops -------------------------------------------------------------------------


def loops(batch: Batch, credit: Credit) -> list[np.ndarray]:
    """Scaled separate normalisation over mean and deviation, as IGPO and GRPO have it."""
    values = []
    for rewards, tools in zip(batch.rewards, batch.tools, strict=True):
        turns = [reward.information_gain if credit.information_gain else None for reward in rewards]
        if credit.assignment == "turn" and credit.information_gain:
            following = None
            for turn in range(len(turns) - 1, -1, -1):
                if tools[turn] == "visit":
                    following = turns[turn]
                elif tools[turn] == "search":
                    turns[turn] = following
        turns[-1] = rewards[-1].outcome
        if credit.format_penalty is not None:
            for turn, reward in enumerate(rewards):
                if not reward.well_formed:
                    turns[turn] = -credit.format_penalty
        values.append(turns)

    normal = [list(turns) for turns in values]
    for group in sorted(set(batch.groups)):
        members = [index for index, other in enumerate(batch.groups) if other == group]
        for last in (False, True):
            places = [
                (index, turn)
                for index in members
                for turn, value in enumerate(values[index])
                if value is not None and (turn == len(values[index]) - 1) == last
            ]
            pool = [values[index][turn] for index, turn in places]
            if pool:
                mean, deviation = statistics(pool)
                for index, turn in places:
                    normal[index][turn] = (values[index][turn] - mean) / deviation

    gains = [abs(value) for turns in normal for value in turns[:-1] if value is not None]
    outcomes = [abs(turns[-1]) for turns in normal]
    of_gains = sum(gains) / len(gains) if gains else 1.0
    of_outcomes = max(sum(outcomes) / len(outcomes), credit.scale_floor)
    scale = min(of_outcomes / (of_gains + 1e-6), credit.scale_max)

    found = []
    for turns, spans in zip(normal, batch.spans, strict=True):
        per_token = [0.0] * batch.tokens
        following = 0.0
        for turn in range(len(turns) - 1, -1, -1):
            value = turns[turn]
            if value is not None or credit.assignment == "turn":
                own = (value or 0.0) * (1.0 if turn == len(turns) - 1 else scale)
                following = own + credit.gamma * following
            for place in range(*spans[turn]):
                per_token[place] = following
        found.append(np.array(per_token, np.float32))
    return found


def statistics(pool: Sequence[float]) -> tuple[float, float]:
    mean = sum(pool) / len(pool)
    if len(pool) == 1:
        return mean, 1.0 + 1e-6
    variance = sum((value - mean) ** 2 for value in pool) / len(pool)
    return mean, (variance + 1e-8) ** 0.5 + 1e-6


# ---- measuring -----------------------------------------------------------------------------------


def fastest(work: Callable[[], object], rounds: int) -> float:
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return min(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one size; ends within 50 s")
    quick = parser.parse_args().quick
    sizes = [(128, 200, 100_000)]
    if not quick:
        sizes = [(128, 20, 10_000), (128, 200, 100_000), (512, 200, 100_000)]
    print(f"load {os.getloadavg()[0]:.1f}")
    print(f"{'rollouts':>9}{'turns':>7}{'tokens':>9}  {'credit':<14}{'ours':>9}{'loops':>9}{'':>8}")
    found = {}
    for rollouts, turns, tokens in sizes:
        batch = make_batch(rollouts, turns, tokens)
        for name, credit in CREDITS.items():
            for mine, other in zip(ours(batch, credit), loops(batch, credit), strict=True):
                np.testing.assert_allclose(mine, other, atol=1e-5, rtol=1e-5)
            seconds = fastest(lambda b=batch, c=credit: ours(b, c), 3 if quick else 7)
            slow = fastest(lambda b=batch, c=credit: loops(b, c), 1)
            print(
                f"{rollouts:>9}{turns:>7}{tokens:>9}  {name:<14}{seconds:>8.3f}s{slow:>8.2f}s"
                f"{slow / seconds:>7.0f}x",
                flush=True,
            )
            if (rollouts, turns, name) == (128, 200, "igpo"):
                found = {
                    "seconds_128x200x100k": round(seconds, 4),
                    "loops_over_ours_128x200x100k": round(slow / seconds, 1),
                }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
