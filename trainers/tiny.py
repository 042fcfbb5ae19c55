"""A model small enough to learn the game from nothing on one CPU core.

Qwen3's architecture at about 160 thousand parameters, with a tokenizer of its own in
which every name, relation and piece of the protocol is one token.  The tokenizer is
complete all the same (byte-level BPE): it encodes any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import Qwen3Config, Qwen3ForCausalLM

from drv_env.protocol import CALL, END_CALL, END_RESPONSE, END_THINK, RESPONSE, THINK
from drv_env.settings import at_least, check_fields

END_OF_TEXT, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"

_TAGS = (THINK, END_THINK, CALL, END_CALL, RESPONSE, END_RESPONSE, "<answer>", "</answer>")
_TURN_PIECES = (
    '\n</think>\n<tool_call>\n{"name": "search", "arguments": {"query": ["',
    '\n</think>\n<tool_call>\n{"name": "visit", "arguments": {"url": ["https://w/',
    '"]}}\n</tool_call>',
    '"], "goal": "',
    '"}}\n</tool_call>',
    "\n</think>\n<answer>\n",
    "\n</answer>",
    f"{IM_START}user\n",
    f"\n{IM_START}user\n",
    f"\n{IM_START}assistant\n",
    f"{THINK}\n",
    f"{RESPONSE}\n",
    f"\n{END_RESPONSE}",
)
"""Stretches of protocol that are one token where an agent or the template writes them.
They are added tokens, so in an observation they fall into ordinary pieces."""

_TEXT_PIECES = (
    '[{"query": "',
    '", "web_page_info_list": [{"title": "',
    '", "web_page_info_list": [{"url": "',
    '", "web_page_info_list": []',
    '", "url": "',
    '"}, {"title": "',
    '"}, {"url": "',
    '"}]}, {"query": "',
    '"}]}]',
    "https://w/",
    "Page: ",
    "\nGoal: ",
    "\nEvidence:\n",
    "What is ",
    "The ",
    " is ",
    "'s ",
    ". ",
    "Next: ",
)
"""Stretches of ordinary text that the pre-tokenizer keeps whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TinySize:
    """Sizes of the model, each at least 1; the defaults make about 160 thousand parameters.

    Raises:
        SettingError: naming a value that can't work.
    """

    hidden: int = 64
    layers: int = 2
    heads: int = 2
    kv_heads: int = 1
    head_dim: int = 32
    feed_forward: int = 192
    context: int = 1024

    def __post_init__(self) -> None:
        check_fields(self, **{item.name: at_least(1) for item in fields(self)})


def build_tokenizer(texts: Iterable[str], whole_words: Iterable[str]) -> Tokenizer:
    """A byte-level BPE tokenizer in which each of ``whole_words`` is one token.

    Args:
        texts: ordinary text to learn pieces from.
        whole_words: letters-only words; one token each wherever they stand.

    Raises:
        ValueError: when a whole word is more than letters.
    """
    words = list(dict.fromkeys(whole_words))
    for word in words:
        if not word.isalpha():
            raise ValueError(f"a whole word must be letters only, got {word!r}")
    pieces = "|".join(re.escape(piece) for piece in sorted(_TEXT_PIECES, key=len, reverse=True))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(rf"{pieces}|\p{{L}}+|\p{{N}}|\s|."), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=20_000,
        min_frequency=2,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    repeated = [piece for piece in (*_TEXT_PIECES, *words) for _ in range(3)]
    tokenizer.train_from_iterator([*repeated, *texts], trainer)
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True) for token in (END_OF_TEXT, IM_START, IM_END)]
    )
    tokenizer.add_tokens(
        [AddedToken(token, special=False, normalized=False) for token in (*_TAGS, *_TURN_PIECES)]
    )
    return tokenizer


def build_model(tokenizer: Tokenizer, seed: int, size: TinySize | None = None) -> Qwen3ForCausalLM:
    """A freshly initialised model for ``tokenizer``, in float32."""
    size = size or TinySize()
    config = Qwen3Config(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        head_dim=size.head_dim,
        intermediate_size=size.feed_forward,
        max_position_embeddings=size.context,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
        tie_word_embeddings=True,
        use_sliding_window=False,
        attn_implementation="sdpa",
        bos_token_id=None,
        eos_token_id=tokenizer.token_to_id(IM_END),
        pad_token_id=tokenizer.token_to_id(END_OF_TEXT),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config).float()
