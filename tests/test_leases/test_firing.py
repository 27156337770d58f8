"""Many simultaneous events: a bounded number at a time, and a slow one delays no other."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from temporalio.client import Client
from temporalio.testing import ActivityEnvironment

from activities import leases
from activities.leases import CONCURRENT_FIRINGS, LeaseEventActivities
from domain.leases.messages import DueEvent, DueEvents, EventSchedule
from domain.leases.tables import START

MOMENT = datetime(2026, 3, 1, 9, tzinfo=UTC)
MANY = 3 * CONCURRENT_FIRINGS


def lease(number: int) -> str:
    return f"project:p:lease:l{number}"


class Pool:
    """Where leases start: it knows who has been started, and lets them end at the next look, or never."""

    def __init__(self, never: Sequence[str] = ()) -> None:
        self.never = set(never)
        self.fired: list[str] = []
        self.running: set[str] = set()
        self.most = 0

    async def start_workflow(self, _workflow: str, _request: object, *, id: str, **_rest: Any) -> None:
        self.fired.append(id)
        self.running.add(id)
        self.most = max(self.most, len(self.running - self.never))

    async def filter_due_events(self, events: Sequence[DueEvent]) -> list[DueEvent]:
        self.running &= self.never
        return [due for due in events if due.lease in self.running]

    async def fire(self) -> list[str]:
        firing = LeaseEventActivities(cast(Client, self), cast(EventSchedule, self))
        due = [DueEvent(lease=lease(number), name=START, due=MOMENT) for number in range(MANY)]
        return (await ActivityEnvironment().run(firing.fire_events, DueEvents(due=due))).busy


async def test_a_burst_is_fired_so_many_at_a_time() -> None:
    pool = Pool()
    assert await pool.fire() == []
    assert pool.fired == [lease(number) for number in range(MANY)]
    assert pool.most == CONCURRENT_FIRINGS


async def test_those_that_are_slow_do_not_keep_the_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "SLOW_SECONDS", 0.1)
    monkeypatch.setattr(leases, "FOLLOW_SECONDS", 0.5)
    slow = [lease(number) for number in range(CONCURRENT_FIRINGS)]
    pool = Pool(never=slow)
    assert await pool.fire() == slow
    assert len(pool.fired) == MANY
