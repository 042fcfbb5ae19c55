"""Which hosts may be reached: public addresses only.

Urls that a model writes must not reach the machine's own network.  An
:class:`AddressGuard` judges what a connection is made to: the url's host as it is parsed,
and what a name resolved to, right before the connection is made to that very address, so
that a name that resolves differently the second time gains nothing.  Nothing rests on how
an HTTP library or an operating system reads a host that is a number: only the four decimal
parts of ``93.184.216.34`` and IPv6 in brackets pass, every other spelling is refused here.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from yarl import URL

from drv_env.errors import ToolError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_AUTHORITY = re.compile(r"[^/?#]*//([^/?#]*)")
_NOT_IN_AUTHORITY = re.compile(r"[\x00-\x20\x7f\\]")
_LONGEST_AUTHORITY = 1_000
"""Characters; a host has 253 at most, and longer ones take long to be put into ASCII."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NAME = re.compile(r"(?:[a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}\.?", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.IGNORECASE)
"""A last label that makes a host an IPv4 address (https://url.spec.whatwg.org/#ends-in-a-number-checker)."""

_NOT_PUBLIC_4 = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",  # answers to every machine of one large cloud, as its host
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
"""https://www.iana.org/assignments/iana-ipv4-special-registry, and multicast."""

_PUBLIC_6 = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC_6 = tuple(
    ipaddress.IPv6Network(network) for network in ("2001::/23", "2001:db8::/32", "3fff::/20")
)
"""https://www.iana.org/assignments/iana-ipv6-special-registry, within 2000::/3."""

_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_SIX_TO_FOUR = ipaddress.IPv6Network("2002::/16")
_ISATAP = (0x00005EFE, 0x02005EFE)


def is_public(address: str) -> bool:
    """Whether a numeric address belongs to the public internet.

    Private, loopback, link-local, multicast, reserved and unspecified addresses do not,
    nor do IPv6 addresses that carry such an IPv4 address inside.

    Example:
        >>> is_public("93.184.216.34"), is_public("169.254.169.254"), is_public("::ffff:10.0.0.1")
        (True, False, False)
    """
    try:
        parsed: Address = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv4Address):
        return _is_public_4(parsed)
    return _is_public_6(parsed)


def _is_public_4(address: ipaddress.IPv4Address) -> bool:
    return not any(address in network for network in _NOT_PUBLIC_4)


def _is_public_6(address: ipaddress.IPv6Address) -> bool:
    number = int(address)
    if address in _MAPPED or address in _NAT64:
        return _is_public_4(ipaddress.IPv4Address(number & 0xFFFFFFFF))
    if address not in _PUBLIC_6 or any(address in network for network in _NOT_PUBLIC_6):
        return False
    if address in _SIX_TO_FOUR and not _is_public_4(
        ipaddress.IPv4Address(number >> 80 & 0xFFFFFFFF)
    ):
        return False
    isatap = number >> 32 & 0xFFFFFFFF in _ISATAP
    return not isatap or _is_public_4(ipaddress.IPv4Address(number & 0xFFFFFFFF))


class RefusedPeer(OSError):
    """A connection was about to be made to an address that the guard does not let pass."""


def _is_number(host: str) -> bool:
    last = host.rstrip(".").rpartition(".")[2]
    # Digits of other scripts are no number to the parsers known, and none to rest on.
    return _NUMBER.fullmatch(last) is not None or last.isdigit()


def refused_url(message: str) -> ToolError:
    """The error for a url that will not be opened."""
    return ToolError(message, kind="refused_address")


@dataclass(frozen=True, slots=True)
class AddressGuard:
    """Lets connections go to public addresses only.

    Args:
        allow_private: exceptions, each ``"address:port"`` exactly, such as
            ``"127.0.0.1:8080"`` or ``"[::1]:8080"``; for tests against a local server.
    """

    allow_private: tuple[str, ...] = ()

    def parse(self, text: str, base: URL | None = None) -> URL:
        """The url that a text stands for, once it was judged by :meth:`check_url`.

        A text that parsers read in different ways is refused: one with control characters,
        or with a blank or a backslash before the path.

        Args:
            text: a url, as it was written.
            base: what a relative one is relative to.

        Raises:
            ToolError: of kind ``refused_address``.
        """
        if _CONTROL.search(text):
            raise refused_url("the url holds control characters")
        authority = _AUTHORITY.match(text)
        if authority is not None:
            if _NOT_IN_AUTHORITY.search(authority[0]):
                raise refused_url("the url's host holds a blank or a backslash")
            if len(authority[0]) > _LONGEST_AUTHORITY:
                raise refused_url("the url's host is too long")
        try:
            url = URL(text) if base is None else base.join(URL(text))
            self.check_url(url)
        except ValueError:
            raise refused_url("this is not a valid url") from None
        return url

    def check_url(self, url: URL) -> None:
        """Refuse other schemes than http and https, urls without a host, and numeric hosts
        that aren't public or aren't written as four decimal parts or IPv6 in brackets.

        Takes the parsed url that the connection is made with: two parsers may read one
        text differently.

        Raises:
            ToolError: of kind ``refused_address``.
        """
        if url.scheme not in ("http", "https"):
            shown = url.scheme[:20] or "none"
            raise refused_url(f"only http and https urls can be opened, this one's scheme: {shown}")
        host = url.raw_host
        if not host:
            raise refused_url("the url names no host")
        if ":" in host:
            self._check_number(host, url.port or 0, ipaddress.IPv6Address)
        elif not _NAME.fullmatch(host):
            raise refused_url("the url's host is not the name of a host")
        elif _is_number(host) or _is_number(url.host or ""):
            self._check_number(host, url.port or 0, ipaddress.IPv4Address)
        # Any other host is a name: its addresses are checked when it is resolved.

    def _check_number(self, host: str, port: int, kind: type[Address]) -> None:
        try:
            address = str(kind(host))
        except ValueError:
            address = ""
        if not address or "%" in host:
            raise refused_url(
                f"{host[:100]} is a number in a spelling that is not opened; "
                "four decimal parts, or IPv6 without a zone, are"
            )
        self.check(host, port, (address,))

    def check(self, host: str, port: int, addresses: Iterable[str]) -> None:
        """Refuse a host if any of its addresses is not public.

        Args:
            host: the name, for the message.
            port: where the connection will go.
            addresses: numeric addresses that the name resolved to.

        Raises:
            ToolError: of kind ``refused_address``.
        """
        for address in addresses:
            written = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
            if written not in self.allow_private and not is_public(address):
                raise refused_url(
                    f"{host[:100]} is not on the public internet, and only public pages are opened"
                )

    def open_socket(
        self, info: tuple[int | socket.AddressFamily, int, int, str, tuple[Any, ...]]
    ) -> socket.socket:
        """A socket for the connection that is made next, to the address in ``info``.

        The last check: whatever led to this address, the connection goes nowhere else.

        Args:
            info: as from :func:`socket.getaddrinfo`.

        Raises:
            RefusedPeer: when the address may not be reached.
        """
        family, kind, protocol, _, address = info
        try:
            self.check(str(address[0]), int(address[1]), (str(address[0]),))
        except ToolError as error:
            raise RefusedPeer(str(error)) from None
        return socket.socket(family, kind, protocol)
