"""Leases in the store alone: booked, started, announced, ended, without a workflow."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from domain.leases.views import DueQuery, Holding, LeaseView, Want
from domain.model import Admission, Ending, Grant, Move, Refusal, Result
from store.leases import LeaseReads, SqlLeases, schedule
from tests.test_store.scene import NOON, Scene


def lease(name: str) -> str:
    return f"project:p1:lease:{name}"


def at(hours: float) -> str:
    return (NOON + timedelta(hours=hours)).isoformat()


async def finish(
    scene: Scene, grant: Grant, moves: Sequence[dict[str, Any]] = (), failed: str = "", **more: Any
) -> None:
    """The end of an action, with what it leaves."""
    result = Result.FAILED if failed else Result.SUCCEEDED
    left = [Move.model_validate(move) for move in moves]
    told = {"message": failed, "at": scene.now(), "moves": left, **more}
    await scene.inventory.finish(Ending(epoch=grant.epoch, run=grant.run, path=grant.path, result=result, **told))


async def host(scene: Scene, name: str, **spec: Any) -> None:
    grant = await scene.grant(f"pool:main:host:{name}", "add", spec=spec)
    await finish(scene, grant)


async def ask(scene: Scene, path: str, start: float, end: float, **what: Any) -> Admission:
    wanted = what or {"hosts": 1}
    return await scene.begin(path, "create", spec={"start": at(start), "end": at(end), **wanted})


async def book(scene: Scene, name: str, start: float, end: float, **what: Any) -> LeaseView:
    admission = await ask(scene, lease(name), start, end, **what)
    assert admission.grant, admission.refusal
    await finish(scene, admission.grant)
    return await see(scene, name)


async def refused(scene: Scene, name: str, start: float, end: float, **what: Any) -> Refusal:
    admission = await ask(scene, lease(name), start, end, **what)
    assert admission.refusal, await see(scene, name)
    return admission.refusal


async def see(scene: Scene, name: str = "l1") -> LeaseView:
    return await LeaseReads(scene.database).lease(lease(name))


async def hosts_of(scene: Scene, name: str) -> list[str]:
    return [host for each in (await see(scene, name)).reservations for host in each.hosts]


async def change(scene: Scene, which: str, /, **spec: Any) -> Refusal | None:
    admission = await scene.begin(lease(which), "update", spec=spec)
    if admission.grant:
        await updated(scene, admission.grant)
    return admission.refusal


async def updated(scene: Scene, grant: Grant) -> None:
    """The good end of an update, as its workflow leaves it."""
    await finish(scene, grant, grant.details.get("moves", []), spec=grant.details["spec"])


def physical(least: int, most: int = 0, **properties: Any) -> dict[str, Any]:
    return {"resource_type": "physical:host", "min": least, "max": most, "resource_properties": properties}


def gone(name: str) -> list[dict[str, str]]:
    parts = ("reservation:r1", "event:start_lease", "event:before_end_lease", "event:end_lease")
    return [{"path": f"{lease(name)}:{part}", "to": "None"} for part in parts]


async def due(scene: Scene, hours: float) -> list[tuple[str, str]]:
    found = await SqlLeases(scene.database).due(DueQuery(pool="main", at=NOON + timedelta(hours=hours)))
    return [(each.lease.rsplit(":", 1)[1], each.name) for each in found.due]


def move(name: str, part: str, to: str, action: str = "") -> dict[str, str]:
    return {"path": f"{lease(name)}:{part}", "to": to, "action": action}


async def started(scene: Scene, name: str) -> None:
    seen = await see(scene, name)
    grant = await scene.grant(lease(name), "start", spec={"due": text(seen.events[0].due)})
    moves = [move(name, "reservation:r1", "active"), move(name, "event:start_lease", "DONE", "start")]
    await finish(scene, grant, moves=moves)
    assert (await see(scene, name)).status == "ACTIVE"


async def announced(scene: Scene, name: str) -> None:
    seen = await see(scene, name)
    spec = {"due": text(seen.events[1].due)}
    await finish(scene, await scene.grant(f"{lease(name)}:event:before_end_lease", "announce", spec=spec))


async def over(scene: Scene, name: str) -> None:
    grant = await scene.grant(lease(name), "end")
    moves = [move(name, "reservation:r1", "deleted"), move(name, "event:end_lease", "DONE", "end")]
    await finish(scene, grant, moves=moves)
    assert (await see(scene, name)).status == "TERMINATED"


def moment(hours: float) -> datetime:
    return NOON + timedelta(hours=hours)


def stamp(hours: float) -> str:
    return text(moment(hours))


def text(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


async def holdings(scene: Scene, want: Want, name: str = "a") -> Holding:
    """What the first reservation of a lease is to hold, whoever asks."""
    these = [f"{lease(name)}:reservation:r1"]
    (found,) = await scene.database.run(partial(schedule.holdings, reservations=these, want=want))
    return found
