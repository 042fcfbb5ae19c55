"""A thousand calls at once, one in a hundred of each fault: all accounted for, nothing left."""

import asyncio
import gc
import os
import tracemalloc
from collections import Counter

from drv_env.play import run_call
from drv_env.protocol import Search, Visit
from drv_env.tasks import Task
from drv_env.tools.base import Call
from drv_env.tools.layers import InFlight, Metrics, TimeOut
from drv_env.tools.live.page_worker import WORKERS

TASK = Task("Q?", ("A",))
CALLS = 1000

# fault: (status and kind of a search, of a visit)
FAULTS = {
    "busy": ("failed/rate_limited", "refused/rate_limited"),
    "status500": ("failed/server_error", "refused/server_error"),
    "garbage": ("failed/bad_reply", "refused/not_text"),
    "never": ("failed/timeout", "refused/timeout"),
    "drip": ("failed/timeout", "refused/timeout"),
    "reset": ("failed/connection", "refused/connection"),
    "oversize": ("failed/bad_reply", "refused/too_large"),
    "redirect": ("failed/bad_reply", "refused/refused_address"),
    "bomb": ("failed/too_large", "refused/too_large"),
    "charset": ("failed/bad_reply", "ok"),
}


def fault_of(number):
    """One in a hundred of each fault, the rest as it should be."""
    faults = list(FAULTS)
    return faults[number % 100] if number % 100 < len(faults) else "ok"


LATE = ("never", "drip")
QUICK = [n for n in range(200) if fault_of(n) not in LATE]


def action(site, number):
    fault = fault_of(number)
    if (number // 100) % 2:
        return Search((f"q{number} fault:{fault}",))
    return Visit((site.url(f"{fault}-{number}"),), "founded")


def expected(number):
    search = (number // 100) % 2
    fault = fault_of(number)
    outcome = "ok" if fault == "ok" else FAULTS[fault][0 if search else 1]
    return f"{'search' if search else 'visit'}/{outcome}"


def open_files():
    return len(os.listdir("/proc/self/fd"))


class ByFault:
    """Waits long for what comes, and not for what never does."""

    def __init__(self, live, site):
        self.patient = live(site, seconds=300.0, attempts=1)
        self.hasty = live(site, seconds=0.5, attempts=1)
        self.schemas, self.clock = self.patient.schemas, self.patient.clock

    async def call(self, call):
        late = any(fault in str(call.action) for fault in LATE)
        return await (self.hasty if late else self.patient).call(call)

    async def close(self):
        for tools in (self.patient, self.hasty):
            await tools.close()
            await tools.shared.close()


async def play(site, other, live, numbers):
    site.other = other.base
    layers = Metrics(InFlight(TimeOut(ByFault(live, site), 400), 200))
    calls = (run_call(layers, Call(action(site, n), TASK), 500) for n in numbers)
    results = await asyncio.gather(*calls)
    await layers.close()
    return layers, results


def test_a_thousand_calls_are_all_accounted_for_and_leave_nothing(new_site, live):
    async def main():
        async with new_site() as site, new_site() as other:
            # After this imports, pools and caches are in place.
            await play(site, other, live, QUICK)
            gc.collect()
            tasks, files = len(asyncio.all_tasks()), open_files()
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            layers, results = await play(site, other, live, range(CALLS))
            del results[:]
            while len(asyncio.all_tasks()) > tasks:  # noqa: ASYNC110 - the server winds up
                await asyncio.sleep(0)
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0] - before
            tracemalloc.stop()
            return layers, other.hits, len(asyncio.all_tasks()) - tasks, open_files() - files, grown

    files = open_files()
    layers, reached, tasks, more_files, grown = asyncio.run(main())
    counted = Counter({"/".join(filter(None, key)): n for key, n in layers.calls.items()})
    assert counted == Counter(expected(number) for number in range(CALLS))
    assert counted.total() == CALLS
    assert layers.in_flight == 0
    assert not reached, "a redirect reached what it must not reach"
    assert tasks == 0
    assert more_files <= 0
    assert grown < 5_000_000, f"{grown} bytes more after a thousand calls"
    gc.collect()
    assert open_files() <= files + 2 + 3 * len(WORKERS._idle)  # which the tests keep
