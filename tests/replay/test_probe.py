"""Where a gold answer's tokens end in a probe."""

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from replay.chat_templates import CHATML, QWEN3_THINKING
from replay.probe import answer_probe
from replay.template import ChatTemplate


def qwen_like() -> ChatTemplate:
    """A full stop and a line break are one token, as in Qwen's vocabulary."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(
                Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"),
                "isolated",
            ),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["<answer>\nJ.K.\n</answer>"] * 9, trainer)
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    return ChatTemplate(tokenizer, CHATML, {"eos_token": "<|im_end|>"})


def test_an_answers_last_token_may_be_the_one_it_has_before_its_closing_tag():
    template = qwen_like()
    pieces = template.pieces
    whole = pieces.encode(pieces.split("<answer>\nJ.K.\n</answer>"))
    for answer, before, closed in (("J.K.", ".", ".\n"), ("J.K", "K", "K")):
        alone = answer_probe(template, answer, "<answer>\n")
        assert pieces.decode(alone.ids[alone.answer_start :]) == answer
        assert pieces.decode(alone.ids[-1:]).endswith(before)
        as_released = answer_probe(template, answer, "<answer>\n", closed=True)
        assert pieces.decode(as_released.ids[-1:]).endswith(closed)
        assert as_released.answer_start == alone.answer_start
    as_released = answer_probe(template, "J.K.", "<answer>\n", closed=True)
    assert as_released.ids.tolist() == whole[: len(as_released.ids)].tolist()
    assert alone.ids.tolist() == as_released.ids[: len(alone.ids)].tolist()


def test_a_closing_tag_that_is_a_control_token_ends_what_is_encoded(bpe):
    thinking = ChatTemplate(bpe, QWEN3_THINKING, {"eos_token": "<|im_end|>"})
    for answer in ("Enki", "12,345", "the city"):
        alone, closed = (answer_probe(thinking, answer, closed=each) for each in (False, True))
        assert closed.answer_start == alone.answer_start
        text = thinking.pieces.decode(closed.ids[closed.answer_start :])
        assert text.rstrip("\n").endswith(answer)
