"""The leases family in a worker. Its limits are settings: RATCHET_LEASE_MAX_DAYS and others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from functools import partial

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from activities.launching import start_action
from activities.leases import HostHandover, LeaseEventActivities, LeaseReadActivities
from activities.leases.audit import LeaseAudit
from activities.leases.listing import TenancyListing
from activities.orphans import ProviderListing
from activities.retry import NEARBY
from activities.verify import AuditFunction
from domain.companions import Companion, CompanionType
from domain.leases import KINDS, names
from domain.leases.boundaries import END_BOUNDARY, START_BOUNDARY
from domain.leases.messages import HostSite, WakePoolClock
from domain.leases.specs import LeaseLimits
from domain.ports import WorkAtBegin
from domain.wire import ACTIONS_QUEUE, LOOK_AGAIN
from providers.leases.hosts import PROVIDER_NAME, SimulatedHosts
from store.hooks import HooksByKind
from store.leases import SqlLeaseSchedule, SqlLeaseViews
from store.leases.hooks import lease_hooks
from workers.backends import make_backend_host, open_backend
from workers.context import WorkerContext
from workers.discovery import collect_activities
from workers.family import ActivitiesByQueue, Family
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


class LeaseSettings(BaseSettings):
    """Limits of a lease's length, and of a project's leases and hosts."""

    model_config = SettingsConfigDict(env_prefix="RATCHET_LEASE_", extra="ignore", frozen=True)

    max_days: float = Field(366, gt=0)
    project_leases: int = Field(10_000, ge=0)
    project_hosts: int = Field(10_000, ge=0)


class LeaseFamily(Family):
    """Leases, their reservations and events, and the hosts that they book."""

    name = "leases"
    kinds = KINDS
    workflows = (CreateLease, UpdateLease, StartLease, EndLease, DeleteLease, AnnounceEnd, ChangeHost)
    companion_workflows = (LeaseClock,)
    pauses = NEARBY

    @classmethod
    def hooks(cls) -> HooksByKind:
        limits = LeaseSettings()
        longest = timedelta(days=limits.max_days)
        return lease_hooks(LeaseLimits(longest, limits.project_leases, limits.project_hosts))

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        # Without a real site: simulated, in the same database as the simulated clouds.
        site: HostSite | None = open_backend(context.connections, "hosts", make_backend_host(context, "hosts"))
        self.hosts: HostSite = site or SimulatedHosts(context.cloud_database)
        self._store, self._reads = SqlLeaseSchedule(context.database), SqlLeaseViews(context.database)
        self._handover = HostHandover(
            self._store, self.hosts, context.fence, self.retry, partial(start_action, context.client)
        )

    def activities(self) -> ActivitiesByQueue:
        handover, firing = self._handover, LeaseEventActivities(self.context.client, self._store)
        reading = LeaseReadActivities(self._reads)
        return {ACTIONS_QUEUE: collect_activities(handover, firing, reading)}

    def work_at_begin(self) -> Mapping[tuple[str, str], WorkAtBegin]:
        """Starts and ends of leases: hosts are mostly handed over at once."""
        return {
            ("lease", "start"): partial(self._handover.hand_over_inline, START_BOUNDARY),
            ("lease", "end"): partial(self._handover.hand_over_inline, END_BOUNDARY),
        }

    def companions(self) -> Sequence[CompanionType]:
        """Declares a clock per pool with events to come."""
        overdue = self._store.list_overdue_events
        return [CompanionType(names.LEASE_CLOCK, "lease clock", self._list_clocks, LOOK_AGAIN, overdue)]

    def fault_verbs(self) -> Mapping[str, tuple[str, ...]]:
        """Returns the verbs of the simulated host site."""
        return {PROVIDER_NAME: ("create", "terminate")}

    def audits(self) -> Sequence[AuditFunction]:
        """Compares leases with their bookings and with the host site."""
        return [LeaseAudit(self._reads, self.hosts).find_violations]

    def listings(self) -> Sequence[ProviderListing]:
        """Lists the hosts that reservations hold, for the audit."""
        return [TenancyListing(self.hosts, self.retry)]

    async def _list_clocks(self) -> AsyncIterator[Companion]:
        for pool, due in (await self._store.list_pools_with_events()).items():
            yield Companion(names.pool_clock_id(pool), f"pool:{pool}", WakePoolClock(pool=pool), due)
