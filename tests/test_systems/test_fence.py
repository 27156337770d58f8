"""A worker that is held up inside an order to a backend until its action has ended changes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from activities.fence import Fence, OrderFence
from activities.systems.backend import BackendActivities
from domain.errors import Superseded
from domain.model import Grant
from domain.services.definition import Node
from domain.services.ports import Backend, ChangeSubscription, InstanceLog, ServiceOrder
from domain.services.rollout import ServiceFacts
from domain.systems.ports import AcceptDeploy, RevertDeploy, SystemWork
from providers.services.confinement import ProcessRules
from providers.services.process import GENERATION_FILE, ProcessRunner
from store.systems.hooks import SqlSystemStore
from tests.environment import activity_environment
from tests.test_leases.tenant import soon
from tests.test_store.driver import claim
from tests.test_systems.kit import RUN, Shop, service, system

SLEEP: dict[str, Any] = {"command": ["sleep", "1000"]}


@dataclass
class Held:
    """A backend, and one kind of order that is on the wire for a long time."""

    backend: Backend
    verb: str
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    name: str = "held"

    async def _here(self, verb: str) -> None:
        if verb == self.verb:
            self.reached.set()
            await self.go_on.wait()

    async def prepare_system(self, system: str, generation: int) -> None:
        await self._here("prepare")
        await self.backend.prepare_system(system, generation)

    async def check_service(self, definition: Node) -> None:
        await self.backend.check_service(definition)

    async def apply_orders(self, orders: Sequence[ServiceOrder]) -> None:
        await self._here("apply")
        await self.backend.apply_orders(orders)

    async def remove_services(self, prefix: str, generation: int, keep: Sequence[str] = ()) -> None:
        await self._here("remove")
        await self.backend.remove_services(prefix, generation, keep)

    async def clean_up_system(self, system: str, generation: int) -> None:
        await self._here("dispose")
        await self.backend.clean_up_system(system, generation)

    async def list_existing_objects(self, prefix: str, after: str) -> list[ServiceFacts]:
        return await self.backend.list_existing_objects(prefix, after)

    async def describe_services(self, prefix: str = "") -> list[ServiceFacts]:
        await self._here("facts")
        return await self.backend.describe_services(prefix)

    async def read_logs(self, path: str, lines: int) -> list[InstanceLog]:
        return await self.backend.read_logs(path, lines)

    def subscribe_to_changes(self, prefix: str) -> ChangeSubscription:
        return self.backend.subscribe_to_changes(prefix)


async def _heard() -> bool:
    return True


class KeptRight(Fence):
    """A fence whose last right can be seen."""

    right: OrderFence

    @asynccontextmanager
    async def right_to_order(self, path: str, epoch: int) -> AsyncIterator[OrderFence]:
        async with super().right_to_order(path, epoch) as self.right:
            yield self.right


def _work(shop: Shop, held: Held, fence: Fence | None = None) -> BackendActivities:
    inventory = shop.service.inventory
    fence = fence or Fence(inventory, _heard)
    return BackendActivities(held, SqlSystemStore(shop.service.database), inventory, fence)


async def _begun(shop: Shop, tree: str, action: str, spec: dict[str, Any] | None = None) -> tuple[Grant, SystemWork]:
    """An action whose workflow is somewhere else: only the worker that holds its orders is seen here."""
    admission = await shop.service.inventory.begin_action(claim(shop.at(tree), action, at=soon(), spec=spec))
    assert admission.grant, admission.refusal
    grant, store = admission.grant, SqlSystemStore(shop.service.database)
    record = str(grant.details.get("record", ""))
    work = SystemWork(path=grant.path, epoch=grant.epoch, backend=shop.backend, record=record)
    if action == "deploy":
        taken = await store.accept_deploy(AcceptDeploy(work=work, definition=(spec or {})["definition"], at=soon()))
    else:
        taken = await store.accept_removal(RevertDeploy(work=work, at=soon()))
    assert taken.made, taken
    return grant, work


async def _stale(stale: asyncio.Task[Any], held: Held) -> None:
    held.go_on.set()
    with pytest.raises(ApplicationError, match="no order was given"):
        await stale


@pytest.mark.parametrize("where", ["dispose", "facts"])
async def test_a_stale_dispose_does_not_remove_the_folder_of_a_system_that_was_made_anew(
    real: Shop, home: Path, where: str
) -> None:
    held = Held(real.supervisor, where)
    _, work = await _begun(real, "/", "delete")
    stale = asyncio.create_task(activity_environment().run(_work(real, held).remove_parts, work))
    await held.reached.wait()
    await real.do("/", "delete")
    await real.create()
    await real.deploy("/", system({"name": "web", **SLEEP}))
    (before,) = await real.units("/web")
    await _stale(stale, held)
    assert (home / "services" / real.path.removeprefix("system:") / "web" / "1.log").exists()
    (after,) = await real.units("/web")
    assert (after.pid, (await real.see("/web")).status) == (before.pid, "stable")


@pytest.mark.parametrize("where", ["remove", "facts"])
async def test_a_stale_teardown_stops_nothing_that_was_deployed_since(shop: Shop, where: str) -> None:
    await shop.deploy("/", system(service("web"), service("db")))
    held = Held(shop.supervisor, where)
    _, work = await _begun(shop, "/", "teardown")
    stale = asyncio.create_task(activity_environment().run(_work(shop, held).remove_parts, work))
    await held.reached.wait()
    await shop.do("/", "teardown")
    await shop.deploy("/web", RUN)
    units = await shop.units("/web")
    await _stale(stale, held)
    assert await shop.units("/web") == units
    assert await shop.states() == {"/": "stable", "/web": "stable"}


async def test_a_stale_deploy_does_not_come_back_over_a_later_one(shop: Shop) -> None:
    await shop.deploy("/", system(service("web")))
    held = Held(shop.supervisor, "apply")
    old = {"definition": {**RUN, "environment": {"V": "old"}, "instances": 3}}
    _, work = await _begun(shop, "/web", "deploy", old)
    stale = asyncio.create_task(activity_environment().run(_work(shop, held).roll_out, work))
    await held.reached.wait()
    await shop.deploy("/web", {**RUN, "environment": {"V": "new"}})
    await _stale(stale, held)
    (unit,) = await shop.units("/web")
    assert unit.node.environment == {"V": "new"}


async def test_a_stale_deploy_starts_nothing_in_a_system_that_is_gone(shop: Shop) -> None:
    held = Held(shop.supervisor, "apply")
    _, work = await _begun(shop, "/", "deploy", {"definition": system(service("web"))})
    stale = asyncio.create_task(activity_environment().run(_work(shop, held).roll_out, work))
    await held.reached.wait()
    await shop.do("/", "delete")
    await _stale(stale, held)
    assert await shop.supervisor.describe_services(shop.path) == []


async def test_orders_for_siblings_and_for_what_is_below_do_not_supersede_each_other(shop: Shop) -> None:
    """Of two deploys side by side the later one may well order first."""
    ledger, run, path = shop.supervisor.ledger, {"command": ["run"], "instances": 0}, f"{shop.path}-other"
    await ledger.record_service_orders([ServiceOrder(f"{path}:a:b", 90, run)])
    await ledger.record_service_orders([ServiceOrder(f"{path}:a:c", 80, run)])
    with pytest.raises(Superseded):
        await ledger.remove_services(f"{path}:a", 85)
    await ledger.remove_services(f"{path}:a", 100)
    with pytest.raises(Superseded):
        await ledger.record_service_orders([ServiceOrder(f"{path}:a:c", 95, run)])
    await ledger.record_service_orders([ServiceOrder(f"{path}:d", 80, run)])
    await ledger.remove_services(path, 110)
    with pytest.raises(Superseded):
        await ledger.claim_generation(path, 109)


async def test_a_folder_is_known_by_who_made_it(tmp_path: Path) -> None:
    """Also if a later action ordered while the worker was between its record and the folder."""
    runner = ProcessRunner(tmp_path, ProcessRules())
    await runner.prepare_system("system:shop", 7)
    with pytest.raises(Superseded):
        await runner.clean_up_system("system:shop", 6)
    assert (tmp_path / "shop" / GENERATION_FILE).read_text() == "7"
    await runner.clean_up_system("system:shop", 8)
    assert not (tmp_path / "shop").exists()
    await runner.clean_up_system("system:shop", 8)


async def test_a_deploy_whose_deadline_has_passed_starts_nothing_more(shop: Shop) -> None:
    """Its workflow has gone on, under the same epoch, before its worker hears that its time is over."""
    parts = [{"name": "db", **RUN}, {"name": "web", **RUN, "after": ["db"]}]
    held = Held(shop.supervisor, "facts")
    grant, work = await _begun(shop, "/", "deploy", {"definition": {"parts": parts}})
    fence = KeptRight(shop.service.inventory, _heard)
    rolling = asyncio.create_task(activity_environment().run(_work(shop, held, fence).roll_out, work))
    await held.reached.wait()  # db is ordered, and web would be next
    assert [fact.path for fact in await shop.supervisor.describe_services(shop.path)] == [shop.at("/db")]

    async def is_up() -> bool:
        return all(fact.is_rolled_out() for fact in await shop.supervisor.describe_services(shop.path))

    await shop.until(is_up)
    fence.right.ends_at = 0  # the deadline itself
    assert await shop.service.inventory.is_action_open(shop.path, grant.epoch)
    await _stale(rolling, held)
    assert [fact.path for fact in await shop.supervisor.describe_services(shop.path)] == [shop.at("/db")]
    await shop.do("/", "delete")
