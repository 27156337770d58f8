"""Booking on both databases: properties of hosts, periods, quotas, races, and failing hosts."""

from __future__ import annotations

import asyncio
from typing import Any

import sqlalchemy as sa

from domain.errors import Category
from domain.leases.specs import LeaseLimits
from store.leases import SqlLeaseViews
from store.leases.hooks import lease_hooks
from store.leases.tables import allocations
from tests.test_leases.bookings import (
    ask,
    at,
    book,
    change,
    finish,
    gone,
    host,
    hosts_of,
    lease,
    moment,
    over,
    physical,
    refused,
    see,
    started,
)
from tests.test_store.driver import StoreDriver


async def test_two_leases_share_a_host_only_one_after_the_other(driver: StoreDriver) -> None:
    await host(driver, "h1")
    await book(driver, "a", 1, 3)
    await book(driver, "b", 3, 5)
    await book(driver, "c", 0, 1)
    refusal = await refused(driver, "d", 2, 4)
    assert refusal.category is Category.QUOTA
    assert "1 wanted, room for 0 in pool main from 2026-01-01T14:00:00Z to 2026-01-01T16:00:00Z" in refusal.message
    assert "starter lease calendar" in refusal.hint


async def test_a_refused_lease_leaves_nothing_not_even_its_first_reservation(driver: StoreDriver) -> None:
    await host(driver, "h1")
    before = await driver.dump()
    await refused(driver, "a", 1, 3, reservations=[physical(1), physical(1)])
    assert await driver.dump() == before


async def test_a_lease_gets_as_many_as_there_are_between_min_and_max(driver: StoreDriver) -> None:
    for name in ("h1", "h2", "h3"):
        await host(driver, name)
    await book(driver, "a", 1, 3, reservations=[physical(1, 2)])
    seen = await book(driver, "b", 1, 3, reservations=[physical(1, 5)])
    assert list(seen.reservations[0].hosts) == ["h3"]
    assert (seen.reservations[0].min, seen.reservations[0].max) == (1, 5)
    assert not seen.degraded


async def test_properties_choose_the_hosts(driver: StoreDriver) -> None:
    await host(driver, "plain", vcpus=8)
    await host(driver, "big", vcpus=64, labels="gpu=a100")
    await book(driver, "a", 1, 3, reservations=[physical(1, gpu="a100", vcpus=">=32")])
    assert await hosts_of(driver, "a") == ["big"]
    refusal = await refused(driver, "b", 2, 4, reservations=[physical(1, gpu="a100")])
    assert "the pool has 1 working host with gpu == a100" in refusal.message
    await book(driver, "c", 2, 4, reservations=[physical(1)])


async def test_instances_share_hosts_as_far_as_each_of_their_sizes_fits(driver: StoreDriver) -> None:
    await host(driver, "h1", vcpus=8, memory_mb=8000, disk_gb=100)
    small = {"resource_type": "virtual:instance", "min": 3, "vcpus": 2, "memory_mb": 1000}
    await book(driver, "a", 1, 3, reservations=[small])
    await book(driver, "b", 2, 4, reservations=[small | {"min": 1}])
    refusal = await refused(driver, "c", 2, 4, reservations=[small | {"min": 1}])
    assert "not enough instances" in refusal.message
    await book(driver, "d", 3, 4, reservations=[small])  # a has ended
    assert "not enough hosts" in (await refused(driver, "e", 3, 4)).message  # a whole host is nobody else's
    await book(driver, "f", 4, 5)
    assert "not enough instances" in (await refused(driver, "g", 4, 5, reservations=[small | {"min": 1}])).message


async def test_an_mci_takes_nothing_from_the_pool(driver: StoreDriver) -> None:
    await book(driver, "a", 1, 3, reservations=[{"resource_type": "mci", "mci": "ns:a:mci:web", "spec": {}}])
    assert (await see(driver, "a")).reservations[0].mci == "ns:a:mci:web"


async def test_a_pending_lease_moves_and_grows_and_gives_free_what_it_leaves(driver: StoreDriver) -> None:
    await host(driver, "h1")
    await host(driver, "h2")
    await book(driver, "a", 1, 3)
    assert await change(driver, "a", start=at(5), end=at(7), hosts=2) is None
    seen = await see(driver, "a")
    assert (seen.start, seen.end, list(seen.reservations[0].hosts)) == (moment(5), moment(7), ["h1", "h2"])
    assert [event.due for event in seen.events] == [moment(5), moment(6), moment(7)]
    await book(driver, "b", 1, 3, hosts=2)
    refusal = await change(driver, "a", start=at(2))
    assert refusal
    assert "not enough hosts: 2 wanted, room for 0" in refusal.message
    assert await see(driver, "a") == seen  # as it was


async def test_bad_changes_leave_the_lease_as_it_was(driver: StoreDriver) -> None:
    await host(driver, "h1")
    await book(driver, "a", 1, 3)
    before = await driver.dump()
    bad: list[tuple[dict[str, Any], str]] = [
        ({"end": at(0.5)}, "ends before it starts"),
        ({"start": at(-5)}, "is in the past"),
        ({"end": at(24 * 400)}, "the limit is 366 days"),
        ({"before_end": at(9)}, "is outside the lease"),
        ({"hosts": 2}, "not enough hosts"),
        ({"reservations": [{"id": "r9", "min": 1}]}, "there is no reservation r9"),
        ({"end": "someday"}, "bad end 'someday'"),
    ]
    for spec, reason in bad:
        refusal = await change(driver, "a", **spec)
        assert refusal
        assert reason in refusal.message
        assert await driver.dump() == before


async def test_a_name_changes_at_any_time_and_nothing_else_with_it(driver: StoreDriver) -> None:
    await host(driver, "h1")
    before = await book(driver, "a", 1, 3)
    assert await change(driver, "a", name="Alice's") is None
    seen = await see(driver, "a")
    assert seen == before.model_copy(update={"name": "Alice's", "changed_at": seen.changed_at})


async def test_a_project_has_no_more_leases_and_hosts_than_it_may(driver: StoreDriver) -> None:
    driver.hooks.update(lease_hooks(LeaseLimits(leases=3, hosts=2)))
    for name in ("h1", "h2", "h3", "h4"):
        await host(driver, name)
    await book(driver, "a", 1, 3)
    refusal = await refused(driver, "b", 2, 4, hosts=2)
    assert refusal.category is Category.QUOTA
    assert refusal.message == "project p1 would hold 3 hosts at one time: the limit is 2"
    await book(driver, "b", 3, 5, hosts=2)
    await book(driver, "c", 0, 1, hosts=1)
    assert (await refused(driver, "d", 10, 11)).message == "project p1 has 3 leases: the limit is 3"
    assert (await change(driver, "a", hosts=2)) is None
    blocked = await change(driver, "a", end=at(4))
    assert blocked
    assert "would hold 4 hosts" in blocked.message
    other = await driver.begin("project:p2:lease:x", "create", spec={"start": at(9), "end": at(10), "hosts": 1})
    assert other.grant


async def test_leases_are_read_page_by_page_of_one_project_or_of_all(driver: StoreDriver) -> None:
    for name in ("h1", "h2", "h3"):
        await host(driver, name)
    for name in ("a", "b"):
        await book(driver, name, 1, 3)
    x = "project:p2:lease:x"
    await finish(driver, await driver.grant(x, "create", spec={"start": at(1), "end": at(3), "hosts": 1}))
    pages = [("project:p1", "", [lease("a")]), ("project:p1", lease("a"), [lease("b")]), ("project:p1", lease("b"), [])]
    pages += [("", lease("a"), [lease("b")]), ("project:p2", "", [x]), (x, "", [x]), ("project:p", "", [])]
    for prefix, after, found in pages:
        leases = await SqlLeaseViews(driver.database).read_leases(prefix, after, 1)
        assert [view.path for view in leases] == found, (prefix, after)


async def test_of_racing_requests_for_the_last_host_one_is_booked(driver: StoreDriver, rival: StoreDriver) -> None:
    await host(driver, "h1")
    await host(driver, "h2")
    racers = [ask((driver, rival)[n % 2], lease(f"r{n}"), 1 + n % 3, 4 + n % 3) for n in range(16)]
    answers = await asyncio.gather(*racers)
    assert sum(1 for answer in answers if answer.grant) == 2
    assert await twice(driver) == []


async def test_racing_updates_and_failures_book_nothing_twice(driver: StoreDriver, rival: StoreDriver) -> None:
    for n in range(4):
        await host(driver, f"h{n}")
    for n in range(4):
        await book(driver, f"l{n}", n * 2, n * 2 + 2)
    moves = [change((driver, rival)[n % 2], f"l{n}", start=at(1), end=at(3), hosts=2) for n in range(4)]
    fails = [driver.begin("pool:main:host:h0", "fail"), rival.begin("pool:main:host:h1", "fail")]
    await asyncio.gather(*moves, *fails)
    assert await twice(driver) == []


async def twice(driver: StoreDriver) -> list[Any]:
    """Pairs of allocations that overlap on one host, both of whole hosts."""
    a, b = allocations.alias("a"), allocations.alias("b")
    overlapping = (a.c.host == b.c.host) & (a.c.id < b.c.id) & (a.c.starts < b.c.ends) & (a.c.ends > b.c.starts)
    query = sa.select(a.c.host, a.c.lease, b.c.lease).join(b, overlapping)
    return await driver.database.run_transaction(lambda connection: list(connection.execute(query).all()))


async def test_who_had_a_failed_host_gets_another_where_there_is_one_and_the_flags_say_so(driver: StoreDriver) -> None:
    for name in ("h1", "h2"):
        await host(driver, name)
    await book(driver, "early", 1, 3)
    await book(driver, "late", 2, 5)
    grant = await driver.grant("pool:main:host:h1", "fail")
    assert grant.details["hand_over"] == []  # nobody has begun: nobody needs to be told
    await finish(driver, grant)
    assert (await see(driver, "early")).reservations[0].missing_resources
    assert (await see(driver, "early")).degraded
    assert await hosts_of(driver, "late") == ["h2"]
    assert not (await see(driver, "late")).degraded
    await finish(driver, await driver.grant("pool:main:host:h1", "recover"))
    assert not (await see(driver, "early")).degraded
    assert await hosts_of(driver, "early") == ["h1"]


async def test_a_new_host_makes_whole_who_misses_one(driver: StoreDriver) -> None:
    await host(driver, "h1")
    await book(driver, "a", 1, 3)
    await finish(driver, await driver.grant("pool:main:host:h1", "fail"))
    assert (await see(driver, "a")).degraded
    assert "room for 0" in (await refused(driver, "b", 5, 6)).message  # a failed host is not offered
    await host(driver, "h2")
    assert await hosts_of(driver, "a") == ["h2"]
    assert not (await see(driver, "a")).degraded


async def test_who_misses_a_host_is_given_back_the_one_that_it_began_with(driver: StoreDriver) -> None:
    for name in ("h1", "h2"):
        await host(driver, name)
    for name in ("other", "a"):
        await book(driver, name, 1, 3)
        await started(driver, name)
    await finish(driver, await driver.grant("pool:main:host:h2", "fail"))
    await over(driver, "other")
    await finish(driver, await driver.grant("pool:main:host:h2", "recover"))
    assert await hosts_of(driver, "a") == ["h2"]  # h1 is free as well, and comes before it


async def test_a_host_that_is_booked_is_not_removed_and_one_that_is_free_is(driver: StoreDriver) -> None:
    await host(driver, "h1")
    await book(driver, "a", 1, 3)
    refusal = await driver.refusal("pool:main:host:h1", "remove")
    assert refusal.message == "main/h1 is booked by p1/a"
    await finish(driver, await driver.grant(lease("a"), "delete"), moves=gone("a"))
    await finish(driver, await driver.grant("pool:main:host:h1", "remove"))
    assert "pool main has no hosts" in (await refused(driver, "b", 1, 2)).message
