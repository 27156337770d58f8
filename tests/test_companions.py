"""Companions in the kernel: rows say which should live, and a missing one is started."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities import companions
from activities.companions import CompanionReconciler, MissingCompanion
from activities.runs import is_workflow_open
from domain import wire
from domain.companions import Companion, CompanionType
from domain.healing import HealFinding, SweepOptions
from domain.invariants import VerificationReport
from domain.leases.messages import WakePoolClock
from domain.leases.names import LEASE_CLOCK
from domain.model import ReadQuery
from tests.patience import PATIENCE
from tests.user import User
from workers.families import FAMILIES
from workers.schedule import ensure_heal_schedule

NOW = datetime.now(UTC)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(companions, "SECOND_LOOK_AFTER", 0.0)


def clock(name: str) -> Companion:
    """A clock of a pool without leases: it ends as soon as it looks."""
    return Companion(f"pool:{name}::clock", f"pool:{name}", WakePoolClock(pool=name))


def row(*looks: Callable[[], list[Companion]]) -> CompanionType:
    """What should live, look by look; the last look stays."""
    left = list(looks)

    async def expected() -> AsyncIterator[Companion]:
        for companion in (left.pop(0) if len(left) > 1 else left[0])():
            yield companion

    return CompanionType(LEASE_CLOCK, "clock", expected)


async def test_what_is_missing_is_started_and_told(client: Client, user: User) -> None:
    ours = CompanionReconciler(client, [row(lambda: [clock(user.ns)])])
    told = [MissingCompanion(f"pool:{user.ns}::clock", f"pool:{user.ns}", "clock")]
    assert await ours.list_missing_companions() == told
    assert await ours.start_missing_companions(NOW) == told
    await client.get_workflow_handle(f"pool:{user.ns}::clock").result()


async def test_what_ends_by_itself_while_we_look_is_not_missing(client: Client, user: User) -> None:
    ours = CompanionReconciler(client, [row(lambda: [clock(user.ns)], lambda: [])])
    assert await ours.list_missing_companions() == []
    ours = CompanionReconciler(client, [row(lambda: [clock(user.ns)], lambda: [])])
    assert await ours.start_missing_companions(NOW) == []


async def test_what_is_not_wanted_any_more_by_the_time_it_was_started_is_ended(
    client: Client, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    handle = client.get_workflow_handle

    def watched(workflow_id: str, *, run_id: str | None = None) -> object:
        ended.append(workflow_id)
        return handle(workflow_id, run_id=run_id)

    ours = CompanionReconciler(client, [row(lambda: [clock(user.ns)], lambda: [clock(user.ns)], lambda: [])])
    monkeypatch.setattr(client, "get_workflow_handle", watched)
    await ours.start_missing_companions(NOW)
    assert ended == [f"pool:{user.ns}::clock"]


async def test_a_hundred_that_live_cost_one_question(
    client: Client, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"pool:{user.ns}-{n}::clock" for n in range(100)]

    class Listed:
        def __init__(self, id: str) -> None:
            self.id = id

    async def listed(query: str, page_size: int) -> AsyncIterator[Listed]:
        assert LEASE_CLOCK in query
        for name in names:
            yield Listed(name)

    async def nobody(*_: object) -> bool:
        raise AssertionError("asked for one that is listed")

    monkeypatch.setattr(client, "list_workflows", listed)
    monkeypatch.setattr(companions, "is_workflow_open", nobody)
    ours = CompanionReconciler(client, [row(lambda: [clock(f"{user.ns}-{n}") for n in range(100)])])
    assert await ours.start_missing_companions(NOW) == []


async def test_one_that_sleeps_past_an_event_is_woken(
    client: Client, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker that should have woken it was killed after the event was written."""
    told: list[tuple[str, str]] = []

    class Handle:
        def __init__(self, workflow_id: str) -> None:
            self.id = workflow_id

        async def signal(self, name: str) -> None:
            told.append((self.id, name))

    async def alive(*_: object) -> bool:
        return True

    late, early = (replace(clock(name), due=NOW + timedelta(hours=by)) for name, by in (("late", -1), ("early", 1)))
    monkeypatch.setattr(client, "get_workflow_handle", Handle)
    monkeypatch.setattr(companions, "is_workflow_open", alive)
    ours = CompanionReconciler(client, [replace(row(lambda: [late, early]), wake_signal="look_again")])
    assert await ours.start_missing_companions(NOW) == []
    assert told == [("pool:late::clock", "look_again")]


def test_every_workflow_that_outlives_builds_is_a_companion_that_is_looked_after(user: User) -> None:
    """Else nobody would miss it."""
    lasting = {each.__name__ for family in FAMILIES for each in family.companion_workflows}
    assert {row.workflow for family in user.service.families for row in family.companions()} == lasting


async def test_a_schedule_that_was_deleted_by_hand_is_named_by_verify_and_made_by_a_sweep(
    client: Client, user: User
) -> None:
    schedule = client.get_schedule_handle(wire.HEAL_SCHEDULE)
    missed: list[tuple[bool, bool]] = []  # by `verify`, and by a sweep
    try:
        async with asyncio.timeout(PATIENCE):
            while (True, True) not in missed[-1:]:  # a worker that starts looks once, too, and may do so just now
                await schedule.delete()
                found = await user.asking.run_query(
                    wire.VERIFY_ACTIVITY, ReadQuery(), VerificationReport, seconds=PATIENCE
                )
                named = ("I12", wire.HEAL_SCHEDULE) in [(each.invariant, each.path) for each in found.findings]
                report = await user.asking.run_sweep(SweepOptions())
                started = [entry.finding for entry in report.found if entry.path == wire.HEAL_SCHEDULE]
                missed.append((named, HealFinding.STARTED in started))
                assert len(missed) < 3, missed
        await schedule.describe()
    finally:
        await ensure_heal_schedule(client, user.service.settings.heal_interval)


async def test_a_starting_worker_does_not_fail_when_it_cannot_look(
    client: Client, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it cannot do a sweep does."""
    looked = asyncio.Event()

    async def away(_at: datetime) -> list[MissingCompanion]:
        looked.set()
        raise RPCError("no", RPCStatusCode.UNAVAILABLE, b"")

    monkeypatch.setattr(user.service._companions, "start_missing_companions", away)
    await user.service._start_missing_companions()
    assert looked.is_set()
    assert await is_workflow_open(client, f"pool:{user.ns}::clock") is False
