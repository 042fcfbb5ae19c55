"""Optional fields of requests to OpenAI-style servers: what a server takes, and by which name.

Servers and models differ in what they take: reasoning models want ``max_completion_tokens``
and no temperature, hosted ones know no ``top_k``, strict ones refuse what they don't know.  A
field that a server refuses by name is left out, now and from then on; that is said once.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, TypeVar

from drv_env.errors import SettingError, ToolError, said_by
from drv_env.tools.told import warn_once

T = TypeVar("T")

OPTIONAL = (
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "stop",
    "seed",
)
"""What a request can do without: then the server's own value holds."""

LIMITS = ("max_tokens", "max_completion_tokens")
"""What servers call the most tokens of a reply."""

_OF_A_VALUE = re.compile(
    r"too (large|small|high|low|big|long)|at (most|least)|(less|greater|more|smaller|larger) than"
    r"|between|range|exceed|maximum|minimum|must be"
)
_OF_THE_FIELD = re.compile(
    r"unsupported|not? (longer )?support|unknown|unrecogni[sz]|unexpected|not permitted|not allowed"
    r"|forbidden|extra|additional propert|deprecated|removed|no such|does not exist|instead"
    r"|not accept|only the default"
)


class RequestFields:
    """What one server takes.

    Args:
        leave_out: names among :data:`OPTIONAL` that are never sent.
        max_tokens_field: what the server calls the limit of a reply's tokens.

    Attributes:
        left_out: what is not sent: as asked for, and what the server has refused.
        limit: the name under which the limit is sent.

    Raises:
        SettingError: for a name that is no optional field, and for a blank limit.

    Example:
        >>> fields = RequestFields(["top_k"], "max_completion_tokens")
        >>> fields.fitted({"model": "m", "max_tokens": 9, "top_k": 20})
        {'model': 'm', 'max_completion_tokens': 9}
    """

    def __init__(
        self, leave_out: Collection[str] = (), max_tokens_field: str = "max_tokens"
    ) -> None:
        check_field_names(leave_out, max_tokens_field)
        self.left_out = set(leave_out)
        self.limit = max_tokens_field

    def fitted(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A request's body as the server takes it, as far as that is known."""
        kept = {name: value for name, value in body.items() if name not in self.left_out}
        return {self.limit if name == "max_tokens" else name: kept[name] for name in kept}

    async def send(
        self,
        body: Mapping[str, Any],
        once: Callable[[dict[str, Any]], Awaitable[T]],
        server: str,
    ) -> T:
        """Send a request, again without each field that the server refuses by name.

        What was refused is remembered only once the same request was accepted without it.

        Args:
            body: the request, with the limit as ``max_tokens``.
            once: sends it; may be called several times.
            server: its name, for the warning.

        Raises:
            ToolError: what ``once`` raises and no such change mends.
        """
        sent = self.fitted(body)
        refused: dict[str, tuple[str | None, str]] = {}  # the other name, the server's words
        while True:
            try:
                reply = await once(sent)
            except ToolError as error:
                name = _refused(error, [each for each in sent if each in {*OPTIONAL, *LIMITS}])
                if name is None:
                    raise
                other = self._other_name(name, refused)
                renamed = {} if other is None else {other: sent[name]}
                sent = {each: sent[each] for each in sent if each != name} | renamed
                refused[name] = other, said_by(error, 300)
            else:
                for name, (other, said) in refused.items():
                    self._remember(name, other, server, said)
                return reply

    def _other_name(self, name: str, refused: Collection[str]) -> str | None:
        """The other name of the limit, where ``name`` is one and the other was not refused."""
        if name not in LIMITS:
            return None
        (other,) = (each for each in LIMITS if each != name)
        return None if other in refused else other

    def _remember(self, name: str, other: str | None, server: str, said: str) -> None:
        if other is not None:
            self.limit, change = other, f"{other} is sent in its place"
        else:
            self.left_out.add("max_tokens" if name in LIMITS else name)
            change = "it is left out from now on, and the server's own value holds"
        warn_once(self, server, f"refuses {name}: {change} ({said})", name)


def check_field_names(
    leave_out: Collection[str],
    max_tokens_field: str,
    called: tuple[str, str] = ("leave_out", "max_tokens_field"),
) -> None:
    """Refuse names that can't work.

    Args:
        leave_out: must be among :data:`OPTIONAL`.
        max_tokens_field: any name.
        called: what the user calls the two.

    Raises:
        SettingError: naming the setting.
    """
    if isinstance(leave_out, str) or not set(leave_out) <= set(OPTIONAL):
        raise SettingError(
            f"{called[0]} must be names among {', '.join(OPTIONAL)}, got {leave_out!r:.200}"
        )
    if not re.fullmatch(r"\w+", max_tokens_field):
        raise SettingError(
            f"{called[1]} is the name of a field, such as {' or '.join(LIMITS)}, got "
            f"{max_tokens_field!r:.100}"
        )


def _refused(error: ToolError, sent: Collection[str]) -> str | None:
    """The field, of those sent, that a server's complaint is about."""
    if error.kind != "rejected":
        return None
    said = str(error)
    if _OF_A_VALUE.search(said.lower()) and not _OF_THE_FIELD.search(said.lower()):
        return None
    places = {
        name: found.start()
        for name in sent
        if (found := re.search(rf"(?<!\w){re.escape(name)}(?!\w)", said))
    }
    return min(places, key=places.__getitem__, default=None)
