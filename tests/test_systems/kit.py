"""A user of one system, with access to the inventory and to the backends' records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from client.actions import ActionClient, Ticket
from domain import wire
from domain.invariants import VerificationReport
from domain.model import ObjectView, Outcome, ReadQuery, Request
from domain.systems.rules import node_path, tree_path
from providers.services.ledger import SupervisedInstance
from providers.services.supervisor import Supervisor
from providers.systems.simulated import SimulatedRunner
from tests.patience import PATIENCE
from tests.stack import family_of
from workers.service import WorkerService
from workers.systems import SystemFamily

RUN: dict[str, Any] = {"command": ["run"], "health": {"command": ["check"], "interval": 0.05}}


def service(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, **RUN, **more}


def system(*parts: dict[str, Any], name: str = "") -> dict[str, Any]:
    return {"parts": list(parts), **({"name": name} if name else {})}


def growing(deadline: float) -> Iterator[float]:
    """Deadlines for a story that one of them is to end. If the machine was too slow to come to the point before it, the
    story is told again, with the next one.
    """
    while deadline < 65:
        yield deadline
        deadline *= 4


@dataclass(frozen=True)
class Shop:
    """One system of this test's own."""

    asking: ActionClient
    service: WorkerService
    path: str
    backend: str = "simulated"

    @property
    def supervisor(self) -> Supervisor:
        return family_of(self.service, SystemFamily).supervisors[self.backend]

    @property
    def runner(self) -> SimulatedRunner:
        assert isinstance(self.supervisor.runner, SimulatedRunner)
        return self.supervisor.runner

    def at(self, tree: str) -> str:
        return node_path(self.path, tree)

    async def ask(self, tree: str, action: str, spec: dict[str, Any] | None = None, **more: Any) -> Ticket:
        request = Request(path=self.at(tree), action=action, spec=spec, requested_by="tester", **more)
        return await self.asking.request_action(request)

    async def admitted(self, tree: str, action: str, spec: dict[str, Any] | None = None, **more: Any) -> Ticket:
        ticket = await self.ask(tree, action, spec, **more)
        assert ticket.admission.refusal is None, ticket.admission.refusal
        return ticket

    async def do(self, tree: str, action: str, spec: dict[str, Any] | None = None, **more: Any) -> Outcome:
        ticket = await self.admitted(tree, action, spec, **more)
        async with asyncio.timeout(3 * PATIENCE):
            return await self.asking.wait_for_outcome(ticket.path, ticket.run)

    async def refused(self, tree: str, action: str, spec: dict[str, Any] | None = None) -> str:
        ticket = await self.ask(tree, action, spec)
        assert ticket.admission.refusal is not None, ticket.admission.grant
        return ticket.admission.refusal.message

    async def create(self) -> Shop:
        assert (await self.do("/", "create", {"backend": self.backend})).status == "stable"
        return self

    async def deploy(self, tree: str, definition: dict[str, Any], **more: Any) -> Outcome:
        return await self.do(tree, "deploy", {"definition": definition, **more})

    async def begin(self, tree: str, definition: dict[str, Any], **more: Any) -> asyncio.Task[Outcome]:
        """A deploy that was admitted and goes on by itself."""
        ticket = await self.admitted(tree, "deploy", {"definition": definition, **more})
        return asyncio.create_task(self.asking.wait_for_outcome(ticket.path, ticket.run))

    async def see(self, tree: str) -> ObjectView:
        return await self.service.inventory.read_object(self.at(tree))

    async def states(self) -> dict[str, str]:
        """What every part is, and the system itself."""
        inventory = self.service.inventory
        views = [*await inventory.list_objects("system", self.path), *await inventory.list_objects("part", self.path)]
        return {tree_path(view.path): view.status for view in views}

    async def records(self) -> dict[str, str]:
        """Deploys and teardowns by name: how far each is."""
        inventory = self.service.inventory
        views = [
            *await inventory.list_objects("deploy", self.path),
            *await inventory.list_objects("teardown", self.path),
        ]
        return {view.path.rpartition(":")[2]: view.status for view in views}

    async def way(self, path: str) -> list[str]:
        """The statuses that an object has been through."""
        return [line.to for line in await self.service.inventory.read_history(path, 1_000)]

    async def locks(self) -> set[tuple[str, str]]:
        return {(tree_path(hold.path), hold.mode.value) for hold in await self.service.inventory.list_locks(self.path)}

    async def until(self, test: Callable[[], Any]) -> None:
        """Wait until an awaitable answers yes."""
        async with asyncio.timeout(PATIENCE):
            while not await test():
                await asyncio.sleep(0.05)

    async def until_record(self, name: str, stage: str) -> None:
        async def reached() -> bool:
            return (await self.records()).get(name) == stage

        await self.until(reached)

    async def until_state(self, tree: str, state: str) -> None:
        async def reached() -> bool:
            return (await self.states()).get(tree) == state

        await self.until(reached)

    async def until_gone(self, *trees: str) -> None:
        async def gone() -> bool:
            return not {*trees} & (await self.states()).keys()

        await self.until(gone)

    async def units(self, tree: str) -> list[SupervisedInstance]:
        return [unit for unit in await self.supervisor.ledger.list_instances() if unit.path == self.at(tree)]

    def hold(self, *trees: str) -> None:
        """These neither get well nor end until they are let go."""
        self.runner.held.update(map(self.at, trees))

    def let_go(self) -> None:
        self.runner.held.difference_update({path for path in self.runner.held if path.startswith(self.path)})

    @contextmanager
    def holding_starts(self) -> Iterator[None]:
        """No instance of this backend starts until the block ends: what has ended stays so, for all to see."""
        runner, go_on = self.supervisor.runner, asyncio.Event()
        start = runner.start_instance

        async def start_later(unit: SupervisedInstance) -> None:
            await go_on.wait()
            await start(unit)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runner, "start_instance", start_later)
            try:
                yield
            finally:
                go_on.set()

    async def all_promises_are_kept(self) -> None:
        """I1 to I5 and I11, and the backend's own records."""
        found = await self.asking.run_query(
            wire.VERIFY_ACTIVITY, ReadQuery(path=self.path), VerificationReport, seconds=PATIENCE
        )
        assert found.findings == []
