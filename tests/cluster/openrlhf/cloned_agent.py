"""A small agent that has learnt the protocol, so that its rollouts make visits, and its game."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from drv_env.tasks import Task
from replay.chat_templates import QWEN3_THINKING
from replay.sft_rows import transcribe
from replay.template import ChatTemplate
from replay.trajectory import Trajectory
from tests.trainers.conftest import make_tiny_game
from trainers.checkpoint import save_model
from trainers.openrlhf.run import GameSpec
from trainers.rows import Row
from trainers.sft import SFTConfig, train_sft
from trainers.tiny import TinySize, build_model

GAME = GameSpec(
    worlds=(11,),
    tool_settings={"results": 1, "fields": ("url",), "evidence_words": 8},
    rules={"system_prompt": "", "max_turns": 5, "max_context": 512, "max_turn_tokens": 24},
)


@dataclass(frozen=True)
class ClonedAgent:
    """Its folder (weights in bfloat16), and what it plays."""

    folder: Path
    template: ChatTemplate
    tasks: list[Task]
    expert: list[Trajectory]


def clone_agent(folder: Path) -> ClonedAgent:
    """Make it; twenty seconds on one core that does nothing else."""
    game = make_tiny_game()
    tokenizer = game.template.pieces.tokenizer
    # heads of 32, which vLLM's attention on a CPU can do
    model = build_model(tokenizer, 0, TinySize(context=512))
    transcripts = [transcribe(item, game.template) for item in game.expert]
    rows = [Row(item.ids, item.mask()) for item in transcripts]
    train_sft(model, rows, SFTConfig(epochs=40, warmup_steps=10, learning_rate=5e-3))
    save_model(folder, model.to(torch.bfloat16), tokenizer, QWEN3_THINKING)
    return ClonedAgent(folder, game.template, game.tasks, game.expert)
