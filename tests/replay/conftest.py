"""Small tokenizers of every kind that a chat template may meet."""

from __future__ import annotations

import pytest
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TAGS = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<answer>",
    "</answer>",
]
PROTOCOL_PIECES = ["</think>\n<tool_call>\n", '{"name": "search"']
CORPUS = [
    "system user assistant You answer questions. Who founded the city of Ur?",
    "The founder is Enki. Think about it, then search the web for more.",
    '{"name": "visit", "arguments": {"url": ["http://e.org/a"], "goal": "find it"}}',
    "naïve café — 東京 is a city\n\nof many people,  and 12,345 trees.\n",
] * 5


def _train(model, pre_tokenizer, decoder, trainer) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def byte_level_bpe(prefix_space: bool = False) -> Tokenizer:
    """Like Qwen's: tags are added tokens, the special ones stand in the vocabulary too."""
    tokenizer = _train(
        models.BPE(),
        pre_tokenizers.ByteLevel(add_prefix_space=prefix_space),
        decoders.ByteLevel(),
        trainers.BpeTrainer(
            vocab_size=400,
            special_tokens=SPECIAL,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in [*TAGS, *PROTOCOL_PIECES]])
    return tokenizer


def greedy_bpe() -> Tokenizer:
    """Looks whole words up before it merges, and holds the tags as ordinary entries."""
    alphabet = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    vocabulary = dict(alphabet)
    for token in [*SPECIAL, *TAGS, "th", "the"]:
        vocabulary[token] = len(vocabulary)
    # "</think>" can also be merged from its letters' pieces
    merges = [("t", "h"), ("th", "e")]
    parts = ["</", "think>"]
    for word in parts:
        for end in range(2, len(word) + 1):
            if (left := word[: end - 1]) and word[:end] not in vocabulary:
                vocabulary[word[:end]] = len(vocabulary)
                merges.append((left, word[end - 1]))
    merges.append(("</", "think>"))
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.add_tokens(TAGS)
    return tokenizer


def unigram() -> Tokenizer:
    tokenizer = _train(
        models.Unigram(),
        pre_tokenizers.Metaspace(prepend_scheme="first"),
        decoders.Metaspace(prepend_scheme="first"),
        trainers.UnigramTrainer(
            vocab_size=200,
            special_tokens=["<unk>", *SPECIAL, *TAGS],
            unk_token="<unk>",
            show_progress=False,
        ),
    )
    return tokenizer


def word_level() -> Tokenizer:
    tokenizer = _train(
        models.WordLevel(unk_token="<unk>"),
        pre_tokenizers.WhitespaceSplit(),
        decoders.Fuse(),
        trainers.WordLevelTrainer(special_tokens=["<unk>", *SPECIAL, *TAGS], show_progress=False),
    )
    return tokenizer


MAKERS = {
    "byte_level_bpe": byte_level_bpe,
    "prefix_space_bpe": lambda: byte_level_bpe(prefix_space=True),
    "greedy_bpe": greedy_bpe,
    "unigram": unigram,
    "word_level": word_level,
}


@pytest.fixture(scope="session")
def bpe() -> Tokenizer:
    return byte_level_bpe()


@pytest.fixture(scope="session", params=list(MAKERS))
def any_tokenizer(request) -> Tokenizer:
    return MAKERS[request.param]()
