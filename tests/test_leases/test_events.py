"""What is due when, on both databases: ends before starts, dates that move, leases that contradict themselves."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from domain.leases.views import Want
from store.leases.tables import allocations, bookings, timers
from store.schema import objects
from tests.test_leases.books import (
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
from tests.test_store.scene import Scene


async def test_the_end_goes_before_a_start_in_the_same_moment_and_a_start_waits_for_its_hosts(scene: Scene) -> None:
    await host(scene, "h1")
    await book(scene, "b", 3, 5)  # booked first, and first by name
    await book(scene, "a", 1, 3)
    assert await due(scene, 1) == [("a", "start_lease")]
    assert await due(scene, 3) == [("a", "start_lease")]  # the clock was away: a's own events come in order
    await started(scene, "a")
    assert await due(scene, 3) == [("a", "before_end_lease")]
    await announced(scene, "a")
    assert await due(scene, 3) == [("a", "end_lease")]  # b's start is due too, but its host is not free
    await over(scene, "a")
    assert await due(scene, 3) == [("b", "start_lease")]


async def test_a_start_does_not_wait_for_a_lease_under_error(scene: Scene) -> None:
    await host(scene, "h1")
    await book(scene, "a", 1, 3)
    await book(scene, "b", 3, 5)
    await started(scene, "a")
    grant = await scene.grant(lease("a"), "end")
    broken = [move("a", "reservation:r1", "error"), move("a", "event:end_lease", "ERROR", action="end")]
    await finish(scene, grant, moves=broken, failed="the host does not answer")
    assert (await see(scene, "a")).status == "ERROR"
    assert await due(scene, 3) == [("b", "start_lease")]


async def test_an_event_that_was_moved_is_not_fired_by_its_old_date(scene: Scene) -> None:
    await host(scene, "h1")
    await book(scene, "a", 1, 3)
    old = (await see(scene, "a")).events[0].due
    assert await change(scene, "a", start=at(2)) is None
    refusal = await scene.refusal(lease("a"), "start", spec={"due": old.isoformat().replace("+00:00", "Z")})
    assert "start_lease comes at 2026-01-01T14:00:00Z" in refusal.message
    assert "has been moved" in refusal.message
    by_hand = await scene.refusal(lease("a"), "start")
    assert "only the clock does that" in by_hand.message


async def test_the_clock_is_woken_only_for_what_comes_before_everything_it_knows(scene: Scene) -> None:
    for n in range(3):
        await host(scene, f"h{n}")
    answers = [await ask(scene, lease(f"l{n}"), start, start + 1) for n, start in enumerate((5, 7, 3))]
    assert [each.grant and each.grant.details["wake"] for each in answers] == [True, False, True]


async def test_a_lease_whose_parts_contradict_it_goes_to_error_and_says_why(scene: Scene) -> None:
    await host(scene, "h1")
    await book(scene, "a", 1, 3)
    spoil = sa.update(objects).where(objects.c.path == f"{lease('a')}:reservation:r1").values(status="active")
    await scene.database.run(lambda connection: connection.execute(spoil).rowcount)
    grant = await scene.grant(lease("a"), "start", spec={"due": stamp(1)})
    assert grant.details == {"contradiction": "a reservation is active; a lease under PENDING needs pending"}
    await finish(scene, grant)  # even if nobody looked at that
    seen = await see(scene, "a")
    assert seen.status == "ERROR"
    assert "its parts cannot be reconciled" in seen.error
    assert (await scene.last(lease("a"))).action == "reconcile"


async def test_a_start_that_was_cut_off_is_due_again(scene: Scene) -> None:
    await host(scene, "h1")
    await book(scene, "a", 1, 3)
    grant = await scene.grant(lease("a"), "start", run="dead", spec={"due": stamp(1)})
    assert (await see(scene, "a")).events[0].status == "IN_PROGRESS"
    await scene.inventory.bury(lease("a"), "dead", scene.now(), "killed")
    assert grant.path == lease("a")
    seen = await see(scene, "a")
    assert (seen.status, seen.events[0].status) == ("PENDING", "UNDONE")
    assert await due(scene, 1) == [("a", "start_lease")]


async def test_what_is_to_be_taken_back_is_never_handed_over_again_whoever_comes_late(scene: Scene) -> None:
    await host(scene, "h1")
    await host(scene, "h2")
    await book(scene, "a", 1, 3)
    await started(scene, "a")
    before = await holdings(scene, Want.ALL)
    nothing = await holdings(scene, Want.NOTHING)
    await scene.grant("pool:main:host:h1", "fail")  # it would get h2 now
    late = await holdings(scene, Want.ALL)
    assert list(before.hosts) == ["pool:main:host:h1"]
    assert nothing.hosts == {} == late.hosts
    assert before.version < nothing.version < late.version


async def test_nothing_of_a_deleted_lease_is_left_in_any_table(scene: Scene) -> None:
    await host(scene, "h1")
    await book(scene, "a", 1, 3)
    await finish(scene, await scene.grant(lease("a"), "delete"), moves=gone("a"))
    left = await scene.dump()
    assert [left[table.name] for table in (bookings, allocations, timers)] == [[], [], []]
    await book(scene, "a", 1, 3)  # and its name may be used again


@pytest.mark.parametrize("action", ["start", "end"])
async def test_a_terminated_lease_neither_starts_nor_ends_again_not_even_by_force(scene: Scene, action: str) -> None:
    await host(scene, "h1")
    await book(scene, "a", 1, 3)
    await started(scene, "a")
    await over(scene, "a")
    spec = {"start": {"due": stamp(1)}, "end": {}}[action]
    for force in (False, True):
        admission = await scene.begin(lease("a"), action, spec=spec, force=force)
        if action == "end":  # asked twice: nothing to do
            assert admission.grant
            assert admission.grant.ruling == "already"
        else:
            assert admission.refusal
            assert admission.refusal.message == f"{action} is not allowed for lease under TERMINATED"
            assert "allowed now: update, delete" in admission.refusal.hint
