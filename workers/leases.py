"""What a worker needs for leases. Limits are settings of their own: RATCHET_LEASE_MAX_DAYS and so on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from activities.leases import EventActivities, HostHandover, LeaseReading
from activities.leases.audit import LeaseAudit
from activities.verify import Audit
from domain.companions import Companion, CompanionRow
from domain.leases import names
from domain.leases.messages import WakeClock
from domain.leases.specs import LeaseLimits
from domain.ports import InlineWork
from domain.wire import ACTIONS_QUEUE
from providers.leases.hosts import CSP, SimulatedHosts
from store.leases import LeaseReads, SqlLeases
from store.leases.booking import LIMITS
from workers.context import WorkerContext
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

    def limits(self) -> LeaseLimits:
        return LeaseLimits(timedelta(days=self.max_days), self.project_leases, self.project_hosts)


def activities(context: WorkerContext) -> dict[str, list[Callable[..., Any]]]:
    """Queue by queue."""
    context.database.engine.update_execution_options(**{LIMITS: LeaseSettings().limits()})
    handover, firing = _hands(context), EventActivities(context.client, SqlLeases(context.database))
    reading = LeaseReading(LeaseReads(context.database))
    return {
        ACTIONS_QUEUE: [
            *(handover.try_hand_over, handover.hand_over, firing.due_events, firing.fire_events, firing.wake_clock),
            *(reading.read_lease, reading.read_leases, reading.read_calendar),
        ]
    }


def at_once(context: WorkerContext) -> dict[tuple[str, str], InlineWork]:
    """Hosts are mostly handed over and taken back in no time."""
    handover = _hands(context)
    return {("lease", "start"): handover.start, ("lease", "end"): handover.end}


def _hands(context: WorkerContext) -> HostHandover:
    return HostHandover(SqlLeases(context.database), hosts(context), context.fence, context.settings.patience)


def companions(context: WorkerContext) -> list[CompanionRow]:
    """A clock for each pool in which something is to happen."""
    store = SqlLeases(context.database)

    async def expected() -> AsyncIterator[Companion]:
        for pool, due in (await store.pools()).items():
            yield Companion(names.clock_id(pool), f"pool:{pool}", WakeClock(pool=pool), due)

    return [CompanionRow(names.LEASE_CLOCK, "lease clock", expected, names.LOOK_AGAIN, store.overdue)]


def faults(_parts: WorkerContext) -> dict[str, tuple[str, ...]]:
    """What the site that hands hosts over can be told to fail in."""
    return {CSP: ("create", "terminate")}


def audits(context: WorkerContext) -> list[Audit]:
    """Leases against the relationship table and against the books of whoever hands hosts over."""
    return [LeaseAudit(LeaseReads(context.database), hosts(context)).audit]


def hosts(context: WorkerContext) -> SimulatedHosts:
    """Whoever hands hosts over: simulated, with books of its own."""
    return SimulatedHosts(context.cloud_database)
