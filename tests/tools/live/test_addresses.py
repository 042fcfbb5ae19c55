"""What may be reached from here: nothing but the public internet."""

import asyncio
import pickle
import socket

import pytest
from yarl import URL

from drv_env.addresses import AddressGuard, is_public
from drv_env.errors import ToolError
from drv_env.http import HttpClient


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.0.2.1",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fec0::1",
        "ff02::1",
        "2001:db8::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::a00:1",
        "2002:7f00:1::",
        "not an address",
        "",
    ],
)
def test_these_are_not_public(address):
    assert not is_public(address)


@pytest.mark.parametrize("address", ["93.184.216.34", "8.8.8.8", "2606:4700::1111"])
def test_these_are_public(address):
    assert is_public(address)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://127.0.0.1./",
        "http://127.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0177.0.0.1/",
        "http://①②⑦.0.0.1/",
        "http://１２７.0.0.1:1/",
        "http://localhost/",
        "http://LOCALHOST./",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://user:password@127.0.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "file:///etc/passwd",
        "ftp://example.org/",
        "gopher://example.org/",
        "javascript:alert(1)",
        "data:text/html,x",
        "//example.org/x",
        "example.org/x",
        "http:///x",
        "http://[/",
        "http://a:99999/",
        "",
        "\x00",
    ],
)
def test_a_guarded_client_does_not_open(url):
    async def main():
        http = HttpClient(guard=AddressGuard(), timeout=5)
        try:
            with pytest.raises(ToolError) as caught:
                await http.request("GET", url)
        finally:
            await http.close()
        return caught.value

    error = asyncio.run(main())
    assert error.kind in ("refused_address", "bad_url", "no_such_host")
    assert not error.retryable


def test_an_exception_holds_for_its_port_alone():
    guard = AddressGuard(("127.0.0.1:8080",))
    guard.check_url(URL("http://127.0.0.1:8080/x"))
    guard.check("localhost", 8080, ["127.0.0.1"])
    for host, port, address in [
        ("a", 8081, "127.0.0.1"),
        ("a", 8080, "127.0.0.2"),
        ("a", 8080, "::1"),
    ]:
        with pytest.raises(ToolError, match="not on the public internet"):
            guard.check(host, port, [address])
    assert pickle.loads(pickle.dumps(guard)) == guard


def test_one_private_address_among_public_ones_is_enough_to_refuse():
    with pytest.raises(ToolError):
        AddressGuard().check("two-faced.example", 80, ["93.184.216.34", "10.0.0.1"])


def test_a_name_that_resolves_to_another_address_the_second_time_gains_nothing(monkeypatch):
    """A name is resolved once a connection, and what was checked is connected to."""
    answers = ["93.184.216.34", "127.0.0.1"]
    connected = []

    async def rebinding(self, host, port, **_):
        address = (answers.pop(0), port)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address)]

    async def connect(addr_infos, **_):
        connected.extend(info[4][0] for info in addr_infos)
        raise OSError("no route")

    async def kind_of_failure():
        monkeypatch.setattr(type(asyncio.get_running_loop()), "getaddrinfo", rebinding)
        monkeypatch.setattr("aiohttp.connector.aiohappyeyeballs.start_connection", connect)
        http = HttpClient(guard=AddressGuard(), timeout=5)
        with pytest.raises(ToolError) as caught:
            await http.request("POST", "http://rebinding.example/")
        await http.close()
        return caught.value.kind

    assert asyncio.run(kind_of_failure()) == "connection"
    assert len(answers) == 1, "resolved once, for the check and for the connection"
    assert asyncio.run(kind_of_failure()) == "refused_address"
    assert connected == ["93.184.216.34"]


def test_a_proxy_may_be_private_but_what_it_is_asked_for_may_not(new_site):
    async def main():
        async with new_site() as site:
            http = HttpClient(guard=AddressGuard(), proxy=site.base, timeout=5)
            kinds = []
            for url in ("http://127.0.0.1:1/", "http://localhost:1/", f"{site.base}/page/ok"):
                with pytest.raises(ToolError) as caught:
                    await http.request("GET", url)
                kinds.append(caught.value.kind)
            await http.close()
            return kinds, site.hits

    kinds, hits = asyncio.run(main())
    assert kinds == ["refused_address"] * 3
    assert not hits


def test_a_host_of_more_than_a_thousand_characters_is_too_long():
    """With the scheme and its slashes; it takes long to be put into ASCII."""
    longest = "http://" + "a." * 496 + "a"
    assert len(longest) == 1_000
    assert AddressGuard().parse(longest).host == longest.removeprefix("http://")
    with pytest.raises(ToolError, match="too long"):
        AddressGuard().parse(longest + "a")
    assert AddressGuard().parse("http://e.org/" + "a" * 1_000).host == "e.org"
