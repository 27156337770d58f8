"""Blazar's JSON: the bodies that its clients send, and leases, hosts and allocations as they expect them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from domain.leases.messages import EventView, HostOccupancy, LeaseView, ReservationView
from domain.leases.names import event_path
from domain.leases.properties import condition_as_list, parse_condition
from domain.leases.specs import HostSpec
from domain.model import ObjectView
from domain.paths import name_of

DATE_OUT = "%Y-%m-%dT%H:%M:%S.%f"  # UTC without a zone: the client parses exactly this
TIME_OUT = "%Y-%m-%d %H:%M:%S"
_DATE_IN = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")
_OUR_PROPERTY = {"$hypervisor_hostname": "$name", "$local_gb": "$disk_gb"}
Ids = Mapping[str, str]  # path -> id


def _check_date(text: str) -> str:
    if text != "now" and not _DATE_IN.fullmatch(text):
        raise ValueError(f"{text[:40]!a} is not a date: write now, or YYYY-MM-DD HH:MM in UTC")
    return text


def _parse_properties(text: object) -> list[Any]:
    """Parses a property expression, which is a text that holds a JSON list, into one with our names."""
    if not isinstance(text, str):
        raise ValueError('a property expression is a text, such as ["==", "$gpu", "True"]')
    if not text.strip():
        return []
    try:
        words = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{text[:40]!a} is not JSON") from error
    if not isinstance(words, list):
        raise ValueError('a property expression is a JSON list, such as ["==", "$gpu", "True"]')
    parse_condition(words)
    return _rename_properties(words)


def _rename_properties(words: list[Any]) -> list[Any]:
    return [
        _rename_properties(word) if isinstance(word, list) else _OUR_PROPERTY.get(str(word), word) for word in words
    ]


def _parse_affinity(value: object) -> bool | None:
    known = {"none": None, "": None, "true": True, "false": False}
    if (word := str(value).lower()) not in known:
        raise ValueError("affinity is None, True or False")
    return known[word]


DateIn = Annotated[str, AfterValidator(_check_date)]
PropertiesIn = Annotated[list[Any], BeforeValidator(_parse_properties)]
AffinityIn = Annotated[bool | None, BeforeValidator(_parse_affinity)]


class BlazarBody(BaseModel):
    """A body, or a part of one: a field that we do not know is an error."""

    model_config = ConfigDict(extra="forbid")


class HostReservationBody(BlazarBody):
    """A reservation of whole hosts."""

    resource_type: Literal["physical:host"]
    min: int
    max: int
    hypervisor_properties: PropertiesIn = []
    resource_properties: PropertiesIn = []
    before_end: Literal["", "default"] | None = None

    def to_spec(self) -> dict[str, Any]:
        """Returns the spec of our reservation."""
        parts = [part for part in (self.hypervisor_properties, self.resource_properties) if part]
        wanted = ["and", *parts] if len(parts) > 1 else parts[0] if parts else []
        return {
            "resource_type": self.resource_type,
            "min": self.min,
            "max": self.max,
            "resource_properties": wanted,
        }


class InstanceReservationBody(BlazarBody):
    """A reservation of instances of one size."""

    resource_type: Literal["virtual:instance"]
    amount: int
    vcpus: int
    memory_mb: int
    disk_gb: int
    affinity: AffinityIn = None
    resource_properties: PropertiesIn = []

    def to_spec(self) -> dict[str, Any]:
        """Returns the spec of our reservation."""
        return {**self.model_dump(exclude={"amount"}), "min": self.amount, "max": self.amount}


class LeaseBody(BlazarBody):
    """A new lease."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    start_date: DateIn = "now"
    end_date: DateIn
    before_end_date: DateIn | None = None
    reservations: list[Annotated[HostReservationBody | InstanceReservationBody, Field(discriminator="resource_type")]]
    events: Annotated[list[dict[str, Any]], Field(max_length=0)] = []  # a lease has its own events only

    def to_spec(self, pool: str) -> dict[str, Any]:
        """Returns the spec of our lease."""
        return {
            "name": self.name,
            "start": self.start_date,
            "end": self.end_date,
            "before_end": self.before_end_date or "",
            "pool": pool,
            "reservations": [reservation.to_spec() for reservation in self.reservations],
        }


class ReservationChangeBody(BaseModel):
    """New numbers for a reservation; other fields must be as they are."""

    model_config = ConfigDict(extra="allow")

    id: str
    min: int | None = None
    max: int | None = None
    amount: int | None = None


class LeaseChangeBody(BlazarBody):
    """What changes in a lease."""

    name: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    start_date: DateIn | None = None
    end_date: DateIn | None = None
    before_end_date: DateIn | None = None
    reservations: list[ReservationChangeBody] = []


class PropertyBody(BlazarBody):
    """What changes of a property of hosts."""

    private: bool


class HostBody(BaseModel):
    """A new host, or the changed values of one: sizes, and any other names as its properties."""

    model_config = ConfigDict(extra="allow")

    name: str = ""
    vcpus: int | None = None
    memory_mb: int | None = None
    local_gb: int | None = None

    def sizes(self) -> dict[str, int]:
        """Returns the sizes that are given, by our names."""
        found = {"vcpus": self.vcpus, "memory_mb": self.memory_mb, "disk_gb": self.local_gb}
        return {name: value for name, value in found.items() if value is not None}

    def properties(self) -> dict[str, Any]:
        """Returns all other values."""
        return dict(self.model_extra or {})


def lease_json(lease: LeaseView, project: str, ids: Ids) -> dict[str, Any]:
    """Returns a lease as Blazar shows it."""
    own = ids[lease.path]
    paths = {reservation.id: f"{lease.path}:reservation:{reservation.id}" for reservation in lease.reservations}
    return {
        "id": own,
        "name": lease.name,
        "start_date": lease.start.strftime(DATE_OUT),
        "end_date": lease.end.strftime(DATE_OUT),
        "status": lease.status,
        "degraded": lease.degraded,
        "user_id": lease.requested_by,
        "project_id": project,
        "trust_id": None,
        **_render_times(lease),
        "reservations": [reservation_json(each, ids[paths[each.id]], own) for each in lease.reservations],
        "events": [_event_json(each, ids[event_path(lease.path, each.name)], own) for each in lease.events],
    }


def paths_of_lease_parts(lease: LeaseView) -> list[str]:
    """Returns the paths of a lease and of its parts."""
    reservations = [f"{lease.path}:reservation:{each.id}" for each in lease.reservations]
    return [lease.path, *reservations, *(event_path(lease.path, event.name) for event in lease.events)]


def reservation_json(reservation: ReservationView, own: str, lease: str) -> dict[str, Any]:
    """Returns a reservation with the fields of its type."""
    return {
        "id": own,
        "lease_id": lease,
        "status": reservation.status,
        "missing_resources": reservation.missing_resources,
        "resources_changed": reservation.resources_changed,
        "resource_id": own,
        "resource_type": reservation.resource_type,
        **_render_times(reservation),
        **_render_type_fields(reservation),
    }


def _render_type_fields(reservation: ReservationView) -> dict[str, Any]:
    spec, wanted = reservation.spec, reservation.spec.get("resource_properties", [])
    if isinstance(wanted, dict):  # of a lease that another client made
        wanted = condition_as_list(parse_condition(wanted))
    properties = json.dumps(wanted) if wanted else ""
    if reservation.resource_type == "physical:host":
        bounds = {"min": reservation.min, "max": reservation.max}
        return {**bounds, "hypervisor_properties": "", "resource_properties": properties, "before_end": "default"}
    if reservation.resource_type == "virtual:instance":
        size = {name: spec[name] for name in ("vcpus", "memory_mb", "disk_gb")}
        affinity = spec.get("affinity")
        return {"amount": reservation.max, **size, "affinity": affinity, "resource_properties": properties}
    return {"mci": reservation.mci}


def _event_json(event: EventView, own: str, lease: str) -> dict[str, Any]:
    time = event.due.strftime(DATE_OUT)
    return {
        "id": own,
        "lease_id": lease,
        "event_type": event.name,
        "time": time,
        "status": event.status,
        **_render_times(event),
    }


def host_json(view: ObjectView, own: str, hidden: Collection[str] = ()) -> dict[str, Any]:
    """Returns a host as Blazar shows it, with its properties beside the usual fields, except the hidden ones."""
    spec, name = HostSpec.model_validate(view.spec), name_of(view.path)
    usual = {
        "id": own,
        "hypervisor_hostname": name,
        "service_name": name,
        "vcpus": spec.vcpus,
        "memory_mb": spec.memory_mb,
        "local_gb": spec.disk_gb,
        "hypervisor_type": "ratchet",
        "hypervisor_version": 1,
        "cpu_info": "",
        "reservable": view.status == "UP",
        "status": view.status,
        "trust_id": None,
        "created_at": view.created_at.strftime(TIME_OUT),
        "updated_at": view.changed_at.strftime(TIME_OUT),
    }
    extra = {name: value for name, value in extra_host_properties(view).items() if name not in hidden}
    return {**extra, **usual}


def extra_host_properties(view: ObjectView) -> dict[str, str]:
    """Returns the properties of a host besides its sizes."""
    found = HostSpec.model_validate(view.spec).all_properties()
    return {name: str(value) for name, value in found.items() if name not in ("vcpus", "memory_mb", "disk_gb")}


def allocation_json(host: HostOccupancy, own: str, ids: Ids) -> dict[str, Any]:
    """Returns who has booked a host, from now on."""
    reservations = [
        {
            "id": ids[each.reservation],
            "lease_id": ids[each.lease],
            "start_date": each.start.strftime(DATE_OUT),
            "end_date": each.end.strftime(DATE_OUT),
        }
        for each in host.stretches
    ]
    return {"resource_id": own, "reservations": reservations}


def _render_times(view: LeaseView | ReservationView | EventView) -> dict[str, str | None]:
    moments = {"created_at": view.created_at, "updated_at": view.changed_at}
    return {name: _format_time(at) for name, at in moments.items()}


def _format_time(at: datetime | None) -> str | None:
    return at.astimezone(UTC).strftime(TIME_OUT) if at else None
