"""A small checkpoint that plays a small world, and runs of ``drv train`` on it."""

import json
from pathlib import Path

from replay.chat_templates import QWEN3_THINKING
from replay.store import write_trajectories
from trainers.checkpoint import save_model
from trainers.cli import main

AGENT = {
    "rules": {"system_prompt": "", "max_turns": 5, "max_context": 512, "max_turn_tokens": 24},
    "sampling": {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "presence_penalty": 0.0, "stop": []},
    "offline": {"worlds": [11], "results": 1, "fields": ["url"], "evidence_words": 8},
}
_SMALL = {
    "rl.steps": 3,
    "rl.tasks-per-step": 2,
    "rl.group-size": 4,
    "rl.learning-rate": 1e-3,
    "engine.parallel": 8,
    "evaluation.every": 1,
    "evaluation.questions": 8,
}
SMALL = [word for name, value in _SMALL.items() for word in (f"--{name}", str(value))]
"""Options of a run of reinforcement that takes seconds."""


def save_untrained(game, folder: Path) -> Path:
    """A model of the tiny game that has learnt nothing, with its expert's trajectories."""
    write_trajectories(folder / "expert.parquet", game.expert)
    tokenizer = game.template.pieces.tokenizer
    return save_model(folder / "untrained", game.model(), tokenizer, QWEN3_THINKING, AGENT)


def train(name: str, model: Path, out: Path, *more: str) -> int:
    """What ``drv train`` returns."""
    return main(["train", name, "--model.folder", str(model), "--out", str(out), *more])


def metrics(out: Path, phase: str) -> list[dict]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").open()]
    return [line for line in lines if line["phase"] == phase]
