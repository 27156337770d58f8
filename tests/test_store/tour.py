"""A short run of each family in the store, in which every function that builds a statement executes it once."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import sqlalchemy as sa

from domain.aliases import AliasQuery, Dialect
from domain.edge.messages import CrmConnect
from domain.edge.reports import ConnectReport, PolicyFactsQuery
from domain.edge.specs import AutoProvision
from domain.healing import HealReport, OpenRun, StuckItem
from domain.identities import ProofUse
from domain.leases.messages import FIRST_BOOKING, CalendarQuery, DueEventsQuery, HoldingsToReach
from domain.machines.messages import DueBinEntriesQuery
from domain.mci.messages import ConnectionLockRequest, SurveyRequest
from domain.model import ActionResult, Move, ReadQuery, Step
from domain.quotafile import Quotas
from domain.quotas import Quota, QuotaQuery
from domain.requests import AccessAttempt
from domain.systems.ports import AcceptDeploy, RevertDeploy, SystemWork
from domain.waitqueue import QueueCommand
from store.edge import links
from store.edge.connections import list_open_connections
from store.edge.inventory import SqlEdgeStore
from store.gauges import SqlGauges
from store.healing import read_reports, save_heal_report
from store.hostports import host_ports
from store.leases import SqlLeaseSchedule, SqlLeaseViews, schedule, updates
from store.machines import hooks as machines
from store.machines import queries
from store.mci.groups import highest_vm_number_ever
from store.replay import iterate_actions
from store.seals import check_chain, iterate_seals, may_rewrite_history, read_sealed_lines, seal_lines
from store.systems.hooks import SqlSystemStore
from tests.test_leases import bookings
from tests.test_store.driver import NOON, NS, StoreDriver, group, no_doubt
from tests.test_store.test_machines import make as act

WEB = "ns:tour:mci:web"
BERLIN = "org:tour:cloudlet:berlin"
ACME, DEV = "account:tour", "account:tour:cloudspace:dev"
SHOP = "system:tour"
RUN: dict[str, Any] = {"command": ["run"]}
TREE = {"parts": [{"name": "web", **RUN}, {"name": "a", "parts": [{"name": "b", **RUN}]}]}


async def of_mcis(driver: StoreDriver) -> None:
    made = await driver.grant(WEB, "create", spec={"subGroups": [group()]})
    await driver.land(made, "Running")
    await driver.finish(made)
    await driver.act(WEB, "suspend", "Suspended")
    await driver.act(f"{WEB}:vm:front-1", "resume", "Running")
    plan = await driver.book.plan_survey(SurveyRequest(path=WEB))
    await driver.book.list_vms_in_status(plan.chunks[0], ["Running"])
    await driver.database.run_transaction(partial(highest_vm_number_ever, path=WEB, group="front"))
    await driver.book.list_unanswered_places()
    await driver.book.list_unanswered_orders("aws/eu-1", None, 100)
    await driver.inventory.read_object(WEB, members=True)
    await driver.inventory.read_history(WEB)
    await driver.inventory.list_locks(WEB)
    await driver.inventory.read_outcome(made.run)
    await driver.check(WEB, "scale-out", spec={"subGroup": "front"})
    await driver.inventory.read_action(made.run)
    await driver.inventory.read_last_action(WEB)
    assert await driver.inventory.find_answer_of_run(made.run)
    assert driver.database.run_in_snapshot_blocking(lambda one: list(iterate_actions(one)))
    newest = await driver.inventory.read_newest_position()
    await driver.inventory.list_events_after(newest, 100)
    await driver.database.run_transaction(seal_lines)
    driver.database.run_in_snapshot_blocking(check_chain)
    driver.database.run_in_snapshot_blocking(may_rewrite_history)
    driver.database.run_in_snapshot_blocking(lambda one: [read_sealed_lines(one, seal) for seal in iterate_seals(one)])
    await driver.inventory.read_tree(WEB, troubles=10)
    some_uuid = "3f2b7d3e-6b44-4a1c-9d55-0c7a1f0e2b11"
    query = AliasQuery(dialect=Dialect.BLAZAR, ids=["1", some_uuid], paths=["project:p1:lease:a"])
    await driver.inventory.find_aliases(query)
    await driver.inventory.list_objects("vm", WEB)
    order = QueueCommand(path=WEB, run="drain", at=NOON)
    await driver.inventory.close_wait_queue(order)
    await driver.inventory.open_wait_queue(order)
    await driver.inventory.list_stuck_items(NOON)
    await driver.inventory.filter_lost_runs([OpenRun(run="r1", started=NOON)], NOON)
    assert (await SqlGauges(driver.database).read_gauges()).open_actions >= 0
    left = StuckItem(path=WEB, owner="", run="", action="suspend", since=NOON, status="Suspending", epoch=7)
    await driver.inventory.heal_stuck_item(left, NOON, "gone")
    proof = ProofUse("proof-1", NOON)
    await driver.inventory.use_proof(proof, "r1")
    assert await driver.inventory.is_proof_used(proof.id)
    assert await driver.inventory.forget_expired(NOON + timedelta(days=1)) == 1
    await driver.inventory.record_access_attempt(AccessAttempt(path=WEB, verb="cancel", message="by ann", at=NOON))
    await driver.inventory.check_store_invariants(WEB)
    await driver.inventory.list_paths_begun_since(2**62)
    await driver.inventory.read_last_epoch()
    await driver.inventory.read_objects([WEB, f"{WEB}:vm:front-1"])
    await driver.book.used_places()
    await driver.database.run_transaction(
        partial(save_heal_report, report=HealReport(at=NOON, looked=0, counts={}, found=[]))
    )
    await driver.database.run_transaction(partial(read_reports, limit=10))
    limits = Quota(objects=10**6, vms=10**6, open_actions=10**6, requests_per_minute=1_000)
    driver.inventory.current_quotas = lambda: Quotas(tenants={"*": limits})
    await driver.act(WEB, "terminate", "Terminated")
    await driver.inventory.read_quotas(QuotaQuery())
    driver.inventory.current_quotas = lambda: None
    await driver.finish(await driver.grant(WEB, "delete"))
    cut_off = (await driver.begin(f"{WEB}2", "create", spec={"subGroups": [group()]})).grant
    assert cut_off
    wish = ConnectionLockRequest(NS, "aws/eu-1", cut_off.path, cut_off.epoch, timedelta(seconds=1))
    held = await driver.book.acquire_connection_lock(wish)
    assert held
    await driver.book.renew_connection_lock(held, timedelta(seconds=1))
    await driver.book.release_connection_lock(held)
    await driver.inventory.abandon_run(cut_off.path, cut_off.run, NOON, "gone")


async def of_edge(driver: StoreDriver) -> None:
    grant = await driver.grant(BERLIN, "create", spec={})
    said = ConnectReport(cloudlet=BERLIN, said=CrmConnect(notify_id=1, version="v1"), at=NOON)
    await driver.database.run_transaction(partial(links.accept_connection, doubt=no_doubt, fact=said))
    await driver.finish(grant)
    for path in (f"{BERLIN}:cluster:c1", f"{BERLIN}:cluster:c1:app:shop"):
        await driver.finish(await driver.grant(path, "create", spec={}))
    await driver.finish(
        await driver.grant(f"{BERLIN}:cluster:c1", "delete", spec={"cascade": True}), ActionResult.FAILED
    )
    await driver.database.run_transaction(
        partial(links.accept_connection, doubt=no_doubt, fact=said.model_copy(update={"said": CrmConnect(notify_id=2)}))
    )
    edge = SqlEdgeStore(driver.database)
    await edge.find_connection(BERLIN, [2])
    await edge.list_expected_instances(BERLIN, "")
    await edge.list_expected_instances(BERLIN, f"{BERLIN}:cluster:c1")
    await edge.plan_failover(BERLIN)
    policy = AutoProvision.model_validate({"app": "shop", "cloudlets": [{"cloudlet": "berlin", "cluster": "c1"}]})
    await edge.read_policy_facts(PolicyFactsQuery(policy="org:tour:policy:p", auto_provision=policy))
    assert [some async for some in list_open_connections(driver.database)]
    await driver.refusal(BERLIN, "delete")
    await driver.refusal(f"{BERLIN}:cluster:c1", "update", spec={}, requested_by="org:tour:policy:p")


async def of_machines(driver: StoreDriver) -> None:
    for path in (ACME, DEV, "image:tour"):
        await act(driver, path)
    await act(driver, "node:tour", memory=64)
    await act(driver, "node:tour2", memory=64)
    db, disk = f"{DEV}:machine:db", f"{ACME}:disk:d"
    await act(driver, db, left={"node": "tour"}, image="tour", node="tour")
    await act(driver, disk)
    await act(driver, db, "attach-disk", disk="d")
    await driver.refusal("image:tour", "delete", spec={})
    await driver.finish(await driver.grant("node:tour2", "decommission"), ActionResult.FAILED)
    await act(driver, db, "migrate", node="tour2")
    await act(driver, db, "migrate")
    await driver.finish(await driver.grant(db, "delete", spec={"retention_days": 1}), ActionResult.FAILED)
    for path in (ACME, DEV, db):
        await driver.check(path, "delete", spec={} if path == db else {"cascade": True})
    await act(driver, DEV, "delete", {"bin": 7}, retention_days=1, cascade=True)
    await driver.database.run_transaction(
        partial(
            queries.list_due_bin_entries, query=DueBinEntriesQuery(tenant=ACME, at=NOON + timedelta(days=2), limit=10)
        )
    )
    await driver.database.run_transaction(partial(queries.list_overdue_bin_entries, prefix=ACME, before=NOON))
    await driver.database.run_transaction(queries.list_bin_tenants)
    await driver.database.run_transaction(partial(machines._machine_disk_was_made_for, disk=disk))
    await driver.refusal(ACME, "delete", spec={})


async def of_leases(driver: StoreDriver) -> None:
    for name in ("h1", "h2", "h3", "h4"):
        await bookings.host(driver, name)
    await bookings.book(driver, "a", 1, 3)
    await bookings.book(
        driver,
        "i",
        1,
        3,
        reservations=[{"resource_type": "virtual:instance", "vcpus": 1, "memory_mb": 1, "affinity": True}],
    )
    await bookings.book(driver, "w", 1, 3, reservations=[bookings.physical(1, 1, vcpus=">= 1")])
    await bookings.refused(driver, "x", 1, 3, hosts=9)
    leases, reads = SqlLeaseSchedule(driver.database), SqlLeaseViews(driver.database)
    await bookings.due(driver, 1)
    await driver.database.run_transaction(
        partial(schedule.list_due_events, query=DueEventsQuery(pool="main", at=bookings.moment(9)))
    )
    await leases.list_pools_with_events()
    await leases.list_overdue_events("", NOON)
    await leases.list_overdue_events("project:p1", NOON)
    await leases.filter_due_events([])
    await bookings.holdings(driver, HoldingsToReach.ALL)
    await bookings.started(driver, "a")
    await driver.check(bookings.lease("a"), "update", spec={"hosts": 2})
    await bookings.change(driver, "a", hosts=2)
    await bookings.change(driver, "a", hosts=1)
    await bookings.change(driver, "a", end=bookings.at(4))
    await bookings.change(driver, "a", end=bookings.at(3.5))
    await driver.database.run_transaction(
        partial(updates._keep_uncertain_hosts, reservation=f"{bookings.lease('a')}:reservation:r1")
    )
    await bookings.change(driver, "w", start=bookings.at(1.5), end=bookings.at(5))
    await bookings.finish(driver, await driver.grant("pool:main:host:h1", "fail"))
    await bookings.finish(driver, await driver.grant("pool:main:host:h1", "recover"))
    await reads.read_leases("project:p1", "", 10)
    await reads.read_leases("", "", 10)
    await reads.list_bookings("project:p1", FIRST_BOOKING, 10)
    await reads.list_bookings("", FIRST_BOOKING, 10)
    await reads.read_calendar(CalendarQuery(pool="main", limit=10), NOON)
    hidden = await driver.grant("pool:main:host:h1", "update", spec={"private": ["gpu"]})
    await bookings.finish(driver, hidden)
    await reads.read_private_properties("main")
    await bookings.holdings(driver, HoldingsToReach.BEFORE)
    await bookings.holdings(driver, HoldingsToReach.NOTHING)
    await bookings.over(driver, "a")
    await bookings.finish(driver, await driver.grant(bookings.lease("a"), "delete"), moves=bookings.gone("a"))
    await bookings.finish(driver, await driver.grant("pool:main:host:h4", "remove"))


async def of_systems(driver: StoreDriver) -> None:
    systems = SqlSystemStore(driver.database)
    await driver.finish(await driver.grant(SHOP, "create", spec={"backend": "simulated"}))
    grant = await driver.grant(SHOP, "deploy", spec={"definition": TREE})
    work = SystemWork(path=SHOP, epoch=grant.epoch, backend="simulated", record=str(grant.details["record"]))
    await systems.accept_deploy(AcceptDeploy(work=work, definition=TREE, at=NOON))
    touched = [part.path for part in await systems.list_changed_parts(work) if part.path != SHOP]
    moves = [Move(path=path, to="stable", action="deploy") for path in touched]
    moves += [Move(path=work.record, to=stage) for stage in ("in progress", "succeeded")]
    await driver.inventory.apply_step(Step(path=SHOP, epoch=grant.epoch, at=NOON, moves=moves))
    await driver.finish(grant)
    await systems.list_services(SHOP)
    record = ReadQuery(path=work.record)
    assert (await systems.read_definition(record)).definition == TREE
    assert (await systems.read_definition(record.model_copy(update={"kind": "former"}))).definition is None
    again = await driver.grant(f"{SHOP}:web", "deploy", spec={"definition": RUN})
    await systems.revert_deploy(
        RevertDeploy(work=SystemWork(path=f"{SHOP}:web", epoch=again.epoch, backend="simulated"), at=NOON)
    )
    await driver.finish(again, ActionResult.FAILED)
    gone = await driver.grant(SHOP, "delete")
    await systems.accept_removal(
        RevertDeploy(work=SystemWork(path=SHOP, epoch=gone.epoch, backend="simulated"), at=NOON)
    )
    await driver.finish(gone, ActionResult.FAILED)
    left = await systems.list_parts_being_removed("simulated")
    assert left
    await systems.delete_removed_parts(left, NOON)
    await driver.finish(await driver.grant(SHOP, "delete"))
    await _pass_ports_on(driver)


async def _pass_ports_on(driver: StoreDriver) -> None:
    """A port from service to service, one that nobody needs, and one that is given back."""
    systems = SqlSystemStore(driver.database)
    await driver.finish(await driver.grant(SHOP, "create", spec={"backend": "process"}))
    for ports in ((8_081, 8_082), (8_082, 8_083)):
        tree = {"parts": [{"name": name, **RUN, "port": port} for name, port in zip("ab", ports, strict=True)]}
        grant = await driver.grant(SHOP, "deploy", spec={"definition": tree})
        work = SystemWork(path=SHOP, epoch=grant.epoch, backend="process", record=str(grant.details["record"]))
        await systems.accept_deploy(AcceptDeploy(work=work, definition=tree, at=NOON))
        await driver.finish(grant)
    lost = {"host": "services", "port": 8_090, "path": f"{SHOP}:lost", "run": "lost"}
    await driver.database.run_transaction(lambda connection: connection.execute(sa.insert(host_ports), lost))
    await driver.finish(await driver.grant("system:tour2", "create", spec={"backend": "process"}))
    tree = {"parts": [{"name": "a", **RUN, "port": 8_090}]}
    await driver.finish(await driver.grant("system:tour2", "deploy", spec={"definition": tree}), ActionResult.FAILED)


STORIES = {"mci": of_mcis, "edge": of_edge, "machines": of_machines, "leases": of_leases, "systems": of_systems}
