"""A worker frozen in a call wakes after a later action has ended, and changes nothing."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from domain.errors import Superseded
from domain.machines.messages import HypervisorResult
from domain.machines.ports import Hypervisor, HypervisorFacts, HypervisorOrder
from domain.model import ActionEnding, ActionResult, BeginRequest, Grant, ObjectView, Request
from tests.patience import PATIENCE
from tests.test_machines.site import MachineSite

pytestmark = pytest.mark.stores("postgres")

_runs = count(1)


class Frozen:
    """A hypervisor behind a worker that freezes at one of its calls: with the order on the wire, or with the answer."""

    def __init__(self, inner: Hypervisor, at: int, answered: bool) -> None:
        self._inner, self._at, self._answered = inner, at, answered
        self._calls = count()
        self.reached, self.thawed = asyncio.Event(), asyncio.Event()

    async def perform_order(self, verb: str, order: HypervisorOrder) -> HypervisorFacts:
        here = next(self._calls) == self._at
        await self._freeze(here and not self._answered)
        facts = await self._inner.perform_order(verb, order)
        await self._freeze(here and self._answered)
        return facts

    async def describe_object(self, path: str) -> HypervisorFacts:
        facts = await self._inner.describe_object(path)
        await self._freeze(next(self._calls) == self._at)
        return facts

    async def list_existing_objects(self, prefix: str, after: str) -> list[HypervisorFacts]:
        return await self._inner.list_existing_objects(prefix, after)

    async def list_machines_on(self, node: str) -> list[HypervisorFacts]:
        return await self._inner.list_machines_on(node)

    async def _freeze(self, here: bool) -> None:
        if here:
            self.reached.set()
            await self.thawed.wait()


async def begun(site: MachineSite, path: str, action: str, **spec: Any) -> tuple[Grant, str]:
    """An action that has begun, and its run."""
    run = f"late-{site.name}-{next(_runs)}"
    request = Request(path=path, action=action, spec=spec or None, requested_by="tester")
    admission = await site.service.inventory.begin_action(BeginRequest(request=request, run=run, at=datetime.now(UTC)))
    assert admission.grant, admission.refusal
    return admission.grant, run


async def over(site: MachineSite, grant: Grant, result: ActionResult, **left: Any) -> None:
    ending = ActionEnding(
        epoch=grant.epoch, run=grant.run, path=grant.path, result=result, at=datetime.now(UTC), **left
    )
    await site.service.inventory.finish_action(ending)


async def frozen(
    site: MachineSite, what: str, grant: Grant, at: int, answered: bool
) -> tuple[Frozen, asyncio.Task[HypervisorResult]]:
    """A worker at work on an action, frozen at its call of that number; or through with it, if it makes fewer calls."""
    hypervisor = Frozen(site.hypervisor, at, answered)
    worker = asyncio.create_task(site.at_work(what, grant, hypervisor))
    reached = asyncio.create_task(hypervisor.reached.wait())
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait((worker, reached), return_when=asyncio.FIRST_COMPLETED)
    reached.cancel()
    return hypervisor, worker


async def everything(site: MachineSite) -> tuple[list[HypervisorFacts], list[ObjectView]]:
    """All that is ours, outside and on record."""
    inventory = site.service.inventory
    kinds = ("account", "cloudspace", "machine", "disk")
    return await site.hypervisor.list_existing_objects(site.account, ""), [
        view for kind in kinds for view in await inventory.list_objects(kind, site.account, "", 1_000)
    ]


async def changes_nothing(site: MachineSite, hypervisor: Frozen, worker: asyncio.Task[Any]) -> None:
    before = await everything(site)
    hypervisor.thawed.set()
    with suppress(ApplicationError):
        await worker
    assert await everything(site) == before
    await site.at_rest()


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize(
    ("kind", "action"), [("machine", "stop"), ("machine", "delete"), ("machine", "reboot"), ("cloudspace", "delete")]
)
async def test_whoever_was_frozen_at_any_call_changes_nothing_after_a_later_action(
    site: MachineSite, kind: str, action: str, answered: bool
) -> None:
    await site.with_machine("a", "b")
    await site.seed(site.machine("a"), "add-disk", disk="d1")
    path = site.machine("a") if kind == "machine" else site.space()
    spec = {"cascade": True} if kind == "cloudspace" else {}
    for call in count():
        grant, run = await begun(site, path, action, **spec)
        hypervisor, worker = await frozen(site, "operate", grant, call, answered)
        if worker.done():
            break  # all of its calls were tried
        await site.service.inventory.abandon_run(path, run, datetime.now(UTC), "its worker was not heard of")
        await site.seed(path, "delete", **spec)
        await site.seed(path, "restore")
        await changes_nothing(site, hypervisor, worker)
        for name in "ab":
            if await site.status(site.machine(name)) == "HALTED":
                await site.seed(site.machine(name), "start")
    assert call >= {"stop": 1, "reboot": 1, "delete": 3}[action]
    await over(site, grant, ActionResult.SUCCEEDED, info=worker.result().info)


async def test_a_discard_that_froze_while_it_looked_leaves_a_disk_alone_that_was_made_since(site: MachineSite) -> None:
    """The sweep's own second worker found nothing and ended; then a user made the disk."""
    await site.with_account()
    grant, _ = await begun(site, site.disk(), "discard")
    hypervisor = Frozen(site.hypervisor, 0, True)
    await site.hypervisor.perform_order("create", HypervisorOrder(site.disk(), "disk", "left by somebody", {"size": 1}))
    worker = asyncio.create_task(site.run_orphan_removal(grant, hypervisor))
    async with asyncio.timeout(PATIENCE):
        await hypervisor.reached.wait()  # it has seen the disk
    await site.run_orphan_removal(grant)
    await over(site, grant, ActionResult.SUCCEEDED)
    await site.seed(site.disk(), "create")
    await changes_nothing(site, hypervisor, worker)
    assert (await site.hypervisor.describe_object(site.disk())).state == "detached"
    with pytest.raises(ApplicationError, match="no order was given"):
        await worker


async def test_a_stale_settle_of_a_cancelled_start_does_not_stop_a_machine_that_was_started_since(
    site: MachineSite,
) -> None:
    await site.with_machine()
    db = site.machine()
    await site.seed(db, "stop")
    grant, _ = await begun(site, db, "start")
    await site.at_work("operate", grant)
    hypervisor, worker = await frozen(site, "settle", grant, 0, True)
    assert not worker.done()
    await over(site, grant, ActionResult.CANCELLED)  # by another worker, which could not reach the hypervisor
    assert await site.seed(db, "start") == "RUNNING"
    await changes_nothing(site, hypervisor, worker)
    assert (await site.hypervisor.describe_object(db)).state == "running"


async def test_the_hypervisor_refuses_an_order_of_an_earlier_action_also_for_what_is_gone(site: MachineSite) -> None:
    await site.with_account()
    disk = site.disk()
    grant, _ = await begun(site, disk, "discard")
    await site.run_orphan_removal(grant)  # it found nothing, and left its number
    await over(site, grant, ActionResult.SUCCEEDED)
    with pytest.raises(Superseded, match=f"action {grant.epoch} has ordered since"):
        await site.hypervisor.perform_order(
            "create", HypervisorOrder(disk, "disk", "late", {"size": 1}, grant.epoch - 1)
        )
    assert (await site.hypervisor.describe_object(disk)).state == "absent"
    await site.seed(disk, "create")


@pytest.mark.parametrize("again", [False, True], ids=["destroyed", "made anew"])
@pytest.mark.parametrize("kind", ["machine", "disk", "cloudspace", "image"])
async def test_a_creation_that_comes_through_after_cancel_and_destroy_makes_nothing(
    site: MachineSite, kind: str, again: bool
) -> None:
    """The last order of a destroy goes out although nothing is there: it leaves its number for whatever comes late."""
    await site.with_machine()
    new = {"machine": site.machine("late"), "disk": site.disk(), "cloudspace": site.space("late")}
    path, spec = new.get(kind, f"{site.image}-late"), {"image": site.name} if kind == "machine" else {}
    grant, _ = await begun(site, path, "create", **spec)
    hypervisor, worker = await frozen(site, "operate", grant, 0, answered=False)
    assert not worker.done()
    await over(site, grant, ActionResult.CANCELLED)
    assert await site.seed(path, "destroy") == "DESTROYED"
    if again:
        await site.seed(path, "create", **spec)
    await changes_nothing(site, hypervisor, worker)
    assert ((await site.hypervisor.describe_object(path)).state != "absent") is again
