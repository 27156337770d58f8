"""Messages of the lease family: due events, hand-overs, and what readers see; and the protocols behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Protocol

from pydantic import Field

from domain.errors import Rejected
from domain.leases.capacity import ResourceSize
from domain.model import FrozenModel, Move, SignedMessage


class ReservationWork(FrozenModel):
    """A reservation that an action starts, ends or takes back."""

    path: str
    status: str
    resource_type: str
    mci: str = ""
    spec: dict[str, Any] | None = None  # of the MCI
    on_end: str = ""
    tried: bool = False  # its quick first try has failed


class BookedUnits(FrozenModel):
    """A reservation's term and size."""

    starts: datetime
    ends: datetime
    units: int


class BookingChange(FrozenModel):
    """What an update makes of a reservation."""

    before: BookedUnits
    after: BookedUnits


class LeaseGrantDetails(FrozenModel):
    """The details of a grant on a lease or a host."""

    pool: str = ""
    wake: bool = False  # must the clock be woken?
    contradiction: str = ""  # between the lease and its parts: the action must not go on
    reservations: list[ReservationWork] = []
    events: dict[str, str] = {}  # their statuses
    spec: dict[str, Any] = {}  # of the lease, after an update
    plans: dict[str, BookingChange] = {}  # by reservation
    hand_over: list[str] = []  # reservations whose hosts have changed
    moves: list[Move] = []  # at the end of an update
    changes: list[str] = []  # what an update changes, with the old and the new value
    swaps: dict[str, str] = {}  # by lease: which hosts it lost and got because of a host


class DueEvent(FrozenModel):
    """A lease's event that is due, with its due time."""

    lease: str
    name: str
    due: datetime
    principal: str = ""  # who made the lease


class DueEventsQuery(FrozenModel):
    """Asks for the due events of a pool, except those of leases that are busy."""

    pool: str
    at: datetime
    busy: list[str] = []


class DueEvents(FrozenModel):
    """The events to fire now; how many due ones must wait for others; when the next one is due."""

    due: list[DueEvent]
    waiting: int = 0
    next: datetime | None = None


class EventFiringResult(FrozenModel):
    """The result of firing events: the leases that were busy, to be tried again."""

    busy: list[str] = []


class WakePoolClock(FrozenModel):
    """The input that wakes the clock of a pool."""

    pool: str


class HoldingsToReach(StrEnum):
    """Which holdings a hand-over brings reservations to."""

    ALL = "all"  # what the inventory says they should hold
    BEFORE = "before"  # what they held before a change that is being undone
    NOTHING = "nothing"  # everything is returned, and nothing can be handed over afterwards


class HandOverOrder(FrozenModel):
    """The order to bring these reservations to their holdings, for an action on a lease or a host."""

    path: str
    epoch: int
    reservations: list[str]
    want: HoldingsToReach = HoldingsToReach.ALL


class HandOverResult(FrozenModel):
    """The errors of a hand-over, by reservation; `again` are the reservations to retry."""

    errors: dict[str, str] = {}
    again: list[str] = []


@dataclass(frozen=True, slots=True)
class DesiredHolding:
    """What a reservation should hold: so many units on each host. Orders with an older version change nothing.

    The generation is the epoch that created the lease: the provider refuses a lower one than it has seen. Within a
    generation the version decides, because actions on hosts also order for a lease, so epochs alone do not suffice.
    """

    token: str  # the reservation's path and generation
    generation: int
    reservation: str
    version: int
    hosts: dict[str, int]
    whole: bool  # the hosts are for this reservation alone
    size: ResourceSize  # of each unit
    returning: bool = False  # it may still hold more: report when it no longer does


@dataclass(frozen=True, slots=True)
class HeldHost:
    """A host, or units of it, in the hands of a reservation."""

    host: str
    reservation: str
    units: int
    token: str
    generation: int


class HostFailed(Rejected):
    """The provider has given up a host: its leases need others."""

    def __init__(self, host: str, message: str) -> None:
        super().__init__(message)
        self.host = host


class HostProvider(Protocol):
    """The provider that hands over hosts and instances to tenants."""

    @property
    def hands_over_at_once(self) -> bool:
        """Whether an order is usually done when it is answered, so that trying it before anything else is worth it."""
        ...

    async def set_reservation_hosts(self, holding: DesiredHolding) -> None:
        """Makes the reservation hold exactly this. Repeatable; raises a ProviderError, or Superseded."""
        ...


class HeldHostRegister(Protocol):
    """The provider's own record of who holds which host."""

    async def take_back_hosts(self, reservation: str, generation: int) -> int:
        """Takes back all hosts that a reservation holds, and refuses orders of earlier generations. Returns how many it
        held.
        """
        ...

    async def list_existing_objects(self, prefix: str, after: tuple[str, str]) -> list[HeldHost]:
        """Returns a page of the hosts that reservations at or below a path hold, sorted by reservation and host.

        `after` is the last (reservation, host) of the page before.
        """
        ...


class HostSite(HostProvider, HeldHostRegister, Protocol):
    """Everything that leases need of the site of the hosts."""

    async def list_held_hosts(self, reservations: Sequence[str]) -> Sequence[HeldHost]:
        """Returns what these reservations hold."""
        ...


class HoldingsStore(Protocol):
    """The store's protocol for host hand-over: what reservations should hold."""

    async def read_holdings(self, order: HandOverOrder) -> list[DesiredHolding]:
        """Returns what these reservations should hold. Raises Superseded if the ordering action is over."""
        ...

    async def record_returned_hosts(self, holding: DesiredHolding) -> None:
        """Records that the reservation holds exactly this, so that all else it had is free."""
        ...


class EventSchedule(Protocol):
    """The store's protocol for a pool's clock: due events and their timers."""

    async def list_due_events(self, query: DueEventsQuery) -> DueEvents: ...

    async def filter_due_events(self, events: Sequence[DueEvent]) -> list[DueEvent]:
        """Returns the events that have neither been fired nor moved since."""
        ...


class ReservationView(FrozenModel):
    """One reservation of a lease: its hosts, and whether any are missing or were replaced since the start."""

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
    spec: dict[str, Any] = {}  # as it was asked for
    created_at: datetime | None = None
    changed_at: datetime | None = None


class EventView(FrozenModel):
    """One event of a lease: when it is due, and its status."""

    name: str
    status: str
    due: datetime
    error: str = ""
    created_at: datetime | None = None
    changed_at: datetime | None = None


class LeaseView(FrozenModel):
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
    requested_by: str = ""
    created_at: datetime | None = None
    changed_at: datetime | None = None


class LeasesView(FrozenModel):
    """A page of leases, as readers see them."""

    leases: list[LeaseView]


class CalendarQuery(SignedMessage):
    """Asks who holds what in a pool for a period; without dates, for the week that begins with the next event."""

    pool: str = "main"
    start: str = ""
    end: str = ""
    limit: int = Field(200, ge=1, le=2_000)


class Occupancy(FrozenModel):
    """A lease holds a host, or a part of it, for a period."""

    lease: str
    start: datetime
    end: datetime
    units: int
    whole: bool
    reservation: str = ""

    @property
    def path(self) -> str:
        """Returns the lease's path: by it the authorizer decides who may see this."""
        return self.lease


# The order in which bookings are read: host, end, number.
BookingKey = tuple[str, datetime, int]
FIRST_BOOKING: BookingKey = ("", datetime(1970, 1, 1, tzinfo=UTC), 0)


@dataclass(frozen=True, slots=True)
class HostBooking:
    """A lease has booked a whole host for a period."""

    id: int
    host: str
    lease: str
    start: datetime
    end: datetime

    @property
    def key(self) -> BookingKey:
        return self.host, self.end, self.id


class HostOccupancy(FrozenModel):
    """A host in the calendar, and the leases that hold it."""

    host: str
    status: str
    stretches: list[Occupancy] = []


class CalendarView(FrozenModel):
    """A pool's calendar: who holds its hosts during a period; `left_out` counts hosts that are not shown."""

    pool: str
    start: datetime
    end: datetime
    hosts: list[HostOccupancy]
    left_out: int = 0


class PrivatePropertiesQuery(SignedMessage):
    """Asks which properties of a pool's hosts are private."""

    pool: str

    @property
    def path_to_authorize(self) -> str:
        return f"pool:{self.pool}"


class PrivatePropertiesView(FrozenModel):
    """The names of properties that the Blazar API shows only to those who may update the pool's hosts."""

    names: list[str]
