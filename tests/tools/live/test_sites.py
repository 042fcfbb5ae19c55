"""A site that is down is news for the agent; only a service, or the network, breaks an episode."""

import asyncio
import socket

import gymnasium
import pytest

import drv_env
from drv_env.deadline import time_left
from drv_env.errors import SiteError, ToolError
from drv_env.play import run_call
from drv_env.protocol import Search, Visit, render_turn
from drv_env.retry import ONCE
from drv_env.tasks import Task
from drv_env.tools.base import Call, Status
from drv_env.tools.cassette import CassetteTools
from drv_env.tools.layers import Cache, CostMeter, TimeOut
from drv_env.tools.live import FetchReader, JinaReader, LiveTools, ReadPage
from drv_env.tools.live.network import HOSTS, Network

TASK = Task("Who founded the museum?", ("Ada Tavelin",))


def visits(tools, urls):
    """One visit after another: the results."""

    async def main():
        found = [await run_call(tools, Call(Visit((url,), "founder"), TASK), 60) for url in urls]
        await tools.close()
        return found

    return asyncio.run(main())


class Told:
    """A reader that gives or raises what a url ends in."""

    direct = True

    def __init__(self, fates):
        self.fates = fates

    async def read(self, url):
        fate = self.fates[url.rpartition("/")[2]]
        if isinstance(fate, Exception):
            raise fate
        return ReadPage(url, "The mill", fate)

    async def close(self):
        pass


FATES = {
    "down": SiteError("the server answered 503", kind="server_error", retryable=True),
    "reset": SiteError("the connection failed", kind="connection", retryable=True),
    "slow": SiteError("no full reply", kind="timeout", retryable=True),
    "dns": SiteError("the host was not found", kind="no_such_host", retryable=True),
    "gone": SiteError("the host was not found", kind="no_such_host"),
    "tls": SiteError("no secure connection", kind="tls"),
    "service": ToolError("the reader is out of order", kind="server_error", retryable=True),
    "fine": "The mill was built in 1912.",
}


def endings(fates, vector=False):
    """An episode of such visits: the endings after each, and the observations."""
    tools = LiveTools(reader=Told(FATES), retry=ONCE)
    turns = [
        render_turn("I open it.", Visit((f"https://{n}.example.org/{fate}",), "year"))
        for n, fate in enumerate(fates)
    ]
    tasks = [("When was the mill built?", "1912")]
    found, seen = [], []
    if vector:
        env = gymnasium.make_vec(drv_env.ENV_ID, num_envs=1, tasks=tasks, tools=tools)
        env.reset(seed=0)
        for turn in turns:
            observations, _, _, truncated, _ = env.step([turn])
            seen.append(observations[0])
            found.append(bool(truncated[0]))
    else:
        env = gymnasium.make(drv_env.ENV_ID, tasks=tasks, tools=tools)
        env.reset(seed=0)
        for turn in turns:
            observation, _, _, truncated, _ = env.step(turn)
            seen.append(observation)
            found.append(truncated)
            if truncated:
                break
    env.close()
    return found, seen


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("fate", ["down", "reset", "slow", "dns", "gone", "tls"])
def test_sites_that_are_down_break_no_episode(fate, vector):
    found, seen = endings([fate] * 5, vector)
    assert found == [False] * 5
    assert all("fault of the tool" not in text for text in seen)


def test_a_service_that_is_down_breaks_it_and_a_site_between_does_not():
    assert endings(["service"] * 3)[0] == [False, False, True]
    assert endings(["down", "service", "service", "service"])[0] == [False, False, False, True]


def test_several_sites_in_one_visit_have_fates_of_their_own():
    tools = LiveTools(reader=Told(FATES), retry=ONCE)
    urls = tuple(f"https://{fate}.example.org/{fate}" for fate in ("down", "fine", "gone"))

    async def main():
        every = await tools.call(Call(Visit(urls, "year"), TASK))
        dead = await tools.call(Call(Visit(urls[:1] * 2, "year"), TASK))
        return every, dead

    every, dead = asyncio.run(main())
    assert [part["status"] for part in every.data] == ["refused", "ok", "empty"]
    assert every.status is Status.OK
    assert dead.status is Status.REFUSED


def test_a_network_that_is_down_is_told_apart_from_sites_that_are():
    hosts = [f"https://{n}.example.org/reset" for n in range(HOSTS + 2)]
    results = visits(LiveTools(reader=Told(FATES), retry=ONCE), hosts)
    assert [result.status for result in results[: HOSTS - 1]] == [Status.REFUSED] * (HOSTS - 1)
    assert [result.status for result in results[HOSTS - 1 :]] == [Status.FAILED] * 3
    assert results[-1].data[0]["kind"] == "network"
    assert "this machine's network seems to be down" in results[-1].text


def test_one_host_again_and_again_and_an_answer_in_between_are_no_outage():
    same = [f"https://example.org:{8000 + n}/reset" for n in range(3 * HOSTS)]
    results = visits(LiveTools(reader=Told(FATES), retry=ONCE), same)
    assert {result.status for result in results} == {Status.REFUSED}
    mixed = [
        f"https://{n}.example.org/{'down' if n % HOSTS == HOSTS - 1 else 'dns'}"
        for n in range(3 * HOSTS)
    ]
    results = visits(LiveTools(reader=Told(FATES), retry=ONCE), mixed)
    assert {result.status for result in results} == {Status.REFUSED}


def test_hosts_that_do_not_exist_are_no_outage():
    network = Network()
    for n in range(3 * HOSTS):
        assert network.judged(FATES["gone"], f"https://{n}.example.org") is FATES["gone"]


def test_what_is_real_is_judged_alike(new_site):
    """Closed ports, a name that nobody has, and a server that never answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{free.getsockname()[1]}"

        async def main():
            async with new_site() as site:
                reader = FetchReader(allow_private=(closed, site.address), timeout=5)
                tools = LiveTools(reader=reader, retry=ONCE, deadline=0.3)
                urls = (f"http://{closed}/", "http://no-such.invalid/", site.url("never"))
                found = [await tools.call(Call(Visit((url,), "x"), TASK)) for url in urls]
                await tools.close()
                return found

        found = asyncio.run(main())
    assert [result.data[0]["kind"] for result in found[::2]] == ["connection", "timeout"]
    assert {result.status for result in found} <= {Status.REFUSED, Status.EMPTY}


@pytest.mark.parametrize("layer", [None, 0.5])
def test_a_slow_site_is_told_of_before_the_call_is_given_up(new_site, layer):
    """By the env's time-out, or a layer's, whichever is shorter."""

    async def main():
        async with new_site() as site:
            live = LiveTools(reader=FetchReader(allow_private=(site.address,)))
            tools = live if layer is None else CostMeter(TimeOut(live, layer))
            urls = (site.url("never"), "ftp://a.org/x")
            call = Call(Visit(urls, "founded"), TASK)
            result = await run_call(tools, call, 300 if layer else 2.0)
            outside = time_left()
            await tools.close()
            return result, outside

    result, outside = asyncio.run(main())
    assert [part["status"] for part in result.data] == ["refused", "refused"]
    assert [part["kind"] for part in result.data] == ["timeout", "refused_address"]
    assert outside is None


@pytest.mark.parametrize("fault", ["wall", "status503", "reset"])
@pytest.mark.parametrize("beside", [(), ("ok",)])
def test_neither_a_wall_nor_a_dead_site_is_kept(new_site, tmp_path, fault, beside):
    async def main():
        async with new_site() as site:
            reader = FetchReader(allow_private=(site.address,))
            live = LiveTools(reader=reader, retry=ONCE)
            tools = CassetteTools(CostMeter(Cache(live)), tmp_path / "cassette")
            urls = tuple(site.url(name) for name in (fault, *beside))
            call = Call(Visit(urls, "founded"), TASK)
            results = [await tools.call(call) for _ in range(2)]
            count, hits = await tools.recorded(call), site.hits[fault]
            await tools.close()
            return results, count, hits

    results, recorded, hits = asyncio.run(main())
    assert recorded is None
    assert hits >= 2, "it was asked for anew"
    for result in results:
        assert result.status is (Status.OK if beside else Status.REFUSED)
        assert result.data[0]["status"] == "refused"
        assert "Verify you are human" not in result.text


def test_a_wall_costs_what_the_service_took(new_site):
    async def main():
        async with new_site() as site:
            reader = JinaReader(endpoint=f"{site.base}/jina", price=0.02)
            wall = {"title": "Just a moment...", "content": "## a.org\n\nVerify you are human"}

            async def answer(request, fault, ok, kind):
                from aiohttp import web

                data = {**wall, "usage": {"tokens": 1000}}
                return web.json_response({"code": 200, "data": data})

            site._answer = answer
            tools = LiveTools(reader=reader, retry=ONCE)
            result = await tools.call(Call(Visit(("https://a.org/x",), "founder"), TASK))
            await tools.close()
            return result

    result = asyncio.run(main())
    assert result.status is Status.REFUSED
    assert result.cost == pytest.approx(1000 * 0.02 / 1e6)
    assert "asks its visitors to prove that they are no robots" in result.text


def test_a_search_says_that_the_network_is_there(new_site, live):
    """A search between the pages is an answer from far away."""

    async def main():
        async with new_site() as site:
            tools = live(site, attempts=1)
            for n in range(HOSTS - 1):
                tools._network.judged(FATES["reset"], f"https://{n}.example.org")
            await tools.call(Call(Search(("museum",)), TASK))
            error = tools._network.judged(FATES["reset"], "https://last.example.org")
            await tools.close()
            await tools.shared.close()
            return error

    assert asyncio.run(main()) is FATES["reset"]
