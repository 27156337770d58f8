"""Drives leases in the store without workflows: book, start, announce, end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from domain.leases.messages import DesiredHolding, DueEventsQuery, HoldingsToReach, LeaseView
from domain.model import ActionEnding, ActionResult, Admission, Grant, Move, Refusal
from store.leases import SqlLeaseSchedule, SqlLeaseViews, schedule
from tests.test_store.driver import NOON, StoreDriver


def lease(name: str) -> str:
    return f"project:p1:lease:{name}"


def at(hours: float) -> str:
    return (NOON + timedelta(hours=hours)).isoformat()


async def finish(
    driver: StoreDriver, grant: Grant, moves: Sequence[dict[str, Any]] = (), failed: str = "", **more: Any
) -> None:
    """The end of an action, with what it leaves."""
    result = ActionResult.FAILED if failed else ActionResult.SUCCEEDED
    left = [Move.model_validate(move) for move in moves]
    told = {"message": failed, "at": driver.now(), "moves": left, **more}
    await driver.inventory.finish_action(
        ActionEnding(epoch=grant.epoch, run=grant.run, path=grant.path, result=result, **told)
    )


async def host(driver: StoreDriver, name: str, **spec: Any) -> None:
    grant = await driver.grant(f"pool:main:host:{name}", "add", spec=spec)
    await finish(driver, grant)


async def ask(driver: StoreDriver, path: str, start: float, end: float, **what: Any) -> Admission:
    wanted = what or {"hosts": 1}
    return await driver.begin(path, "create", spec={"start": at(start), "end": at(end), **wanted})


async def book(driver: StoreDriver, name: str, start: float, end: float, **what: Any) -> LeaseView:
    admission = await ask(driver, lease(name), start, end, **what)
    assert admission.grant, admission.refusal
    await finish(driver, admission.grant)
    return await see(driver, name)


async def refused(driver: StoreDriver, name: str, start: float, end: float, **what: Any) -> Refusal:
    admission = await ask(driver, lease(name), start, end, **what)
    assert admission.refusal, await see(driver, name)
    return admission.refusal


async def see(driver: StoreDriver, name: str = "l1") -> LeaseView:
    return await SqlLeaseViews(driver.database).read_lease(lease(name))


async def hosts_of(driver: StoreDriver, name: str) -> list[str]:
    return [host for reservation in (await see(driver, name)).reservations for host in reservation.hosts]


async def change(driver: StoreDriver, which: str, /, **spec: Any) -> Refusal | None:
    admission = await driver.begin(lease(which), "update", spec=spec)
    if admission.grant:
        await updated(driver, admission.grant)
    return admission.refusal


async def updated(driver: StoreDriver, grant: Grant) -> None:
    """The good end of an update, as its workflow leaves it."""
    await finish(driver, grant, grant.details.get("moves", []), spec=grant.details["spec"])


def physical(least: int, most: int = 0, **properties: Any) -> dict[str, Any]:
    return {"resource_type": "physical:host", "min": least, "max": most, "resource_properties": properties}


def gone(name: str) -> list[dict[str, str]]:
    parts = ("reservation:r1", "event:start_lease", "event:before_end_lease", "event:end_lease")
    return [{"path": f"{lease(name)}:{part}", "to": "None"} for part in parts]


async def due(driver: StoreDriver, hours: float) -> list[tuple[str, str]]:
    found = await SqlLeaseSchedule(driver.database).list_due_events(
        DueEventsQuery(pool="main", at=NOON + timedelta(hours=hours))
    )
    return [(event.lease.rsplit(":", 1)[1], event.name) for event in found.due]


def move(name: str, part: str, to: str, action: str = "") -> dict[str, str]:
    return {"path": f"{lease(name)}:{part}", "to": to, "action": action}


async def started(driver: StoreDriver, name: str) -> None:
    seen = await see(driver, name)
    grant = await driver.grant(lease(name), "start", spec={"due": text(seen.events[0].due)})
    moves = [move(name, "reservation:r1", "active"), move(name, "event:start_lease", "DONE", "start")]
    await finish(driver, grant, moves=moves)
    assert (await see(driver, name)).status == "ACTIVE"


async def announced(driver: StoreDriver, name: str) -> None:
    seen = await see(driver, name)
    spec = {"due": text(seen.events[1].due)}
    await finish(driver, await driver.grant(f"{lease(name)}:event:before_end_lease", "announce", spec=spec))


async def over(driver: StoreDriver, name: str) -> None:
    grant = await driver.grant(lease(name), "end")
    moves = [move(name, "reservation:r1", "deleted"), move(name, "event:end_lease", "DONE", "end")]
    await finish(driver, grant, moves=moves)
    assert (await see(driver, name)).status == "TERMINATED"


def moment(hours: float) -> datetime:
    return NOON + timedelta(hours=hours)


def stamp(hours: float) -> str:
    return text(moment(hours))


def text(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


async def holdings(driver: StoreDriver, want: HoldingsToReach, name: str = "a") -> DesiredHolding:
    """What the first reservation of a lease is to hold, whoever asks."""
    these = [f"{lease(name)}:reservation:r1"]
    (found,) = await driver.database.run_transaction(partial(schedule.read_holdings, reservations=these, want=want))
    return found
