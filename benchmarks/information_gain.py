"""Processor seconds to score the gold answer behind every scored history of a trajectory.

Four ways on one model and one trajectory, side by side: the pass that gives the log-probs
of what was sampled and nothing else; the packed way, which gives those and the answers;
branch by branch from the model's own cache; and one full pass a history.  All but the first
give the same figures, which is checked.

    python benchmarks/information_gain.py [--quick]

The model is a random Qwen3 with grouped queries, in float32, on one thread: its processor
time is its time on a machine that does nothing else.  The log-prob pass is measured twice, as
the trainer does it (whole, causal) and in chunks; the faster of the two counts.  Rounds are
interleaved; seconds are medians, and the packed way's ratio to the log-prob pass is the
median of the rounds' own.  The plain way is measured at some histories, evenly spread, and
multiplied up to all of them.

Prints a table, and as its last line one JSON object with the keys
``packed_over_logprob_pass_per_token`` (packed over the log-prob pass, divided by tokens put
through the model over tokens of the trajectory; the worst row), ``plain_over_packed_64``
and ``sequential_over_packed_64`` (the row with 64 histories, the first of them).
"""

import argparse
import itertools
import json
import os
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from trainers.log_probs import token_log_probs
from trainers.score_items import Branch, ScoreItem, Scores
from trainers.trajectory_scores import Method, score_trajectories

VOCABULARY = 8192
PREFIX = 5
"""Ids of the probe before the gold answer."""


def make_model() -> Qwen3ForCausalLM:
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        intermediate_size=768,
        max_position_embeddings=32768,
        attn_implementation="sdpa",
    )
    torch.manual_seed(0)
    return Qwen3ForCausalLM(config).float().eval()


def make_item(tokens: int, histories: int) -> ScoreItem:
    """A trajectory with a turn before each history but the first; about a third is sampled."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, VOCABULARY, tokens).astype(np.int32)
    ends = np.linspace(tokens // 20, tokens, histories).astype(int)
    completions = [
        (int(start), int(start + (stop - start) // 3)) for start, stop in itertools.pairwise(ends)
    ]
    gold = rng.integers(0, VOCABULARY, 16).astype(np.int32)
    probe = np.concatenate([rng.integers(0, VOCABULARY, PREFIX).astype(np.int32), gold])
    scored = np.arange(len(probe)) >= PREFIX
    return ScoreItem(ids, completions, [Branch(int(end), probe, scored) for end in ends])


def branch_tokens(item: ScoreItem) -> int:
    """Tokens that go through the model for the branches: the last id of each only is a target."""
    return sum(len(branch.ids) - 1 for branch in item.branches)


def seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def measure(model: Qwen3ForCausalLM, item: ScoreItem, rounds: int, plain: int) -> dict[str, float]:
    """Median processor seconds of each way; the plain way from so many of its histories."""
    bare = ScoreItem(item.ids, item.completions)
    ids = torch.from_numpy(item.ids.astype(np.int64))[None]
    wanted = torch.from_numpy(item.wanted())[None]
    found: dict[str, Scores] = {}

    def score(method: Method, of: ScoreItem, name: str) -> None:
        found[name] = score_trajectories(model, [of], method=method)[0]

    def whole_pass() -> None:
        with torch.no_grad():
            token_log_probs(model, ids, wanted)

    ways = {
        "logprob_whole": whole_pass,
        "logprob_chunks": lambda: score("packed", bare, "logprob"),
        "packed": lambda: score("packed", item, "packed"),
    }
    times = {name: [] for name in ways}
    for _ in range(rounds):
        for name, work in ways.items():
            times[name].append(seconds(work))
    spent = {name: statistics.median(values) for name, values in times.items()}
    faster = min(("logprob_whole", "logprob_chunks"), key=spent.__getitem__)
    times["logprob"], spent["logprob"] = times[faster], spent[faster]
    spent["packed_over_logprob"] = statistics.median(
        packed / logprob for packed, logprob in zip(times["packed"], times["logprob"], strict=True)
    )
    spent["sequential"] = seconds(lambda: score("sequential", item, "sequential"))

    count = len(item.branches)
    chosen = ((np.arange(plain) + 0.5) * count / plain).astype(int)
    some = ScoreItem(item.ids, (), [item.branches[index] for index in chosen])
    taken = seconds(lambda: score("plain", some, "plain"))
    spent["plain"] = spent["logprob"] + taken * count / plain

    for name, values in (
        ("sequential", found["sequential"].values),
        ("plain", found["plain"].values),
    ):
        ours = np.array(found["packed"].values, float)
        ours = ours if name == "sequential" else ours[chosen]
        apart = float(np.abs(ours - np.array(values, float)).max())
        if apart > 1e-5:
            raise SystemExit(f"packed and {name} differ by {apart}")
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one size; ends within 50 s")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    # tokens, histories, rounds, histories measured the plain way
    rows = [(4096, 64, 5, 3)]
    if not chosen.quick:
        rows = [(4096, 32, 5, 16), (8192, 64, 3, 8), (16384, 128, 3, 4)]

    model = make_model()
    score_trajectories(model, [make_item(256, 4)])
    print(f"load of the machine {os.getloadavg()[0]:.1f}")
    print(
        f"{'tokens':>7}{'histories':>10}{'branches':>10}{'log-probs':>11}{'packed':>9}"
        f"{'sequential':>12}{'plain':>9}{'per token':>11}{'seq/packed':>12}{'plain/packed':>14}"
    )
    table = []
    for tokens, histories, rounds, plain in rows:
        item = make_item(tokens, histories)
        spent = measure(model, item, rounds, plain)
        more = (tokens + branch_tokens(item)) / tokens
        row = {
            "histories": histories,
            "per_token": spent["packed_over_logprob"] / more,
            "sequential": spent["sequential"] / spent["packed"],
            "plain": spent["plain"] / spent["packed"],
        }
        table.append(row)
        print(
            f"{tokens:>7}{histories:>10}{branch_tokens(item):>10}{spent['logprob']:>10.2f}s"
            f"{spent['packed']:>8.2f}s{spent['sequential']:>11.2f}s{spent['plain']:>8.1f}s"
            f"{row['per_token']:>11.2f}{row['sequential']:>12.2f}{row['plain']:>14.1f}"
            f"   (whole {spent['logprob_whole']:.2f}s, chunks {spent['logprob_chunks']:.2f}s)",
            flush=True,
        )
    of_64 = next(row for row in table if row["histories"] == 64)
    found = {
        "packed_over_logprob_pass_per_token": max(row["per_token"] for row in table),
        "plain_over_packed_64": of_64["plain"],
        "sequential_over_packed_64": of_64["sequential"],
    }
    print(json.dumps({key: round(value, 3) for key, value in found.items()}))


if __name__ == "__main__":
    main()
