"""Which hosts may be reached: public addresses only.

Urls that a model writes must not reach the machine's own network.  An
:class:`AddressGuard` judges addresses, not names: it is asked with what a name resolved
to, right before the connection is made to that very address, so that a name that
resolves differently the second time gains nothing.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from yarl import URL

from drv_env.errors import ToolError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))
_COMPATIBLE = ipaddress.ip_network("::/96")


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
    return _is_public(parsed)


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        inner = _embedded(address)
        if inner is not None:
            return _is_public(inner)
        if address.is_site_local:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _embedded(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if any(address in network for network in (*_NAT64, _COMPATIBLE)):
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None


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

    def check_url(self, url: URL) -> None:
        """Refuse other schemes than http and https, urls without a host, and numeric hosts
        that aren't public.

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
        try:
            ipaddress.ip_address(host.partition("%")[0].rstrip("."))
        except ValueError:
            return  # a name: its addresses are checked when it is resolved
        self.check(host, url.port or 0, (host.rstrip("."),))

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
