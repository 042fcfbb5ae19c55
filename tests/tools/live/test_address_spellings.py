"""Hosts that are numbers, in every spelling: judged here, not by the HTTP library."""

import asyncio
import ipaddress
import random
import socket

import pytest
from aiohttp import web
from yarl import URL

from drv_env.addresses import AddressGuard, is_public
from drv_env.errors import ToolError
from drv_env.http import HttpClient
from drv_env.tools.live import JinaReader

INSIDE = ("127.0.0.1", "10.1.2.3", "169.254.169.254", "192.168.0.9", "0.0.0.0", "100.64.3.200")
OUTSIDE = ("93.184.216.34", "8.8.8.8", "1.1.1.1")


def numbers(part):
    """Spellings of one part, the whole number included."""
    return [
        str(part),
        f"0{part:o}",
        f"000{part:o}",
        f"0x{part:x}",
        f"0X{part:X}",
        f"0x000{part:x}",
        f"00{part}",
    ]


def spelled(address):
    """Spellings of an IPv4 address that some parser reads as it, the usual one left out."""
    parts = [int(part) for part in address.split(".")]
    whole = int(ipaddress.IPv4Address(address))
    shapes = [
        parts,
        [parts[0], parts[1], whole & 0xFFFF],
        [parts[0], whole & 0xFFFFFF],
        [whole],
    ]
    rng = random.Random(address)
    found = set()
    for shape in shapes:
        for turn in range(7):  # every part in the same spelling
            found.add(".".join(numbers(part)[turn] for part in shape))
        for _ in range(20):  # and mixed
            found.add(".".join(rng.choice(numbers(part)) for part in shape))
    digits = {
        "full-width": str.maketrans("0123456789", "０１２３４５６７８９"),
        "bold": str.maketrans("0123456789", "𝟎𝟏𝟐𝟑𝟒𝟓𝟔𝟕𝟖𝟗"),
        "superscript": str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"),
        "circled": str.maketrans("123456789", "①②③④⑤⑥⑦⑧⑨"),
        "arabic": str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩"),
    }
    for plain in (address, f"{parts[0]}.{whole & 0xFFFFFF}", str(whole)):
        for table in digits.values():
            found.add(plain.translate(table))
        for dot in ("。", "．", "｡"):
            found.add(plain.replace(".", dot))
        found.add(plain.replace(".", "%2e"))
        found.add("".join(f"%{ord(sign):02x}" for sign in plain))
        found |= {plain + end for end in (".", "..", "%20", "%00", "%00.good.org", "%09", "\u3002")}
        found.add(f"{plain[0]}\u200b{plain[1:]}")
        found.add(f"{plain[0]}\u00ad{plain[1:]}")
    return sorted(found - {address})


def inside_six(address):
    """IPv6 hosts, without brackets, that carry an IPv4 address inside."""
    high, low = divmod(int(ipaddress.IPv4Address(address)), 65536)
    pair = f"{high:x}:{low:x}"
    return [
        f"::ffff:{address}",
        f"::ffff:{pair}",
        f"::FFFF:{pair}",
        f"0:0:0:0:0:ffff:{pair}",
        f"::{pair}",
        f"::ffff:0:{pair}",
        f"64:ff9b::{pair}",
        f"64:ff9b:1::{pair}",
        f"2002:{pair}::1",
        f"2001:0:{pair}::1",
        f"2001:0:1:1::{high ^ 0xFFFF:x}:{low ^ 0xFFFF:x}",
        f"2606:4700::5efe:{pair}",
        f"2606:4700::200:5efe:{pair}",
        f"fe80::5efe:{pair}",
        f"::ffff:{address}%eth0",
        f"::ffff:{address}%251",
    ]


SPELLINGS = [spelling for address in INSIDE for spelling in spelled(address)]
OTHER_SIX = (
    *("::", "::1", "0:0:0:0:0:0:0:1", "::1%25lo", "fe80::1", "fe80::1%25eth0", "ff02::1"),
    *("fc00::1", "fdff::1", "fec0::1", "2001:db8::1", "3fff::1", "100::1", "5f00::1"),
)
SIX = [
    f"[{host}]"
    for host in [*(six for address in INSIDE for six in inside_six(address)), *OTHER_SIX]
]
AROUND = [
    "http://{}/",
    "HTTP://{}",
    "https://{}:443/x",
    "http://good.org@{}/",
    "http://good.org:80@{}/",
    "http://{}?@good.org/",
    "http://{}#@good.org/",
    "http://good.org\\@{}/",
    "http://good.org\t@{}/",
    "http://\n{}/",
    "http://{}\r/",
    "http:{}",
    "http:/{}",
    "http:///{}",
    "http:\\\\{}/",
    "//{}/",
]


def refusal(text, base=None):
    with pytest.raises(ToolError) as caught:
        AddressGuard().parse(text, base)
    return caught.value


@pytest.mark.parametrize("around", AROUND)
def test_no_spelling_of_an_address_inside_passes(around):
    for host in SPELLINGS + SIX + list(INSIDE):
        error = refusal(around.format(host))
        assert (error.kind, error.retryable) == ("refused_address", False), host


def test_a_number_passes_in_its_usual_spelling_alone():
    guard = AddressGuard()
    for address in OUTSIDE:
        assert guard.parse(f"http://{address}/x").raw_host == address
        for spelling in spelled(address):
            try:
                host = guard.parse(f"http://{spelling}/").raw_host
            except ToolError:
                continue
            # Unicode's other digits and dots are read as browsers read them.
            assert host == address, spelling
    for host in ("2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8", "2002:808:808::1"):
        assert guard.parse(f"https://[{host}]/").host


def test_names_pass():
    hosts = ("example.org", "EXAMPLE.org.", "a_b.example.org", "xn--bcher-kva.de", "bücher.de")
    for host in (*hosts, "1and1.com", "3com.com", "0x7f.org", "4.example", "127.0.0.1.nip.io"):
        assert AddressGuard().parse(f"http://{host}:8080/127.0.0.1?x=127.1")


@pytest.mark.parametrize(
    "url",
    [
        "http://good.example\\@other.example/",
        "http://good.example\\.other.example/",
        "http://good .example/",
        "http:// good.example/",
        "http://good\t.example/",
        "http://good.example/a\nb",
        "http://good.example/a\x7f",
        "http://good.example\x00/",
        "\x01http://good.example/",
        "http://[2606:4700::1111%25eth0]/",
        "http://[2606:4700::1111%251]/",
        "http://" + "a." * 600 + "example/",
        "http://user:" + "x" * 1_000 + "@good.example/",
        "http://good..example/",
        "http://good%2eexample/",
    ],
)
def test_what_parsers_read_in_different_ways_does_not_pass(url):
    assert refusal(url).kind == "refused_address"
    assert AddressGuard().parse("http://good.example/a b\\c") is not None


def test_what_the_system_takes_for_a_number_is_never_taken_for_a_name():
    """The oracle is the C library: random hosts that it reads as an address do not pass."""
    rng = random.Random(7)
    numeric = 0
    for _ in range(30_000):
        length = rng.randint(1, 12)
        host = "".join(rng.choice("0123456789.x.0af") for _ in range(length))
        try:
            socket.inet_aton(host)
        except OSError:
            continue
        numeric += 1
        try:
            url = AddressGuard().parse(f"http://{host}/")
        except ToolError:
            continue
        assert is_public(url.raw_host), host
        assert str(ipaddress.IPv4Address(url.raw_host)) == host
    assert numeric > 1_000


def test_redirects_are_read_with_the_same_eyes():
    base = URL("http://example.org/a/b")
    for host in SPELLINGS:
        for location in (f"http://{host}/", f"//{host}/x", f"https://good.org\\@{host}/"):
            assert refusal(location, base).kind == "refused_address", location
    assert str(AddressGuard().parse("../c?d=127.1", base)) == "http://example.org/c?d=127.1"


def test_nothing_is_connected_to_and_no_redirect_leads_inside():
    """Against a server on this machine, which must see none of them."""
    seen = []

    async def hit(request):
        seen.append(request.path)
        return web.Response(text="inside")

    async def main():
        away = []

        async def redirect(request):
            return web.Response(status=302, headers={"Location": away[0]})

        app = web.Application()
        app.router.add_get("/inside", hit)
        app.router.add_get("/away", redirect)
        runner = web.AppRunner(app, shutdown_timeout=0.05, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        open_to_one = HttpClient(guard=AddressGuard((f"127.0.0.1:{port}",)), timeout=20)
        closed = HttpClient(guard=AddressGuard(), timeout=20)
        kinds = set()
        hosts = [*spelled("127.0.0.1"), *(f"[{host}]" for host in inside_six("127.0.0.1"))]
        for host in hosts:
            url = f"http://{host}:{port}/inside"
            away[:] = [url.encode().decode("latin-1") if host.isascii() else f"//{host}/"]
            for http, asked in ((closed, url), (closed, f"http://127.0.0.1:{port}/away")):
                with pytest.raises(ToolError) as caught:
                    await http.request("GET", asked, redirects=3)
                kinds.add(caught.value.kind)
            if host.isascii():
                with pytest.raises(ToolError) as caught:
                    await open_to_one.request("GET", f"http://127.0.0.1:{port}/away", redirects=3)
                kinds.add(caught.value.kind)
        allowed = await open_to_one.request("GET", f"http://127.0.0.1:{port}/inside")
        await closed.close()
        await open_to_one.close()
        await runner.cleanup()
        return kinds, allowed.text()

    kinds, allowed = asyncio.run(main())
    assert kinds == {"refused_address"}
    assert allowed == "inside"
    assert seen == ["/inside"]


def test_the_last_check_is_on_the_address_that_is_connected_to(monkeypatch):
    """Even an HTTP library that took a name for a number would not get through."""
    monkeypatch.setattr(AddressGuard, "parse", lambda self, text, base=None: URL(text))
    monkeypatch.setattr("drv_env.http._Resolver.resolve", None)
    seen = []

    async def main():
        server = await asyncio.start_server(lambda *_: seen.append(1), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        http = HttpClient(guard=AddressGuard(), timeout=20)
        with pytest.raises(ToolError) as caught:
            await http.request("GET", f"http://127.0.0.1:{port}/")
        await http.close()
        server.close()
        await server.wait_closed()
        return caught.value.kind

    assert asyncio.run(main()) == "refused_address"
    assert not seen


def test_a_proxy_is_asked_for_none_of_them_either(new_site):
    async def main():
        async with new_site() as site:
            http = HttpClient(guard=AddressGuard(), proxy=site.base, timeout=20)
            reader = JinaReader((), endpoint=f"{site.base}/jina")
            kinds = set()
            for host in spelled("127.0.0.1"):
                for ask in (
                    http.request("GET", f"http://{host}:1/"),
                    reader.read(f"http://{host}/"),
                ):
                    with pytest.raises(ToolError) as caught:
                        await ask
                    kinds.add(caught.value.kind)
            await http.close()
            await reader.close()
            return kinds, site.hits.total()

    assert asyncio.run(main()) == ({"refused_address"}, 0)


@pytest.mark.parametrize(
    "address",
    [
        *("168.63.129.16", "192.88.99.1", "192.0.0.8", "255.255.255.255", "239.1.1.1"),
        *("2001:0:4136:e378::1", "2001:20::1", "3fff::1", "4000::1", "fe80::1", "100::1"),
    ],
)
def test_special_addresses_are_not_public(address):
    assert not is_public(address)
