"""A tenant with a project and a pool of its own, whose clock the test can move."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import TimeSkipper

from client.actions import ActionClient, Ticket
from domain.faults import Fault
from domain.leases.messages import HeldHost, LeaseView
from domain.leases.names import pool_clock_id
from domain.leases.tables import LEASE
from domain.model import HistoryLine, Outcome, Refusal, Request
from providers.leases.hosts import PROVIDER_NAME, SimulatedHosts
from store.leases import SqlLeaseViews
from tests.patience import PATIENCE
from tests.stack import family_of
from workers.leases import LeaseFamily
from workers.service import WorkerService

HOUR = timedelta(hours=1)


def at(moment: datetime) -> str:
    return moment.isoformat()


@dataclass(frozen=True)
class Tenant:
    asking: ActionClient
    service: WorkerService
    name: str

    @property
    def books(self) -> SimulatedHosts:
        return SimulatedHosts(self.service.cloud_database)

    def lease(self, name: str = "l1") -> str:
        return f"project:{self.name}:lease:{name}"

    def host(self, name: str) -> str:
        return f"pool:{self.name}:host:{name}"

    def reservation(self, number: int = 1, lease: str = "l1") -> str:
        return f"{self.lease(lease)}:reservation:r{number}"

    def event(self, name: str, lease: str = "l1") -> str:
        return f"{self.lease(lease)}:event:{name}"

    async def ask(self, path: str, action: str, spec: dict[str, Any] | None = None, **more: Any) -> Ticket:
        return await self.asking.request_action(
            Request(path=path, action=action, spec=spec, requested_by="tester", **more)
        )

    async def do(self, path: str, action: str, spec: dict[str, Any] | None = None, **more: Any) -> Outcome:
        return await self.end(await self.ask(path, action, spec, **more))

    async def end(self, ticket: Ticket) -> Outcome:
        assert ticket.admission.refusal is None, ticket.admission.refusal
        return await self.asking.wait_for_outcome(ticket.path, ticket.run)

    async def refused(self, path: str, action: str, spec: dict[str, Any] | None = None) -> Refusal:
        ticket = await self.ask(path, action, spec)
        assert ticket.admission.refusal is not None, ticket.admission.grant
        return ticket.admission.refusal

    async def add_hosts(self, *names: str, **spec: Any) -> None:
        await asyncio.gather(*(self.do(self.host(name), "add", spec) for name in names))

    async def create(self, name: str = "l1", start: str = "+1h", end: str = "+3h", **more: Any) -> Outcome:
        """A lease of one host, unless something else is said."""
        what = more if {"hosts", "reservations"} & more.keys() else {**more, "hosts": 1}
        return await self.do(self.lease(name), "create", {"start": start, "end": end, "pool": self.name, **what})

    async def update(self, name: str = "l1", **change: Any) -> Outcome:
        return await self.do(self.lease(name), "update", change)

    async def see(self, name: str = "l1") -> LeaseView:
        return await SqlLeaseViews(self.service.database).read_lease(self.lease(name))

    async def status(self, name: str = "l1") -> str:
        return (await self.see(name)).status

    async def statuses(self, name: str = "l1") -> tuple[str, list[str], list[str]]:
        """Of the lease, its reservations and its three events."""
        seen = await self.see(name)
        return (
            seen.status,
            [reservation.status for reservation in seen.reservations],
            [event.status for event in seen.events],
        )

    async def history(self, path: str) -> list[HistoryLine]:
        return await self.service.inventory.read_history(path, 1_000)

    async def told(self, path: str) -> list[tuple[str, str, str]]:
        return [(line.action, line.source, line.to) for line in await self.history(path)]

    async def held(self) -> dict[str, str]:
        """Who holds which host of this pool, as the site has it."""
        books: list[HeldHost] = []
        last = ("", "")
        while page := await self.books.list_existing_objects("", last):
            books += page
            last = (page[-1].reservation, page[-1].host)
        mine = f"pool:{self.name}:host:"
        return {book.host.removeprefix(mine): book.reservation for book in books if book.host.startswith(mine)}

    async def fault(self, kind: str, what: str, **more: Any) -> None:
        """A fault of the site, for one host or reservation of this test."""
        await self.service.simulated["aws"].add_fault(
            Fault(kind=kind, vm=what, csp=PROVIDER_NAME, region=self.name, **more)
        )

    async def heal_faults(self) -> None:
        cloud = self.service.simulated["aws"]
        await cloud.set_faults([fault for fault in await cloud.list_faults() if fault.region != self.name])

    @contextmanager
    def hasty(self) -> Iterator[None]:
        """A site that says no is soon given up. A call may take as long as ever."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(vars(family_of(self.service, LeaseFamily).retry), "total_seconds", 5)
            yield

    @contextmanager
    def patient(self) -> Iterator[None]:
        """A site that is asked again, and whose answer is waited for, as long as tests do."""
        with pytest.MonkeyPatch.context() as patch:
            for limit in ("call_seconds", "total_seconds"):
                patch.setitem(vars(family_of(self.service, LeaseFamily).retry), limit, PATIENCE)
            yield

    # The clock

    def clock(self) -> WorkflowHandle[Any, Any]:
        return self.asking.client.get_workflow_handle(pool_clock_id(self.name))

    async def stop_clock(self) -> None:
        """The pool's clock is ended from outside, if it runs."""
        try:
            await self.clock().terminate()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise

    async def forward(self, by: timedelta) -> None:
        """The pool's clock moves on by so much; what falls due on the way is done, in its order."""
        await TimeSkipper(self.asking.client).fast_forward(self.clock(), by)

    async def now(self) -> datetime:
        """What the pool's clock says."""
        return await TimeSkipper(self.asking.client).get_current_time(self.clock())

    async def until(self, true: Callable[[LeaseView], bool], name: str = "l1") -> LeaseView:
        seen = await self.see(name)
        try:
            async with asyncio.timeout(PATIENCE):
                while not true(seen):
                    await asyncio.sleep(0.05)
                    seen = await self.see(name)
        except TimeoutError:
            raise AssertionError(f"it did not happen: {seen}") from None
        return seen

    async def until_status(self, status: str, name: str = "l1") -> LeaseView:
        """Until the lease is so and, if that is a status of rest, the action that brought it there has closed."""
        seen = await self.until(lambda seen: seen.status == status, name)
        if status in LEASE.stable_statuses:
            await self.closed(self.lease(name))
        return seen

    async def closed(self, path: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while (found := await self.asking.newest_run(path)) and found.status is WorkflowExecutionStatus.RUNNING:
                await asyncio.sleep(0.05)

    async def until_held(self, count: int) -> None:
        """Until so many hosts are in somebody's hands."""
        async with asyncio.timeout(PATIENCE):
            while len(await self.held()) != count:
                await asyncio.sleep(0.05)

    async def at_rest(self) -> None:
        """Nothing under way: no lock is held, and the site agrees with the inventory."""
        assert await self.service.inventory.list_locks(f"project:{self.name}") == []
        active = [
            (host, f"{lease.path}:reservation:{reservation.id}")
            for lease in await SqlLeaseViews(self.service.database).read_leases(f"project:{self.name}", "", 1_000)
            for reservation in lease.reservations
            if reservation.status == "active"
            for host in reservation.hosts
        ]
        assert sorted((await self.held()).items()) == sorted(active)


def soon(hours: float = 0) -> datetime:
    """A moment so many hours from now."""
    return datetime.now(UTC).replace(microsecond=0) + timedelta(hours=hours)
