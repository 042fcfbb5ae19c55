"""A small checkpoint that plays a small world, and runs of ``drv train`` on it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drv_env.worlds import WorldRecipe, questions
from replay.chat_templates import QWEN3_THINKING
from replay.store import write_trajectories
from replay.template import ChatTemplate
from tests.trainers.decided_engine import play_decided, right_and_wrong
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


DECIDED = """
from tests import logit_noise
from tests.trainers.train_runs import decided

logit_noise.install_if_asked()
held = decided(sys.argv.pop(1))
held.__enter__()
"""
"""Code for the head of a script whose first argument is the checkpoint's folder: there too
the engine's turns are decided."""


@contextmanager
def decided(model: str | Path) -> Iterator[None]:
    """Within, ``drv train`` plays scripted turns in world 11, right ones and wrong ones.

    Args:
        model: the checkpoint's folder, for its template.
    """
    world = WorldRecipe(11).build()
    script = right_and_wrong(world, questions(world))
    with pytest.MonkeyPatch.context() as patched:
        play_decided(patched, script, ChatTemplate.from_folder(model))
        yield


def save_untrained(game, folder: Path) -> Path:
    """A model of the tiny game that has learnt nothing, with its expert's trajectories."""
    write_trajectories(folder / "expert.parquet", game.expert)
    tokenizer = game.template.pieces.tokenizer
    return save_model(folder / "untrained", game.telling_model(), tokenizer, QWEN3_THINKING, AGENT)


def train(name: str, model: Path, out: Path, *more: str) -> int:
    """What ``drv train`` returns."""
    return main(["train", name, "--model.folder", str(model), "--out", str(out), *more])


def metrics(out: Path, phase: str) -> list[dict]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").open()]
    return [line for line in lines if line["phase"] == phase]
