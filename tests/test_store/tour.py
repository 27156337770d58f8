"""What each family does in the store, told in short: so every function that builds a statement sends it once."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from domain.edge.facts import ConnectFact, PolicyQuestion
from domain.edge.messages import CrmConnect
from domain.edge.specs import AutoProvision
from domain.healing import HealReport, Suspect
from domain.leases.views import CalendarQuery, DueQuery, Want
from domain.machines.model import BinQuery
from domain.mci.messages import Hold, Survey
from domain.model import LineOrder, Move, Result, Step
from domain.systems.backend import Acceptance, Reversal, Work
from store import bins, machines
from store.edge import links
from store.edge.connected import connections
from store.edge.inventory import SqlEdge
from store.healing import keep_report, read_reports
from store.leases import LeaseReads, SqlLeases, changes, schedule
from store.mci.groups import highest_ever
from store.systems import SqlSystems
from tests.test_leases import books
from tests.test_store.scene import NOON, Scene, group
from tests.test_store.test_machines import make as act

WEB = "ns:tour:mci:web"
BERLIN = "org:tour:cloudlet:berlin"
ACME, DEV = "account:tour", "account:tour:cloudspace:dev"
SHOP = "system:tour"
RUN: dict[str, Any] = {"command": ["run"]}
TREE = {"parts": [{"name": "web", **RUN}, {"name": "a", "parts": [{"name": "b", **RUN}]}]}


async def of_mcis(scene: Scene) -> None:
    made = await scene.grant(WEB, "create", spec={"subGroups": [group()]})
    await scene.land(made, "Running")
    await scene.finish(made)
    await scene.act(WEB, "suspend", "Suspended")
    await scene.act(f"{WEB}:vm:front-1", "resume", "Running")
    plan = await scene.book.plan(Survey(path=WEB))
    await scene.book.seen(plan.chunks[0], ["Running"])
    await scene.book.tagged(WEB, "aws/eu-1")
    await scene.database.run(partial(highest_ever, path=WEB, group="front"))
    await scene.book.unanswered_places()
    await scene.book.unanswered("aws/eu-1", None, 100)
    await scene.inventory.get(WEB, members=True)
    await scene.inventory.history(WEB)
    await scene.inventory.holds(WEB)
    await scene.inventory.outcome(made.run)
    await scene.inventory.tree(WEB, troubles=10)
    await scene.inventory.list_objects("vm", WEB)
    order = LineOrder(path=WEB, run="drain", at=NOON)
    await scene.inventory.close_line(order)
    await scene.inventory.open_line(order)
    await scene.inventory.suspects(NOON)
    left = Suspect(path=WEB, owner="", run="", action="suspend", since=NOON, status="Suspending", epoch=7)
    await scene.inventory.heal(left, NOON, "gone")
    wish = Hold(place="aws/eu-1", holder=WEB, generation=1, lasts=timedelta(seconds=1))
    held = await scene.book.hold(wish)
    assert held
    await scene.book.renew(held, timedelta(seconds=1))
    await scene.book.let_go(held)
    await scene.inventory.kept(WEB)
    await scene.inventory.begun_since(2**62)
    await scene.database.run(partial(keep_report, report=HealReport(at=NOON, looked=0, counts={}, found=[])))
    await scene.database.run(partial(read_reports, limit=10))
    await scene.act(WEB, "terminate", "Terminated")
    await scene.finish(await scene.grant(WEB, "delete"))
    cut_off = (await scene.begin(f"{WEB}2", "create", spec={"subGroups": [group()]})).grant
    assert cut_off
    await scene.inventory.bury(cut_off.path, cut_off.run, NOON, "gone")


async def of_edge(scene: Scene) -> None:
    grant = await scene.grant(BERLIN, "create", spec={})
    said = ConnectFact(cloudlet=BERLIN, said=CrmConnect(notify_id=1, version="v1"), at=NOON)
    await scene.database.run(partial(links.connected, fact=said))
    await scene.finish(grant)
    for path in (f"{BERLIN}:cluster:c1", f"{BERLIN}:cluster:c1:app:shop"):
        await scene.finish(await scene.grant(path, "create", spec={}))
    await scene.finish(await scene.grant(f"{BERLIN}:cluster:c1", "delete", spec={"cascade": True}), Result.FAILED)
    await scene.database.run(partial(links.connected, fact=said.model_copy(update={"said": CrmConnect(notify_id=2)})))
    edge = SqlEdge(scene.database)
    await edge.rejoined(BERLIN, 2)
    await edge.everything(BERLIN, "")
    await edge.everything(BERLIN, f"{BERLIN}:cluster:c1")
    await edge.refuges(BERLIN)
    policy = AutoProvision.model_validate({"app": "shop", "cloudlets": [{"cloudlet": "berlin", "cluster": "c1"}]})
    await edge.facts(PolicyQuestion(policy="org:tour:policy:p", auto_provision=policy))
    assert [some async for some in connections(scene.database)]
    await scene.refusal(BERLIN, "delete")


async def of_machines(scene: Scene) -> None:
    for path in (ACME, DEV, "image:tour"):
        await act(scene, path)
    await act(scene, "node:tour", memory=64)
    await act(scene, "node:tour2", memory=64)
    db, disk = f"{DEV}:machine:db", f"{ACME}:disk:d"
    await act(scene, db, left={"node": "tour"}, image="tour", node="tour")
    await act(scene, disk)
    await act(scene, db, "attach-disk", disk="d")
    await scene.refusal("image:tour", "delete", spec={})
    await scene.finish(await scene.grant("node:tour2", "decommission"), Result.FAILED)
    await act(scene, db, "migrate", node="tour2")
    await act(scene, db, "migrate")
    await scene.finish(await scene.grant(db, "delete", spec={"retention_days": 1}), Result.FAILED)
    await act(scene, DEV, "delete", {"bin": 7}, retention_days=1, cascade=True)
    await scene.database.run(partial(bins.due, query=BinQuery(tenant=ACME, at=NOON + timedelta(days=2), limit=10)))
    await scene.database.run(partial(bins.overdue, prefix=ACME, before=NOON))
    await scene.database.run(bins.tenants)
    await scene.database.run(partial(machines._added_to, disk=disk))
    await scene.refusal(ACME, "delete", spec={})


async def of_leases(scene: Scene) -> None:
    for name in ("h1", "h2", "h3", "h4"):
        await books.host(scene, name)
    await books.book(scene, "a", 1, 3)
    await books.book(scene, "i", 1, 3, reservations=[{"resource_type": "virtual:instance", "vcpus": 1, "memory_mb": 1}])
    await books.book(scene, "w", 1, 3, reservations=[books.physical(1, 1, vcpus=">= 1")])
    await books.refused(scene, "x", 1, 3, hosts=9)
    leases, reads = SqlLeases(scene.database), LeaseReads(scene.database)
    await books.due(scene, 1)
    await scene.database.run(partial(schedule.due, query=DueQuery(pool="main", at=books.moment(9))))
    await leases.pools()
    await leases.overdue("", NOON)
    await leases.overdue("project:p1", NOON)
    await leases.still_due([])
    await books.holdings(scene, Want.ALL)
    await books.started(scene, "a")
    await books.change(scene, "a", hosts=2)
    await books.change(scene, "a", hosts=1)
    await books.change(scene, "a", end=books.at(4))
    await books.change(scene, "a", end=books.at(3.5))
    await scene.database.run(partial(changes._may_have_joined, reservation=f"{books.lease('a')}:reservation:r1"))
    await books.change(scene, "w", start=books.at(1.5), end=books.at(5))
    await books.finish(scene, await scene.grant("pool:main:host:h1", "fail"))
    await books.finish(scene, await scene.grant("pool:main:host:h1", "recover"))
    await reads.leases("project:p1", "", 10)
    await reads.leases("", "", 10)
    await reads.stretches("project:p1")
    await reads.calendar(CalendarQuery(pool="main", limit=10), NOON)
    await books.holdings(scene, Want.BEFORE)
    await books.holdings(scene, Want.NOTHING)
    await books.over(scene, "a")
    await books.finish(scene, await scene.grant(books.lease("a"), "delete"), moves=books.gone("a"))
    await books.finish(scene, await scene.grant("pool:main:host:h4", "remove"))


async def of_systems(scene: Scene) -> None:
    systems = SqlSystems(scene.database)
    await scene.finish(await scene.grant(SHOP, "create", spec={"backend": "simulated"}))
    grant = await scene.grant(SHOP, "deploy", spec={"definition": TREE})
    work = Work(path=SHOP, epoch=grant.epoch, backend="simulated", record=str(grant.details["record"]))
    await systems.accept(Acceptance(work=work, definition=TREE, at=NOON))
    touched = [part.path for part in await systems.touched(work) if part.path != SHOP]
    moves = [Move(path=path, to="stable", action="deploy") for path in touched]
    moves += [Move(path=work.record, to=stage) for stage in ("in progress", "succeeded")]
    await scene.inventory.advance(Step(path=SHOP, epoch=grant.epoch, at=NOON, moves=moves))
    await scene.finish(grant)
    await systems.services(SHOP)
    again = await scene.grant(f"{SHOP}:web", "deploy", spec={"definition": RUN})
    await systems.revert(Reversal(work=Work(path=f"{SHOP}:web", epoch=again.epoch, backend="simulated"), at=NOON))
    await scene.finish(again, Result.FAILED)
    gone = await scene.grant(SHOP, "delete")
    await systems.accept_removal(Reversal(work=Work(path=SHOP, epoch=gone.epoch, backend="simulated"), at=NOON))
    await scene.finish(gone)


STORIES = (of_mcis, of_edge, of_machines, of_leases, of_systems)
