"""The specs of the lease family's actions, and the checks of their dates."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from domain.errors import Category, Refused
from domain.leases.dates import format_date, parse_date, start_of_minute
from domain.leases.properties import parse_condition
from domain.model import FrozenModel
from domain.validation import Name, ObjectPath

MAX_RESERVATIONS = 50
MAX_UNITS = 10_000
MAX_PROPERTIES = 50
DEFAULT_NOTICE = timedelta(minutes=60)  # how long before the end it is announced by default; not before the start


LeaseText = Annotated[str, Field(max_length=200)]
DateText = Annotated[str, Field(max_length=60)]
PropertyValue = Annotated[str, Field(max_length=100)] | int | float | bool
PropertyName = Annotated[str, Field(min_length=1, max_length=63)]
Properties = Annotated[dict[PropertyName, PropertyValue], Field(max_length=MAX_PROPERTIES)]


class _UnitRange(FrozenModel):
    """A number of units: at least `min`, and up to `max` if there are as many."""

    min: int = Field(ge=1, le=MAX_UNITS)
    max: int = Field(0, ge=0, le=MAX_UNITS, description="the upper number; by default the same as min")

    @model_validator(mode="after")
    def _check_min_max(self) -> Self:
        if self.max and self.max < self.min:
            raise ValueError(f"max {self.max} is less than min {self.min}")
        return self


class _HostUnits(_UnitRange):
    """A number of hosts or instances with these properties."""

    min: int = Field(1, ge=1, le=MAX_UNITS)
    resource_properties: Properties | list[Any] = Field(
        default={}, description='{gpu: a100, vcpus: ">=32"}, or an expression: ["or", ["==", "$gpu", "a100"], …]'
    )

    @model_validator(mode="after")
    def _check_properties(self) -> Self:
        parse_condition(self.resource_properties)
        return self

    @property
    def max_units(self) -> int:
        return self.max or self.min


class HostReservation(_HostUnits):
    """A reservation of whole hosts, each for one lease alone."""

    resource_type: Literal["physical:host"]


class Instances(_HostUnits):
    """A reservation of instances of one size, on hosts that may be shared."""

    resource_type: Literal["virtual:instance"]
    vcpus: int = Field(1, ge=1)
    memory_mb: int = Field(1024, ge=1)
    disk_gb: int = Field(0, ge=0)
    affinity: bool | None = Field(None, description="true: all on one host; false: each on another host")


class MciReservation(FrozenModel):
    """A reservation of an MCI: created or resumed at the start; suspended, terminated or deleted at the end."""

    resource_type: Literal["mci"]
    mci: ObjectPath
    spec: dict[str, Any] | None = None  # of an MCI to create
    on_end: Literal["suspend", "terminate", "delete"] = "terminate"


ReservationSpec = Annotated[HostReservation | Instances | MciReservation, Field(discriminator="resource_type")]


class LeaseSpec(FrozenModel):
    """The spec of `lease create`."""

    example = {
        "start": "now",
        "end": "+2h",
        "pool": "main",
        "reservations": [{"resource_type": "physical:host", "min": 1, "max": 1}],
    }

    name: LeaseText = Field("", description="a display name, which may change later")
    start: DateText = Field("now", description="now, +2h, in 2 hours, tomorrow 09:00, 2026-12-01 09:00 or ISO 8601")
    end: DateText = Field(description="like the start; +2h counts from now")
    before_end: DateText = Field("", description="when to announce the end; an hour before it if not given")
    pool: Name = Field("main", description="the pool of hosts to take from")
    hosts: int = Field(0, ge=0, le=MAX_UNITS, description="shorthand for one reservation of so many physical hosts")
    reservations: list[ReservationSpec] = Field(default=[], max_length=MAX_RESERVATIONS)

    @model_validator(mode="after")
    def _check_not_empty(self) -> Self:
        if bool(self.hosts) == bool(self.reservations):
            raise ValueError("say what to reserve: either hosts, or reservations")
        mcis = [reservation.mci for reservation in self.reservations if isinstance(reservation, MciReservation)]
        if len(set(mcis)) < len(mcis):
            raise ValueError("one MCI can be in one reservation only")
        return self

    def reservation_specs(self) -> list[HostReservation | Instances | MciReservation]:
        short = HostReservation(resource_type="physical:host", min=self.hosts) if self.hosts else None
        return [short] if short else list(self.reservations)


class Resize(_UnitRange):
    """A new size for one reservation, in `lease update`."""

    id: Name = Field("", description="the reservation, such as r1; optional if there is only one")


class LeaseChange(FrozenModel):
    """The spec of `lease update`: only what changes."""

    example = {"end": "+4h"}

    name: LeaseText | None = Field(None, description="another name")
    start: DateText | None = Field(None, description="another start; only before the lease has started")
    end: DateText | None = Field(None, description="another end; +2h counts from now")
    before_end: DateText | None = Field(None, description="another moment to announce the end")
    hosts: int | None = Field(None, ge=1, le=MAX_UNITS, description="another size, if there is one reservation")
    reservations: list[Resize] = Field(default=[], max_length=MAX_RESERVATIONS)

    @model_validator(mode="after")
    def _check_not_empty(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("say what to change: name, start, end, before_end, hosts or reservations")
        return self

    def list_resizes(self) -> list[Resize]:
        """Returns the new sizes; one without an id is for the only reservation."""
        short = [Resize(min=self.hosts)] if self.hosts else []
        return [*short, *self.reservations]

    def changes_only_name(self) -> bool:
        """Tells whether only the name changes."""
        return not (self.start or self.end or self.before_end or self.list_resizes())


class EventFiring(FrozenModel):
    """Identifies one firing of an event by its due date, so that a moved event is not fired by its old one."""

    due: DateText = Field("", description="set by the clock: when the event was due")


class _HostProperties(FrozenModel):
    """Properties of a host."""

    labels: LeaseText = Field("", description="properties as words: rack=7,gpu=a100")
    properties: Properties = {}

    @model_validator(mode="after")
    def _check_labels(self) -> Self:
        self.labels_and_properties()
        return self

    def labels_and_properties(self) -> dict[str, PropertyValue]:
        """Returns the properties, those that were given as words first."""
        words = [word.strip() for word in self.labels.split(",") if word.strip()]
        pairs = [word.partition("=")[::2] for word in words]
        if bad := [word for word, (name, value) in zip(words, pairs, strict=True) if not (name and value)]:
            raise ValueError(f"{bad[0]!a} is not a label: write name=value")
        return {**dict(pairs), **self.properties}


class HostUpdateSpec(_HostProperties):
    """The spec of `host update`: properties to add or to replace; the others stay."""

    example = {"properties": {"rack": "7"}}

    private: list[PropertyName] = Field(
        default=[], max_length=MAX_PROPERTIES, description="a property that the Blazar API hides, in the whole pool"
    )
    public: list[PropertyName] = Field(
        default=[], max_length=MAX_PROPERTIES, description="a property that it shows again"
    )

    @model_validator(mode="after")
    def _check_visibility(self) -> Self:
        if both := set(self.private).intersection(self.public):
            raise ValueError(f"{min(both)!a} cannot be both private and public")
        return self

    def visibility(self) -> dict[str, bool]:
        """Returns which properties become private (True) or public."""
        return dict.fromkeys(self.private, True) | dict.fromkeys(self.public, False)


class HostSpec(_HostProperties):
    """The spec of `host add`: sizes and properties of the host."""

    example = {"vcpus": 8, "memory_mb": 16384, "disk_gb": 100}

    vcpus: int = Field(16, ge=1)
    memory_mb: int = Field(65_536, ge=1)
    disk_gb: int = Field(1_000, ge=0)

    def all_properties(self) -> dict[str, PropertyValue]:
        """Returns the host's properties, including its sizes, so that a lease can ask for them."""
        sizes: dict[str, PropertyValue] = {"vcpus": self.vcpus, "memory_mb": self.memory_mb, "disk_gb": self.disk_gb}
        return {**self.labels_and_properties(), **sizes}

    def with_updated_properties(self, change: HostUpdateSpec) -> HostSpec:
        """Returns the spec of the same host with changed properties; refuses too many."""
        merged = {**self.labels_and_properties(), **change.labels_and_properties()}
        if len(merged) > MAX_PROPERTIES:
            raise Refused(
                Category.INVALID,
                f"a host with {len(merged)} properties: the limit is {MAX_PROPERTIES}",
                "leave some out",
            )
        return self.model_copy(update={"labels": "", "properties": merged})


@dataclass(frozen=True)
class LeaseLimits:
    """The quota of one project, and the longest lease."""

    longest: timedelta = timedelta(days=366)
    leases: int = 10_000  # per project, that have not ended
    hosts: int = 10_000  # held by one project at the same time


@dataclass(frozen=True)
class LeaseTerm:
    """The start and end of a lease, and when its end is announced."""

    start: datetime
    end: datetime
    before_end: datetime


def term_of_new_lease(spec: LeaseSpec, now: datetime, limits: LeaseLimits) -> LeaseTerm:
    """Returns the dates of a new lease; refuses dates that break a rule, which it names."""
    start, end = parse_date(spec.start, now, "start"), parse_date(spec.end, now, "end")
    if start < start_of_minute(now):
        raise _invalid_dates_refusal(
            f"the start {format_date(start)} is in the past: now is {format_date(now)}", "write --start now"
        )
    before_end = parse_date(spec.before_end, now, "before_end") if spec.before_end else max(start, end - DEFAULT_NOTICE)
    return check_term(LeaseTerm(start, end, before_end), limits)


def term_after_change(
    change: LeaseChange, old: LeaseTerm, started: bool, now: datetime, limits: LeaseLimits
) -> LeaseTerm:
    """Returns the dates of a lease after a change; refuses dates that break a rule."""
    start = parse_date(change.start, now, "start") if change.start else old.start
    end = parse_date(change.end, now, "end") if change.end else old.end
    if started and start != old.start:
        raise _invalid_dates_refusal(
            f"the lease started at {format_date(old.start)}: its start cannot change any more",
            "change the end, or create another lease",
        )
    if start != old.start and start < start_of_minute(now):
        raise _invalid_dates_refusal(
            f"the start {format_date(start)} is in the past: now is {format_date(now)}", "write --start now"
        )
    if end != old.end and end < start_of_minute(now):
        raise _invalid_dates_refusal(
            f"the end {format_date(end)} is in the past: now is {format_date(now)}", "write --end now, or end the lease"
        )
    if change.before_end:
        before_end = parse_date(change.before_end, now, "before_end")
    else:  # the announcement keeps its distance to the end
        before_end = max(start, end - (old.end - old.before_end))
    return check_term(LeaseTerm(start, end, before_end), limits)


def check_term(dates: LeaseTerm, limits: LeaseLimits) -> LeaseTerm:
    """Returns the dates; refuses those that break a rule, which it names."""
    start, end, before_end = dates.start, dates.end, dates.before_end
    if end <= start:
        what = "has no length" if end == start else "ends before it starts"
        raise _invalid_dates_refusal(
            f"the lease {what}: start {format_date(start)}, end {format_date(end)}", "the end must be after the start"
        )
    if end - start > limits.longest:
        raise _invalid_dates_refusal(
            f"the lease would last {end - start}: the limit is {limits.longest}", "ask for a shorter lease"
        )
    if not start <= before_end <= end:
        raise _invalid_dates_refusal(
            f"before_end {format_date(before_end)} is outside the lease, which lasts from "
            f"{format_date(start)} to {format_date(end)}",
            "the end is announced between the start and the end",
        )
    return dates


def _invalid_dates_refusal(message: str, hint: str) -> Refused:
    return Refused(Category.INVALID, message, hint)
