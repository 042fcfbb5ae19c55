"""TRL's own GRPOTrainer over an offline world; skipped where TRL is not installed."""

from __future__ import annotations

import re
from typing import Any

import pytest

from agents.adapters.trl import TrlEpisode, dataset_rows, environment_factory, outcome_reward
from drv_env.episode import Ending, Rules
from drv_env.game import Game
from drv_env.protocol import Answer, Search, render_turn
from drv_env.testing import FakeTools

trl = pytest.importorskip("trl")

WRONG = render_turn("A guess.", Answer("nowhere"))


def build_tokenizer() -> Any:
    """Bytes, Qwen3's special tokens and TRL's own copy of Qwen3's chat template."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    from trl.chat_template_utils import qwen3_chat_template

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({byte: i for i, byte in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tags = [
        f"<{mark}{tag}>" for tag in ("think", "tool_call", "tool_response") for mark in ("", "/")
    ]
    tokenizer.add_tokens([AddedToken(tag, normalized=False) for tag in tags])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=qwen3_chat_template,
        padding_side="left",
    )


def train(game: Game, act: Any, folder: Any) -> tuple[Any, dict[str, float]]:
    """One step of GRPO on a random tiny Qwen3 whose sampling is scripted by ``act``.

    ``act(row, question, observations)`` gives a turn; everything else is TRL's.
    """
    import torch
    from datasets import Dataset
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = build_tokenizer()
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        intermediate_size=16,
        max_position_embeddings=16_384,
    )
    model = Qwen3ForCausalLM(config)

    def generate(input_ids: Any, **_: Any) -> Any:
        turns = []
        for row, ids in enumerate(input_ids):
            text = tokenizer.decode(ids)
            question = re.findall(r"<\|im_start\|>user\n(.*?)<\|im_end\|>", text, re.S)[0]
            seen = re.findall(r"\n<tool_response>\n(.*?)\n</tool_response><\|im_end\|>", text, re.S)
            turns.append(tokenizer.encode(act(row, question, seen) + "<|im_end|>"))
        longest = max(map(len, turns))
        pad = tokenizer.pad_token_id
        new = torch.tensor([turn + [pad] * (longest - len(turn)) for turn in turns])
        return torch.cat([input_ids, new], dim=1)

    model.generate = generate
    arguments = trl.GRPOConfig(
        output_dir=str(folder),
        max_steps=1,
        per_device_train_batch_size=2,
        num_generations=2,
        max_completion_length=8_000,
        learning_rate=0.1,
        report_to="none",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        save_strategy="no",
        disable_tqdm=True,
        logging_steps=1,
        shuffle_dataset=False,
    )
    trainer = trl.GRPOTrainer(
        model=model,
        args=arguments,
        processing_class=tokenizer,
        train_dataset=Dataset.from_list(dataset_rows(game)),
        reward_funcs=outcome_reward,
        environment_factory=environment_factory(game),
    )
    trainer.train()
    return trainer, trainer.state.log_history[0]


def test_a_step_of_grpo_plays_our_episodes_and_learns_from_their_outcomes(game, expert, tmp_path):
    tasks = {task.question: task for task in game.tasks}

    def act(row: int, question: str, seen: list[str]) -> str:
        turn = expert(tasks[question], seen)
        return WRONG if row == 1 and "<answer>" in turn else turn

    trainer, log = train(game, act, tmp_path)
    right, wrong = trainer.environments
    assert isinstance(right, TrlEpisode)
    assert [turn.call.name for turn in right.episode.turns[:-1]] == ["search", "visit"]
    assert (right.outcome, wrong.outcome) == (1.0, 0.0)
    assert right.ending is wrong.ending is Ending.ANSWERED
    assert right.episode.turns[-1].well_formed
    assert log["rewards/outcome_reward/mean"] == pytest.approx(0.5)
    assert log["reward"] == pytest.approx(0.5)
    assert log["tools/call_frequency"] == pytest.approx(2.0)
    assert log["tools/failure_frequency"] == 0.0
    assert log["episodes/answered"] == 1.0
    assert log["grad_norm"] > 0
    first, second = trainer._logs["advantages"]
    assert first == pytest.approx(-second)
    assert first > 0


def test_trl_learns_of_the_tools_what_the_env_says_of_them(game):
    from transformers.utils import get_json_schema

    environment = environment_factory(game)()
    for tool in game.rules.tools:
        function = get_json_schema(getattr(environment, tool.name))["function"]
        assert function["name"] == tool.name
        assert function["description"] == tool.description
        assert function["parameters"] == tool.parameters


def test_a_broken_episode_stands_outside_its_group(tmp_path):
    tools = FakeTools({"search": OSError("down")})
    game = Game([("Capital of France?", "Paris")], tools, rules=Rules(max_failures=1))

    def act(row: int, question: str, seen: list[str]) -> str:
        if row == 0 and not seen:
            return render_turn("t", Search(("x",)))
        return render_turn("t", Answer("Paris"))

    trainer, log = train(game, act, tmp_path)
    broken, answered = trainer.environments
    assert broken.ending is Ending.BROKEN
    assert answered.outcome == 1.0
    assert trainer._logs["advantages"][0] == 0.0
    assert log["reward"] == pytest.approx(1.0)  # a zero would have made it 0.5
    assert log["episodes/broken"] == pytest.approx(0.5)
