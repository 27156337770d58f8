"""A short run of each family in the store, in which every function that builds a statement executes it once."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from domain.edge.facts import ConnectFact, PolicyQuestion
from domain.edge.messages import CrmConnect
from domain.edge.specs import AutoProvision
from domain.healing import HealReport, Suspect
from domain.leases.messages import CalendarQuery, DueQuery, HandOverGoal
from domain.machines.messages import BinQuery
from domain.mci.messages import ConnectionHold, Survey
from domain.model import Move, QueueCommand, Result, Step
from domain.systems.ports import AcceptDeploy, RevertDeploy, SystemWork
from store.edge import links
from store.edge.connected import connections
from store.edge.inventory import SqlEdge
from store.healing import keep_report, read_reports
from store.leases import LeaseReads, SqlLeases, changes, schedule
from store.machines import hooks as machines
from store.machines import queries
from store.mci.groups import highest_ever
from store.systems.hooks import SqlSystems
from tests.test_leases import bookings
from tests.test_store.driver import NOON, StoreDriver, group
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
    plan = await driver.book.plan_survey(Survey(path=WEB))
    await driver.book.vms_in_status(plan.chunks[0], ["Running"])
    await driver.book.known_cloud_ids(WEB, "aws/eu-1")
    await driver.database.run(partial(highest_ever, path=WEB, group="front"))
    await driver.book.unanswered_places()
    await driver.book.unanswered_page("aws/eu-1", None, 100)
    await driver.inventory.get(WEB, members=True)
    await driver.inventory.history(WEB)
    await driver.inventory.holds(WEB)
    await driver.inventory.outcome(made.run)
    await driver.inventory.action_of_run(made.run)
    newest = await driver.inventory.newest_event()
    await driver.inventory.events_after(newest, 100)
    await driver.inventory.tree(WEB, troubles=10)
    await driver.inventory.list_objects("vm", WEB)
    order = QueueCommand(path=WEB, run="drain", at=NOON)
    await driver.inventory.close_queue(order)
    await driver.inventory.open_queue(order)
    await driver.inventory.suspects(NOON)
    left = Suspect(path=WEB, owner="", run="", action="suspend", since=NOON, status="Suspending", epoch=7)
    await driver.inventory.heal(left, NOON, "gone")
    wish = ConnectionHold(place="aws/eu-1", holder=WEB, generation=1, lasts=timedelta(seconds=1))
    held = await driver.book.hold_connection(wish)
    assert held
    await driver.book.renew_hold(held, timedelta(seconds=1))
    await driver.book.release_hold(held)
    await driver.inventory.kept(WEB)
    await driver.inventory.begun_since(2**62)
    await driver.inventory.last_epoch()
    await driver.inventory.records([WEB, f"{WEB}:vm:front-1"])
    await driver.book.used_places()
    await driver.database.run(partial(keep_report, report=HealReport(at=NOON, looked=0, counts={}, found=[])))
    await driver.database.run(partial(read_reports, limit=10))
    await driver.act(WEB, "terminate", "Terminated")
    await driver.finish(await driver.grant(WEB, "delete"))
    cut_off = (await driver.begin(f"{WEB}2", "create", spec={"subGroups": [group()]})).grant
    assert cut_off
    await driver.inventory.abandon(cut_off.path, cut_off.run, NOON, "gone")


async def of_edge(driver: StoreDriver) -> None:
    grant = await driver.grant(BERLIN, "create", spec={})
    said = ConnectFact(cloudlet=BERLIN, said=CrmConnect(notify_id=1, version="v1"), at=NOON)
    await driver.database.run(partial(links.connected, fact=said))
    await driver.finish(grant)
    for path in (f"{BERLIN}:cluster:c1", f"{BERLIN}:cluster:c1:app:shop"):
        await driver.finish(await driver.grant(path, "create", spec={}))
    await driver.finish(await driver.grant(f"{BERLIN}:cluster:c1", "delete", spec={"cascade": True}), Result.FAILED)
    await driver.database.run(partial(links.connected, fact=said.model_copy(update={"said": CrmConnect(notify_id=2)})))
    edge = SqlEdge(driver.database)
    await edge.find_connection(BERLIN, 2)
    await edge.expected_instances(BERLIN, "")
    await edge.expected_instances(BERLIN, f"{BERLIN}:cluster:c1")
    await edge.find_refuges(BERLIN)
    policy = AutoProvision.model_validate({"app": "shop", "cloudlets": [{"cloudlet": "berlin", "cluster": "c1"}]})
    await edge.policy_facts(PolicyQuestion(policy="org:tour:policy:p", auto_provision=policy))
    assert [some async for some in connections(driver.database)]
    await driver.refusal(BERLIN, "delete")


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
    await driver.finish(await driver.grant("node:tour2", "decommission"), Result.FAILED)
    await act(driver, db, "migrate", node="tour2")
    await act(driver, db, "migrate")
    await driver.finish(await driver.grant(db, "delete", spec={"retention_days": 1}), Result.FAILED)
    await act(driver, DEV, "delete", {"bin": 7}, retention_days=1, cascade=True)
    await driver.database.run(partial(queries.due, query=BinQuery(tenant=ACME, at=NOON + timedelta(days=2), limit=10)))
    await driver.database.run(partial(queries.overdue, prefix=ACME, before=NOON))
    await driver.database.run(queries.tenants)
    await driver.database.run(partial(machines._added_to, disk=disk))
    await driver.refusal(ACME, "delete", spec={})


async def of_leases(driver: StoreDriver) -> None:
    for name in ("h1", "h2", "h3", "h4"):
        await bookings.host(driver, name)
    await bookings.book(driver, "a", 1, 3)
    await bookings.book(
        driver, "i", 1, 3, reservations=[{"resource_type": "virtual:instance", "vcpus": 1, "memory_mb": 1}]
    )
    await bookings.book(driver, "w", 1, 3, reservations=[bookings.physical(1, 1, vcpus=">= 1")])
    await bookings.refused(driver, "x", 1, 3, hosts=9)
    leases, reads = SqlLeases(driver.database), LeaseReads(driver.database)
    await bookings.due(driver, 1)
    await driver.database.run(partial(schedule.due, query=DueQuery(pool="main", at=bookings.moment(9))))
    await leases.pools()
    await leases.overdue("", NOON)
    await leases.overdue("project:p1", NOON)
    await leases.still_due([])
    await bookings.holdings(driver, HandOverGoal.ALL)
    await bookings.started(driver, "a")
    await bookings.change(driver, "a", hosts=2)
    await bookings.change(driver, "a", hosts=1)
    await bookings.change(driver, "a", end=bookings.at(4))
    await bookings.change(driver, "a", end=bookings.at(3.5))
    await driver.database.run(partial(changes._may_have_joined, reservation=f"{bookings.lease('a')}:reservation:r1"))
    await bookings.change(driver, "w", start=bookings.at(1.5), end=bookings.at(5))
    await bookings.finish(driver, await driver.grant("pool:main:host:h1", "fail"))
    await bookings.finish(driver, await driver.grant("pool:main:host:h1", "recover"))
    await reads.leases("project:p1", "", 10)
    await reads.leases("", "", 10)
    await reads.stretches("project:p1", "", 10)
    await reads.stretches("", "", 10)
    await reads.calendar(CalendarQuery(pool="main", limit=10), NOON)
    await bookings.holdings(driver, HandOverGoal.BEFORE)
    await bookings.holdings(driver, HandOverGoal.NOTHING)
    await bookings.over(driver, "a")
    await bookings.finish(driver, await driver.grant(bookings.lease("a"), "delete"), moves=bookings.gone("a"))
    await bookings.finish(driver, await driver.grant("pool:main:host:h4", "remove"))


async def of_systems(driver: StoreDriver) -> None:
    systems = SqlSystems(driver.database)
    await driver.finish(await driver.grant(SHOP, "create", spec={"backend": "simulated"}))
    grant = await driver.grant(SHOP, "deploy", spec={"definition": TREE})
    work = SystemWork(path=SHOP, epoch=grant.epoch, backend="simulated", record=str(grant.details["record"]))
    await systems.accept(AcceptDeploy(work=work, definition=TREE, at=NOON))
    touched = [part.path for part in await systems.touched(work) if part.path != SHOP]
    moves = [Move(path=path, to="stable", action="deploy") for path in touched]
    moves += [Move(path=work.record, to=stage) for stage in ("in progress", "succeeded")]
    await driver.inventory.advance(Step(path=SHOP, epoch=grant.epoch, at=NOON, moves=moves))
    await driver.finish(grant)
    await systems.services(SHOP)
    again = await driver.grant(f"{SHOP}:web", "deploy", spec={"definition": RUN})
    await systems.revert(
        RevertDeploy(work=SystemWork(path=f"{SHOP}:web", epoch=again.epoch, backend="simulated"), at=NOON)
    )
    await driver.finish(again, Result.FAILED)
    gone = await driver.grant(SHOP, "delete")
    await systems.accept_removal(
        RevertDeploy(work=SystemWork(path=SHOP, epoch=gone.epoch, backend="simulated"), at=NOON)
    )
    await driver.finish(gone, Result.FAILED)
    left = await systems.leaving("simulated")
    assert left
    await systems.forget(left, NOON)
    await driver.finish(await driver.grant(SHOP, "delete"))


STORIES = {"mci": of_mcis, "edge": of_edge, "machines": of_machines, "leases": of_leases, "systems": of_systems}
