"""What a stranger's page costs is paid by a process that can be killed.

``python -m drv_env.tools.live.page_worker`` is that process (:mod:`drv_env.worker_process`);
:class:`PageWorkers` asks it.  All readers of a process share its workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from drv_env.http_reply import HttpReply
from drv_env.settings import above, checked_number, checked_whole
from drv_env.tools.live.pages import ReadPage
from drv_env.tools.passages import excerpt
from drv_env.workers import WorkerPool

WORKERS = WorkerPool("drv_env.tools.live.page_worker")
"""Started one by one as pages come at a time."""


class PageWorkers:
    """Finds texts, and passages of texts, in processes with limits.

    Pickling carries the limits.

    Args:
        seconds: of processor time for each.
        memory: bytes for each.

    Raises:
        SettingError: for a limit that isn't above 0.
    """

    def __init__(self, seconds: float = 10.0, memory: int = 1_000_000_000) -> None:
        checked_number("parse_seconds", seconds, above(0))
        checked_whole("parse_memory", memory, above(0, "bytes"))
        self._seconds = seconds
        self._memory = memory
        self._release: Callable[[], object] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return PageWorkers, (self._seconds, self._memory)

    async def read(self, reply: HttpReply, max_chars: int, max_pdf_pages: int) -> ReadPage:
        """The text of what a server sent.

        Raises:
            ToolError: of kind ``not_text`` when it can't be read, ``too_costly`` when that takes
                more than the limits.
        """
        said, text = await self._ask(
            {
                "task": "page",
                "reply": {**asdict(reply), "headers": dict(reply.headers), "body": ""},
                "max_chars": max_chars,
                "max_pdf_pages": max_pdf_pages,
            },
            reply.body,
        )
        return ReadPage(reply.url, str(said.get("title", "")), text, cut=bool(said.get("cut")))

    async def excerpt(self, text: str, goal: str, words: int) -> tuple[str, bool]:
        """What is shown of a text for a goal, and whether it was chosen for it.

        Raises:
            ToolError: of kind ``too_costly`` when that takes more than the limits.
        """
        said, found = await self._ask(
            {"task": "excerpt", "goal": goal, "words": words}, _packed(text)
        )
        return found, bool(said.get("matched"))

    async def _ask(self, header: dict[str, Any], body: bytes) -> tuple[dict[str, Any], str]:
        if self._release is None:
            self._release = WORKERS.lease(self)
        said, rest = await WORKERS.ask(header, body, seconds=self._seconds, memory=self._memory)
        return said, _unpacked(rest)

    def close(self) -> None:
        """End the workers if nobody else uses them; may be called twice, and used again after."""
        if self._release is not None:
            self._release()
            self._release = None


def _page(header: Mapping[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
    from drv_env.tools.live.extraction import page_text

    reply = HttpReply(**{**header["reply"], "body": body})
    title, text, cut = page_text(
        reply,
        max_chars=header["max_chars"],
        max_pdf_pages=header["max_pdf_pages"],
        seconds=header["seconds"],
    )
    return {"title": title, "cut": cut}, _packed(text)


def _excerpt(header: Mapping[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
    found = excerpt(_unpacked(body), header["goal"], header["words"])
    return {"matched": found.matched}, _packed(found.text)


def _packed(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _unpacked(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


if __name__ == "__main__":
    from drv_env.worker_process import serve

    serve({"page": _page, "excerpt": _excerpt})
