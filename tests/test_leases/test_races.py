"""PostgreSQL only: one transaction in the middle of another, with both orders forced."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from domain.leases.messages import DesiredHolding, DueEventsQuery, HoldingsToReach
from domain.model import ActionEnding, ActionResult, Grant, Move
from store import finish as endings
from store.leases import schedule
from store.leases.schedule import record_returned_hosts
from store.leases.swaps import record_host_swaps
from tests.test_leases.bookings import at, book, finish, host, lease, move, refused, see, stamp, started, updated
from tests.test_store.driver import HOOKS, NOON, StoreDriver, claim
from tests.test_store.test_races import beginning, overtaken

R1 = f"{lease('a')}:reservation:r1"
H1, H2, H3 = (f"pool:main:host:h{n}" for n in (1, 2, 3))
Pair = tuple[StoreDriver, StoreDriver]


def ending(
    grant: Grant, result: ActionResult = ActionResult.SUCCEEDED, **left: Any
) -> Callable[[sa.Connection], object]:
    moves = [Move.model_validate(each) for each in left.pop("moves", [])]
    end = ActionEnding(epoch=grant.epoch, run=grant.run, path=grant.path, result=result, at=NOON, moves=moves, **left)
    return partial(endings.finish_action, hooks=HOOKS, ending=end)


@pytest.fixture
async def site(pair: Pair) -> Pair:
    for name in ("h1", "h2", "h3"):
        await host(pair[0], name)
    await book(pair[0], "a", 1, 3)
    return pair


async def test_what_to_hand_over_is_not_read_while_a_host_is_failing(site: Pair) -> None:
    """The start was not there when the host failed, so nobody else will tell the site."""
    failing = beginning(claim(H1, "fail"))

    def starts_meanwhile(connection: sa.Connection) -> None:
        failing(connection)
        site[1].database.run_transaction_blocking(beginning(claim(lease("a"), "start", spec={"due": stamp(1)})))

    found = await overtaken(
        site, starts_meanwhile, partial(schedule.read_holdings, reservations=[R1], want=HoldingsToReach.ALL)
    )
    assert [list(holding.hosts) for holding in found] == [[H2]]


async def test_a_host_that_fails_after_a_start_has_read_what_to_hand_over_tells_the_site_itself(site: Pair) -> None:
    await site[0].grant(lease("a"), "start", spec={"due": stamp(1)})
    grant = await overtaken(
        site, partial(schedule.read_holdings, reservations=[R1], want=HoldingsToReach.ALL), beginning(claim(H1, "fail"))
    )
    assert grant.grant
    assert grant.grant.details["hand_over"] == [R1]


async def test_what_a_lease_lost_is_told_with_the_status_that_it_has_by_then(site: Pair) -> None:
    lost = {lease("a"): "r1 lost h1"}
    starts = beginning(claim(lease("a"), "start", spec={"due": stamp(1)}))
    await overtaken(site, starts, partial(record_host_swaps, texts=lost, why="fail of host h1", at=NOON))
    line = await site[0].last(lease("a"))
    assert (line.action, line.source, line.message) == ("reallocate", "STARTING", "fail of host h1: r1 lost h1")


async def test_a_start_that_ends_while_a_host_fails_began_with_the_one_that_it_has(site: Pair) -> None:
    grant = await site[0].grant(lease("a"), "start", spec={"due": stamp(1)})
    good = [move("a", "reservation:r1", "active"), move("a", "event:start_lease", "DONE", "start")]
    await overtaken(site, beginning(claim(H1, "fail")), ending(grant, moves=good))
    seen = (await see(site[0], "a")).reservations[0]
    assert (list(seen.hosts), seen.resources_changed) == (["h2"], False)


async def test_a_resize_that_ends_while_a_host_fails_keeps_its_size(site: Pair) -> None:
    await started(site[0], "a")
    grant = await site[0].grant(lease("a"), "update", spec={"hosts": 2})
    left = {"moves": grant.details["moves"], "spec": grant.details["spec"]}
    await overtaken(site, beginning(claim(H2, "fail")), ending(grant, **left))
    seen = (await see(site[0], "a")).reservations[0]
    assert (list(seen.hosts), seen.missing_resources, seen.resources_changed) == (["h1", "h3"], False, False)


async def test_a_host_that_fails_while_a_resize_is_taken_back_brings_none_of_it_back(site: Pair) -> None:
    await started(site[0], "a")
    grant = await site[0].grant(lease("a"), "update", spec={"hosts": 2, "end": at(2)})
    (holding,) = await site[0].database.run_transaction(
        partial(schedule.read_holdings, reservations=[R1], want=HoldingsToReach.BEFORE)
    )
    await site[0].database.run_transaction(partial(record_returned_hosts, holding=holding))
    await overtaken(site, ending(grant, ActionResult.CANCELLED), beginning(claim(H1, "fail")))
    seen = await see(site[0], "a")
    assert (list(seen.reservations[0].hosts), seen.reservations[0].missing_resources) == (["h2"], False)
    await book(site[0], "b", 1, 3)


async def test_a_host_that_fails_while_a_lease_ends_gives_nothing_to_what_is_gone(site: Pair) -> None:
    await started(site[0], "a")
    grant = await site[0].grant(lease("a"), "end")
    gone = [move("a", "reservation:r1", "deleted"), move("a", "event:end_lease", "DONE", "end")]
    await overtaken(site, ending(grant, moves=gone), beginning(claim(H1, "fail")))
    await book(site[0], "b", 1, 3, hosts=2)  # all that work are free


async def test_what_is_back_is_judged_by_the_order_that_brought_it_back(site: Pair) -> None:
    """A resize that begins meanwhile has its own hosts to come: they are not taken for those that went."""
    await started(site[0], "a")
    grant = await site[0].grant(lease("a"), "update", spec={"hosts": 2})
    (holding,) = await site[0].database.run_transaction(
        partial(schedule.read_holdings, reservations=[R1], want=HoldingsToReach.BEFORE)
    )
    assert holding.returning

    def changed(connection: sa.Connection) -> list[DesiredHolding]:
        return schedule.read_holdings(connection, [R1], HoldingsToReach.BEFORE)

    await overtaken(site, changed, partial(record_returned_hosts, holding=holding))
    assert "room for 1" in (await refused(site[0], "b", 1, 3, hosts=2)).message  # not free yet
    (holding,) = await site[0].database.run_transaction(changed)
    await site[0].database.run_transaction(partial(record_returned_hosts, holding=holding))
    await site[0].finish(grant, ActionResult.CANCELLED)
    await book(site[0], "b", 1, 3, hosts=2)


async def test_a_host_that_is_being_removed_is_given_to_nobody(site: Pair) -> None:
    admission = await overtaken(
        site,
        beginning(claim(H2, "remove")),
        beginning(claim(lease("b"), "create", spec={"start": at(1), "end": at(3), "hosts": 2})),
    )
    assert admission.refusal
    assert "2 wanted, room for 1" in admission.refusal.message


async def test_two_who_want_the_last_host_do_not_both_get_it(site: Pair) -> None:
    await book(site[0], "b", 1, 3)
    spec = {"start": at(1), "end": at(3), "hosts": 1}
    admission = await overtaken(
        site, beginning(claim(lease("c"), "create", spec=spec)), beginning(claim(lease("d"), "create", spec=spec))
    )
    assert admission.refusal
    assert "room for 0" in admission.refusal.message


async def test_two_leases_that_grow_at_once_do_not_both_get_the_last_host(site: Pair) -> None:
    await book(site[0], "b", 1, 3)
    for name in ("a", "b"):
        await started(site[0], name)
    admission = await overtaken(
        site,
        beginning(claim(lease("a"), "update", spec={"hosts": 2})),
        beginning(claim(lease("b"), "update", spec={"hosts": 2})),
    )
    assert admission.refusal
    assert "room for 0" in admission.refusal.message


async def test_the_clock_does_not_look_past_a_lease_that_is_just_being_booked(site: Pair) -> None:
    query = DueEventsQuery(pool="main", at=NOON)
    booked = beginning(claim(lease("b"), "create", spec={"start": at(0.5), "end": at(3), "hosts": 1}))
    found = await overtaken(site, booked, partial(schedule.list_due_events, query=query))
    assert found.next
    assert found.next.isoformat() == at(0.5)


async def test_a_host_that_is_added_and_one_that_fails_heal_a_lease_once(site: Pair) -> None:
    await started(site[0], "a")
    for name in ("h2", "h3", "h1"):
        await finish(site[0], await site[0].grant(f"pool:main:host:{name}", "fail"))
    assert (await see(site[0], "a")).reservations[0].missing_resources
    await overtaken(site, beginning(claim(H2, "recover")), beginning(claim(H3, "recover")))
    assert len((await see(site[0], "a")).reservations[0].hosts) == 1


async def test_an_update_and_the_end_of_another_do_not_lose_a_host(site: Pair) -> None:
    """Freed in one transaction and wanted in another: it is either still taken or free, never both."""
    await started(site[0], "a")
    await book(site[0], "b", 1, 3, hosts=2)
    await started(site[0], "b")
    grant = await site[0].grant(lease("b"), "update", spec={"hosts": 1})

    def shrunk(connection: sa.Connection) -> None:
        left = {"moves": grant.details["moves"], "spec": grant.details["spec"]}
        ending(grant, **left)(connection)
        refusal = (
            site[1].database.run_transaction_blocking(beginning(claim(lease("a"), "update", spec={"hosts": 2}))).refusal
        )
        assert refusal
        assert "room for 0" in refusal.message

    with site[0].database.engine.begin() as connection:
        shrunk(connection)
    await updated(site[0], await site[0].grant(lease("a"), "update", spec={"hosts": 2}))
    assert len((await see(site[0], "a")).reservations[0].hosts) == 2
