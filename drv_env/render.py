"""Showing an episode to a person.

Pages may hold control characters that move a terminal's cursor or change its title; they
are shown as what they are and never sent.
"""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from drv_env.context import Message
from drv_env.episode import Episode
from drv_env.play import Played
from drv_env.printable import printable

_STYLES = {"system": "dim", "user": "cyan", "assistant": "bold"}


def conversation(episode: Episode) -> str:
    """The conversation so far as plain text, each message under its role."""
    parts = [f"[{item['role']}]\n{printable(item['content'])}" for item in episode.messages]
    if episode.ending is not None:
        parts.append(f"[{episode.ending}]")
    return "\n\n".join(parts)


def show_opening(episode: Episode) -> None:
    """Print the opening messages."""
    for message in episode.opening:
        _show(message)


def show_new(episode: Episode, played: Played) -> None:
    """Print the last turn and what came back, or how the episode ended."""
    count = 1 if played.observation is None else 2
    for message in episode.messages[-count:]:
        _show(message)
    if played.closed is not None:
        outcome = "none" if played.reward.outcome is None else f"{played.reward.outcome:.2f}"
        Console().print(Text(f"[{played.closed.ending}] outcome {outcome}\n", style="bold green"))


def _show(message: Message) -> None:
    console, role = Console(), message["role"]
    console.print(Text(f"[{role}]", style="dim"))
    console.print(Text(printable(message["content"]), style=_STYLES.get(role, "")), "")
