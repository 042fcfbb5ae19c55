"""Is it the site that can't be reached, or this machine's own network?

One site that is down is a fact about that site, and so are two.  When no connection at all
comes about with many different hosts, one after the other and with nothing in between that
answered, it is the network here.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from drv_env.errors import SiteError, ToolError

HOSTS = 10
"""Different hosts in a row with which no connection comes about, from which on the network is
down.  An agent seldom names so many that are, and one without network soon has."""


class Network:
    """What is known of this machine's network, from the pages that were asked for."""

    def __init__(self) -> None:
        self._lost: set[str] = set()

    def answered(self) -> None:
        """Something far away answered, whatever it said."""
        self._lost.clear()

    def judged(self, error: ToolError, url: str) -> ToolError:
        """A page's failure as it is, or as one of the network's.

        Counted are a connection that did not come about or broke, and names that could not be
        asked for.  A host that does not exist is none of either.
        """
        if not isinstance(error, SiteError):
            return error
        if error.kind != "connection" and not (error.kind == "no_such_host" and error.retryable):
            if error.kind not in ("no_such_host", "timeout", "bad_url", "refused_address"):
                self.answered()
            return error
        self._lost.add(_host(url))
        if len(self._lost) < HOSTS:
            return error
        return ToolError(
            f"none of the last {len(self._lost)} sites could be reached, so this machine's network "
            f"seems to be down ({error})",
            kind="network",
            cost=error.cost,
        )


def _host(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""
