"""Tokens a second of supervised fine-tuning, beside TRL's SFTTrainer.

    make bench
    python benchmarks/sft.py [--quick] [--threads 2]

One model (Qwen3's architecture, 4 layers of 256, a vocabulary of 8,192), one set of ragged
documents of random ids with agent tokens in stretches, one device, in turns in one process:
float32, fused AdamW, gradients clipped, about 4,096 tokens a batch, packed on both sides so
that no document sees another.  Counted are the documents' tokens, no padding, from one step's
end to the next; the first step is left out.

TRL packs best-fit into rows of 2,048 and runs SDPA under the block mask that Transformers
makes of the position ids (flash attention over ragged rows needs a GPU).  It is run both with
one row a pass and two passes a step, and with both rows in one pass; the better counts.

Prints a table, and as its last line one JSON object with the keys ``tokens_per_s`` and
``tokens_per_s_over_trl``, which is null where there is no TRL.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from trainers.rows import Row
from trainers.sft import SFTConfig, train_sft

VOCABULARY = 8_192
ROW = 2_048
ROWS = 2
WARM = 1
"""Steps that are not counted: one, in which memory is first asked for."""
RATE = 1e-4


def documents(count: int, seed: int = 0) -> list[Row]:
    """Ragged documents: lengths log-normal (median 400, 32 to a row's), turns of 20 to 200."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(np.log(400), 0.9, count), 32, ROW).astype(int)
    rows = []
    for length in lengths:
        mask = np.zeros(length, bool)
        at = int(rng.integers(8, 30))
        while at < length:
            turn = int(rng.integers(20, 100))
            mask[at : at + turn] = True
            at += turn + int(rng.integers(30, 200))
        rows.append(Row(rng.integers(0, VOCABULARY, length).astype(np.int32), mask))
    return rows


def new_model() -> Qwen3ForCausalLM:
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=32,
        intermediate_size=768,
        max_position_embeddings=ROW,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    return Qwen3ForCausalLM(config).float()


def ours(rows: Sequence[Row], steps: int, packed: bool) -> tuple[float, list[float]]:
    """Tokens a second, and losses."""
    ends: list[float] = []
    tokens: list[int] = []

    def on_step(step: Any) -> None:
        ends.append(time.perf_counter())
        tokens.append(step.tokens)

    config = SFTConfig(
        batch_tokens=ROW * ROWS,
        microbatch_tokens=ROW * ROWS,
        max_steps=WARM + steps,
        packed=packed,
        learning_rate=RATE,
        schedule="constant",
        warmup_steps=0,
    )
    done = train_sft(new_model(), rows, config, on_step)
    return _speed(ends, tokens), [step.loss for step in done]


def theirs(rows: Sequence[Row], steps: int, at_once: int) -> tuple[float, list[float]]:
    """The same of TRL's SFTTrainer with ``at_once`` rows of a batch's two in a pass."""
    import datasets
    import transformers
    from trl import SFTConfig as TRLConfig
    from trl import SFTTrainer

    datasets.disable_progress_bars()
    transformers.utils.logging.set_verbosity_error()
    data = datasets.Dataset.from_list(
        [
            {"input_ids": row.ids.tolist(), "labels": np.where(row.mask, row.ids, -100).tolist()}
            for row in rows
        ]
    )
    ends: list[float] = []

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **other: Any) -> None:
            ends.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as out:
        config = TRLConfig(
            output_dir=out,
            max_length=ROW,
            packing=True,
            packing_strategy="bfd",
            per_device_train_batch_size=at_once,
            gradient_accumulation_steps=ROWS // at_once,
            max_steps=WARM + steps,
            learning_rate=RATE,
            lr_scheduler_type="constant",
            warmup_steps=0,
            optim="adamw_torch_fused",
            max_grad_norm=1.0,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            report_to="none",
            save_strategy="no",
            logging_steps=1_000,
            logging_first_step=True,
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        trainer = SFTTrainer(
            model=new_model(),
            args=config,
            train_dataset=data,
            processing_class=_tokenizer(),
            callbacks=[Clock()],
        )
        trainer.remove_callback(transformers.PrinterCallback)
        counted: list[int] = []
        collate = trainer.data_collator

        def counting(examples: Any) -> Any:
            counted.append(sum(len(example["input_ids"]) for example in examples))
            return collate(examples)

        trainer.data_collator = counting
        trainer.train()
        losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    passes = ROWS // at_once
    tokens = [sum(counted[n : n + passes]) for n in range(0, passes * len(ends), passes)]
    return _speed(ends, tokens), losses


def _speed(ends: Sequence[float], tokens: Sequence[int]) -> float:
    return sum(tokens[WARM:]) / (ends[-1] - ends[WARM - 1])


def _tokenizer() -> Any:
    """TRL wants one; the data is in ids and never meets it."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1}, unk_token="<pad>"))
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smaller run, under 50 seconds")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", category=FutureWarning)  # TRL's use of Transformers
    torch.set_num_threads(arguments.threads)
    steps, rounds = (2, 1) if arguments.quick else (4, 3)
    rows = documents(4 * (WARM + steps) * ROWS)
    learnt = sum(int(row.mask.sum()) for row in rows) / sum(len(row) for row in rows)
    has_trl = importlib.util.find_spec("trl") is not None
    speeds: dict[str, list[float]] = {}
    first: dict[str, float] = {}

    def note(name: str, found: tuple[float, list[float]]) -> None:
        speeds.setdefault(name, []).append(found[0])
        first[name] = found[1][0]

    for _ in range(rounds):
        note("packed", ours(rows, steps, packed=True))
        if not arguments.quick:
            note("padded", ours(rows, steps, packed=False))
        if has_trl:
            note("TRL, one row a pass", theirs(rows, steps, 1))
            if not arguments.quick:
                note("TRL, two rows a pass", theirs(rows, steps, ROWS))

    print(
        f"{len(rows)} documents, {learnt:.0%} agent's tokens, {arguments.threads} threads, "
        f"medians of {rounds}"
    )
    for name, found in speeds.items():
        loss = f"first loss {first[name]:.3f}"
        print(f"{name:<24}{statistics.median(found):>8,.0f} tokens/s   {loss}")
    over = None
    if has_trl:
        best = [max(pair) for pair in zip(*(speeds[n] for n in speeds if "TRL" in n), strict=True)]
        over = round(
            statistics.median(one / two for one, two in zip(speeds["packed"], best, strict=True)), 2
        )
        print(f"ours over TRL {importlib.metadata.version('trl')}: {over:.2f}×")
    else:
        print("TRL is not installed here; make bench compares with it where it is")
    speed = round(statistics.median(speeds["packed"]))
    print(json.dumps({"tokens_per_s": speed, "tokens_per_s_over_trl": over}))


if __name__ == "__main__":
    main()
