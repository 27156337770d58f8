"""Workers and servers killed with -9 during an action: it continues by itself, and nothing is done twice."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from domain.faults import Fault, FaultKind
from domain.model import ActionResult, Outcome
from tests.patience import PATIENCE
from tests.test_platform.forkserver import ForkServer
from tests.test_platform.site import Site, open_site

MCI = "ns:default:mci:web"
SLOW = {"RATCHET_SIMULATED_LATENCY": "0.4", "RATCHET_SIMULATED_JITTER": "1"}


@pytest.fixture
async def site(tmp_path: Path, forkserver: ForkServer) -> AsyncIterator[Site]:
    async with open_site(tmp_path, forkserver, **SLOW) as found:
        yield found


async def begin(site: Site, action: str) -> asyncio.Task[Outcome]:
    """An action of which one VM takes its time, so that there is a middle to be killed in, on a busy machine too."""
    await site.hang(action, 60, "aws0-4")
    return asyncio.create_task(site.do(MCI, action, 4))


async def begin_until_healed(site: Site, action: str) -> asyncio.Task[Outcome]:
    """The same, but the call goes on soon after `site.cloud.clear_faults`: it meets one short hang after the other."""
    hang = Fault(kind=FaultKind.HANG, vm="aws0-4", verb=action, times=1, seconds=2)
    await site.cloud.set_faults([hang] * (PATIENCE // 2))
    return asyncio.create_task(site.do(MCI, action, 4))


@pytest.mark.parametrize(
    ("before", "action", "during", "effects"),
    [
        ([], "create", "Creating", 1),
        (["create"], "reboot", "Rebooting", 2),
        (["create"], "terminate", "Terminating", 2),
    ],
)
async def test_a_worker_killed_in_the_middle_of_an_action_is_replaced_and_nothing_is_done_twice(
    site: Site, before: list[str], action: str, during: str, effects: int
) -> None:
    async with site.worker():
        for earlier in before:
            await site.do(MCI, earlier, 4)
        running = await begin(site, action)
        await site.until_half_done(during)
        await site.until_hanging()  # or whoever takes over makes that call, and waits for all of its minute
    async with site.worker(), asyncio.timeout(PATIENCE):
        assert (await running).result is ActionResult.SUCCEEDED
    assert {vm.effects for vm in await site.cloud.list_all_vms()} == {effects}
    assert len(await site.cloud.list_all_vms()) == 4
    assert await site.inventory.list_locks() == []


async def test_a_server_killed_in_the_middle_of_an_action_comes_back_and_no_call_is_repeated(site: Site) -> None:
    site.program = "tests.test_platform.unhurried"  # nor because the server is away for long
    async with site.worker():
        assert (await site.do(MCI, "create", 4)).result is ActionResult.SUCCEEDED
        running = await begin_until_healed(site, "suspend")
        await site.until_half_done("Suspending")
        await site.restart_server()
        await site.cloud.clear_faults()
        async with asyncio.timeout(PATIENCE):
            assert (await running).result is ActionResult.SUCCEEDED
    assert {(vm.state, vm.calls, vm.effects) for vm in await site.cloud.list_all_vms()} == {("stopped", 2, 2)}
    assert await site.inventory.list_locks() == []


async def test_a_worker_told_to_stop_hands_its_action_over(site: Site) -> None:
    async with site.worker() as first:
        await site.do(MCI, "create", 4)
        running = await begin_until_healed(site, "reboot")
        await site.until_half_done("Rebooting")
        first.process.send_signal(signal.SIGTERM)
        await site.cloud.clear_faults()
        assert await first.process.wait() == 0
    async with site.worker(), asyncio.timeout(PATIENCE):
        assert (await running).result is ActionResult.SUCCEEDED
    assert {vm.effects for vm in await site.cloud.list_all_vms()} == {2}


async def test_a_worker_frozen_in_an_order_changes_nothing_when_later_actions_are_done(site: Site) -> None:
    """It is on the wire with one VM, and has not begun with others: neither may touch what a later action left."""
    async with site.worker() as frozen:
        await site.do(MCI, "create", 4)
        running = await begin_until_healed(site, "suspend")
        await site.until_half_done("Suspending")
        await site.freeze(frozen)
        await site.cloud.clear_faults()
        async with site.worker(), asyncio.timeout(PATIENCE):
            assert (await running).result is ActionResult.SUCCEEDED
            assert (await site.do(MCI, "resume", 4)).result is ActionResult.SUCCEEDED
            before = [(vm.path, vm.state, vm.effects) for vm in await site.cloud.list_all_vms()]
            frozen.process.send_signal(signal.SIGCONT)
            frozen.process.send_signal(signal.SIGTERM)  # it ends when all of its activities have
            await asyncio.wait_for(frozen.process.wait(), PATIENCE)
            assert [(vm.path, vm.state, vm.effects) for vm in await site.cloud.list_all_vms()] == before
            assert {vm.state for vm in await site.cloud.list_all_vms()} == {"running"}
