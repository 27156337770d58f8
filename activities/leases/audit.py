"""Audit of leases: against the relationship table, against each other, and against the hosts' tenants."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from domain.leases.messages import HostOccupancy, LeaseView
from domain.leases.tables import ReservationStatus, describe_contradiction
from domain.model import InvariantViolation

PAGE_SIZE = 200


class LeaseSource(Protocol):
    """The inventory's side of the audit, in pages: leases, and booked periods by host."""

    async def read_leases(self, prefix: str, after: str, limit: int) -> list[LeaseView]: ...

    async def list_occupancies(self, prefix: str, after: str, limit: int) -> list[HostOccupancy]: ...


class TenantRow(Protocol):
    """A tenancy as the host provider reports it: a host, and the reservation that holds it."""

    @property
    def host(self) -> str: ...

    @property
    def reservation(self) -> str: ...


class TenantSource(Protocol):
    """The provider's side of the audit: which reservation holds which host."""

    async def held(self, reservations: Sequence[str]) -> Sequence[TenantRow]:
        """Returns the tenancies of these reservations."""
        ...


class LeaseAudit:
    """Audits I3 (each host is held by the right reservation, and by one) and I4 (relationship table) for leases."""

    def __init__(self, leases: LeaseSource, books: TenantSource) -> None:
        self._leases = leases
        self._books = books

    async def find_violations(self, prefix: str) -> tuple[list[InvariantViolation], int]:
        """Returns violations at or below a path, and the number of hosts held there."""
        findings, size, page = list[InvariantViolation](), 0, list[LeaseView]()
        while page := await self._leases.read_leases(prefix, page[-1].path if page else "", PAGE_SIZE):
            findings += [finding for lease in page for finding in _find_contradictions(lease)]
            paths = [
                f"{lease.path}:reservation:{reservation.id}" for lease in page for reservation in lease.reservations
            ]
            held = {(row.host, row.reservation) for row in await self._books.held(paths)}
            findings += _differences({pair for lease in page for pair in _expected_tenancies(lease)}, held)
            size += len(held)
        hosts: list[HostOccupancy] = []
        while hosts := await self._leases.list_occupancies(prefix, hosts[-1].host if hosts else "", PAGE_SIZE):
            findings += find_double_bookings(hosts)
        return findings, size


def _differences(wanted: set[tuple[str, str]], held: set[tuple[str, str]]) -> Iterable[InvariantViolation]:
    """Compares what the hosts' provider has with the records. What no record knows, the listing of orphans tells."""
    for host, path in sorted(wanted - held):
        yield InvariantViolation("I3", path, f"should hold {host}, and does not")
    for host, path in sorted(held - wanted):
        yield InvariantViolation("I3", path, f"holds {host}, and should not")


def _find_contradictions(lease: LeaseView) -> Iterable[InvariantViolation]:
    events = {event.name: event.status for event in lease.events}
    wrong = describe_contradiction(lease.status, [reservation.status for reservation in lease.reservations], events)
    return [InvariantViolation("I4", lease.path, wrong)] if wrong else []


def _expected_tenancies(lease: LeaseView) -> set[tuple[str, str]]:
    return {
        (f"pool:{lease.pool}:host:{host}", f"{lease.path}:reservation:{reservation.id}")
        for reservation in lease.reservations
        if reservation.status == ReservationStatus.ACTIVE
        for host in reservation.hosts
    }


def find_double_bookings(hosts: Sequence[HostOccupancy]) -> Iterable[InvariantViolation]:
    """Yields whole hosts that two leases have booked for the same time."""
    for line in hosts:
        whole = sorted(
            (stretche for stretche in line.stretches if stretche.whole), key=lambda occupancy: occupancy.start
        )
        last = None  # the period so far that ends last
        for occupancy in whole:
            if last and occupancy.start < last.end and occupancy.lease != last.lease:  # its own: an update moves it
                yield InvariantViolation("I3", line.host, f"is booked twice: {last.lease} and {occupancy.lease}")
            last = occupancy if last is None else max(last, occupancy, key=lambda one: one.end)
