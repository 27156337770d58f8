"""A user of the running stack, with access to the inventory and to the clouds' records."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from client.actions import ActionClient, Ticket
from domain.faults import Fault
from domain.model import HistoryLine, ObjectView, Outcome, Request
from domain.ports import VmState
from providers.simulated import SimulatedVm
from providers.simulated.tables import vms
from tests.patience import PATIENCE
from workers.service import WorkerService


def spec(size: int = 2, csps: Sequence[str] = ("aws", "gcp"), regions: int = 1) -> dict[str, Any]:
    """`size` VMs in each region of each cloud, in subgroups named after the cloud and the region's number."""
    return {
        "subGroups": [
            {"name": f"{csp}{n}", "subGroupSize": size, "csp": csp, "region": f"r{n}"}
            for csp in csps
            for n in range(regions)
        ]
    }


@dataclass(frozen=True)
class User:
    asking: ActionClient
    service: WorkerService
    ns: str

    def region(self, n: int = 0) -> str:
        """A region that no other test uses."""
        number = self.ns.removeprefix("t")
        return f"r{100 + 10 * int(number if number.isdigit() else 0) + n}"

    def groups(self, *csps: str, size: int = 2, n: int = 0, **more: Any) -> dict[str, Any]:
        """`size` VMs in this test's own region of each cloud."""
        return {
            "subGroups": [
                {"name": csp, "subGroupSize": size, "csp": csp, "region": self.region(n)} for csp in csps or ("aws",)
            ],
            **more,
        }

    async def shared(self, csp: str = "aws", n: int = 0) -> dict[str, int]:
        """Shared resources in this test's own region, with the number of calls that made each."""
        found = await self.service.simulated[csp].list_shared_resources()
        return {what: calls for region, what, calls in found if region == self.region(n)}

    async def place_fault(self, kind: str, csp: str = "aws", **more: Any) -> None:
        """A fault of this test's own region."""
        await self.service.simulated["aws"].add_fault(Fault(kind=kind, csp=csp, region=self.region(0), **more))

    def mci(self, name: str = "web") -> str:
        return f"ns:{self.ns}:mci:{name}"

    def vm(self, name: str, mci: str = "web") -> str:
        return f"{self.mci(mci)}:vm:{name}"

    async def ask(self, path: str, action: str, **more: Any) -> Ticket:
        return await self.asking.request_action(Request(path=path, action=action, requested_by="tester", **more))

    async def admitted(self, path: str, action: str, **more: Any) -> Ticket:
        ticket = await self.ask(path, action, **more)
        assert ticket.admission.refusal is None, ticket.admission.refusal
        return ticket

    async def do(self, path: str, action: str, **more: Any) -> Outcome:
        """An action from the request to its outcome; it must be admitted."""
        ticket = await self.admitted(path, action, **more)
        return await self.asking.wait_for_outcome(path, ticket.run)

    async def refused(self, path: str, action: str, **more: Any) -> str:
        """The message with which the request is refused; it must be refused."""
        ticket = await self.ask(path, action, **more)
        assert ticket.admission.refusal is not None, ticket.admission.grant
        return ticket.admission.refusal.message

    async def fault(self, kind: str, vm: str = "*", **more: Any) -> None:
        """A fault for VMs of this test's namespace only."""
        await self.service.simulated["aws"].add_fault(Fault(kind=kind, vm=f"ns:{self.ns}:*:vm:{vm}", **more))

    async def heal_faults(self) -> None:
        """Remove this test's faults."""
        cloud = self.service.simulated["aws"]
        mine = {self.region(n) for n in range(10)}
        kept = [
            fault
            for fault in await cloud.list_faults()
            if f"ns:{self.ns}:" not in fault.vm and fault.region not in mine
        ]
        await cloud.set_faults(kept)

    async def see(self, path: str) -> ObjectView:
        return await self.service.inventory.read_object(path, members=True)

    async def history(self, path: str) -> list[HistoryLine]:
        return await self.service.inventory.read_history(path, 1_000)

    async def books(self) -> dict[str, list[SimulatedVm]]:
        """The clouds' own VMs, by path."""
        found: dict[str, list[SimulatedVm]] = {}
        for cloud in self.service.simulated.values():
            for vm in await cloud.list_all_vms():
                if vm.path.startswith(f"ns:{self.ns}:"):
                    found.setdefault(vm.path, []).append(vm)
        return found

    async def until_delayed(self, *paths: str) -> None:
        """Wait until calls about all of these VMs have met a fault that delays them.

        Not only until they are under way: a call that is may not have met its fault yet, and never does if the fault
        is removed in this moment.
        """
        clouds = self.service.simulated.values()
        async with asyncio.timeout(PATIENCE):
            while not set(paths) <= {path for cloud in clouds for path in cloud.delayed_paths()}:
                await asyncio.sleep(0.01)

    async def until_status(self, path: str, status: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while (await self.service.inventory.read_object(path)).status != status:
                await asyncio.sleep(0.05)

    async def lose(self, path: str) -> None:
        """Remove the VM in its cloud, without our knowledge."""
        gone = sa.delete(vms).where(vms.c.path == path)
        await self.service.cloud_database.run_transaction(lambda connection: connection.execute(gone).rowcount)

    async def books_agree(self, mci: str = "web") -> None:
        """Check I2 and I3: nothing is transitional or locked, and every VM has the status that its cloud reports."""
        seen = await self.see(self.mci(mci))
        expected = {VmState.RUNNING: "Running", VmState.STOPPED: "Suspended", VmState.TERMINATED: "Terminated"}
        books = await self.books()
        for vm in seen.members:
            real = books.get(vm.path, [])
            assert len(real) <= 1, f"more than one cloud VM for {vm.path}"
            truth = expected[VmState(real[0].state)] if real else "Failed"
            assert vm.status == truth, f"{vm.path} is {vm.status}, the cloud says {truth}"
            assert (vm.target_action, vm.target_status) == ("None", "None")
        assert await self.service.inventory.list_locks(self.mci(mci)) == []
        assert (seen.target_action, seen.target_status) == ("None", "None")
