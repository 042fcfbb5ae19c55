"""A page as text, and whoever can bring one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ReadPage:
    """What stands on a page.

    Attributes:
        url: where it was found, after redirects.
        title: may be empty.
        text: its main text, as Markdown or plain; may be blank.
        cost: US dollars.
        cut: only the beginning of the text is here.
    """

    url: str
    title: str
    text: str = field(repr=False)
    cost: float = 0.0
    cut: bool = False


class PageReader(Protocol):
    """Brings one page at a time."""

    async def read(self, url: str) -> ReadPage:
        """The page.

        Raises:
            SiteError: when the site is the reason why it can't be had.
            ToolError: for whatever else; :mod:`drv_env.tools.parts` lists the kinds that
                speak of the page and not of the tool.
        """
        ...

    async def close(self) -> None:
        """Give back what the reader holds; may be called twice."""
        ...


def is_direct(reader: object) -> bool:
    """Whether pages come from their sites, without a service between, as the reader says.

    A reader that does so has an attribute ``direct``, and it is True: what takes too long is
    then the site's fault.
    """
    return getattr(reader, "direct", False) is True
