"""What ``drv ask`` prints while an agent works, and at the end.

Texts come from models and from the web: they are shown as they are, never as markup or as
control characters.  Without a terminal there are no colours and nothing moves.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.status import Status
from rich.text import Text

from agents.research import Answered, Called, Event, Finding, Remark, Thought, Unread
from drv_env.calls import render_call
from drv_env.printable import printable
from drv_env.protocol import Search, Visit

HITS = 10
"""Search results that are shown of a call."""
EVIDENCE_LINES = 4
"""Lines that are shown of a page."""
UNREAD_LINES = 40
"""Lines that are shown of a turn that could not be read."""
LONGEST_LINE = 300
"""Characters that are shown of a line from the web, or of an unreadable turn."""


class Screen:
    """Shows events as they come."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(soft_wrap=True, highlight=False)
        self._status: Status | None = None

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._status = self._console.status("starting …")
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, event: Event) -> None:
        """Print one event."""
        match event:
            case Thought(turn, text):
                self._line(f"{turn}. {text}", "dim")
            case Unread(turn, text):
                self._line(f"{turn}. (unreadable)", "yellow")
                self._line(_indented(_first_lines(text, UNREAD_LINES)) or "    (nothing)")
            case Called(_, action):
                self._line(f"→ {_call(action)}", "cyan")
            case Finding():
                self._finding(event)
            case Remark(_, kind, text):
                self._line(f"  {kind}: {text}", "yellow")
            case Answered():
                pass  # the end shows it
        if self._status is not None:
            self._status.update("calling …" if isinstance(event, Called) else "thinking …")

    def end(self, told: dict[str, Any]) -> None:
        """Print the answer, its sources and figures, from the report."""
        self._line("")
        if told["answer"] is not None:
            self._line(told["answer"], "bold")
        elif told["error"] is None:
            self._line(f"No answer was given ({told['ending']}).", "bold yellow")
            if told["hint"]:
                self._line(told["hint"], "yellow")
        if told["sources"]:
            self._line("")
            self._line("Sources (* named with the answer):")
            for source in told["sources"]:
                mark = "*" if source["named"] else " "
                self._line(f" {mark} {_titled(source['title'], source['url'])}")
        figures = [f"{told['turns']:,} turns", f"{told['seconds']:,.1f} s", told["ending"]]
        if told["tokens"] is not None:
            figures.insert(1, f"{told['tokens']:,} tokens")
        if told["cost"]:
            figures.append(f"US$ {told['cost']:.4f}")
        self._line("")
        self._line(" · ".join(figures), "dim")

    def _finding(self, event: Finding) -> None:
        if event.status not in ("ok", "empty"):
            self._line(f"  {event.status}: {_first_lines(event.text, 1)}", "red")
        elif event.hits:
            for hit in event.hits[:HITS]:
                self._line(f"  {_titled(hit.title, hit.url)}")
            if len(event.hits) > HITS:
                self._line(f"  … and {len(event.hits) - HITS:,} more", "dim")
        elif event.pages:
            for page in event.pages:
                self._line(f"  {page.url}")
                texts = "\n".join(page.texts) or "(nothing was read there)"
                self._line(_indented(_first_lines(texts, EVIDENCE_LINES)), "green")
        else:
            self._line(_indented(_first_lines(event.text, EVIDENCE_LINES)))

    def _line(self, text: str, style: str = "") -> None:
        self._console.print(Text(printable(text), style=style))


def _call(action: Any) -> str:
    match action:
        case Search(queries):
            return "search " + " | ".join(queries)
        case Visit(urls, goal):
            return "visit " + " ".join(urls) + (f" for: {goal}" if goal else "")
    return render_call(action)


def _titled(title: str, url: str) -> str:
    return f"{title}  {url}" if title else url


def _first_lines(text: str, count: int) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    shown = [
        line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]} …" for line in lines[:count]
    ]
    if len(lines) > count:
        shown[-1] += " …"
    return "\n".join(shown)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
