"""What travels between the parts of this family: what is due, what to hand over, what readers see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from pydantic import Field

from domain.leases.capacity import Size
from domain.model import Model


class DueEvent(Model):
    """An event whose time has come."""

    lease: str
    name: str
    due: datetime


class DueQuery(Model):
    """What is due in a pool, except for leases whose events are being fired already."""

    pool: str
    at: datetime
    busy: list[str] = []


class DueList(Model):
    """What can be fired now; how many are due but must wait for others; when the next one comes."""

    due: list[DueEvent]
    waiting: int = 0
    next: datetime | None = None


class FiringResult(Model):
    """Of some events that were to be fired: the leases where it could not be done at this moment."""

    busy: list[str] = []


class WakeClock(Model):
    """Wake the clock of a pool."""

    pool: str


class HandOverGoal(StrEnum):
    """What reservations are to be brought to."""

    ALL = "all"  # what the inventory says that they should hold
    BEFORE = "before"  # what they held before a change that is being undone
    NOTHING = "nothing"  # everything is taken back, and from then on nothing is handed over any more


class HandOver(Model):
    """Bring these reservations to what they should hold, on behalf of an action on a lease or a host."""

    path: str
    epoch: int
    reservations: list[str]
    want: HandOverGoal = HandOverGoal.ALL


class HandOverResult(Model):
    """What could not be handed over or taken back, by reservation; and what needs more patience."""

    errors: dict[str, str] = {}
    again: list[str] = []


@dataclass(frozen=True, slots=True)
class Holding:
    """What a reservation should hold: so many units on each host. Orders with an older version change nothing.

    The generation is the epoch that made the lease: whoever hands over refuses a lower one than it has seen. Within a
    generation the version does more than an epoch could, as actions on hosts order for a lease beside its own.
    """

    token: str  # the reservation's path and generation
    generation: int
    reservation: str
    version: int
    hosts: dict[str, int]
    whole: bool  # the hosts are for this reservation alone
    size: Size  # of each unit
    returning: bool = False  # it may have more than that just now: tell when it has not


class Hosts(Protocol):
    """Whoever hands hosts and instances over to tenants."""

    async def hold(self, holding: Holding) -> None:
        """Make the reservation hold exactly this. Repeatable; raises a ProviderError, or Superseded."""
        ...


class Holdings(Protocol):
    """What the inventory says that reservations should hold."""

    async def holdings(self, order: HandOver) -> list[Holding]:
        """Raises Superseded if the action that wants to order is over."""
        ...

    async def returned(self, holding: Holding) -> None:
        """It holds exactly this: whatever it had besides is free."""
        ...


class Schedule(Protocol):
    """The timers of a pool."""

    async def due(self, query: DueQuery) -> DueList: ...

    async def still_due(self, events: Sequence[DueEvent]) -> list[DueEvent]:
        """Those of them that have neither been carried out nor moved."""
        ...


class ReservationView(Model):
    """One reservation of a lease: on which hosts, and whether any are missing or new since the start."""

    id: str
    status: str
    resource_type: str
    min: int = 1
    max: int = 1
    hosts: dict[str, int] = {}  # host -> units on it
    mci: str = ""
    missing_resources: bool = False
    resources_changed: bool = False
    error: str = ""


class EventView(Model):
    """When something happens to a lease, and what became of it."""

    name: str
    status: str
    due: datetime
    error: str = ""


class LeaseView(Model):
    """A lease as its owner sees it."""

    path: str
    name: str
    status: str
    pool: str
    start: datetime
    end: datetime
    degraded: bool = False
    reservations: list[ReservationView] = []
    events: list[EventView] = []
    error: str = ""


class LeasesView(Model):
    """A page of leases."""

    leases: list[LeaseView]


class CalendarQuery(Model):
    """Who holds what in a pool, from when to when; without dates, the week from the next thing that happens."""

    pool: str = "main"
    start: str = ""
    end: str = ""
    limit: int = Field(200, ge=1, le=2_000)


class Occupancy(Model):
    """A lease holds a host, or a part of it, from when to when."""

    lease: str
    start: datetime
    end: datetime
    units: int
    whole: bool


class HostOccupancy(Model):
    """A host in the calendar, and who holds it when."""

    host: str
    status: str
    stretches: list[Occupancy] = []


class CalendarView(Model):
    """Who holds the hosts of a pool, from when to when; `left_out` hosts were too many to show."""

    pool: str
    start: datetime
    end: datetime
    hosts: list[HostOccupancy]
    left_out: int = 0
