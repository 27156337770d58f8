"""Audit of leases: against the relationship table, against each other, and against the hosts' tenants."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from domain.invariants import InvariantViolation
from domain.leases.messages import FIRST_BOOKING, BookingKey, HostBooking, HostSite, LeaseView
from domain.leases.tables import ReservationStatus, describe_contradiction

PAGE_SIZE = 200


class LeaseSource(Protocol):
    """The inventory's side of the audit, in pages: leases, and booked periods."""

    async def read_leases(self, prefix: str, after: str, limit: int) -> list[LeaseView]: ...

    async def list_bookings(self, prefix: str, after: BookingKey, limit: int) -> list[HostBooking]:
        """Returns bookings of whole hosts after a key, in the order of their keys."""
        ...


class LeaseAudit:
    """Audits I3 (each host is held by the right reservation, and by one) and I4 (relationship table) for leases."""

    def __init__(self, leases: LeaseSource, hosts: HostSite) -> None:
        self._leases = leases
        self._hosts = hosts

    async def find_violations(self, prefix: str) -> tuple[list[InvariantViolation], int]:
        """Returns violations at or below a path, and the number of hosts held there."""
        findings, size, page = list[InvariantViolation](), 0, list[LeaseView]()
        while page := await self._leases.read_leases(prefix, page[-1].path if page else "", PAGE_SIZE):
            for lease in page:
                events = {event.name: event.status for event in lease.events}
                statuses = [reservation.status for reservation in lease.reservations]
                if wrong := describe_contradiction(lease.status, statuses, events):
                    findings.append(InvariantViolation("I4", lease.path, wrong))
            paths = [
                f"{lease.path}:reservation:{reservation.id}" for lease in page for reservation in lease.reservations
            ]
            held = {(row.host, row.reservation) for row in await self._hosts.list_held_hosts(paths)}
            findings += _find_tenancy_differences({pair for lease in page for pair in _expected_tenancies(lease)}, held)
            size += len(held)
        checker, after = DoubleBookingChecker(), FIRST_BOOKING
        while booked := await self._leases.list_bookings(prefix, after, PAGE_SIZE):
            findings += [finding for booking in booked for finding in checker.check_booking(booking)]
            after = booked[-1].key
        return findings, size


def _find_tenancy_differences(wanted: set[tuple[str, str]], held: set[tuple[str, str]]) -> Iterable[InvariantViolation]:
    """Compares what the hosts' provider has with the records. What no record knows, the listing of orphans tells."""
    for host, path in sorted(wanted - held):
        yield InvariantViolation("I3", path, f"should hold {host}, and does not")
    for host, path in sorted(held - wanted):
        yield InvariantViolation("I3", path, f"holds {host}, and should not")


def _expected_tenancies(lease: LeaseView) -> set[tuple[str, str]]:
    return {
        (f"pool:{lease.pool}:host:{host}", f"{lease.path}:reservation:{reservation.id}")
        for reservation in lease.reservations
        if reservation.status == ReservationStatus.ACTIVE
        for host in reservation.hosts
    }


class DoubleBookingChecker:
    """Finds whole hosts that two leases have booked for the same time. Bookings must come in the order of their keys.

    A booking overlaps an earlier one, which ends before it, if it starts before that one's end. So of the earlier ones
    only those that end last matter: one of each of two leases, as a lease may overlap itself while an update moves it.
    """

    def __init__(self) -> None:
        self._latest: list[HostBooking] = []

    def check_booking(self, booking: HostBooking) -> Iterable[InvariantViolation]:
        others = [each for each in self._latest if (each.host, each.lease) != (booking.host, booking.lease)]
        self._latest = [booking, *(each for each in others if each.host == booking.host)][:2]
        return [
            InvariantViolation("I3", booking.host, f"is booked twice: {each.lease} and {booking.lease}")
            for each in others
            if each.host == booking.host and booking.start < each.end
        ]
