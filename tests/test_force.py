"""Force that begin refuses ends nothing: neither the action on the object nor those below it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from activities import eviction
from activities.dryrun import DryRunChecker
from activities.eviction import EvictionActivities
from activities.refusals import refusal_of_error
from client.actions import Ticket
from domain import wire
from domain.errors import Category
from domain.model import Admission, Request
from domain.requests import EvictRun
from tests.patience import PATIENCE
from tests.test_edge.kit import edge_of, fault
from tests.test_leases.tenant import Tenant
from tests.test_machines.site import MachineSite
from tests.test_systems.kit import Shop, service, system
from tests.test_takeover import stuck
from tests.user import User, spec


@dataclass(frozen=True)
class Desk:
    """What the families' users need."""

    user: User
    home: Path
    client: Client


@dataclass(frozen=True)
class Busy:
    """An action that runs, and forced requests at or above its object that begin refuses, with their reasons."""

    running: Ticket
    refused: list[tuple[Request, str]] = field(default_factory=list)


def forced(path: str, action: str, given: dict[str, Any] | None = None) -> Request:
    return Request(path=path, action=action, spec=given, force=True, requested_by="tester")


@asynccontextmanager
async def busy_mci(desk: Desk) -> AsyncIterator[Busy]:
    user = desk.user
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    await user.fault("hang", seconds=600, verb="suspend")
    running = await user.admitted(user.mci(), "suspend")
    await user.until_delayed(user.vm("aws0-1"))
    refused = [
        (forced(user.mci(), "scale-in", {"subGroup": "nosuch"}), "there is no subgroup 'nosuch'"),
        (forced(user.mci(), "scale-in", {"subGroup": "aws0", "count": 9}), "9 cannot be removed"),
        (forced(user.mci(), "scale-out", {"subGroup": "nosuch"}), "there is no subgroup 'nosuch'"),
    ]
    yield Busy(running, refused)
    await user.asking.cancel_action(user.mci())


@asynccontextmanager
async def busy_vm(desk: Desk) -> AsyncIterator[Busy]:
    """The action on a VM is below the MCI, whose forced actions cancel it."""
    user = desk.user
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    await user.fault("hang", seconds=600, verb="suspend")
    running = await user.admitted(user.vm("aws0-1"), "suspend")
    await user.until_delayed(user.vm("aws0-1"))
    yield Busy(running, [(forced(user.mci(), "scale-in", {"subGroup": "nosuch"}), "there is no subgroup 'nosuch'")])
    await user.asking.cancel_action(user.vm("aws0-1"))


@asynccontextmanager
async def busy_cluster(desk: Desk) -> AsyncIterator[Busy]:
    async with edge_of(desk.user, desk.home, desk.client) as edge:
        await edge.up(cleanup=1)
        path = edge.at("berlin", "c1")
        await desk.user.do(path, "create", spec={})
        edge.set_faults(fault("silent", "update"))
        running = await edge.begun(path, "update", spec={"nodes": 4})
        await edge.until(path, "UpdateRequested")
        refused = [
            (forced(path, "recreate", {}), "recreate is only for what its cloudlet has lost"),
            (forced(edge.at("berlin"), "upgrade", {"version": "v1"}), "runs v1 already"),
            (forced(edge.at("berlin"), "delete"), "it has 1 cluster"),
        ]
        yield Busy(running, refused)
        await desk.user.asking.cancel_action(path)
        await desk.user.asking.wait_for_outcome(path, running.run)


@asynccontextmanager
async def busy_machine(desk: Desk) -> AsyncIterator[Busy]:
    site = MachineSite(desk.user.asking, desk.user.service, f"{desk.user.ns}x")
    await site.with_machine("db")
    machine = site.machine("db")
    await site.hang(machine, "stop", 600)
    running = await site.admitted(machine, "stop")
    await site.hanging(machine)
    refused = [
        (forced(machine, "attach-disk", {"disk": "none"}), f"there is no such disk: {site.disk('none')}"),
        (forced(machine, "detach-disk", {"disk": "none"}), f"there is no such disk: {site.disk('none')}"),
    ]
    yield Busy(running, refused)
    await site.asking.cancel_action(machine)
    await site.heal_faults()


@asynccontextmanager
async def busy_lease(desk: Desk) -> AsyncIterator[Busy]:
    tenant = Tenant(desk.user.asking, desk.user.service, f"{desk.user.ns}l")
    await tenant.add_hosts("h1")
    await tenant.fault("hang", "h1", verb="create", seconds=600)
    await tenant.create(start="now", end="+6h")
    await tenant.until_status("STARTING")
    run = await tenant.asking.newest_run(tenant.lease())
    assert run
    refused = [(forced(tenant.lease(), "update", {"hosts": 9}), "not enough hosts")]
    yield Busy(Ticket(tenant.lease(), run.run_id, Admission()), refused)  # its clock has asked
    await tenant.heal_faults()
    await tenant.do(tenant.lease(), "delete")
    await tenant.stop_clock()


@asynccontextmanager
async def busy_system(desk: Desk) -> AsyncIterator[Busy]:
    shop = await Shop(desk.user.asking, desk.user.service, f"system:{desk.user.ns}").create()
    await shop.deploy("/", system(service("web"), service("db")))
    shop.hold("/web")
    running = await shop.admitted("/web", "deploy", {"definition": {**service("web"), "command": ["other"]}})
    await shop.until_state("/web", "updating")
    named = {"definition": service("other")}
    refused = [
        (forced(shop.at("/web"), "deploy", named), "the definition is named other, the path ends in web"),
        (forced(shop.at("/"), "deploy", named), "must be a system"),
    ]
    yield Busy(running, refused)
    shop.let_go()
    await shop.asking.wait_for_outcome(running.path, running.run)
    await shop.do("/", "delete")


FAMILIES: dict[str, Callable[[Desk], AbstractAsyncContextManager[Busy]]] = {
    "mci": busy_mci,
    "a vm below": busy_vm,
    "edge": busy_cluster,
    "machines": busy_machine,
    "leases": busy_lease,
    "systems": busy_system,
}


@pytest.mark.parametrize("family", FAMILIES)
async def test_what_begin_refuses_ends_nothing_although_it_is_forced(
    user: User, home: Path, client: Client, family: str
) -> None:
    async with FAMILIES[family](Desk(user, home, client)) as busy, asyncio.timeout(PATIENCE):
        run = client.get_workflow_handle(busy.running.path, run_id=busy.running.run)
        before = await user.history(busy.running.path)
        for request, why in busy.refused:
            refusal = (await user.asking.request_action(request)).admission.refusal
            assert refusal, request
            assert why in refusal.message, refusal
            assert (await run.describe()).status is WorkflowExecutionStatus.RUNNING, (request, refusal)
        assert await user.history(busy.running.path) == before


async def test_a_spec_that_is_not_valid_ends_nothing_when_it_is_sent_by_hand(user: User, client: Client) -> None:
    """Our client does not send it; the Web UI and `temporal` do."""
    async with busy_mci(Desk(user, Path(), client)) as busy:
        run = client.get_workflow_handle(busy.running.path, run_id=busy.running.run)
        for action, given in (("scale-in", {"subGroop": "x"}), ("terminate", {"a": 1}), ("dance", None)):
            request = {"path": user.mci(), "action": action, "spec": given, "force": True}
            with pytest.raises(WorkflowUpdateFailedError) as failed:
                await run.execute_update(wire.PREEMPT_UPDATE, request, result_type=str)
            refusal = refusal_of_error(failed.value.cause)
            assert refusal, failed.value.cause
            assert refusal.category is Category.INVALID
        assert (await run.describe()).status is WorkflowExecutionStatus.RUNNING


async def test_a_forced_request_that_was_carried_out_before_ends_nothing_when_it_is_sent_again(
    user: User, client: Client
) -> None:
    """Whoever repeats a request after an outage must not end what somebody else does meanwhile."""
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    await user.do(user.mci(), "suspend", force=True, request_id="once")
    await user.fault("hang", seconds=600, verb="resume")
    running = await user.admitted(user.mci(), "resume")
    await user.until_delayed(user.vm("aws0-1"))
    assert "with this request ID has ended already" in await user.refused(
        user.mci(), "suspend", force=True, request_id="once"
    )
    run = client.get_workflow_handle(user.mci(), run_id=running.run)
    assert (await run.describe()).status is WorkflowExecutionStatus.RUNNING
    await user.asking.cancel_action(user.mci())


async def test_a_run_that_cannot_make_way_is_not_ended_for_what_begin_refuses(
    user: User, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eviction, "GRACE_SECONDS", 0.1)
    await user.do(user.mci(), "create", spec=spec(1, ["aws"]))
    run = await stuck(user)
    evicting = EvictionActivities(client, DryRunChecker(user.service.inventory))
    order = EvictRun(request=forced(user.mci(), "scale-in", {"subGroup": "nosuch"}), run=run.run_id or "")
    with pytest.raises(ApplicationError, match="there is no subgroup"):
        await evicting.make_way(order)
    assert (await run.describe()).status is WorkflowExecutionStatus.RUNNING
    await evicting.make_way(EvictRun(request=forced(user.mci(), "terminate"), run=run.run_id or ""))
    assert (await run.describe()).status is WorkflowExecutionStatus.TERMINATED
