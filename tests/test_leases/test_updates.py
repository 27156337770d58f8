"""Updates in the store, on both databases: all of an update or nothing of it, whoever ends it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import pytest
import sqlalchemy as sa

from domain.leases.messages import HoldingsToReach
from domain.leases.specs import LeaseLimits
from domain.model import ActionResult, Grant
from store.leases import SqlLeaseSchedule
from store.leases.hooks import lease_hooks
from store.leases.tables import allocations, bookings, timers
from store.schema import objects
from tests.test_leases.bookings import (
    at,
    book,
    change,
    due,
    finish,
    holdings,
    host,
    hosts_of,
    lease,
    moment,
    over,
    physical,
    refused,
    see,
    started,
    updated,
)
from tests.test_store.driver import StoreDriver

R1 = f"{lease('a')}:reservation:r1"


async def kept(driver: StoreDriver) -> list[Any]:
    """All that there is of leases, but for numbers that only ever rise, and the reason of the last end."""

    def look(connection: sa.Connection) -> list[Any]:
        of_bookings = [column for column in bookings.c if column.name != "version"]
        of_rows = [column for column in allocations.c if column.name != "id"]
        of_objects = [objects.c.path, objects.c.status, objects.c.spec, objects.c.target_action]
        queries = (
            sa.select(*of_bookings).order_by(bookings.c.reservation),
            sa.select(*of_rows).order_by(allocations.c.host, allocations.c.starts),
            sa.select(timers).order_by(timers.c.event),
            sa.select(*of_objects).order_by(objects.c.path),
        )
        return [connection.execute(query).all() for query in queries]

    return await driver.database.run_transaction(look)


async def cancelled(driver: StoreDriver, grant: Grant) -> None:
    """As the workflow does it: what had joined goes back, then the end is written."""
    if grant.details["hand_over"]:
        await SqlLeaseSchedule(driver.database).record_returned_hosts(await holdings(driver, HoldingsToReach.BEFORE))
    await driver.finish(grant, ActionResult.CANCELLED, "cancelled")


async def failed(driver: StoreDriver, grant: Grant) -> None:
    await driver.finish(grant, ActionResult.FAILED, "the size cannot change")


async def terminated(driver: StoreDriver, grant: Grant) -> None:
    await driver.inventory.abandon_run(grant.path, "mine", driver.now(), "gone")


CHANGES: list[dict[str, Any]] = [
    {"name": "other", "start": at(2), "end": at(9)},
    {"end": at(2.5), "hosts": 2},
    {"start": at(4), "end": at(8), "hosts": 2},
    {"before_end": at(1.5), "hosts": 1},
]


@pytest.mark.parametrize("spec", CHANGES)
@pytest.mark.parametrize("cut", [cancelled, failed, terminated])
async def test_of_an_update_that_is_cut_off_before_the_start_nothing_stays(
    driver: StoreDriver, spec: dict[str, Any], cut: Callable[[StoreDriver, Grant], Awaitable[None]]
) -> None:
    for name in ("h1", "h2"):
        await host(driver, name)
    await book(driver, "a", 1, 3)
    before = await kept(driver)
    grant = await driver.grant(lease("a"), "update", run="mine", spec=spec)
    await _looks_as_before(driver)
    await cut(driver, grant)
    assert await kept(driver) == before
    assert await due(driver, 1) == [("a", "start_lease")]


async def _looks_as_before(driver: StoreDriver) -> None:
    """What others see does not change while the update is under way."""
    seen = await see(driver, "a")
    assert (seen.name, list(seen.reservations[0].hosts), seen.degraded) == ("a", ["h1"], False)
    assert [seen.start, seen.end, *(event.due for event in seen.events)] == [moment(h) for h in (1, 3, 1, 2, 3)]


@pytest.mark.parametrize("spec", [{"name": "other", "end": at(9)}, {"end": at(2.5)}, {"before_end": at(2.5)}])
@pytest.mark.parametrize("cut", [failed, terminated])
async def test_of_an_update_that_is_cut_off_during_the_lease_nothing_stays(
    driver: StoreDriver, spec: dict[str, Any], cut: Callable[[StoreDriver, Grant], Awaitable[None]]
) -> None:
    await host(driver, "h1")
    await book(driver, "a", 1, 3)
    await started(driver, "a")
    before = await kept(driver)
    grant = await driver.grant(lease("a"), "update", run="mine", spec=spec)
    refusal = await refused(driver, "b", 2, 4)  # whatever comes of it, the host is not free before the later end
    assert "room for 0" in refusal.message
    await cut(driver, grant)
    assert await kept(driver) == before


@pytest.mark.parametrize("hosts", [1, 3])
async def test_a_resize_that_is_cancelled_gives_back_what_had_joined_and_keeps_what_was_to_leave(
    driver: StoreDriver, hosts: int
) -> None:
    for name in ("h1", "h2", "h3"):
        await host(driver, name)
    await book(driver, "a", 1, 3, hosts=2)
    await started(driver, "a")
    before = await kept(driver)
    grant = await driver.grant(lease("a"), "update", run="mine", spec={"hosts": hosts, "end": at(9)})
    assert grant.details["hand_over"] == [R1]
    wanted = await holdings(driver, HoldingsToReach.ALL)
    assert len(wanted.hosts) == hosts
    before_it = await holdings(driver, HoldingsToReach.BEFORE)
    assert (len(before_it.hosts), before_it.returning) == (2, hosts > 2)
    assert before_it.version > wanted.version
    await SqlLeaseSchedule(driver.database).record_returned_hosts(before_it)
    again = await holdings(driver, HoldingsToReach.ALL)  # whoever asks now, for whatever reason, hears the same
    assert len(again.hosts) == 2
    await driver.finish(grant, ActionResult.CANCELLED, "cancelled")
    assert await kept(driver) == before


async def test_what_a_terminated_resize_may_have_handed_over_is_nobody_elses_until_it_is_back(
    driver: StoreDriver,
) -> None:
    for name in ("h1", "h2"):
        await host(driver, name)
    await book(driver, "a", 1, 3)
    await started(driver, "a")
    before = await kept(driver)
    grant = await driver.grant(lease("a"), "update", run="mine", spec={"hosts": 2})
    await terminated(driver, grant)
    seen = await see(driver, "a")
    assert (list(seen.reservations[0].hosts), seen.degraded) == (["h1"], False)
    assert "room for 0" in (await refused(driver, "b", 1, 3)).message
    grant = await driver.grant(lease("a"), "update", spec={"end": at(2.9)})
    assert grant.details["hand_over"] == [R1]  # the next update gives it back
    holding = await holdings(driver, HoldingsToReach.ALL)
    assert list(holding.hosts) == ["pool:main:host:h1"]
    await SqlLeaseSchedule(driver.database).record_returned_hosts(holding)
    await updated(driver, grant)
    await change(driver, "a", end=at(3))
    assert await kept(driver) == before
    await book(driver, "b", 1, 3)


@pytest.mark.parametrize(("new", "first"), [(at(0.5), 0.5), (at(2), 1)])
async def test_while_a_start_is_being_moved_the_clock_knows_the_earlier_of_its_dates(
    driver: StoreDriver, new: str, first: float
) -> None:
    """So it looks in time whichever comes out, and nobody has to wake it when an update is cut off."""
    await host(driver, "h1")
    await book(driver, "a", 1, 3)
    grant = await driver.grant(lease("a"), "update", run="mine", spec={"start": new})
    assert await _timer(driver, "start_lease") == moment(first)
    await terminated(driver, grant)
    assert await _timer(driver, "start_lease") == moment(1)


async def _timer(driver: StoreDriver, name: str) -> datetime | None:
    query = sa.select(timers.c.due).where(timers.c.event == f"{lease('a')}:event:{name}")
    return await driver.database.run_transaction(lambda connection: connection.execute(query).scalar_one_or_none())


async def test_an_announcement_is_not_made_again_if_the_new_end_did_not_come_to_be(driver: StoreDriver) -> None:
    await host(driver, "h1")
    await book(driver, "a", 1, 3)
    await started(driver, "a")
    spec = {"due": (await see(driver, "a")).events[1].due.isoformat().replace("+00:00", "Z")}
    await finish(driver, await driver.grant(f"{lease('a')}:event:before_end_lease", "announce", spec=spec))
    grant = await driver.grant(lease("a"), "update", run="mine", spec={"end": at(9)})
    await failed(driver, grant)
    assert (await see(driver, "a")).events[1].status == "DONE"
    assert await due(driver, 9) == [("a", "end_lease")]
    await change(driver, "a", end=at(9))
    assert (await see(driver, "a")).events[1].status == "UNDONE"


@pytest.mark.parametrize("hosts", [1, 2, 3])
@pytest.mark.parametrize("good", [True, False])
async def test_a_host_that_fails_during_a_resize_is_replaced_for_whatever_comes_out(
    driver: StoreDriver, hosts: int, good: bool
) -> None:
    for name in ("h1", "h2", "h3", "h4"):
        await host(driver, name)
    await book(driver, "a", 1, 3, hosts=2)
    await started(driver, "a")
    grant = await driver.grant(lease("a"), "update", spec={"hosts": hosts, "end": at(4)})
    await finish(driver, await driver.grant("pool:main:host:h2", "fail"))
    if good:
        await updated(driver, grant)
    else:
        if grant.details["hand_over"]:
            await SqlLeaseSchedule(driver.database).record_returned_hosts(
                await holdings(driver, HoldingsToReach.BEFORE)
            )
        await driver.finish(grant, ActionResult.CANCELLED, "cancelled")
    seen = (await see(driver, "a")).reservations[0]
    assert len(seen.hosts) == (hosts if good else 2)
    assert "h2" not in seen.hosts
    assert not seen.missing_resources
    free = 3 - len(seen.hosts)
    await book(driver, "b", 1, 3, hosts=free) if free else None
    await refused(driver, "c", 1, 3)


async def test_a_lease_that_misses_a_host_shrinks_to_those_that_it_has(driver: StoreDriver) -> None:
    for name in ("h1", "h2", "h3"):
        await host(driver, name)
    await book(driver, "a", 1, 3, hosts=3)
    await started(driver, "a")
    await finish(driver, await driver.grant("pool:main:host:h3", "fail"))
    assert await change(driver, "a", hosts=2) is None
    seen = await see(driver, "a")
    assert (list(seen.reservations[0].hosts), seen.degraded) == (["h1", "h2"], False)


async def test_two_updates_that_grow_at_once_do_not_pass_a_quota_together(driver: StoreDriver) -> None:
    driver.hooks.update(lease_hooks(LeaseLimits(hosts=3)))
    for n in range(6):
        await host(driver, f"h{n}")
    for name in ("a", "b"):
        await book(driver, name, 1, 3)
        await started(driver, name)
    await driver.grant(lease("a"), "update", spec={"hosts": 2})
    refusal = await driver.refusal(lease("b"), "update", spec={"hosts": 2})
    assert "would hold 4 hosts at one time: the limit is 3" in refusal.message


# What may change when.


async def test_the_name_can_change_in_every_status_and_nothing_else_of_a_lease_that_has_ended(
    driver: StoreDriver,
) -> None:
    await host(driver, "h1")
    await book(driver, "a", 1, 3)
    for reach in (None, started, over):
        if reach:
            await reach(driver, "a")
        before = await see(driver, "a")
        assert await change(driver, "a", name=f"after {before.status}") is None
        after = await see(driver, "a")
        assert after == before.model_copy(update={"name": f"after {before.status}", "changed_at": after.changed_at})
    refusal = await driver.refusal(lease("a"), "update", spec={"name": "x", "end": at(9)})
    assert refusal.message == "the lease has ended: only its name can change"


async def test_a_resize_names_its_reservation_unless_there_is_only_one(driver: StoreDriver) -> None:
    for n in range(6):
        await host(driver, f"h{n}")
    await book(driver, "a", 1, 3, reservations=[physical(1), physical(1)])
    unclear: list[dict[str, Any]] = [{"hosts": 2}, {"reservations": [{"min": 2}]}]
    for spec in unclear:
        refusal = await driver.refusal(lease("a"), "update", spec=spec)
        assert "the lease has 2 reservations: r1, r2; say which one" in refusal.message
        assert "reservations: [{id: r1, min: 2}]" in refusal.hint
    twice = {"reservations": [{"id": "r2", "min": 2}, {"id": "r2", "min": 3}]}
    assert "two sizes for reservation r2" in (await driver.refusal(lease("a"), "update", spec=twice)).message
    assert await change(driver, "a", reservations=[{"id": "r2", "min": 2}]) is None
    assert [len(reservation.hosts) for reservation in (await see(driver, "a")).reservations] == [1, 2]
    await book(driver, "b", 1, 3)
    for spec in unclear:
        assert await change(driver, "b", **spec) is None
        assert len(await hosts_of(driver, "b")) == 2
