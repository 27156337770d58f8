"""Orphans at the hypervisor: objects of every kind that exist there, and that no record knows."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from temporalio.exceptions import ApplicationError

from domain.errors import Superseded
from domain.machines.ports import HypervisorOrder
from domain.model import ActionEnding, ActionResult, BeginRequest, Request
from domain.orphans import Orphan
from tests.orphans import found_and_removed, listed, refused, removed
from tests.test_machines.site import MachineSite

MADE = {
    "cloudspace": ("up", {}),
    "machine": ("running", {"memory": 1}),
    "disk": ("detached", {}),
    "image": ("ready", {}),
    "node": ("enabled", {"memory": 4}),
}


async def come_late(site: MachineSite, path: str, epoch: int = 0) -> None:
    """The hypervisor carries out an order to create it, of an action that is over."""
    kind = path.split(":")[-2]
    spec = {**MADE[kind][1], "image": site.name, "node": f"{site.name}-1"}
    await site.carry_out("create", HypervisorOrder(path, kind, f"late {path} {epoch}", spec, epoch))


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.stores("sqlite", "postgres")
async def test_what_was_made_at_the_hypervisor_without_a_record_is_named_listed_and_removed(
    site: MachineSite, kind: str
) -> None:
    await site.with_machine()
    paths = {
        "cloudspace": site.space("late"),
        "machine": site.machine("late"),
        "disk": site.disk("late"),
        "image": f"image:{site.name}-late",
        "node": f"node:{site.name}-late",
    }
    await come_late(site, paths[kind])
    orphan = await found_and_removed(site.asking, paths[kind], "hypervisor", MADE[kind][0])
    assert (await removed(site.asking, orphan)).message == "nothing was left at the hypervisor"
    assert (await site.hypervisor.describe_object(paths[kind])).state == "absent"
    assert [line.to for line in await site.history(paths[kind])][-1] == "None"
    await site.at_rest()


async def test_a_create_that_is_carried_out_after_cancel_and_delete_is_found_and_removed(site: MachineSite) -> None:
    await site.with_machine()
    late = site.machine("late")
    await site.hang(late, "create")
    ticket = await site.admitted(late, "create", image=site.name, memory=1)
    await site.hanging(late)
    await site.asking.cancel_action(late)
    assert (await site.outcome(ticket)).status == "VIRTUAL"
    await site.heal_faults()
    assert await site.to(late, "delete") == "DESTROYED"
    gone = await site.see(late)
    await come_late(site, late, gone.epoch)
    orphan = await found_and_removed(site.asking, late, "hypervisor", "running", "DESTROYED")
    assert orphan.token == str(gone.epoch), "the last action that ordered anything of it"
    assert orphan.since
    with pytest.raises(Superseded):  # the worker that was frozen wakes, and gives its order
        await come_late(site, late, gone.epoch)
    assert await site.to(late, "create", image=site.name, memory=1) == "RUNNING"


async def test_what_has_a_record_is_no_orphan(site: MachineSite) -> None:
    await site.with_machine()
    assert await listed(site.asking, site.account) == []
    known = Orphan(path=site.machine(), target=site.machine(), provider="hypervisor")
    assert await refused(site.asking, known) == "machine exists already, under RUNNING"


async def test_an_orphan_is_left_alone_while_an_action_runs_that_may_own_it(site: MachineSite) -> None:
    await site.with_machine()
    late = site.machine("late")
    await site.hang(late, "create")
    ticket = await site.admitted(late, "create", image=site.name, memory=1)
    await site.hanging(late)
    await come_late(site, late, (await site.see(late)).epoch)
    assert await listed(site.asking, site.account) == []
    assert "409 Conflict" in await refused(site.asking, Orphan(target=late, provider="hypervisor"))
    await site.heal_faults()
    await site.asking.cancel_action(late)
    await site.outcome(ticket)


async def test_a_worker_that_was_frozen_before_it_removed_an_orphan_removes_nothing_when_it_wakes(
    site: MachineSite,
) -> None:
    node = f"node:{site.name}-late"
    await come_late(site, node)
    request = Request(path=node, action="discard", spec={"place": "hypervisor"}, requested_by="tester")
    admission = await site.service.inventory.begin_action(
        BeginRequest(request=request, run=f"frozen {node}", at=datetime.now(UTC))
    )
    grant = admission.grant
    assert grant, admission.refusal
    ending = ActionEnding(epoch=grant.epoch, run=grant.run, path=node, result=ActionResult.FAILED, at=datetime.now(UTC))
    await site.service.inventory.finish_action(ending)
    with pytest.raises(ApplicationError, match="no order was given"):
        await site.run_orphan_removal(grant)
    assert (await site.hypervisor.describe_object(node)).state == "enabled"
    (orphan,) = await listed(site.asking, node)
    assert (await removed(site.asking, orphan)).message == "was enabled at the hypervisor, and was removed"


async def test_orphans_are_listed_in_pages_of_any_size(site: MachineSite) -> None:
    await site.with_account()
    disks = sorted(site.disk(f"late-{number}") for number in range(7))
    for disk in disks:
        await come_late(site, disk)
    for limit in (1, 3, 7, 500):
        assert [orphan.path for orphan in await listed(site.asking, site.account, limit)] == disks
    for orphan in await listed(site.asking, site.account):
        await removed(site.asking, orphan)
