"""Peak memory of a loss over a vocabulary of 152 thousand, without and with full logits.

    python benchmarks/memory.py [--quick]

Forward and backward pass of a small model (Qwen3's architecture) with Qwen3's vocabulary of
151,936 in float32, by the trainers' likelihood (``token_nll``), by their log-probs
(``token_log_probs``, what reinforcement learning does), and by cross-entropy over the whole
logits.  Every token is learnt.  Each is a process of its own; its peak is what the passes add
to the resident memory of the model before them (gradients of the weights among it).

The full way is measured at two lengths that fit, and extrapolated along the line through
them: its memory is a constant and so much a token.  Ours is measured at the length itself.
Prints a table, and as its last line one JSON object with the key ``peak_over_full_logits``
(the larger of ours over the full way's), and ``tokens``.
"""

import argparse
import json
import multiprocessing
import resource
import time
from concurrent.futures import ProcessPoolExecutor

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from trainers.log_probs import token_log_probs, token_nll

VOCABULARY = 151_936
WAYS = ("likelihood", "log-probs", "full logits")


def measured(way: str, tokens: int) -> tuple[float, float]:
    """Bytes that one forward and backward pass adds at its peak, and its seconds."""
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        intermediate_size=128,
        max_position_embeddings=tokens,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config).float()
    ids = torch.randint(0, VOCABULARY, (1, tokens + 1))
    wanted = torch.ones_like(ids, dtype=torch.bool)
    wanted[:, 0] = False
    with torch.no_grad():
        loss_of(model, way, ids[:, :9], wanted[:, :9])  # what is only set up once
    before = peak()
    started = time.perf_counter()
    loss_of(model, way, ids, wanted).backward()
    return peak() - before, time.perf_counter() - started


def loss_of(
    model: Qwen3ForCausalLM, way: str, ids: torch.Tensor, wanted: torch.Tensor
) -> torch.Tensor:
    if way == "likelihood":
        return token_nll(model, ids, wanted, ids.shape[1] - 1)
    if way == "log-probs":
        return -token_log_probs(model, ids, wanted)[0].mean()
    logits = model(input_ids=ids, use_cache=False).logits[0, :-1]
    return torch.nn.functional.cross_entropy(logits, ids[0, 1:])


def peak() -> float:
    """The most memory that was resident so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def alone(way: str, tokens: int) -> tuple[float, float]:
    """:func:`measured` in a process of its own, forked from this one, which computes nothing."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return pool.submit(measured, way, tokens).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a shorter row, under 50 seconds")
    arguments = parser.parse_args()
    tokens, fitting = (2_048, (256, 512)) if arguments.quick else (16_384, (1_024, 2_048))
    print(f"{'':<14}{'tokens':>8}{'peak, MB':>12}{'seconds':>9}")

    def show(way: str, count: int) -> float:
        bytes_, seconds = alone(way, count)
        print(f"{way:<14}{count:>8,}{bytes_ / 1e6:>12,.0f}{seconds:>9.1f}")
        return bytes_

    short, longer = (show("full logits", count) for count in fitting)
    a_token = (longer - short) / (fitting[1] - fitting[0])
    full = longer + a_token * (tokens - fitting[1])
    print(f"{'full logits':<14}{tokens:>8,}{full / 1e6:>12,.0f}    extrapolated")
    over = max(show(way, tokens) for way in WAYS[:2]) / full
    print(f"the larger of ours over full logits: {over:.4f}")
    print(json.dumps({"peak_over_full_logits": round(over, 4), "tokens": tokens}))


if __name__ == "__main__":
    main()
