"""A stopping worker: calls in flight end, or another worker repeats them; nothing is done twice."""

from __future__ import annotations

import asyncio
import signal

from domain.model import ActionResult
from tests.patience import PATIENCE
from tests.test_platform.site import Site

WEB = "ns:default:mci:web"


async def test_calls_that_end_in_time_are_waited_for_and_longer_ones_are_handed_over(site: Site) -> None:
    site.program = "tests.test_platform.unhurried"  # no call is made again because the machine kept a worker waiting
    async with site.worker(RATCHET_DRAIN=str(PATIENCE)) as first:
        await site.do(WEB, "create")
        await site.hang("reboot", 5)  # another worker has started when this ends
        running = asyncio.create_task(site.do(WEB, "reboot"))
        await site.until_hanging()
        async with site.worker() as second:
            first.process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(first.process.wait(), PATIENCE) == 0
            assert (await asyncio.wait_for(running, PATIENCE)).result is ActionResult.SUCCEEDED
            assert {vm.calls for vm in await site.books()} == {2}, "create and reboot: the call was not made again"

            await site.hang("suspend", 10 * PATIENCE)
            running = asyncio.create_task(site.do(WEB, "suspend"))
            await site.until_hanging()
            async with site.worker():
                second.process.send_signal(signal.SIGTERM)
                assert await asyncio.wait_for(second.process.wait(), PATIENCE) == 0, "it does not wait for such a call"
                assert (await asyncio.wait_for(running, PATIENCE)).result is ActionResult.SUCCEEDED
    assert {vm.state for vm in await site.books()} == {"stopped"}
    assert {vm.effects for vm in await site.books()} == {3}
    assert await site.inventory.list_locks() == []
