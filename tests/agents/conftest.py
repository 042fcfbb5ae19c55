"""A small tokenizer with its template."""

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from replay.chat_templates import QWEN3_THINKING
from replay.template import ChatTemplate

TAGS = [
    f"<{mark}{tag}>"
    for tag in ("think", "tool_call", "tool_response", "answer")
    for mark in ("", "/")
]


def make_template() -> ChatTemplate:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["Who owns mill 1? I search. I open it."] * 4, trainer)
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken(tag, normalized=False) for tag in TAGS])
    return ChatTemplate(tokenizer, QWEN3_THINKING, {"eos_token": "<|im_end|>"})


@pytest.fixture(scope="session")
def template() -> ChatTemplate:
    return make_template()
