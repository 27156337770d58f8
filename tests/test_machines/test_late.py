"""A worker that comes too late: frozen in a call, it wakes when its action is over and a later one is done."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from domain.errors import Superseded
from domain.machines.model import Work
from domain.machines.port import Facts, Hypervisor, Order
from domain.model import Claim, Ending, Grant, ObjectView, Request, Result
from tests.patience import PATIENCE
from tests.test_machines.estate import Estate

pytestmark = pytest.mark.stores("sqlite", "postgres")

_runs = count(1)


class Frozen:
    """A hypervisor behind a worker that freezes at one of its calls: with the order on the wire, or with the answer."""

    def __init__(self, inner: Hypervisor, at: int, answered: bool) -> None:
        self._inner, self._at, self._answered = inner, at, answered
        self._calls = count()
        self.reached, self.thawed = asyncio.Event(), asyncio.Event()

    async def perform(self, verb: str, order: Order) -> Facts:
        here = next(self._calls) == self._at
        await self._freeze(here and not self._answered)
        facts = await self._inner.perform(verb, order)
        await self._freeze(here and self._answered)
        return facts

    async def describe(self, path: str) -> Facts:
        facts = await self._inner.describe(path)
        await self._freeze(next(self._calls) == self._at)
        return facts

    async def below(self, prefix: str) -> list[Facts]:
        return await self._inner.below(prefix)

    async def machines_on(self, node: str) -> list[Facts]:
        return await self._inner.machines_on(node)

    async def _freeze(self, here: bool) -> None:
        if here:
            self.reached.set()
            await self.thawed.wait()


async def begun(estate: Estate, path: str, action: str, **spec: Any) -> tuple[Grant, str]:
    """An action that has begun, and its run."""
    run = f"late-{estate.name}-{next(_runs)}"
    request = Request(path=path, action=action, spec=spec or None, requested_by="tester")
    admission = await estate.service.inventory.begin(Claim(request=request, run=run, at=datetime.now(UTC)))
    assert admission.grant, admission.refusal
    return admission.grant, run


async def over(estate: Estate, grant: Grant, result: Result, **left: Any) -> None:
    ending = Ending(epoch=grant.epoch, run=grant.run, path=grant.path, result=result, at=datetime.now(UTC), **left)
    await estate.service.inventory.finish(ending)


async def frozen(estate: Estate, what: str, grant: Grant, at: int, answered: bool) -> tuple[Frozen, asyncio.Task[Work]]:
    """A worker at work on an action, frozen at its call of that number; or through with it, if it makes fewer calls."""
    hypervisor = Frozen(estate.hypervisor, at, answered)
    worker = asyncio.create_task(estate.at_work(what, grant, hypervisor))
    reached = asyncio.create_task(hypervisor.reached.wait())
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait((worker, reached), return_when=asyncio.FIRST_COMPLETED)
    reached.cancel()
    return hypervisor, worker


async def everything(estate: Estate) -> tuple[list[Facts], list[ObjectView]]:
    """All that is ours, outside and on record."""
    inventory = estate.service.inventory
    kinds = ("account", "cloudspace", "machine", "disk")
    return await estate.hypervisor.below(estate.account), [
        view for kind in kinds for view in await inventory.list_objects(kind, estate.account, "", 1_000)
    ]


async def changes_nothing(estate: Estate, hypervisor: Frozen, worker: asyncio.Task[Work]) -> None:
    before = await everything(estate)
    hypervisor.thawed.set()
    with suppress(ApplicationError):
        await worker
    assert await everything(estate) == before
    await estate.at_rest()


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize(
    ("kind", "action"), [("machine", "stop"), ("machine", "delete"), ("machine", "reboot"), ("cloudspace", "delete")]
)
async def test_whoever_was_frozen_at_any_call_changes_nothing_after_a_later_action(
    estate: Estate, kind: str, action: str, answered: bool
) -> None:
    await estate.with_machine("a", "b")
    await estate.seed(estate.machine("a"), "add-disk", disk="d1")
    path = estate.machine("a") if kind == "machine" else estate.space()
    spec = {"cascade": True} if kind == "cloudspace" else {}
    for call in count():
        grant, run = await begun(estate, path, action, **spec)
        hypervisor, worker = await frozen(estate, "operate", grant, call, answered)
        if worker.done():
            break  # all of its calls were tried
        await estate.service.inventory.bury(path, run, datetime.now(UTC), "its worker was not heard of")
        await estate.seed(path, "delete", **spec)
        await estate.seed(path, "restore")
        await changes_nothing(estate, hypervisor, worker)
        for name in "ab":
            if await estate.status(estate.machine(name)) == "HALTED":
                await estate.seed(estate.machine(name), "start")
    assert call >= {"stop": 1, "reboot": 1, "delete": 3}[action]
    await over(estate, grant, Result.SUCCEEDED, info=worker.result().info)


async def test_a_discard_that_froze_while_it_looked_leaves_a_disk_alone_that_was_made_since(estate: Estate) -> None:
    """The sweep's own second worker found nothing and ended; then a user made the disk."""
    await estate.with_account()
    grant, _ = await begun(estate, estate.disk(), "discard")
    hypervisor = Frozen(estate.hypervisor, 0, True)
    await estate.hypervisor.perform("create", Order(estate.disk(), "disk", "left by somebody", {"size": 1}))
    worker = asyncio.create_task(estate.at_work("operate", grant, hypervisor))
    async with asyncio.timeout(PATIENCE):
        await hypervisor.reached.wait()  # it has seen the disk
    await estate.at_work("operate", grant)
    await over(estate, grant, Result.SUCCEEDED)
    await estate.seed(estate.disk(), "create")
    await changes_nothing(estate, hypervisor, worker)
    assert (await estate.hypervisor.describe(estate.disk())).state == "detached"
    with pytest.raises(ApplicationError, match="no order was given"):
        await worker


async def test_a_stale_settle_of_a_cancelled_start_does_not_stop_a_machine_that_was_started_since(
    estate: Estate,
) -> None:
    await estate.with_machine()
    db = estate.machine()
    await estate.seed(db, "stop")
    grant, _ = await begun(estate, db, "start")
    await estate.at_work("operate", grant)
    hypervisor, worker = await frozen(estate, "settle", grant, 0, True)
    assert not worker.done()
    await over(estate, grant, Result.CANCELLED)  # by another worker, which could not reach the hypervisor
    assert await estate.seed(db, "start") == "RUNNING"
    await changes_nothing(estate, hypervisor, worker)
    assert (await estate.hypervisor.describe(db)).state == "running"


async def test_the_hypervisor_refuses_an_order_of_an_earlier_action_also_for_what_is_gone(estate: Estate) -> None:
    await estate.with_account()
    disk = estate.disk()
    grant, _ = await begun(estate, disk, "discard")
    await estate.at_work("operate", grant)  # it found nothing, and left its number
    await over(estate, grant, Result.SUCCEEDED)
    with pytest.raises(Superseded, match=f"action {grant.epoch} has ordered since"):
        await estate.hypervisor.perform("create", Order(disk, "disk", "late", {"size": 1}, grant.epoch - 1))
    assert (await estate.hypervisor.describe(disk)).state == "absent"
    await estate.seed(disk, "create")


@pytest.mark.parametrize("again", [False, True], ids=["destroyed", "made anew"])
@pytest.mark.parametrize("kind", ["machine", "disk", "cloudspace", "image"])
async def test_a_creation_that_comes_through_after_cancel_and_destroy_makes_nothing(
    estate: Estate, kind: str, again: bool
) -> None:
    """The last order of a destroy goes out although nothing is there: it leaves its number for whatever comes late."""
    await estate.with_machine()
    new = {"machine": estate.machine("late"), "disk": estate.disk(), "cloudspace": estate.space("late")}
    path, spec = new.get(kind, f"{estate.image}-late"), {"image": estate.name} if kind == "machine" else {}
    grant, _ = await begun(estate, path, "create", **spec)
    hypervisor, worker = await frozen(estate, "operate", grant, 0, answered=False)
    assert not worker.done()
    await over(estate, grant, Result.CANCELLED)
    assert await estate.seed(path, "destroy") == "DESTROYED"
    if again:
        await estate.seed(path, "create", **spec)
    await changes_nothing(estate, hypervisor, worker)
    assert ((await estate.hypervisor.describe(path)).state != "absent") is again
