"""A small tokenizer and a small model over it."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from replay.chat_templates import QWEN3_THINKING
from replay.template import ChatTemplate

TAGS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
WORDS = ["to", "ol", "tool", "re", "sp", "on", "se", "ee", "><", "<t", "e>"]


def byte_tokenizer() -> Tokenizer:
    """Bytes and a few words of several letters; tags and control tokens added."""
    vocabulary = {c: i for i, c in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = []
    for word in WORDS:
        halves = ("to", "ol") if word == "tool" else tuple(word)
        vocabulary[word] = len(vocabulary)
        merges.append(halves)
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens(TAGS)
    return tokenizer


def space_tokenizer() -> Tokenizer:
    """Spaces stand in front of words, as ``▁``, and not in front of a text's first."""
    letters = ["▁", *"abcdefghijklmnopqrstuvwxyz<>/", "▁st", "op", "▁stop", "<unk>"]
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(letters)}, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    return tokenizer


@pytest.fixture(scope="session")
def template() -> ChatTemplate:
    return ChatTemplate(byte_tokenizer(), QWEN3_THINKING)


@pytest.fixture(scope="session")
def model(template):
    """Random, over the tokenizer's ids and eight more that spell nothing."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=template.pieces.tokenizer.get_vocab_size() + 8,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        intermediate_size=48,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        initializer_range=0.3,
    )
    return Qwen3ForCausalLM(config).eval()


@pytest.fixture
def one_thread():
    """Small models are quickest on one thread, and then don't wait for a shared core."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
