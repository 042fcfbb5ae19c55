"""A prompt and what a model wrote after it, as messages.

Logs of training and inference keep them as two texts, the prompt often with the marks of its
chat template (ChatML's, Llama 3's), or with the bare names of the roles that are left when
special tokens are skipped; some keep both in one text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drv_env.instructions import question_behind
from drv_env.rendered_prompts import Chat, chat_of_text


def prompt_and_reply(prompt: Any, reply: Any) -> Chat | None:
    """The messages of a prompt and its reply, or None where they are no texts or messages.

    Args:
        prompt: a text, messages, or None where the reply's text holds it too.
        reply: a text, or messages.

    Example:
        >>> prompt_and_reply("Who?", "<answer>Salen</answer>")[1]["content"]
        '<answer>Salen</answer>'
    """
    given = _chat(prompt)
    if isinstance(reply, list | tuple) and len(reply) == 1 and isinstance(reply[0], str):
        reply = reply[0]
    if isinstance(reply, list | tuple):
        replied = list(reply)
        opens = replied[0] if replied and isinstance(replied[0], Mapping) else {}
        whole = (opens.get("role") or opens.get("from")) in ("system", "user", "human")
        return replied if whole or given is None else [*given, *replied]
    if not isinstance(reply, str):
        return None
    replied = chat_of_text(reply) or []
    if replied and replied[0]["role"] in ("system", "user"):
        return replied
    if given is None:
        return None
    if isinstance(prompt, str):
        reply = _behind(prompt.strip(), reply)
    last = given[-1] if given else {}
    if last.get("role") == "assistant":  # the template opened the turn
        given, reply = given[:-1], f"{last.get('content') or ''}{reply}"
    return [*given, *(replied or [{"role": "assistant", "content": reply}])]


def _behind(prompt: str, reply: str) -> str:
    """The reply without the prompt before it, where a log keeps both in one text."""
    end = reply.find(prompt) + len(prompt) if prompt and prompt in reply else 0
    if end == len(prompt) or question_behind(reply[:end], prompt) is not None:
        return reply[end:].lstrip()
    return reply


def _chat(prompt: Any) -> Chat | None:
    if isinstance(prompt, list | tuple):
        return list(prompt) if all(isinstance(item, Mapping) for item in prompt) else None
    if not isinstance(prompt, str):
        return None
    return chat_of_text(prompt) or [{"role": "user", "content": prompt}]
