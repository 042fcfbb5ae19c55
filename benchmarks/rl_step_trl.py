"""TRL's GRPOTrainer for ``rl_step.py``: its steps over our game, and its updates on our rollouts.

Only imported where TRL is installed.  Its rollouts go through :mod:`agents.adapters.trl`, and a
chat template of ours makes its prompts and observations the ids that our rollouts have, so that
the same model plays on both sides.  Its updates take rollouts by its own ``rollout_func``.
"""

import copy
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import datasets
import torch
import transformers
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen3_template

from agents.adapters.trl import dataset_rows, environment_factory, outcome_reward
from drv_env.game import Game
from trainers.learnt import LearntRollout
from trainers.tiny import END_OF_TEXT, IM_END

TEMPLATE = """\
{%- for message in messages %}
{{- '' if loop.first else '\\n' }}
{%- if message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
{%- elif message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n<think>\\n' + message.reasoning_content | default('') }}
{{- '\\n</think>\\n' + message.content }}
{%- for call in message.tool_calls | default([]) %}
{{- '<tool_call>\\n' + call.function | tojson + '\\n</tool_call>' }}
{%- endfor %}
{%- else %}
{{- '<|im_start|>' + message.role + '\\n' + message.content }}
{%- endif %}
{{- '<|im_end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '\\n<|im_start|>assistant\\n<think>\\n' }}
{%- endif %}
"""
"""Our game's template with TRL's messages.  TRL goes on behind the sampled ids, so of an
assistant's message only the end is ever used; its line break belongs to what follows, for the
small model's tokenizer has one piece for both."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step, seconds and tokens.

    Attributes:
        rollout: seconds until advantages are there.
        update: seconds from there to the end of the optimiser's step.
        sampled: tokens that were sampled.
        tokens: of prompts and completions, no padding.
        turns: completions, where TRL played.
        grad_norm: before clipping.
    """

    rollout: float
    update: float
    sampled: int
    tokens: int
    turns: int
    grad_norm: float


class _Timed(GRPOTrainer):
    """Notes when the rollouts of a step begin and end, and what they hold."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.played: list[tuple[float, float, int, int, int]] = []
        super().__init__(*args, **kwargs)

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        start = time.perf_counter()
        found = super()._generate_and_score_completions(inputs)
        end = time.perf_counter()
        completed = found["completion_mask"]
        sampled = int((completed * found["tool_mask"]).sum())
        tokens = int(found["prompt_mask"].sum() + completed.sum())
        edges = (found["tool_mask"] * completed).diff(dim=1, prepend=torch.zeros(len(completed), 1))
        self.played.append((start, end, sampled, tokens, int((edges == 1).sum())))
        return found


def play_and_update(
    model: Any,
    tokenizer: Tokenizer,
    game: Game,
    group: int,
    at_once: int,
    rate: float,
    steps: int,
) -> list[Step]:
    """Steps of GRPO in which TRL plays ``group`` episodes of every question of the game.

    Args:
        model: trained in a copy.
        tokenizer: of the model.
        game: its rules bound turns and episodes here too.
        group: rollouts a question.
        at_once: rollouts in a pass of the update.
        rate: learning rate.
        steps: how many.
    """
    rules = game.rules
    return _train(
        model,
        tokenizer,
        dataset_rows(game),
        {
            "max_completion_length": (rules.max_context or 0) - 2 * rules.max_turn_tokens,
            "max_tool_calling_iterations": rules.max_turns - 1,
            "generation_kwargs": {"max_new_tokens": rules.max_turn_tokens},
        },
        {"reward_funcs": outcome_reward, "environment_factory": environment_factory(game)},
        group,
        at_once,
        rate,
        steps,
    )


def update_only(
    model: Any,
    tokenizer: Tokenizer,
    rollouts: Sequence[LearntRollout],
    group: int,
    at_once: int,
    rate: float,
    steps: int,
) -> list[Step]:
    """Updates on given rollouts, each time on all of them; groups stand together.

    The reward is the rollout's advantage, which TRL leaves as it is: its mean in a group is 0,
    and ``scale_rewards`` is off.
    """
    starts = [item.transcript.spans[0].stop for item in rollouts]
    given = {
        "prompt_ids": [
            item.row.ids[:at].tolist() for item, at in zip(rollouts, starts, strict=True)
        ],
        "completion_ids": [
            item.row.ids[at:].tolist() for item, at in zip(rollouts, starts, strict=True)
        ],
        "env_mask": [
            item.row.mask[at:].astype(int).tolist()
            for item, at in zip(rollouts, starts, strict=True)
        ],
        "logprobs": None,
        "advantage": [float(item.advantages[0]) for item in rollouts],
    }

    def reward(completions: Any, advantage: Sequence[float], **columns: Any) -> list[float]:
        return list(advantage)

    questions = [{"prompt": f"question {index}"} for index in range(len(rollouts) // group)]
    return _train(
        model,
        tokenizer,
        questions,
        {"scale_rewards": "none"},
        {"reward_funcs": reward, "rollout_func": lambda prompts, trainer: copy.deepcopy(given)},
        group,
        at_once,
        rate,
        steps,
    )


def _train(
    model: Any,
    tokenizer: Tokenizer,
    rows: list[dict[str, Any]],
    own: dict[str, Any],
    parts: dict[str, Any],
    group: int,
    at_once: int,
    rate: float,
    steps: int,
) -> list[Step]:
    datasets.disable_progress_bars()
    transformers.utils.logging.set_verbosity_error()
    ends: list[float] = []

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **other: Any) -> None:
            ends.append(time.perf_counter())

    passes = len(rows) * group // at_once
    with tempfile.TemporaryDirectory() as out:
        config = GRPOConfig(
            output_dir=out,
            max_steps=steps,
            num_generations=group,
            per_device_train_batch_size=at_once,
            gradient_accumulation_steps=passes,
            steps_per_generation=passes,
            loss_type="grpo",
            beta=0.0,
            epsilon=0.2,
            temperature=1.0,
            top_p=1.0,
            top_k=0,
            learning_rate=rate,
            lr_scheduler_type="constant",
            warmup_steps=0,
            optim="adamw_torch_fused",
            weight_decay=0.0,
            max_grad_norm=1.0,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            shuffle_dataset=False,
            report_to="none",
            save_strategy="no",
            logging_steps=1,
            disable_tqdm=True,
            dataloader_pin_memory=False,
            **own,
        )
        trainer = _Timed(
            model=copy.deepcopy(model),
            args=config,
            train_dataset=datasets.Dataset.from_list(rows),
            processing_class=_fast(tokenizer),
            callbacks=[Clock()],
            **parts,
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
        norms = [line["grad_norm"] for line in trainer.state.log_history if "grad_norm" in line]
    return [
        Step(stop - start, end - stop, sampled, tokens, turns, norm)
        for (start, stop, sampled, tokens, turns), end, norm in zip(
            trainer.played, ends, norms, strict=True
        )
    ]


def _fast(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=IM_END,
        pad_token=END_OF_TEXT,
        chat_template=TEMPLATE,
        padding_side="left",
    )
    made.response_template = qwen3_template
    return made
