"""Booking on both databases: hosts with properties, windows of time, quotas, races, and hosts that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from domain.errors import Category
from domain.leases.spec import Limits
from domain.leases.views import DueQuery, LeaseView, Want
from domain.model import Admission, Ending, Grant, Move, Refusal, Result
from store.leases import LeaseReads, SqlLeases
from store.leases.booking import LIMITS
from store.leases.tables import allocations, bookings, timers
from store.schema import objects
from tests.test_store.scene import NOON, Scene


def lease(name: str) -> str:
    return f"project:p1:lease:{name}"


def at(hours: float) -> str:
    return (NOON + timedelta(hours=hours)).isoformat()


async def finish(scene: Scene, grant: Grant, moves: Sequence[dict[str, str]] = (), failed: str = "") -> None:
    """The end of an action, with what it leaves."""
    result = Result.FAILED if failed else Result.SUCCEEDED
    left = [Move.model_validate(move) for move in moves]
    ending = Ending(epoch=grant.epoch, path=grant.path, result=result, message=failed, at=scene.now(), moves=left)
    await scene.inventory.finish(ending)


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
        await finish(scene, admission.grant)
    return admission.refusal


def physical(least: int, most: int = 0, **properties: Any) -> dict[str, Any]:
    return {"resource_type": "physical:host", "min": least, "max": most, "resource_properties": properties}


async def test_two_leases_share_a_host_only_one_after_the_other(scene: Scene) -> None:
    await host(scene, "h1")
    await book(scene, "a", 1, 3)
    await book(scene, "b", 3, 5)
    await book(scene, "c", 0, 1)
    refusal = await refused(scene, "d", 2, 4)
    assert refusal.category is Category.QUOTA
    assert "1 wanted, room for 0 in pool main from 2026-01-01T14:00:00Z to 2026-01-01T16:00:00Z" in refusal.message
    assert "starter lease calendar" in refusal.hint


async def test_a_refused_lease_leaves_nothing_not_even_its_first_reservation(scene: Scene) -> None:
    await host(scene, "h1")
    before = await scene.dump()
    await refused(scene, "a", 1, 3, reservations=[physical(1), physical(1)])
    assert await scene.dump() == before


async def test_a_lease_gets_as_many_as_there_are_between_min_and_max(scene: Scene) -> None:
    for name in ("h1", "h2", "h3"):
        await host(scene, name)
    await book(scene, "a", 1, 3, reservations=[physical(1, 2)])
    seen = await book(scene, "b", 1, 3, reservations=[physical(1, 5)])
    assert list(seen.reservations[0].hosts) == ["h3"]
    assert (seen.reservations[0].min, seen.reservations[0].max) == (1, 5)
    assert not seen.degraded


async def test_properties_choose_the_hosts(scene: Scene) -> None:
    await host(scene, "plain", vcpus=8)
    await host(scene, "big", vcpus=64, labels="gpu=a100")
    await book(scene, "a", 1, 3, reservations=[physical(1, gpu="a100", vcpus=">=32")])
    assert await hosts_of(scene, "a") == ["big"]
    refusal = await refused(scene, "b", 2, 4, reservations=[physical(1, gpu="a100")])
    assert "the pool has 1 working hosts with gpu a100" in refusal.message
    await book(scene, "c", 2, 4, reservations=[physical(1)])


async def test_instances_share_hosts_as_far_as_each_of_their_sizes_fits(scene: Scene) -> None:
    await host(scene, "h1", vcpus=8, memory_mb=8000, disk_gb=100)
    small = {"resource_type": "virtual:instance", "min": 3, "vcpus": 2, "memory_mb": 1000}
    await book(scene, "a", 1, 3, reservations=[small])
    await book(scene, "b", 2, 4, reservations=[small | {"min": 1}])
    refusal = await refused(scene, "c", 2, 4, reservations=[small | {"min": 1}])
    assert "not enough instances" in refusal.message
    await book(scene, "d", 3, 4, reservations=[small])  # a has ended
    assert "not enough hosts" in (await refused(scene, "e", 3, 4)).message  # a whole host is nobody else's
    await book(scene, "f", 4, 5)
    assert "not enough instances" in (await refused(scene, "g", 4, 5, reservations=[small | {"min": 1}])).message


async def test_an_mci_takes_nothing_from_the_pool(scene: Scene) -> None:
    await book(scene, "a", 1, 3, reservations=[{"resource_type": "mci", "mci": "ns:a:mci:web", "spec": {}}])
    assert (await see(scene, "a")).reservations[0].mci == "ns:a:mci:web"


async def test_a_pending_lease_moves_and_grows_and_gives_free_what_it_leaves(scene: Scene) -> None:
    await host(scene, "h1")
    await host(scene, "h2")
    await book(scene, "a", 1, 3)
    assert await change(scene, "a", start=at(5), end=at(7), hosts=2) is None
    seen = await see(scene, "a")
    assert (seen.start, seen.end, list(seen.reservations[0].hosts)) == (_moment(5), _moment(7), ["h1", "h2"])
    assert [each.due for each in seen.events] == [_moment(5), _moment(6), _moment(7)]
    await book(scene, "b", 1, 3, hosts=2)
    refusal = await change(scene, "a", start=at(2))
    assert refusal
    assert "not enough hosts: 2 wanted, room for 0" in refusal.message
    assert await see(scene, "a") == seen  # as it was


async def test_bad_changes_leave_the_lease_as_it_was(scene: Scene) -> None:
    await host(scene, "h1")
    await book(scene, "a", 1, 3)
    before = await scene.dump()
    bad: list[tuple[dict[str, Any], str]] = [
        ({"end": at(0.5)}, "ends before it starts"),
        ({"start": at(-5)}, "is in the past"),
        ({"end": at(24 * 400)}, "the limit is 366 days"),
        ({"before_end": at(9)}, "is outside the lease"),
        ({"hosts": 2}, "not enough hosts"),
        ({"reservations": [{"id": "r9", "min": 1}]}, "there is no reservation r9"),
        ({"end": "tomorrow"}, "bad end 'tomorrow'"),
    ]
    for spec, reason in bad:
        refusal = await change(scene, "a", **spec)
        assert refusal
        assert reason in refusal.message
        assert await scene.dump() == before


async def test_a_name_changes_at_any_time_and_nothing_else_with_it(scene: Scene) -> None:
    await host(scene, "h1")
    before = await book(scene, "a", 1, 3)
    assert await change(scene, "a", name="Alice's") is None
    assert await see(scene, "a") == before.model_copy(update={"name": "Alice's"})


async def test_a_project_has_no_more_leases_and_hosts_than_it_may(scene: Scene) -> None:
    scene.database.engine.update_execution_options(**{LIMITS: Limits(leases=3, hosts=2)})
    for name in ("h1", "h2", "h3", "h4"):
        await host(scene, name)
    await book(scene, "a", 1, 3)
    refusal = await refused(scene, "b", 2, 4, hosts=2)
    assert refusal.category is Category.QUOTA
    assert refusal.message == "project p1 would hold 3 hosts at one time: the limit is 2"
    await book(scene, "b", 3, 5, hosts=2)
    await book(scene, "c", 0, 1, hosts=1)
    assert (await refused(scene, "d", 10, 11)).message == "project p1 has 3 leases: the limit is 3"
    assert (await change(scene, "a", hosts=2)) is None
    blocked = await change(scene, "a", end=at(4))
    assert blocked
    assert "would hold 4 hosts" in blocked.message
    other = await scene.begin("project:p2:lease:x", "create", spec={"start": at(9), "end": at(10), "hosts": 1})
    assert other.grant


async def test_of_racing_requests_for_the_last_host_one_is_booked(scene: Scene, rival: Scene) -> None:
    await host(scene, "h1")
    await host(scene, "h2")
    racers = [ask((scene, rival)[n % 2], lease(f"r{n}"), 1 + n % 3, 4 + n % 3) for n in range(16)]
    answers = await asyncio.gather(*racers)
    assert sum(1 for each in answers if each.grant) == 2
    assert await twice(scene) == []


async def test_racing_updates_and_failures_book_nothing_twice(scene: Scene, rival: Scene) -> None:
    for n in range(4):
        await host(scene, f"h{n}")
    for n in range(4):
        await book(scene, f"l{n}", n * 2, n * 2 + 2)
    moves = [change((scene, rival)[n % 2], f"l{n}", start=at(1), end=at(3), hosts=2) for n in range(4)]
    fails = [scene.begin("pool:main:host:h0", "fail"), rival.begin("pool:main:host:h1", "fail")]
    await asyncio.gather(*moves, *fails)
    assert await twice(scene) == []


async def twice(scene: Scene) -> list[Any]:
    """Pairs of allocations that overlap on one host, both of whole hosts."""
    a, b = allocations.alias("a"), allocations.alias("b")
    overlapping = (a.c.host == b.c.host) & (a.c.id < b.c.id) & (a.c.starts < b.c.ends) & (a.c.ends > b.c.starts)
    query = sa.select(a.c.host, a.c.lease, b.c.lease).join(b, overlapping)
    return await scene.database.run(lambda connection: list(connection.execute(query).all()))


async def test_who_had_a_failed_host_gets_another_where_there_is_one_and_the_flags_say_so(scene: Scene) -> None:
    for name in ("h1", "h2"):
        await host(scene, name)
    await book(scene, "early", 1, 3)
    await book(scene, "late", 2, 5)
    grant = await scene.grant("pool:main:host:h1", "fail")
    assert grant.details == {"hand_over": []}  # nobody has begun: nobody needs to be told
    await finish(scene, grant)
    assert (await see(scene, "early")).reservations[0].missing_resources
    assert (await see(scene, "early")).degraded
    assert await hosts_of(scene, "late") == ["h2"]
    assert not (await see(scene, "late")).degraded
    await finish(scene, await scene.grant("pool:main:host:h1", "recover"))
    assert not (await see(scene, "early")).degraded
    assert await hosts_of(scene, "early") == ["h1"]


async def test_a_new_host_makes_whole_who_misses_one(scene: Scene) -> None:
    await host(scene, "h1")
    await book(scene, "a", 1, 3)
    await finish(scene, await scene.grant("pool:main:host:h1", "fail"))
    assert (await see(scene, "a")).degraded
    assert "room for 0" in (await refused(scene, "b", 5, 6)).message  # a failed host is not offered
    await host(scene, "h2")
    assert await hosts_of(scene, "a") == ["h2"]
    assert not (await see(scene, "a")).degraded


async def test_a_host_that_is_booked_is_not_removed_and_one_that_is_free_is(scene: Scene) -> None:
    await host(scene, "h1")
    await book(scene, "a", 1, 3)
    refusal = await scene.refusal("pool:main:host:h1", "remove")
    assert refusal.message == "main/h1 is booked by p1/a"
    await finish(scene, await scene.grant(lease("a"), "delete"), moves=_gone("a"))
    await finish(scene, await scene.grant("pool:main:host:h1", "remove"))
    assert "the pool has 0 working hosts" in (await refused(scene, "b", 1, 2)).message


def _gone(name: str) -> list[dict[str, str]]:
    parts = ("reservation:r1", "event:start_lease", "event:before_end_lease", "event:end_lease")
    return [{"path": f"{lease(name)}:{part}", "to": "None"} for part in parts]


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
    broken = [_move("a", "reservation:r1", "error"), _move("a", "event:end_lease", "ERROR", action="end")]
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
    grant = await scene.grant(lease("a"), "start", spec={"due": _stamp(1)})
    assert grant.details == {"contradiction": "a reservation is active; a lease under PENDING needs pending"}
    await finish(scene, grant)  # even if nobody looked at that
    seen = await see(scene, "a")
    assert seen.status == "ERROR"
    assert "its parts cannot be reconciled" in seen.error
    assert (await scene.last(lease("a"))).action == "reconcile"


async def test_a_start_that_was_cut_off_is_due_again(scene: Scene) -> None:
    await host(scene, "h1")
    await book(scene, "a", 1, 3)
    grant = await scene.grant(lease("a"), "start", run="dead", spec={"due": _stamp(1)})
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
    store, reservation = SqlLeases(scene.database), f"{lease('a')}:reservation:r1"
    (before,) = await store.holdings([reservation], Want.ALL)
    (nothing,) = await store.holdings([reservation], Want.NOTHING)
    await scene.grant("pool:main:host:h1", "fail")  # it would get h2 now
    (late,) = await store.holdings([reservation], Want.ALL)
    assert list(before.hosts) == ["pool:main:host:h1"]
    assert nothing.hosts == {} == late.hosts
    assert before.version < nothing.version < late.version


async def test_nothing_of_a_deleted_lease_is_left_in_any_table(scene: Scene) -> None:
    await host(scene, "h1")
    await book(scene, "a", 1, 3)
    await finish(scene, await scene.grant(lease("a"), "delete"), moves=_gone("a"))
    left = await scene.dump()
    assert [left[table.name] for table in (bookings, allocations, timers)] == [[], [], []]
    await book(scene, "a", 1, 3)  # and its name may be used again


async def due(scene: Scene, hours: float) -> list[tuple[str, str]]:
    found = await SqlLeases(scene.database).due(DueQuery(pool="main", at=NOON + timedelta(hours=hours)))
    return [(each.lease.rsplit(":", 1)[1], each.name) for each in found.due]


def _move(name: str, part: str, to: str, action: str = "") -> dict[str, str]:
    return {"path": f"{lease(name)}:{part}", "to": to, "action": action}


async def started(scene: Scene, name: str) -> None:
    seen = await see(scene, name)
    grant = await scene.grant(lease(name), "start", spec={"due": _text(seen.events[0].due)})
    moves = [_move(name, "reservation:r1", "active"), _move(name, "event:start_lease", "DONE", "start")]
    await finish(scene, grant, moves=moves)
    assert (await see(scene, name)).status == "ACTIVE"


async def announced(scene: Scene, name: str) -> None:
    seen = await see(scene, name)
    spec = {"due": _text(seen.events[1].due)}
    await finish(scene, await scene.grant(f"{lease(name)}:event:before_end_lease", "announce", spec=spec))


async def over(scene: Scene, name: str) -> None:
    grant = await scene.grant(lease(name), "end")
    moves = [_move(name, "reservation:r1", "deleted"), _move(name, "event:end_lease", "DONE", "end")]
    await finish(scene, grant, moves=moves)
    assert (await see(scene, name)).status == "TERMINATED"


def _moment(hours: float) -> datetime:
    return NOON + timedelta(hours=hours)


def _stamp(hours: float) -> str:
    return _text(_moment(hours))


def _text(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize("action", ["start", "update", "end"])
async def test_nothing_but_delete_touches_a_terminated_lease(scene: Scene, action: str) -> None:
    await host(scene, "h1")
    await book(scene, "a", 1, 3)
    await started(scene, "a")
    await over(scene, "a")
    spec = {"start": {"due": _stamp(1)}, "update": {"name": "x"}, "end": {}}[action]
    admission = await scene.begin(lease("a"), action, spec=spec)
    if action == "end":  # asked twice: nothing to do
        assert admission.grant
        assert admission.grant.ruling == "already"
    else:
        assert admission.refusal
        assert admission.refusal.message == f"{action} is not allowed for lease under TERMINATED"
        assert "allowed now: delete" in admission.refusal.hint
