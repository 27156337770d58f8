"""Due events on both databases: ends before starts, dates that move, contradicting leases."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from domain.leases.messages import HoldingsToReach
from store.leases.tables import allocations, bookings, timers
from store.schema import objects
from tests.test_leases.bookings import (
    announced,
    ask,
    at,
    book,
    change,
    due,
    finish,
    gone,
    holdings,
    host,
    lease,
    move,
    over,
    see,
    stamp,
    started,
)
from tests.test_store.driver import StoreDriver


async def test_the_end_goes_before_a_start_in_the_same_moment_and_a_start_waits_for_its_hosts(
    driver: StoreDriver,
) -> None:
    await host(driver, "h1")
    await book(driver, "b", 3, 5)  # booked first, and first by name
    await book(driver, "a", 1, 3)
    assert await due(driver, 1) == [("a", "start_lease")]
    assert await due(driver, 3) == [("a", "start_lease")]  # the clock was away: a's own events come in order
    await started(driver, "a")
    assert await due(driver, 3) == [("a", "before_end_lease")]
    await announced(driver, "a")
    assert await due(driver, 3) == [("a", "end_lease")]  # b's start is due too, but its host is not free
    await over(driver, "a")
    assert await due(driver, 3) == [("b", "start_lease")]


async def test_a_start_does_not_wait_for_a_lease_under_error(driver: StoreDriver) -> None:
    await host(driver, "h1")
    await book(driver, "a", 1, 3)
    await book(driver, "b", 3, 5)
    await started(driver, "a")
    grant = await driver.grant(lease("a"), "end")
    broken = [move("a", "reservation:r1", "error"), move("a", "event:end_lease", "ERROR", action="end")]
    await finish(driver, grant, moves=broken, failed="the host does not answer")
    assert (await see(driver, "a")).status == "ERROR"
    assert await due(driver, 3) == [("b", "start_lease")]


async def test_an_event_that_was_moved_is_not_fired_by_its_old_date(driver: StoreDriver) -> None:
    await host(driver, "h1")
    await book(driver, "a", 1, 3)
    old = (await see(driver, "a")).events[0].due
    assert await change(driver, "a", start=at(2)) is None
    refusal = await driver.refusal(lease("a"), "start", spec={"due": old.isoformat().replace("+00:00", "Z")})
    assert "start_lease comes at 2026-01-01T14:00:00Z" in refusal.message
    assert "has been moved" in refusal.message
    by_hand = await driver.refusal(lease("a"), "start")
    assert "only the clock does that" in by_hand.message


async def test_the_clock_is_woken_only_for_what_comes_before_everything_it_knows(driver: StoreDriver) -> None:
    for n in range(3):
        await host(driver, f"h{n}")
    answers = [await ask(driver, lease(f"l{n}"), start, start + 1) for n, start in enumerate((5, 7, 3))]
    assert [answer.grant and answer.grant.details["wake"] for answer in answers] == [True, False, True]


async def test_a_lease_whose_parts_contradict_it_goes_to_error_and_says_why(driver: StoreDriver) -> None:
    await host(driver, "h1")
    await book(driver, "a", 1, 3)
    spoil = sa.update(objects).where(objects.c.path == f"{lease('a')}:reservation:r1").values(status="active")
    await driver.database.run_transaction(lambda connection: connection.execute(spoil).rowcount)
    grant = await driver.grant(lease("a"), "start", spec={"due": stamp(1)})
    assert grant.details == {"contradiction": "a reservation is active; a lease under PENDING needs pending"}
    await finish(driver, grant)  # even if nobody looked at that
    seen = await see(driver, "a")
    assert seen.status == "ERROR"
    assert "its parts cannot be reconciled" in seen.error
    assert (await driver.last(lease("a"))).action == "reconcile"


async def test_a_start_that_was_cut_off_is_due_again(driver: StoreDriver) -> None:
    await host(driver, "h1")
    await book(driver, "a", 1, 3)
    grant = await driver.grant(lease("a"), "start", run="dead", spec={"due": stamp(1)})
    assert (await see(driver, "a")).events[0].status == "IN_PROGRESS"
    await driver.inventory.abandon_run(lease("a"), "dead", driver.now(), "killed")
    assert grant.path == lease("a")
    seen = await see(driver, "a")
    assert (seen.status, seen.events[0].status) == ("PENDING", "UNDONE")
    assert await due(driver, 1) == [("a", "start_lease")]


async def test_what_is_to_be_taken_back_is_never_handed_over_again_whoever_comes_late(driver: StoreDriver) -> None:
    await host(driver, "h1")
    await host(driver, "h2")
    await book(driver, "a", 1, 3)
    await started(driver, "a")
    before = await holdings(driver, HoldingsToReach.ALL)
    nothing = await holdings(driver, HoldingsToReach.NOTHING)
    await driver.grant("pool:main:host:h1", "fail")  # it would get h2 now
    late = await holdings(driver, HoldingsToReach.ALL)
    assert list(before.hosts) == ["pool:main:host:h1"]
    assert nothing.hosts == {} == late.hosts
    assert before.version < nothing.version < late.version


async def test_nothing_of_a_deleted_lease_is_left_in_any_table(driver: StoreDriver) -> None:
    await host(driver, "h1")
    await book(driver, "a", 1, 3)
    await finish(driver, await driver.grant(lease("a"), "delete"), moves=gone("a"))
    left = await driver.dump()
    assert [left[table.name] for table in (bookings, allocations, timers)] == [[], [], []]
    await book(driver, "a", 1, 3)  # and its name may be used again


@pytest.mark.parametrize("action", ["start", "end"])
async def test_a_terminated_lease_neither_starts_nor_ends_again_not_even_by_force(
    driver: StoreDriver, action: str
) -> None:
    await host(driver, "h1")
    await book(driver, "a", 1, 3)
    await started(driver, "a")
    await over(driver, "a")
    spec = {"start": {"due": stamp(1)}, "end": {}}[action]
    for force in (False, True):
        admission = await driver.begin(lease("a"), action, spec=spec, force=force)
        if action == "end":  # asked twice: nothing to do
            assert admission.grant
            assert admission.grant.ruling == "already"
        else:
            assert admission.refusal
            assert admission.refusal.message == f"{action} is not allowed for lease under TERMINATED"
            assert "allowed now: update, delete" in admission.refusal.hint
