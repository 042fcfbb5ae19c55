"""A checkpoint of a model that has learnt nothing, and plays all the same."""

from __future__ import annotations

from pathlib import Path

from drv_env.worlds import WorldRecipe
from replay.chat_templates import QWEN3_THINKING
from trainers.checkpoint import save_model
from trainers.tiny import TinySize, build_model, build_tokenizer

AGENT = {
    "rules": {"system_prompt": "", "max_turns": 3, "max_context": 512, "max_turn_tokens": 16},
    "sampling": {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "presence_penalty": 0.0, "stop": []},
    "offline": {"worlds": [3], "results": 1, "fields": ["url"], "evidence_words": 8},
}
SIZE = TinySize(hidden=32, heads=2, kv_heads=1, head_dim=16, feed_forward=64, context=512)


def save_small_agent(folder: Path) -> Path:
    """Write it, with its agent.json."""
    tokenizer = build_tokenizer(["What is the owner of a mill?"], WorldRecipe(3).build().kinds)
    return save_model(folder, build_model(tokenizer, 0, SIZE), tokenizer, QWEN3_THINKING, AGENT)
