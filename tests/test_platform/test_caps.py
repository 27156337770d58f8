"""The rate limits of a cloud hold over several worker processes, also when one of them dies and is replaced."""

from __future__ import annotations

import asyncio
from itertools import count

from domain.faults import Fault, Kind
from domain.limits import CLOUDS
from domain.model import Request
from tests.patience import PATIENCE
from tests.test_platform.site import Site

CSP, MANY, GROUPS = "aws", 10_000, 16
SETTLED = 0.3  # seconds in which nothing more came


class Calls:
    """Calls that hang: the cloud's own count of those that were ever made, by whatever process."""

    def __init__(self, site: Site) -> None:
        self._site, self._numbers = site, count()

    async def made(self) -> int:
        return MANY - sum(fault.times or 0 for fault in await self._site.cloud.faults())

    async def until(self, number: int) -> None:
        """One more action after the other, until so many calls are made: who takes its work is not ours to say."""
        async with asyncio.timeout(PATIENCE):
            while await self.settled() < number:
                path = f"ns:default:mci:m{next(self._numbers)}"
                ticket = await self._site.asking.ask(Request(path=path, action="reboot", requested_by="caps"))
                assert ticket.admission.grant, ticket.admission.refusal

    async def settled(self) -> int:
        """When nothing more comes."""
        found, before = await self.made(), -1
        while found != before:
            await asyncio.sleep(SETTLED)
            found, before = await self.made(), found
        return found


async def test_two_processes_never_have_more_in_flight_than_a_cloud_takes(site: Site) -> None:
    cap = CLOUDS[CSP]
    first, second = cap.share(1, 2).vms, cap.share(2, 2).vms
    assert first + second == cap.vms
    async with site.worker("--share", "1/2") as one:
        await asyncio.gather(*(site.do(f"ns:default:mci:m{n}", "create", 10) for n in range(GROUPS)))
        await site.cloud.add_fault(Fault(kind=Kind.HANG, csp=CSP, verb="reboot", times=MANY, seconds=600))
        calls = Calls(site)
        await calls.until(first)
        assert await calls.settled() == first
        async with site.worker("--share", "2/2"):
            await calls.until(cap.vms)
            assert await calls.settled() == cap.vms
            await site.kill(one)  # the one that is left takes over no more than its own share
            async with site.worker("--share", "1/2"):
                await calls.until(cap.vms + first)
                assert await calls.settled() == cap.vms + first, "as many as died with the first process"
