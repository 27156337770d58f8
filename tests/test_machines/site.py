"""An account per test with the objects that it needs, and the hypervisor's view of them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from activities.machines import MachineActivities
from activities.machines.listing import HypervisorListing
from activities.orphans import OrphanActivities
from activities.retry import NEARBY
from client.actions import ActionClient, Ticket
from domain.faults import Fault
from domain.machines.messages import HypervisorResult, HypervisorTask
from domain.machines.ports import Hypervisor, HypervisorOrder, state_expected_in_status
from domain.machines.tables import TABLES
from domain.model import (
    ActionEnding,
    ActionResult,
    BeginRequest,
    Grant,
    HistoryLine,
    ObjectView,
    Outcome,
    Refusal,
    Request,
)
from domain.statetable import NONE
from providers.machines import PROVIDER_NAME, SimulatedHypervisor, state
from tests.environment import activity_environment
from tests.patience import PATIENCE
from tests.stack import family_of
from workers.machines import MachineFamily
from workers.service import WorkerService

MANY = 1_000  # uses of a rule that is not used up


@dataclass(frozen=True)
class MachineSite:
    asking: ActionClient
    service: WorkerService
    name: str
    hangs: dict[tuple[str, str], asyncio.Event] = field(default_factory=dict)  # by path and verb

    @property
    def hypervisor(self) -> SimulatedHypervisor:
        found = family_of(self.service, MachineFamily).hypervisor
        assert isinstance(found, SimulatedHypervisor)
        return found

    @property
    def account(self) -> str:
        return f"account:{self.name}"

    def space(self, name: str = "dev") -> str:
        return f"{self.account}:cloudspace:{name}"

    def machine(self, name: str = "db", space: str = "dev") -> str:
        return f"{self.space(space)}:machine:{name}"

    def disk(self, name: str = "d1") -> str:
        return f"{self.account}:disk:{name}"

    @property
    def image(self) -> str:
        return f"image:{self.name}"

    def node(self, number: int = 1) -> str:
        return f"node:{self.name}-{number}"

    async def ask(self, path: str, action: str, **spec: Any) -> Ticket:
        force = spec.pop("force", False)
        request = Request(path=path, action=action, spec=spec or None, requested_by="tester", force=force)
        return await self.asking.request_action(request)

    async def admitted(self, path: str, action: str, **spec: Any) -> Ticket:
        ticket = await self.ask(path, action, **spec)
        assert ticket.admission.refusal is None, ticket.admission.refusal
        return ticket

    async def outcome(self, ticket: Ticket) -> Outcome:
        return await self.asking.wait_for_outcome(ticket.path, ticket.run)

    async def do(self, path: str, action: str, **spec: Any) -> Outcome:
        return await self.outcome(await self.admitted(path, action, **spec))

    async def to(self, path: str, action: str, **spec: Any) -> str:
        """The status after an action that succeeds."""
        outcome = await self.do(path, action, **spec)
        assert outcome.result == "succeeded", outcome
        return outcome.status

    async def refused(self, path: str, action: str, **spec: Any) -> str:
        ticket = await self.ask(path, action, **spec)
        assert ticket.admission.refusal is not None, ticket.admission.grant
        return ticket.admission.refusal.message

    async def would_be_refused(self, path: str, action: str, **spec: Any) -> Refusal | None:
        """What begin answers to such a request, on the worker; nothing is started for it."""
        return (await self.asking.check_request(Request(path=path, action=action, spec=spec or None))).refusal

    async def see(self, path: str) -> ObjectView:
        return await self.service.inventory.read_object(path)

    async def status(self, path: str) -> str:
        return (await self.see(path)).status

    async def until(self, path: str, status: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while await self.status(path) != status:
                await asyncio.sleep(0.05)

    async def hang(self, path: str, verb: str, seconds: float = 10 * PATIENCE) -> None:
        """Orders of this kind for an object hang until they are released. They can be awaited with `hanging`.

        All do, not only the first one: a worker that was slow for a moment gives the order again.
        """
        self.hangs[path, verb] = asyncio.Event()
        await self.fault("hang", path, verb=verb, seconds=seconds, times=MANY)

    async def hanging(self, path: str) -> None:
        """Until an order hangs at the hypervisor: its rule has been used then."""
        hung = {"vm": path, "kind": "hang", "times": MANY}
        async with asyncio.timeout(PATIENCE):
            while any(hung.items() <= dict(fault).items() for fault in await self._cloud().list_faults()):
                await asyncio.sleep(0.05)

    async def release(self) -> None:
        """What hangs does so no more."""
        await self.heal_faults()
        for event in self.hangs.values():
            event.set()

    async def until_released(self, delays: Sequence[Fault], paths: Sequence[str]) -> None:
        """An order that hangs does so until it is released, however long the machine takes until then."""
        event = self.hangs[paths[0], delays[0].verb]  # not that of a later hang: an order of long ago stays where it is
        await event.wait()

    async def carry_out(self, verb: str, order: HypervisorOrder) -> None:
        """The hypervisor carries an order out, even if such orders hang."""
        work = partial(state.carry_out_order, verb=verb, order=order)
        await self.hypervisor._provider.run_transaction(partial(self.hypervisor._provider._run_under_lock, work))

    async def history(self, path: str) -> list[HistoryLine]:
        return await self.service.inventory.read_history(path, 1_000)

    async def fault(self, kind: str, path: str, **more: Any) -> None:
        await self._cloud().add_fault(Fault(kind=kind, csp=PROVIDER_NAME, vm=path, **more))

    async def heal_faults(self) -> None:
        cloud = self._cloud()
        await cloud.set_faults([fault for fault in await cloud.list_faults() if self.name not in fault.vm])

    def _cloud(self) -> Any:
        return self.service.simulated["aws"]

    async def at_rest(self) -> None:
        """Nothing moves, nothing is locked, and the hypervisor agrees with the inventory about everything of ours."""
        holds = [hold for hold in await self.service.inventory.list_locks() if self.name in hold.path]
        assert holds == []
        for kind, table in TABLES.items():
            for view in await self.service.inventory.list_objects(kind, limit=5_000):
                if self.name not in view.path or kind == "account":
                    continue
                assert view.status in table.stable_statuses
                assert (view.target_action, view.target_status) == (NONE, NONE)
                said = (await self.hypervisor.describe_object(view.path)).state
                assert said == state_expected_in_status(kind, view.status), (
                    f"{view.path} is {view.status}, and outside {said}"
                )

    # Things to begin with.

    async def seed(self, path: str, action: str, **spec: Any) -> str:
        """An action's own transactions and orders, without its workflow: for what a test begins with."""
        inventory, at = self.service.inventory, datetime.now(UTC)
        request = Request(path=path, action=action, spec=spec or None, requested_by="seed")
        admission = await inventory.begin_action(BeginRequest(request=request, run=f"seed-{uuid.uuid4()}", at=at))
        assert admission.grant, admission.refusal
        grant = admission.grant
        work = await self.at_work("operate", grant)
        left = {"info": work.info, "to": work.to}
        ending = ActionEnding(epoch=grant.epoch, run=grant.run, path=path, result=ActionResult.SUCCEEDED, at=at, **left)
        return (await inventory.finish_action(ending)).status

    async def at_work(self, what: str, grant: Grant, hypervisor: Hypervisor | None = None) -> HypervisorResult:
        """One of the activities of an action, as a worker runs it; on another hypervisor if one is given."""
        context = self.service.context
        work = MachineActivities(context.inventory, hypervisor or self.hypervisor, context.fence)
        way = {"operate": work.operate_object, "settle": work.settle_object}[what]
        return await activity_environment().run(way, HypervisorTask(grant=grant))

    async def run_orphan_removal(self, grant: Grant, hypervisor: Hypervisor | None = None) -> str:
        """The activity of an action that removes an orphan, as a worker runs it."""
        listing, context = HypervisorListing(hypervisor or self.hypervisor, NEARBY), self.service.context
        work = OrphanActivities(context.inventory, [listing], context.fence)
        return await activity_environment().run(work.remove_orphan, grant)

    async def with_account(self) -> MachineSite:
        await self.seed(self.account, "create")
        return self

    async def with_space(self) -> MachineSite:
        await self.with_account()
        await self.seed(self.space(), "create")
        return self

    async def with_node(self, number: int = 1, memory: int = 64) -> MachineSite:
        await self.seed(self.node(number), "create", memory=memory)
        return self

    async def with_image(self) -> MachineSite:
        await self.seed(self.image, "create")
        return self

    async def with_machine(self, *names: str, nodes: int = 1, memory: int = 1) -> MachineSite:
        """An account with a cloudspace, and machines in it on nodes and from an image of our own."""
        await self.with_space()
        await self.with_image()
        for number in range(1, nodes + 1):
            await self.with_node(number)
        for name in names or ("db",):
            spec = {"image": self.name, "memory": memory, "node": f"{self.name}-1"}
            await self.seed(self.machine(name), "create", **spec)
        return self


async def left_node(site: MachineSite) -> str:
    """A node whose creation was done outside, and terminated before we heard of it. The next sweep brings it back."""
    node = f"node:{site.name}-late"
    await site.hang(node, "create")
    await site.admitted(node, "create", memory=10)
    await site.hanging(node)
    await site.carry_out("create", HypervisorOrder(node, "node", f"{node}, as it came to be", {"memory": 10}))
    await site.asking.client.get_workflow_handle(node).terminate("an operator")
    await site.heal_faults()
    return node
