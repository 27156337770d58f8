"""What a worker needs for leases. Limits are settings of their own: RATCHET_LEASE_MAX_DAYS and so on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from activities.leases import Firing, Hands, LeaseReading
from activities.leases.tenancy import Tenancy
from activities.verifying import Audit
from domain.companions import Companion, CompanionRow
from domain.leases import names
from domain.leases.spec import Limits
from domain.leases.views import Wake
from domain.ports import AtOnce
from domain.wire import ACTIONS_QUEUE
from providers.leases import CSP, SimulatedHosts
from store.leases import LeaseReads, SqlLeases
from store.leases.booking import LIMITS
from workers.parts import Parts
from workflows.leases.actions import (
    AnnounceEnd,
    ChangeHost,
    CreateLease,
    DeleteLease,
    EndLease,
    StartLease,
    UpdateLease,
)
from workflows.leases.clock import LeaseClock

WORKFLOWS: list[type] = [
    CreateLease,
    UpdateLease,
    StartLease,
    EndLease,
    DeleteLease,
    AnnounceEnd,
    ChangeHost,
    LeaseClock,
]


class LeaseSettings(BaseSettings):
    """How long a lease may last, and what one project may have."""

    model_config = SettingsConfigDict(env_prefix="RATCHET_LEASE_", extra="ignore", frozen=True)

    max_days: float = Field(366, gt=0)
    project_leases: int = Field(10_000, ge=0)
    project_hosts: int = Field(10_000, ge=0)

    def limits(self) -> Limits:
        return Limits(timedelta(days=self.max_days), self.project_leases, self.project_hosts)


def activities(parts: Parts) -> dict[str, list[Callable[..., Any]]]:
    """Queue by queue."""
    parts.database.engine.update_execution_options(**{LIMITS: LeaseSettings().limits()})
    hands, firing = _hands(parts), Firing(parts.client, SqlLeases(parts.database))
    reading = LeaseReading(LeaseReads(parts.database))
    return {
        ACTIONS_QUEUE: [
            *(hands.try_hand_over, hands.hand_over, firing.due_events, firing.fire_events, firing.wake_clock),
            *(reading.read_lease, reading.read_leases, reading.read_calendar),
        ]
    }


def at_once(parts: Parts) -> dict[tuple[str, str], AtOnce]:
    """Hosts are mostly handed over and taken back in no time."""
    hands = _hands(parts)
    return {("lease", "start"): hands.start, ("lease", "end"): hands.end}


def _hands(parts: Parts) -> Hands:
    return Hands(SqlLeases(parts.database), hosts(parts), parts.fence, parts.settings.patience)


def companions(parts: Parts) -> list[CompanionRow]:
    """A clock for each pool in which something is to happen."""
    store = SqlLeases(parts.database)

    async def expected() -> AsyncIterator[Companion]:
        for pool, due in (await store.pools()).items():
            yield Companion(names.clock_id(pool), f"pool:{pool}", Wake(pool=pool), due)

    return [CompanionRow(names.LEASE_CLOCK, "lease clock", expected, names.LOOK_AGAIN, store.overdue)]


def faults(_parts: Parts) -> dict[str, tuple[str, ...]]:
    """What the site that hands hosts over can be told to fail in."""
    return {CSP: ("create", "terminate")}


def audits(parts: Parts) -> list[Audit]:
    """Leases against the relationship table and against the books of whoever hands hosts over."""
    return [Tenancy(LeaseReads(parts.database), hosts(parts)).audit]


def hosts(parts: Parts) -> SimulatedHosts:
    """Whoever hands hosts over: simulated, with books of its own."""
    return SimulatedHosts(parts.cloud_database)
